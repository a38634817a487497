"""The annotated listing: pipe, predicted stall, control code, instruction, source, cause."""

from rich.table import Table
from rich.text import Text

from analyzer.report.report import KernelReport, ListingEntry

_HOT_STALL_CYCLES = 20.0


def listing_table(kernel: KernelReport) -> Table:
    """One row per instruction; `X` marks an opcode that the table does not know."""
    table = Table(box=None, pad_edge=False)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("pipe", justify="right", no_wrap=True)
    table.add_column("stall", justify="right", no_wrap=True)
    table.add_column("control", no_wrap=True)
    table.add_column("address", no_wrap=True)
    table.add_column("SASS", no_wrap=True, overflow="ignore")
    table.add_column("source", no_wrap=True)
    table.add_column("cause", no_wrap=True)
    for entry in kernel.listing:
        hot = entry.stall_cycles * entry.executed_per_warp >= _HOT_STALL_CYCLES
        table.add_row(
            f"{entry.executed_per_warp:,.4g}",
            entry.pipe if entry.known else "X",
            f"{entry.stall_cycles:,.0f}" if entry.stall_cycles else "",
            Text(entry.control),
            f"{entry.address:04x}",
            Text(entry.instruction),
            entry.source,
            _cause(entry),
            style="bold" if hot else "",
        )
    return table


def _cause(entry: ListingEntry) -> str:
    if not entry.stall or entry.stall == "wait":
        return entry.stall
    if entry.producer is None:
        return entry.stall
    return f"{entry.stall} <- {entry.producer:04x}"
