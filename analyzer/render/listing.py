"""The annotated listing: executions, pipe, stall, control code, instruction, memory, source, cause."""

from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.render.tables import Cell, Column, Fit, numbers
from analyzer.render.units import mark, ratio, short_count
from analyzer.report.report import KernelReport, ListingEntry, MemoryEntry

_HOT_SHARE = 0.02
_LEAST_SHARE = 0.0005
_LEAST_SASS = 20
_SHARED = ("shared", "distributed_shared")
_LEGEND = (
    "executed: warps of the whole grid; request: its 32-byte sectors, or w wavefronts of shared memory "
    "(~ assumed, ? unknown)"
)


def listing_parts(kernel: KernelReport) -> list[RenderableType]:
    """The listing, with a line before it that says what its marks mean."""
    if kernel.counts.looked_at_ctas is None:
        return [listing_table(kernel)]
    return [Text(_LEGEND, style="dim"), listing_table(kernel)]


def listing_table(kernel: KernelReport) -> Table:
    """One row per instruction; `X` marks an opcode that the table does not know.

    Where the launch was executed or traced: warps of the grid, and what a memory request takes; else
    executions by one warp.
    """
    is_executed = kernel.counts.looked_at_ctas is not None
    accesses = {entry.address: entry for entry in reversed(kernel.memory)} if is_executed else {}
    rows = [_row(entry, accesses, is_executed=is_executed) for entry in kernel.listing]
    hot = [entry.share >= _HOT_SHARE for entry in kernel.listing]
    columns = [
        *numbers("executed" if is_executed else "count", "pipe", "stall", "share"),
        Column("control", Fit.CUT),
        Column("address", Fit.WHOLE),
        Column("SASS", Fit.CUT),
        *numbers("request"),
        Column("source", Fit.CUT),
        Column("cause", Fit.CUT),
    ]
    if not accesses:
        place = len(columns) - 3
        columns, rows = (
            columns[:place] + columns[place + 1 :],
            [row[:place] + row[place + 1 :] for row in rows],
        )
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        is_number = column.fit is Fit.NUMBER
        widths = (cell_len(str(cell)) for cell in (column.name, *(row[place] for row in rows)))
        table.add_column(
            column.name,
            justify="right" if is_number else "left",
            no_wrap=is_number or column.fit is Fit.WHOLE,
            min_width=_least(column, max(widths)),
        )
    for row, is_hot in zip(rows, hot, strict=True):
        table.add_row(*row, style="bold" if is_hot else "")
    return table


def _least(column: Column, width: int) -> int | None:
    """What a column keeps on a narrow terminal: figures are never cut, of an instruction the start stays."""
    if column.fit is Fit.CUT:
        return min(width, _LEAST_SASS) if column.name == "SASS" else None
    return width


def _row(entry: ListingEntry, accesses: Mapping[int, MemoryEntry], *, is_executed: bool) -> tuple[Cell, ...]:
    return (
        _executed(entry) if is_executed else f"{entry.executed_per_warp:,.4g}",
        entry.pipe if entry.known else "X",
        f"{entry.stall_cycles:,.0f}" if entry.stall_cycles else "",
        f"{entry.share:.1%}" if entry.share >= _LEAST_SHARE else "",
        _cut(entry.control),
        f"{entry.address:04x}",
        _cut(entry.instruction),
        _request(accesses.get(entry.address)),
        _cut(entry.source),
        _cut(_cause(entry)),
    )


def _cut(text: str) -> Text:
    """What gives way on a narrow terminal, so that numbers need not."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _executed(entry: ListingEntry) -> str:
    return "?" if entry.executed_warps is None else mark(entry.provenance) + short_count(entry.executed_warps)


def _request(entry: MemoryEntry | None) -> str:
    """`4`, `2w` in shared memory, `?` where addresses are not known; nothing where no request was made."""
    if entry is None or not entry.requests:
        return ""
    is_shared = entry.space in _SHARED
    units = entry.wavefronts if is_shared else entry.sectors
    if units is None:
        return "?"
    doubt = mark("assumed") if entry.provenance == "assumed" else ""
    return doubt + ratio(units / entry.requests) + ("w" if is_shared else "")


def _cause(entry: ListingEntry) -> str:
    if not entry.stall or entry.stall == "wait":
        return entry.stall
    if entry.producer is None:
        return entry.stall
    return f"{entry.stall} <- {entry.producer:04x}"
