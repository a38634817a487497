"""Tasks of a launch as text."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from analyzer.execution.profile.provenance import Provenance
from analyzer.render.number_format import format_provenance
from analyzer.render.tables import Column, ColumnFit, make_table
from analyzer.render.warnings import print_warnings
from analyzer.report.tasks_schema import TaskAmounts, TasksReport, WorkEntry

_MAX_SHOWN_CLASSES = 24
_MAX_SHOWN_OPERATIONS = 24


def print_tasks(report: TasksReport, console: Console) -> None:
    """Print the classes of tasks, their total, and the operations with most work."""
    grid = "x".join(map(str, report.grid))
    n_classes = f"{len(report.tasks):,} class{'es' if len(report.tasks) > 1 else ''}"
    console.print(
        Text(f"{report.kernel}: {report.total.count:,} tasks (grid {grid}) in {n_classes}", style="bold")
    )
    shown = report.tasks[:_MAX_SHOWN_CLASSES]
    rows = [_make_cells(f"{each.count:,}", each, report.inexact) for each in shown]
    rows.append(_make_cells("all", report.total, report.inexact))
    console.print(make_table((Column("tasks", ColumnFit.NO_WRAP), *_AMOUNTS.values()), rows))
    if len(report.tasks) > len(shown):
        console.print(Text(f"and {len(report.tasks) - len(shown):,} more classes: --format json has all"))
    if report.operations:
        _print_operations(report.operations, console)
    kinds = set(report.inexact.values())
    if kinds:
        console.print(Text(", ".join(text for kind, text in _MARKS.items() if kind in kinds)))
    print_warnings(report.warnings, console)
    for assumption in report.assumptions:
        console.print(Text(f"  - assumed: {assumption}"), soft_wrap=True)


_MARKS = {
    "assumed": "~ rests on an assumption",
    "unknown": "? some operations are not counted",
}
_AMOUNTS = {  # columns by the fields that they show
    "trips": Column("trips"),
    "mma_fma": Column("MMA FMA"),
    "xu_operations": Column("XU"),
    "fma_operations": Column("FP", drop_rank=3),
    "bytes_loaded": Column("bytes loaded"),
    "bytes_stored": Column("bytes stored"),
    "shared_bytes": Column("shared bytes", drop_rank=2),
    "barriers": Column("barriers", drop_rank=1),
}


def _make_cells(name: str, amounts: TaskAmounts, inexact: Mapping[str, str]) -> tuple[str, ...]:
    marks = (format_provenance(inexact.get(field, Provenance.EXACT)) for field in _AMOUNTS)
    values = (_format(getattr(amounts, field)) for field in _AMOUNTS)
    return (name, *(f"{mark}{value}" for mark, value in zip(marks, values, strict=True)))


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _print_operations(operations: Sequence[WorkEntry], console: Console) -> None:
    columns = (
        Column("operation", ColumnFit.NO_WRAP),
        Column("line", drop_rank=1),
        Column("source", ColumnFit.WRAP, drop_rank=2),
        Column("type", ColumnFit.NO_WRAP, drop_rank=3),
        Column("executions"),
        Column("work", ColumnFit.WRAP),
    )
    wanted = [each for each in operations if _describe_work(each)]
    shown = wanted[:_MAX_SHOWN_OPERATIONS]
    rows = [
        (
            each.operation,
            str(each.line),
            each.source.rpartition("/")[2],
            each.type,
            f"{each.executions:,}",
            _describe_work(each),
        )
        for each in shown
    ]
    console.print(make_table(columns, rows))
    if len(wanted) > len(shown):
        console.print(Text(f"and {len(wanted) - len(shown):,} more operations: --format json has all"))


def _describe_work(entry: WorkEntry) -> str:
    amounts = (
        (entry.mma_fma, "MMA FMA"),
        (entry.bytes_loaded, "B loaded"),
        (entry.bytes_stored, "B stored"),
        (entry.xu_operations, "XU"),
        (entry.fma_operations, "FP"),
        (entry.atomics, "atomics"),
        (entry.shared_bytes, "B shared"),
    )
    mark = format_provenance(Provenance.ASSUMED) if entry.is_assumed else ""
    counted = [f"{mark}{_format(amount)} {name}" for amount, name in amounts if amount]
    return ", ".join((*counted, *(["not counted"] if entry.uncounted else [])))
