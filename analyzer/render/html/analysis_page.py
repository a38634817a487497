"""The page of an analysis: an index of kernels where they are several, and a panel for each kernel.

A panel is a template of its own with two parts: markup, and data for the script (the listing as columns,
curves of the sliders). One kernel's panel stands in the page. Those of several are inert until they are
chosen, and from 512 KB on they are compressed; only the chosen one is in the document.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec
from markupsafe import Markup
from msgspec import Struct

from analyzer.render.html.embedding import deflate, embed_json
from analyzer.render.html.kernel_panel import make_kernel_panel
from analyzer.render.html.listing_columns import ListingColumns, make_listing_columns, round_digits
from analyzer.render.html.page import render_page, render_part
from analyzer.render.html.roofline_data import RooflinePoint, make_roofline_point
from analyzer.report.analyze_schema import (
    CurvePoint,
    HardwareCurve,
    KernelReport,
    PredictionEntry,
    Report,
)

_MAX_PLAIN_CHARS = 512 * 1024  # of all panels and their data; beyond, they are compressed
_MAX_LISTED_INSTRUCTIONS = (
    400_000  # of a page; the listings of the kernels with least cycles are left out beyond
)


class View(Struct, frozen=True, kw_only=True):
    """A GPU and a model: what the page's selector chooses."""

    gpu: str
    model: str
    name: str


class PanelData(Struct, frozen=True, kw_only=True):
    """Data of a kernel for the script."""

    listing: ListingColumns | None
    curves: tuple[HardwareCurve, ...]


class PageData(Struct, frozen=True, kw_only=True):
    """Data of the page for the script."""

    kind: str
    views: tuple[View, ...]
    names: tuple[str, ...]  # of the kernels
    points: tuple[RooflinePoint, ...]


class IndexRow(Struct, frozen=True, kw_only=True):
    """A prediction of a kernel, or a kernel without any, in the table of kernels."""

    index: int
    view: int | None
    kernel: KernelReport
    entry: PredictionEntry | None
    share: float  # of the largest time of the view


class EmbeddedPanel(Struct, frozen=True, kw_only=True):
    """A panel as it stands in the page."""

    index: int
    markup: Markup | str
    data: Markup | str
    is_markup_deflated: bool
    is_data_deflated: bool


def render_analysis_page(report: Report) -> str:
    """Return the page of a report."""
    views = _list_views(report)
    numbers = {(view.gpu, view.model): number for number, view in enumerate(views)}
    listed = _choose_listed(report.kernels)
    rendered = [
        _render_panel(index, kernel, numbers, has_listing=index in listed, report=report)
        for index, kernel in enumerate(report.kernels)
    ]
    return render_page(
        "analysis.html",
        _make_title(report),
        {
            "report": report,
            "views": views,
            "rows": _make_index_rows(report.kernels, numbers),
            "panels": _embed_panels(rendered),
            "is_single": len(report.kernels) == 1,
            "data": PageData(
                kind="analyze",
                views=views,
                names=tuple(kernel.demangled or kernel.name for kernel in report.kernels),
                points=tuple(_iterate_points(report.kernels, numbers)),
            ),
        },
    )


def _make_title(report: Report) -> str:
    names = [PurePath(entry.path).name or entry.path for entry in report.inputs]
    return names[0] if len(names) == 1 else f"{len(report.kernels)} kernels"


def _list_views(report: Report) -> tuple[View, ...]:
    found: dict[tuple[str, str], str] = {}
    for kernel in report.kernels:
        for entry in kernel.predictions:
            found.setdefault((entry.gpu, entry.model), entry.gpu_name)
    has_models = len({model for _, model in found}) > 1
    return tuple(
        View(gpu=gpu, model=model, name=f"{name}, {model}" if has_models else name)
        for (gpu, model), name in found.items()
    )


def _choose_listed(kernels: Sequence[KernelReport]) -> frozenset[int]:
    """Return the kernels whose listings the page has: as many as fit, those with most cycles first."""

    def get_cost(index: int) -> float:
        return kernels[index].predictions[0].cycles if kernels[index].predictions else 0.0

    chosen, total = set[int](), 0
    for index in sorted(range(len(kernels)), key=lambda index: (-get_cost(index), index)):
        total += len(kernels[index].listing)
        if total > _MAX_LISTED_INSTRUCTIONS:
            break
        chosen.add(index)
    return frozenset(chosen)


def _render_panel(
    index: int,
    kernel: KernelReport,
    numbers: Mapping[tuple[str, str], int],
    *,
    has_listing: bool,
    report: Report,
) -> tuple[str, str]:
    """Return the markup of a panel and its data."""
    panel = make_kernel_panel(index, kernel, numbers)
    markup = render_part(
        "kernel.html",
        {"panel": panel, "kernel": kernel, "has_listing": has_listing and kernel.listing, "report": report},
    )
    data = PanelData(
        listing=make_listing_columns(kernel.listing) if has_listing and kernel.listing else None,
        curves=tuple(map(_round_curve, kernel.hardware_curves)),
    )
    return markup, embed_json(data)


def _round_curve(curve: HardwareCurve) -> HardwareCurve:
    return msgspec.structs.replace(curve, points=tuple(map(_round_point, curve.points)))


def _round_point(point: CurvePoint) -> CurvePoint:
    return msgspec.structs.replace(
        point,
        cpi_stack={
            stall: round_digits(cycles, 4) for stall, cycles in point.cpi_stack.items() if cycles >= 1
        },
    )


def _embed_panels(rendered: Sequence[tuple[str, str]]) -> tuple[EmbeddedPanel, ...]:
    is_large = sum(len(part) for parts in rendered for part in parts) > _MAX_PLAIN_CHARS
    packs_markup = is_large and len(rendered) > 1
    return tuple(
        EmbeddedPanel(
            index=index,
            markup=deflate(markup) if packs_markup else Markup(markup),
            data=deflate(data) if is_large else Markup(data),
            is_markup_deflated=packs_markup,
            is_data_deflated=is_large,
        )
        for index, (markup, data) in enumerate(rendered)
    )


def _make_index_rows(
    kernels: Sequence[KernelReport], numbers: Mapping[tuple[str, str], int]
) -> tuple[IndexRow, ...]:
    """Return the rows by view, most time first; kernels without a prediction last."""
    most: dict[int, float] = {}
    for kernel in kernels:
        for entry in kernel.predictions:
            view = numbers[entry.gpu, entry.model]
            most[view] = max(most.get(view, 0.0), entry.time_us)
    rows = [
        IndexRow(
            index=index,
            view=(view := numbers[entry.gpu, entry.model]),
            kernel=kernel,
            entry=entry,
            share=entry.time_us / most[view] if most[view] else 0.0,
        )
        for index, kernel in enumerate(kernels)
        for entry in kernel.predictions
    ]
    rows.sort(key=lambda row: (row.view, -(row.entry.time_us if row.entry else 0.0), row.index))
    rows += [
        IndexRow(index=index, view=None, kernel=kernel, entry=None, share=0.0)
        for index, kernel in enumerate(kernels)
        if not kernel.predictions
    ]
    return tuple(rows)


def _iterate_points(
    kernels: Sequence[KernelReport], numbers: Mapping[tuple[str, str], int]
) -> Sequence[RooflinePoint]:
    found = [
        make_roofline_point(index, numbers[entry.gpu, entry.model], kernel, entry)
        for index, kernel in enumerate(kernels)
        for entry in kernel.predictions
    ]
    return [point for point in found if point is not None]
