"""Models side by side: cycles by stall, and why they differ."""

from rich.console import Group, RenderableType
from rich.text import Text

from analyzer.render.stall_shares import find_largest_stall_shares
from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table
from analyzer.report.analyze_schema import DifferenceEntry, KernelReport, PredictionEntry
from analyzer.text.source import shorten_source

_MIN_SHOWN_SHARE = 0.005


def make_stall_comparison(kernel: KernelReport, entries: tuple[PredictionEntry, ...]) -> RenderableType:
    """Return a table with a column of cycles per prediction and a row per stall that any of them has."""
    shares = find_largest_stall_shares(entries)
    shown = [
        stall for stall, share in sorted(shares.items(), key=lambda i: -i[1]) if share >= _MIN_SHOWN_SHARE
    ]
    rows = [
        (stall, *(_format_cycles(entry.cpi_stack.get(stall, 0.0)) for entry in entries)) for stall in shown
    ]
    rest = [entry.cycles - sum(entry.cpi_stack.get(stall, 0.0) for stall in shown) for entry in entries]
    if any(cycles >= 0.5 for cycles in rest):
        rows.append(("others", *map(_format_cycles, rest)))
    rows.append(("total", *(_format_cycles(entry.cycles) for entry in entries)))
    instructions = kernel.counts.instructions_per_warp
    if instructions:
        rows.append(("CPI", *(f"{e.cycles / instructions / max(1.0, e.waves):,.2f}" for e in entries)))
    columns = [Column("stall", ColumnFit.WRAP), *make_number_columns(*(entry.model for entry in entries))]
    title = Text(f"cycles by stall and model, {entries[0].gpu_name}", style="italic")
    return Group(title, make_table(columns, rows))


def _format_cycles(cycles: float) -> str:
    return f"{cycles:,.0f}" if cycles >= 0.5 else ""


def make_difference_table(kernel: KernelReport) -> RenderableType:
    """Return a table of the reasons why models differ, stall by stall."""
    if not kernel.differences:
        return Text("explain: the models agree within 1 % of the time in every stall")
    by_stall: dict[str, list[DifferenceEntry]] = {}
    for one in kernel.differences:
        by_stall.setdefault(one.stall, []).append(one)
    rows = [
        (
            stall,
            f"{found[0].model} {found[0].cycles:,.0f}",
            ", ".join(f"{one.other_model} {one.other_cycles:,.0f}" for one in found),
            shorten_source(found[0].source) or ("" if found[0].address is None else hex(found[0].address)),
            found[0].reason,
        )
        for stall, found in by_stall.items()
    ]
    columns = [
        Column("stall", ColumnFit.WRAP, min_width=10),
        Column("cycles", ColumnFit.WRAP, min_width=10),
        Column("against", ColumnFit.WRAP, min_width=10),
        Column("most at", ColumnFit.WRAP, min_width=8),
        Column("why", ColumnFit.WRAP, min_width=24),
    ]
    return make_table(columns, rows, title="where the models part")
