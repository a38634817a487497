"""Reports as short texts and as HTML for notebooks; names come from the input, so all text is escaped."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analyzer.models.prediction_figures import PredictionFigures
from analyzer.text.escaping import escape_controls

_MAX_ROWS = 50
_MAX_NAMES = 3
_PREDICTION_HEADS = ("GPU", "model", "cycles", "time us", "low", "high", "bound", "occupancy")


class KernelTitle(NamedTuple):
    """What a kernel is called by."""

    name: str
    architecture: str
    n_instructions: int


def describe_kernel(title: KernelTitle, predictions: Sequence[PredictionFigures]) -> str:
    """Return `KernelReport(matmul, sm_90a, 576 instructions: 28.3 us on H100 SXM)`."""
    times = [f"{p.time_us:.4g} us on {p.gpu_name} ({p.model})" for p in predictions[:_MAX_NAMES]]
    more = ["..."] if len(predictions) > _MAX_NAMES else []
    found = f": {', '.join(times + more)}" if times else ""
    name, arch = escape_controls(title.name), title.architecture or "architecture ?"
    return f"KernelReport({name}, {arch}, {title.n_instructions:,} instructions{found})"


def describe_report(paths: Sequence[str], n_kernels: int, gpus: Iterable[str], n_warnings: int) -> str:
    """Return `Report(2 kernels of k.sass on H100 SXM, 1 warning)`."""
    inputs = map(escape_controls, paths[:_MAX_NAMES])
    names = list(dict.fromkeys(gpus))[:_MAX_NAMES]
    text = f"{_count(n_kernels, 'kernel')} of {', '.join(inputs)}"
    text += f" on {', '.join(names)}" if names else ""
    text += f", {_count(n_warnings, 'warning')}" if n_warnings else ""
    return f"Report({text})"


def render_kernel_html(
    title: KernelTitle,
    facts: Iterable[str],
    predictions: Sequence[PredictionFigures],
    cpi_stack: Mapping[str, float],
    notes: Sequence[str],
) -> str:
    """Return the facts, the predictions, the stalls (cycles) and the notes of a kernel."""
    own = (title.architecture or "architecture ?", f"{title.n_instructions:,} instructions", *facts)
    parts = [f"<p><b>{escape_html(title.name)}</b> {escape_html(', '.join(own))}</p>"]
    if predictions:
        parts.append(make_html_table(_PREDICTION_HEADS, [*map(_make_prediction_cells, predictions)]))
        parts.append(_make_stall_table(cpi_stack))
    return "".join([*parts, *_make_notes(notes)])


def render_report_html(
    kernels: Sequence[tuple[KernelTitle, Sequence[PredictionFigures]]], notes: Sequence[str]
) -> str:
    """Return a table of all kernels, and the notes."""
    rows = [
        (title.name, title.architecture, f"{title.n_instructions:,}", *_make_prediction_cells(prediction))
        for title, predictions in kernels
        for prediction in predictions
    ]
    unpriced = [(title.name,) for title, predictions in kernels if not predictions]
    parts = [make_html_table(("kernel", "arch", "instructions", *_PREDICTION_HEADS), rows)] if rows else []
    if unpriced:
        parts.append(make_html_table(("kernel without a prediction",), unpriced))
    return "".join([*parts, *_make_notes(notes)])


def make_html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; of many rows the first ones, and how many there are."""
    lines = [_make_row("th", heads), *(_make_row("td", row) for row in rows[:_MAX_ROWS])]
    if len(rows) > _MAX_ROWS:
        lines.append(_make_row("td", (f"... {len(rows) - _MAX_ROWS:,} more",)))
    return f"<table>{''.join(lines)}</table>"


def escape_html(text: str) -> str:
    """Return a text for HTML, with control characters as their codes."""
    return html.escape(escape_controls(text))


def _make_row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape_html(cell)}</{tag}>' for cell in cells)}</tr>"


def _make_notes(notes: Sequence[str]) -> Iterable[str]:
    return (f"<p>{escape_html(note)}</p>" for note in notes[:_MAX_ROWS])


def _make_prediction_cells(prediction: PredictionFigures) -> tuple[str, ...]:
    return (
        prediction.gpu_name,
        prediction.model,
        f"{prediction.cycles:,.0f}",
        f"{prediction.time_us:,.4g}",
        f"{prediction.time_us_low:,.4g}",
        f"{prediction.time_us_high:,.4g}",
        prediction.bound,
        f"{prediction.occupancy:.0%}",
    )


def _make_stall_table(cpi_stack: Mapping[str, float]) -> str:
    total = sum(cpi_stack.values()) or 1.0
    ordered = sorted(cpi_stack.items(), key=lambda item: -item[1])
    rows = [(stall, f"{cycles:,.0f}", f"{cycles / total:.0%}") for stall, cycles in ordered if cycles]
    return make_html_table(("stall", "cycles", "share"), rows) if rows else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
