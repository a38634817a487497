"""The annotated listing: executions, pipe, stall, control code, instruction, memory, source, cause."""

from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.render.number_format import format_count, format_provenance, format_ratio
from analyzer.render.tables import Cell, Column, ColumnFit, make_number_columns
from analyzer.report.analyze_schema import KernelReport, ListingEntry, MemoryEntry

_MIN_HOT_SHARE = 0.02
_MIN_SHOWN_SHARE = 0.0005
_MIN_SASS_CELLS = 20
_PASS_SPACES = ("shared", "distributed_shared", "constant")
_LEGEND = (
    "executed: warps of the whole grid; request: its 32-byte sectors, or w wavefronts of shared memory "
    "(~ assumed, ? unknown)"
)


def make_listing_parts(kernel: KernelReport) -> list[RenderableType]:
    """Return the listing, after a line that explains its marks."""
    if kernel.counts.looked_at_ctas is None:
        return [make_listing_table(kernel)]
    return [Text(_LEGEND, style="dim"), make_listing_table(kernel)]


def make_listing_table(kernel: KernelReport) -> Table:
    """Return a table with one row per instruction; `X` marks an opcode that the table of opcodes lacks.

    Where the launch was executed or traced, counts are warps of the grid and memory requests have their
    sectors or wavefronts; else counts are executions by one warp.
    """
    is_executed = kernel.counts.looked_at_ctas is not None
    accesses = {entry.address: entry for entry in reversed(kernel.memory)} if is_executed else {}
    rows = [_make_row(entry, accesses, is_executed=is_executed) for entry in kernel.listing]
    hot = [entry.share >= _MIN_HOT_SHARE for entry in kernel.listing]
    columns = [
        *make_number_columns("executed" if is_executed else "count", "pipe", "stall", "share"),
        Column("control", ColumnFit.TRUNCATE),
        Column("address", ColumnFit.NO_WRAP),
        Column("SASS", ColumnFit.TRUNCATE),
        *make_number_columns("request"),
        Column("source", ColumnFit.TRUNCATE),
        Column("cause", ColumnFit.TRUNCATE),
    ]
    if not accesses:
        index = len(columns) - 3
        columns, rows = (
            columns[:index] + columns[index + 1 :],
            [row[:index] + row[index + 1 :] for row in rows],
        )
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        is_number = column.fit is ColumnFit.NUMBER
        widths = (cell_len(str(cell)) for cell in (column.name, *(row[index] for row in rows)))
        table.add_column(
            column.name,
            justify="right" if is_number else "left",
            no_wrap=is_number or column.fit is ColumnFit.NO_WRAP,
            min_width=_find_min_width(column, max(widths)),
        )
    for row, is_hot in zip(rows, hot, strict=True):
        table.add_row(*row, style="bold" if is_hot else "")
    return table


def _find_min_width(column: Column, width: int) -> int | None:
    """Return the least width on a narrow terminal: numbers are never cut, instructions keep their start."""
    if column.fit is ColumnFit.TRUNCATE:
        return min(width, _MIN_SASS_CELLS) if column.name == "SASS" else None
    return width


def _make_row(
    entry: ListingEntry, accesses: Mapping[int, MemoryEntry], *, is_executed: bool
) -> tuple[Cell, ...]:
    return (
        _format_executed(entry) if is_executed else f"{entry.executed_per_warp:,.4g}",
        entry.pipe if entry.known else "X",
        f"{entry.stall_cycles:,.0f}" if entry.stall_cycles else "",
        f"{entry.share:.1%}" if entry.share >= _MIN_SHOWN_SHARE else "",
        _make_truncatable(entry.control),
        f"{entry.address:04x}",
        _make_truncatable(entry.instruction),
        _format_request(accesses.get(entry.address)),
        _make_truncatable(entry.source),
        _make_truncatable(_format_cause(entry)),
    )


def _make_truncatable(text: str) -> Text:
    """Return a text that is shortened on a narrow terminal, so that numbers are not."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _format_executed(entry: ListingEntry) -> str:
    return (
        "?"
        if entry.executed_warps is None
        else format_provenance(entry.provenance) + format_count(entry.executed_warps)
    )


def _format_request(entry: MemoryEntry | None) -> str:
    """Return `4`, `2w` of shared or constant memory, `?` if not known; empty without requests."""
    if entry is None or not entry.requests:
        return ""
    has_passes = entry.space in _PASS_SPACES
    units = entry.wavefronts if has_passes else entry.sectors
    if units is None:
        return "?"
    provenance_mark = format_provenance("assumed") if entry.provenance == "assumed" else ""
    return provenance_mark + format_ratio(units / entry.requests) + ("w" if has_passes else "")


def _format_cause(entry: ListingEntry) -> str:
    if not entry.stall or entry.stall == "wait":
        return entry.stall
    if entry.producer is None:
        return entry.stall
    return f"{entry.stall} <- {entry.producer:04x}"
