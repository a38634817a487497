"""Reports as CSV for spreadsheets and scripts.

Of `analyze` a row for each kernel, GPU and model; of `diff` and `check` one for each kernel and figure. A
text that a spreadsheet would take for a formula gets an apostrophe in front (OWASP, "CSV Injection").
"""

import csv
import io
from collections.abc import Iterable, Iterator

from analyzer.report.analyze_schema import KernelReport, Report
from analyzer.report.check_schema import CheckReport
from analyzer.report.diff_schema import DiffReport

_Cell = str | int | float | None
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

_ANALYZE_COLUMNS = (
    *("input", "kernel", "demangled", "architecture", "grid", "block", "dynamic_shared_bytes"),
    *("instructions", "coverage", "registers", "shared_bytes", "spill_bytes", "stack_frame_bytes"),
    *("executed_warp_instructions", "counts_provenance", "gpu", "model", "cycles", "time_us"),
    *(
        "time_us_low",
        "time_us_high",
        "bound",
        "occupancy",
        "occupancy_limiter",
        "waves",
        "findings",
        "refused",
    ),
)
_DIFF_COLUMNS = (
    *("input", "kernel", "demangled", "old_input", "old_kernel", "status", "verdict", "gpu"),
    *("metric", "old", "new", "change", "why"),
)
_CHECK_COLUMNS = (
    *("input", "kernel", "demangled", "old_kernel", "architecture", "status", "kernel_outcome", "gpu"),
    *("metric", "baseline", "value", "change", "limit", "outcome"),
)


def render_analyze_csv(report: Report) -> str:
    """Return a row for each kernel, GPU and model; of a GPU that cannot run a kernel the reason."""
    return _format_table(
        _ANALYZE_COLUMNS, (row for kernel in report.kernels for row in _make_analyze_rows(kernel))
    )


def render_diff_csv(report: DiffReport) -> str:
    """Return a row for each kernel and figure that differs; of a kernel without such one row."""
    return _format_table(_DIFF_COLUMNS, _make_diff_rows(report))


def render_check_csv(report: CheckReport) -> str:
    """Return a row for each kernel and figure; of a kernel without figures one row."""
    return _format_table(_CHECK_COLUMNS, _make_check_rows(report))


def _make_analyze_rows(kernel: KernelReport) -> Iterator[tuple[_Cell, ...]]:
    launch = kernel.launch
    static: tuple[_Cell, ...] = (
        *(kernel.input, kernel.name, kernel.demangled, kernel.architecture),
        *(_format_dimensions(launch.grid), _format_dimensions(launch.block), launch.dynamic_shared_bytes),
        *(kernel.instructions, kernel.coverage, kernel.registers, kernel.shared_bytes, kernel.spill_bytes),
        *(kernel.stack_frame_bytes, kernel.counts.executed_warp_instructions, kernel.counts.provenance),
    )
    findings = " ".join(advice.rule for advice in kernel.advice)
    for each in kernel.predictions:
        figures = (each.cycles, each.time_us, each.time_us_low, each.time_us_high)
        occupancy = (each.bound, each.occupancy, each.occupancy_limiter, each.waves)
        yield (*static, each.gpu, each.model, *figures, *occupancy, findings, "")
    empty: tuple[_Cell, ...] = ("",) * 9
    for refusal in kernel.refused:
        yield (*static, refusal.gpu, *empty, findings, refusal.reason)
    if not kernel.predictions and not kernel.refused:
        yield (*static, "", *empty, findings, "")


def _format_dimensions(dimensions: tuple[int, int, int] | None) -> str:
    return "" if dimensions is None else "x".join(map(str, dimensions))


def _make_diff_rows(report: DiffReport) -> Iterator[tuple[_Cell, ...]]:
    for kernel in report.kernels:
        names = (kernel.input, kernel.name, kernel.demangled, kernel.old_input, kernel.old_name)
        states = (kernel.status.value, kernel.verdict.value)
        why = kernel.evidence[0] if kernel.evidence else ""
        for change in kernel.changes:
            yield (
                *names,
                *states,
                *(change.gpu, change.metric, change.old, change.new, change.change, why),
            )
        if not kernel.changes:
            yield (*names, *states, "", "", None, None, None, why)


def _make_check_rows(report: CheckReport) -> Iterator[tuple[_Cell, ...]]:
    for kernel in report.kernels:
        names = (kernel.input, kernel.name, kernel.demangled, kernel.old_name, kernel.architecture)
        states = (kernel.status.value, kernel.outcome.value)
        for metric in kernel.metrics:
            figures = (metric.gpu, metric.metric, metric.baseline, metric.value, metric.change)
            yield (*names, *states, *figures, metric.limit, metric.outcome.value)
        if not kernel.metrics:
            yield (*names, *states, "", "", None, None, None, "", "")


def _format_table(columns: Iterable[str], rows: Iterable[tuple[_Cell, ...]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_format_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _format_cell(cell: _Cell) -> str:
    """Return a number in full, and a text that no spreadsheet computes."""
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(_FORMULA_STARTS) else cell
    return "" if cell is None else repr(cell)
