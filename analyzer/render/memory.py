"""Memory of the whole grid: a summary, and a table of the instructions that reach it."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.render.tables import Cell, Column, Fit, make_table, numbers
from analyzer.render.units import mark, ratio, short_bytes, short_count
from analyzer.report.report import KernelReport, MemoryEntry, MemorySpaceEntry, TrafficEntry

_NAMED_BELOW = 0.95  # an instruction is named where the ideal is a smaller share of what it takes
_SHARED = ("shared", "distributed_shared")


def memory_summary(kernel: KernelReport) -> RenderableType:
    """Bytes asked for, distinct ones, units per request in each space, and the worst instruction there."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    traffic = kernel.traffic
    if traffic is not None:
        doubt = mark(kernel.counts.provenance)
        for name, text in _traffic_lines(traffic, doubt):
            table.add_row(f"  {name}", text)
    for space in kernel.memory_spaces:
        table.add_row(f"  {space.space.replace('_', ' ')}", _space_text(kernel, space))
    title = "whole grid"
    executed = kernel.counts.executed_warp_instructions
    if executed is not None:
        title += f": {mark(kernel.counts.provenance)}{short_count(executed)} warp instructions"
    return Group(Text(title, style="italic"), table)


def _traffic_lines(traffic: TrafficEntry, doubt: str) -> list[tuple[str, str]]:
    lines = []
    for name, asked, unique in (
        ("read", traffic.read_bytes, traffic.read_unique_bytes),
        ("written", traffic.written_bytes, traffic.written_unique_bytes),
    ):
        if not asked:
            continue
        if unique is None:
            again = "distinct bytes not known"
        else:
            again = f"{doubt}{short_bytes(unique)} distinct"
            if unique and asked / unique >= 1.005:
                again += f", each {ratio(asked / unique)} times"
        lines.append((name, f"{doubt}{short_bytes(asked)} requested, {again}"))
    return lines


def _space_text(kernel: KernelReport, space: MemorySpaceEntry) -> str:
    is_shared = space.space in _SHARED
    unit = "wavefronts" if is_shared else "sectors"
    actual = space.wavefronts if is_shared else space.sectors
    ideal = space.ideal_wavefronts if is_shared else space.ideal_sectors
    known = space.requests - space.unknown_requests
    text = f"{short_count(space.requests)} requests"
    if space.unknown_requests:
        text += f", {short_count(space.unknown_requests)} at unknown addresses"
    if actual is not None and ideal is not None and known:
        text += ", the others " if space.unknown_requests else ", "
        text += f"{ratio(actual / known)} {unit}/request (ideal {ratio(ideal / known)})"
    named = [entry for entry in kernel.memory if entry.address == space.worst_address]
    worst = next((entry for entry in named if entry.space == space.space), named[0] if named else None)
    return text if worst is None else text + _worst_text(worst, is_shared=is_shared)


def _worst_text(entry: MemoryEntry, *, is_shared: bool) -> str:
    actual = entry.wavefronts if is_shared else entry.sectors
    ideal = entry.ideal_wavefronts if is_shared else entry.ideal_sectors
    requests = entry.wavefront_requests if is_shared else entry.requests
    if not requests or not actual or ideal is None or ideal / actual >= _NAMED_BELOW:
        return ""
    what = "worst bank conflict" if is_shared else "worst coalescing"
    place = f"0x{entry.address:04x} {entry.opcode}" + (f" {entry.source}" if entry.source else "")
    return f"; {what}: {place}, {ratio(actual / requests)} (ideal {ratio(ideal / requests)})"


def memory_table(kernel: KernelReport) -> RenderableType:
    """One row for each memory instruction that ran; those that no warp reached are counted."""
    marks = {block.start: mark(block.provenance) for block in kernel.counts.blocks}
    starts = sorted(marks)
    rows = []
    idle = 0
    for entry in kernel.memory:
        if not entry.requests:
            idle += 1
            continue
        start = max((s for s in starts if s <= entry.address), default=None)
        rows.append(_row(entry, "" if start is None else marks[start]))
    columns = [
        Column("address", Fit.WHOLE),
        Column("opcode", Fit.CUT),
        *numbers("requests", "lanes", "sectors", "wavefronts", "distinct"),
        Column("source", Fit.CUT),
    ]
    if not any(entry.source for entry in kernel.memory):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    title = "memory instructions: lanes, sectors and wavefronts of one request (ideal), distinct bytes"
    parts: list[RenderableType] = [Text(title, style="italic"), make_table(columns, rows)]
    if idle:
        parts.append(Text(f"  {idle:,} more that no warp reaches", style="dim"))
    return Group(*parts)


def _row(entry: MemoryEntry, doubt: str) -> tuple[Cell, ...]:
    requests = entry.requests or 1.0
    on_chip = entry.space in _SHARED
    return (
        f"0x{entry.address:04x}",
        entry.opcode,
        doubt + short_count(requests),
        "?" if entry.lanes is None else ratio(entry.lanes / requests),
        "" if on_chip else _against(entry.sectors, entry.ideal_sectors, requests),
        _against(entry.wavefronts, entry.ideal_wavefronts, entry.wavefront_requests or 1.0),
        "" if on_chip else "?" if entry.unique_bytes is None else short_bytes(entry.unique_bytes),
        entry.source,
    )


def _against(actual: float | None, ideal: float | None, requests: float) -> str:
    """`5.6 (3.85)`; the ideal is left out where it is met."""
    if actual is None:
        return "?"
    text = ratio(actual / requests)
    least = text if ideal is None else ratio(ideal / requests)
    return text if least == text else f"{text} ({least})"
