"""Reports as short texts and as HTML for notebooks; names come from the input, so all text is escaped."""

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analyzer.text.escaping import escape_controls

if TYPE_CHECKING:
    from analyzer.report.analyze_schema import KernelReport, PredictionEntry, Report

_MAX_ROWS = 50
_MAX_NAMES = 3
_PREDICTION_HEADS = ("GPU", "model", "cycles", "time us", "low", "high", "bound", "occupancy")


def describe_kernel(kernel: "KernelReport") -> str:
    """Return `KernelReport(matmul, sm_90a, 576 instructions: 28.3 us on H100 SXM)`."""
    times = [f"{p.time_us:.4g} us on {p.gpu_name} ({p.model})" for p in kernel.predictions[:_MAX_NAMES]]
    more = ["..."] if len(kernel.predictions) > _MAX_NAMES else []
    found = f": {', '.join(times + more)}" if times else ""
    name, arch = escape_controls(kernel.demangled), kernel.architecture or "architecture ?"
    return f"KernelReport({name}, {arch}, {kernel.instructions:,} instructions{found})"


def describe_report(report: "Report") -> str:
    """Return `Report(2 kernels of k.sass on H100 SXM, 1 warning)`."""
    inputs = [escape_controls(entry.path) for entry in report.inputs[:_MAX_NAMES]]
    gpus = list(dict.fromkeys(p.gpu_name for kernel in report.kernels for p in kernel.predictions))
    parts = [f"{_count(len(report.kernels), 'kernel')} of {', '.join(inputs)}"]
    parts[0] += f" on {', '.join(gpus[:_MAX_NAMES])}" if gpus else ""
    if report.warnings:
        parts.append(_count(len(report.warnings), "warning"))
    return f"Report({', '.join(parts)})"


def render_kernel_html(kernel: "KernelReport") -> str:
    """Return the predictions and the stalls of a kernel."""
    parts = [_make_heading(kernel)]
    rows = [_make_prediction_cells(prediction) for prediction in kernel.predictions]
    if rows:
        parts.append(make_html_table(_PREDICTION_HEADS, rows))
        parts.append(_make_stall_table(kernel.predictions[0]))
    parts += [
        f"<p>{escape_html(f'{refusal.gpu_name}: {refusal.reason}')}</p>"
        for refusal in kernel.refused[:_MAX_ROWS]
    ]
    return "".join(parts)


def render_report_html(report: "Report") -> str:
    """Return a table of all kernels, and the warnings."""
    rows = [
        (
            kernel.demangled,
            kernel.architecture,
            f"{kernel.instructions:,}",
            *_make_prediction_cells(prediction),
        )
        for kernel in report.kernels
        for prediction in kernel.predictions
    ]
    unpriced = [kernel.demangled for kernel in report.kernels if not kernel.predictions]
    parts = [make_html_table(("kernel", "arch", "instructions", *_PREDICTION_HEADS), rows)] if rows else []
    if unpriced:
        parts.append(make_html_table(("kernel without a prediction",), [(name,) for name in unpriced]))
    parts += [f"<p>warning: {escape_html(warning.message)}</p>" for warning in report.warnings[:_MAX_ROWS]]
    return "".join(parts)


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


def _make_heading(kernel: "KernelReport") -> str:
    launch = kernel.launch
    facts = [kernel.architecture or "architecture ?", f"{kernel.instructions:,} instructions"]
    facts += [f"grid {launch.grid}"] if launch.grid else []
    facts += [f"block {launch.block}"] if launch.block else []
    facts.append(f"counts {kernel.counts.provenance}")
    return f"<p><b>{escape_html(kernel.demangled)}</b> {escape_html(', '.join(facts))}</p>"


def _make_prediction_cells(prediction: "PredictionEntry") -> tuple[str, ...]:
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


def _make_stall_table(prediction: "PredictionEntry") -> str:
    total = sum(prediction.cpi_stack.values()) or 1.0
    ordered = sorted(prediction.cpi_stack.items(), key=lambda item: -item[1])
    rows = [(stall, f"{cycles:,.0f}", f"{cycles / total:.0%}") for stall, cycles in ordered if cycles]
    return make_html_table(("stall", "cycles", "share"), rows) if rows else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
