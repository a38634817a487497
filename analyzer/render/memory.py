"""Memory accesses of the whole grid: a summary, and a table of the instructions."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.render.number_format import format_bytes, format_count, format_provenance, format_ratio
from analyzer.render.tables import Cell, Column, ColumnFit, make_number_columns, make_table
from analyzer.report.analyze_schema import KernelReport, MemoryEntry, MemorySpaceEntry, TrafficEntry
from analyzer.text.source import shorten_source

_MAX_NAMED_IDEAL_SHARE = 0.95  # an instruction is named where the ideal is a smaller share of what it takes
# Spaces that take passes of a data path, with their name and what makes more of them; others take sectors.
_PASSES = {
    "shared": ("wavefronts", "worst bank conflict"),
    "distributed_shared": ("wavefronts", "worst bank conflict"),
    "constant": ("passes", "most distinct words"),
}
_SECTORS = ("sectors", "worst coalescing")


def make_memory_summary(kernel: KernelReport) -> RenderableType:
    """Return requested and distinct bytes, units per request in each space, and its worst instruction."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    traffic = kernel.traffic
    if traffic is not None:
        provenance_mark = format_provenance(kernel.counts.provenance)
        for name, text in _format_traffic(traffic, provenance_mark):
            table.add_row(f"  {name}", text)
    for space in kernel.memory_spaces:
        table.add_row(f"  {space.space.replace('_', ' ')}", _format_space(kernel, space))
    title = "whole grid"
    executed = kernel.counts.executed_warp_instructions
    if executed is not None:
        title += f": {format_provenance(kernel.counts.provenance)}{format_count(executed)} warp instructions"
    return Group(Text(title, style="italic"), table)


def _format_traffic(traffic: TrafficEntry, provenance_mark: str) -> list[tuple[str, str]]:
    lines = []
    for name, requested, unique, provenance in (
        ("read", traffic.read_bytes, traffic.read_unique_bytes, traffic.read_provenance),
        ("written", traffic.written_bytes, traffic.written_unique_bytes, traffic.written_provenance),
    ):
        if not requested:
            continue
        if unique is None:
            distinct = "distinct bytes not known"
        else:
            mark = provenance_mark or format_provenance(provenance)
            distinct = f"{mark}{format_bytes(unique)} distinct"
            if unique and requested / unique >= 1.005:
                distinct += f", each {format_ratio(requested / unique)} times"
        lines.append((name, f"{provenance_mark}{format_bytes(requested)} requested, {distinct}"))
    return lines


def _format_space(kernel: KernelReport, space: MemorySpaceEntry) -> str:
    has_passes = space.space in _PASSES
    unit, cause = _PASSES.get(space.space, _SECTORS)
    actual = space.wavefronts if has_passes else space.sectors
    ideal = space.ideal_wavefronts if has_passes else space.ideal_sectors
    known = space.requests - space.unknown_requests
    text = f"{format_count(space.requests)} requests"
    if space.unknown_requests:
        text += f", {format_count(space.unknown_requests)} at unknown addresses"
    if actual is not None and ideal is not None and known:
        text += ", the others " if space.unknown_requests else ", "
        mark = format_provenance(space.provenance)
        text += f"{mark}{format_ratio(actual / known)} {unit}/request (ideal {format_ratio(ideal / known)})"
    named = [entry for entry in kernel.memory if entry.address == space.worst_address]
    worst = next((entry for entry in named if entry.space == space.space), named[0] if named else None)
    return text if worst is None else text + _format_worst_access(worst, cause, has_passes=has_passes)


def _format_worst_access(entry: MemoryEntry, cause: str, *, has_passes: bool) -> str:
    actual = entry.wavefronts if has_passes else entry.sectors
    ideal = entry.ideal_wavefronts if has_passes else entry.ideal_sectors
    requests = entry.wavefront_requests if has_passes else entry.requests
    if not requests or not actual or ideal is None or ideal / actual >= _MAX_NAMED_IDEAL_SHARE:
        return ""
    place = f"0x{entry.address:04x} {entry.opcode}" + (
        f" {shorten_source(entry.source)}" if entry.source else ""
    )
    units = f"{format_provenance(entry.provenance)}{format_ratio(actual / requests)}"
    return f"; {cause}: {place}, {units} (ideal {format_ratio(ideal / requests)})"


def make_memory_table(kernel: KernelReport) -> RenderableType:
    """Return a table of the memory instructions that ran, and a count of those that no warp executes."""
    marks = {block.start: format_provenance(block.provenance) for block in kernel.counts.blocks}
    starts = sorted(marks)
    rows = []
    idle = 0
    for entry in kernel.memory:
        if not entry.requests:
            idle += 1
            continue
        start = max((s for s in starts if s <= entry.address), default=None)
        rows.append(_make_row(entry, "" if start is None else marks[start]))
    columns = [
        Column("address", ColumnFit.NO_WRAP),
        Column("opcode", ColumnFit.WRAP, min_width=10),
        *make_number_columns("requests"),
        Column("lanes", drop_rank=1),
        *make_number_columns("sectors", "wavefronts"),
        Column("distinct", drop_rank=2),
        Column("source", ColumnFit.WRAP, min_width=10),
    ]
    if not any(entry.source for entry in kernel.memory):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    title = "memory instructions: lanes, sectors and wavefronts of one request (ideal), distinct bytes"
    parts: list[RenderableType] = [Text(title, style="italic"), make_table(columns, rows)]
    if idle:
        parts.append(Text(f"  {idle:,} more that no warp reaches", style="dim"))
    return Group(*parts)


def _make_row(entry: MemoryEntry, provenance_mark: str) -> tuple[Cell, ...]:
    requests = entry.requests or 1.0
    on_chip, mark = entry.space in _PASSES, format_provenance(entry.provenance)
    return (
        f"0x{entry.address:04x}",
        entry.opcode,
        provenance_mark + format_count(requests),
        "?" if entry.lanes is None else format_ratio(entry.lanes / requests),
        "" if on_chip else _format_against_ideal(entry.sectors, entry.ideal_sectors, requests, mark),
        _format_against_ideal(
            entry.wavefronts, entry.ideal_wavefronts, entry.wavefront_requests or 1.0, mark
        ),
        "" if on_chip else "?" if entry.unique_bytes is None else mark + format_bytes(entry.unique_bytes),
        shorten_source(entry.source),
    )


def _format_against_ideal(
    actual: float | None, ideal: float | None, requests: float, provenance_mark: str
) -> str:
    """Return `5.6 (3.85)`: units per request and the ideal, which is left out where it is met."""
    if actual is None:
        return "?"
    text = format_ratio(actual / requests)
    least = text if ideal is None else format_ratio(ideal / requests)
    return provenance_mark + (text if least == text else f"{text} ({least})")
