"""Transferred times as text and as a CSV table."""

import csv
import io
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from analyzer.render.tables import Column, ColumnFit, make_table
from analyzer.report.transfer_schema import RESULT_COLUMNS, TransferReport, TransferRowEntry

_MAX_SHOWN_ROWS = 200
_DECIMALS = 4  # of a microsecond


def render_transfer_csv(report: TransferReport) -> str:
    """Return the rows as they were given, each with its results behind it."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*report.columns, *RESULT_COLUMNS))
    for row in report.rows:
        writer.writerow((*row.fields, *_format_results(row)))
    return text.getvalue()


def _format_results(row: TransferRowEntry) -> tuple[str, ...]:
    """Return the fields of RESULT_COLUMNS."""
    times = (row.algorithm1_us, row.roof_us, row.predicted_us, row.low_us, row.high_us)
    return (*("" if time is None else f"{time:.{_DECIMALS}f}" for time in times), row.basis, row.reason)


def print_transfer(report: TransferReport, console: Console) -> None:
    """Print the times of each launch on both GPUs, and what has no answer."""
    rows = f"{len(report.rows):,} launch{'es' if len(report.rows) > 1 else ''}"
    console.print(
        Text(f"{report.table}: {rows} from {report.source_name} to {report.target_name}", style="bold")
    )
    columns = (
        Column("kernel", ColumnFit.WRAP),
        Column("grid", ColumnFit.NO_WRAP, drop_rank=3),
        Column("block", ColumnFit.NO_WRAP, drop_rank=4),
        Column("measured us"),
        Column("predicted us"),
        Column("low us", drop_rank=1),
        Column("high us", drop_rank=1),
        Column("Algorithm 1 us", drop_rank=2),
        Column("roof us", drop_rank=5),
        Column("basis", ColumnFit.NO_WRAP, drop_rank=6),
        Column("limit", ColumnFit.NO_WRAP, drop_rank=7),
    )
    shown = report.rows[:_MAX_SHOWN_ROWS]
    console.print(make_table(columns, [_make_cells(row) for row in shown]))
    if len(report.rows) > len(shown):
        console.print(Text(f"and {len(report.rows) - len(shown):,} more: --format csv has all"))
    for line in _format_reasons(report):
        console.print(Text(line, style="red"), soft_wrap=True)
    for note in report.notes:
        console.print(Text(f"  - {note}"))


def _make_cells(row: TransferRowEntry) -> tuple[str, ...]:
    return (
        row.kernel,
        "x".join(map(str, row.grid)),
        "x".join(map(str, row.block)),
        _format_time(row.time_us),
        *map(_format_time, (row.predicted_us, row.low_us, row.high_us, row.algorithm1_us, row.roof_us)),
        row.basis,
        row.limit,
    )


def _format_time(time_us: float | None) -> str:
    if time_us is None:
        return "-"
    return f"{time_us:,.0f}" if time_us >= 1000 else f"{time_us:.4g}"


def _format_reasons(report: TransferReport) -> Iterator[str]:
    """Yield each reason once, with the lines of its rows."""
    lines: dict[str, list[int]] = {}
    for row in report.rows:
        if row.reason:
            lines.setdefault(row.reason, []).append(row.line)
    for reason, found in lines.items():
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        yield f"line {found[0]}{more}: {reason}"
