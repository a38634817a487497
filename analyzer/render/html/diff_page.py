"""The page of a diff: how many kernels changed and whether it matters, then each kernel with its evidence."""

from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath

from msgspec import Struct

from analyzer.render.html.kernel_panel import Segment, make_stack
from analyzer.render.html.listing_columns import ListingColumns, make_listing_columns
from analyzer.render.html.page import render_page
from analyzer.report.diff_schema import AlignedLine, DiffReport, DiffSide, GpuChange, KernelDiff, Verdict

_SHOWN_VERDICTS = (Verdict.SIGNIFICANT, Verdict.UNCLEAR, Verdict.BENIGN, Verdict.UNCHANGED)
_MAX_OPEN_KERNELS = 3


class StackPair(Struct, frozen=True, kw_only=True):
    """Stacks of both sides on one scale, and the stalls that changed most."""

    change: GpuChange
    old: tuple[Segment, ...]
    new: tuple[Segment, ...]
    old_scale: float  # of the longer side
    new_scale: float
    stalls: tuple[tuple[str, float, float], ...]  # name, old and new cycles, the largest change first


class AlignedData(Struct, frozen=True, kw_only=True):
    """An aligned listing for the script: rows of both sides; -1 where a side has none."""

    old: ListingColumns
    new: ListingColumns
    pairs: tuple[tuple[int, int], ...]
    kinds: tuple[str, ...]


class DiffPanel(Struct, frozen=True, kw_only=True):
    """One kernel of the page."""

    index: int
    kernel: KernelDiff
    stacks: tuple[StackPair, ...]
    aligned: AlignedData | None
    is_open: bool


def render_diff_page(report: DiffReport) -> str:
    """Return the page of a report."""
    n_by_verdict = Counter(kernel.verdict for kernel in report.kernels)
    n_by_status = Counter(kernel.status.value for kernel in report.kernels)
    return render_page(
        "diff.html",
        f"{_name_side(report.old)} → {_name_side(report.new)}",
        {
            "report": report,
            "counts": [(verdict.value, n_by_verdict.get(verdict, 0)) for verdict in _SHOWN_VERDICTS],
            "statuses": sorted(n_by_status.items()),
            "panels": [_make_panel(index, kernel) for index, kernel in enumerate(report.kernels)],
            "data": {"kind": "diff"},
        },
    )


def _name_side(side: DiffSide) -> str:
    names = [PurePath(entry.path).name or entry.path for entry in side.inputs]
    return names[0] if len(names) == 1 else f"{side.kernels} kernels"


def _make_panel(index: int, kernel: KernelDiff) -> DiffPanel:
    return DiffPanel(
        index=index,
        kernel=kernel,
        stacks=tuple(map(_make_stack_pair, kernel.predictions)),
        aligned=_make_aligned_data(kernel.listing) if kernel.listing else None,
        is_open=index < _MAX_OPEN_KERNELS and kernel.verdict is not Verdict.UNCHANGED,
    )


def _make_stack_pair(change: GpuChange) -> StackPair:
    longest = max(change.old_time_us, change.new_time_us) or 1.0
    return StackPair(
        change=change,
        old=make_stack(change.old_cpi_stack, change.old_cycles),
        new=make_stack(change.new_cpi_stack, change.new_cycles),
        old_scale=change.old_time_us / longest,
        new_scale=change.new_time_us / longest,
        stalls=_list_stalls(change.old_cpi_stack, change.new_cpi_stack),
    )


def _list_stalls(old: Mapping[str, float], new: Mapping[str, float]) -> tuple[tuple[str, float, float], ...]:
    rows = [(name, old.get(name, 0.0), new.get(name, 0.0)) for name in {**old, **new}]
    return tuple(sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0])))


def _make_aligned_data(lines: tuple[AlignedLine, ...]) -> AlignedData:
    old, new = [line.old for line in lines if line.old], [line.new for line in lines if line.new]
    pairs, n_old, n_new = [], 0, 0
    for line in lines:
        pairs.append((n_old if line.old else -1, n_new if line.new else -1))
        n_old, n_new = n_old + (line.old is not None), n_new + (line.new is not None)
    return AlignedData(
        old=make_listing_columns(old),
        new=make_listing_columns(new),
        pairs=tuple(pairs),
        kinds=tuple(line.kind for line in lines),
    )
