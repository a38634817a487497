"""Tasks of a launch as text."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from analyzer.render.tables import Column, ColumnFit, make_table
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
    rows = [_make_cells(f"{each.count:,}", each) for each in shown]
    rows.append(_make_cells("all", report.total))
    console.print(make_table(_COLUMNS, rows))
    if len(report.tasks) > len(shown):
        console.print(Text(f"and {len(report.tasks) - len(shown):,} more classes: --format json has all"))
    if report.operations:
        _print_operations(report.operations, console)
    for assumption in report.assumptions:
        console.print(Text(f"  - assumed: {assumption}"), soft_wrap=True)


_COLUMNS = (
    Column("tasks", ColumnFit.NO_WRAP),
    Column("trips"),
    Column("MMA FMA"),
    Column("XU"),
    Column("FP", drop_rank=3),
    Column("bytes loaded"),
    Column("bytes stored"),
    Column("shared bytes", drop_rank=2),
    Column("barriers", drop_rank=1),
)


def _make_cells(name: str, amounts: TaskAmounts) -> tuple[str, ...]:
    values = (
        amounts.trips,
        amounts.mma_fma,
        amounts.xu_operations,
        amounts.fma_operations,
        amounts.bytes_loaded,
        amounts.bytes_stored,
        amounts.shared_bytes,
        amounts.barriers,
    )
    return (name, *map(_format, values))


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
    return ", ".join(f"{_format(amount)} {name}" for amount, name in amounts if amount)
