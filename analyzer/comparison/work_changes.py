"""What the launch of a kernel does on both sides: memory accesses, loops, waits and cycles by source line."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from analyzer.comparison.alignment import Alignment, find_opcode_name
from analyzer.ir.opcode import OpKind
from analyzer.isa.opcode_table import resolve_opcode
from analyzer.report.analyze_schema import KernelReport, ListingEntry, LoopEntry, MemoryEntry
from analyzer.report.diff_schema import LoopChange
from analyzer.text.source import shorten_source

_SCOREBOARDS = 6
_SHARED = "shared"


class AccessChange(Struct, frozen=True, kw_only=True):
    """Sectors or wavefronts per request of the accesses at one place, on both sides."""

    place: str  # such as `LDG.E at k.cu:30`
    unit: str  # `sectors` or `wavefronts`
    old_per_request: float
    new_per_request: float
    added: float  # of the launch, new - old


class WaitChange(Struct, frozen=True, kw_only=True):
    """A wait for a scoreboard that stands nearer to, or farther from, the instruction that sets it."""

    place: str
    scoreboard: int
    producer: str  # opcode
    moved: int  # instructions; negative: earlier, nearer to its producer
    old_cycles: float
    new_cycles: float


class LineChange(Struct, frozen=True, kw_only=True):
    """Cycles of the launch due to one source line."""

    source: str
    old_cycles: float
    new_cycles: float
    stall: str  # that changed most
    stall_change: float


def format_place(opcode: str, source: str, address: int) -> str:
    """Return how people find an instruction: `LDG.E at k.cu:30`, or `LDG.E at 0x1a0`."""
    return f"{opcode} at {shorten_source(source) if source else f'{address:#x}'}"


def list_access_changes(old: KernelReport, new: KernelReport, alignment: Alignment) -> list[AccessChange]:
    """Return the places whose accesses need another number of sectors or wavefronts, the largest first.

    Instructions are compared with their partners; those without one by source line, and by opcode and space
    where no line is known.
    """
    changes = []
    for group in _group_accesses(old, new, alignment):
        for unit, get in (("sectors", _get_sectors), ("wavefronts", _get_wavefronts)):
            change = _compare_accesses(group, unit, get)
            if change is not None:
                changes.append(change)
    return sorted(changes, key=lambda each: (-abs(each.added), each.place, each.unit))


_Sides = tuple[list[MemoryEntry], list[MemoryEntry]]


def _group_accesses(old: KernelReport, new: KernelReport, alignment: Alignment) -> list[_Sides]:
    partners = alignment.map_addresses()
    new_addresses = {entry.address for entry in new.memory}
    known = {b: a for a, b in partners.items() if b in new_addresses}
    groups: dict[tuple[object, ...], _Sides] = {}
    matched_old = set(known.values())
    for entry in old.memory:
        is_matched = entry.address in matched_old
        key = _make_key(entry, entry.address if is_matched else None)
        groups.setdefault(key, ([], []))[0].append(entry)
    for entry in new.memory:
        groups.setdefault(_make_key(entry, known.get(entry.address)), ([], []))[1].append(entry)
    return list(groups.values())


def _make_key(entry: MemoryEntry, partner: int | None) -> tuple[object, ...]:
    if partner is not None:
        return (entry.space, partner)
    return (entry.space, find_opcode_name(entry.opcode), entry.source)


def _get_sectors(entry: MemoryEntry) -> tuple[float, float] | None:
    """Return the sectors of an access and its requests, None where it has none."""
    if entry.space == _SHARED or entry.sectors is None or not entry.requests:
        return None
    return float(entry.sectors), float(entry.requests)


def _get_wavefronts(entry: MemoryEntry) -> tuple[float, float] | None:
    if entry.wavefronts is None or not entry.wavefront_requests:
        return None
    if entry.space != _SHARED and resolve_opcode(entry.opcode).kind is not OpKind.ASYNC_COPY:
        return None
    return float(entry.wavefronts), float(entry.wavefront_requests)


def _compare_accesses(
    group: _Sides, unit: str, get: Callable[[MemoryEntry], tuple[float, float] | None]
) -> AccessChange | None:
    sums = []
    for side in group:
        found = [each for entry in side if (each := get(entry)) is not None]
        sums.append((sum(amount for amount, _ in found), sum(requests for _, requests in found)))
    (old_amount, old_requests), (new_amount, new_requests) = sums
    if not old_requests or not new_requests or old_amount == new_amount:
        return None
    shown = group[1][0]
    return AccessChange(
        place=format_place(shown.opcode, shown.source, shown.address),
        unit=unit,
        old_per_request=old_amount / old_requests,
        new_per_request=new_amount / new_requests,
        added=new_amount - old_amount,
    )


def list_loop_changes(old: KernelReport, new: KernelReport, alignment: Alignment) -> tuple[LoopChange, ...]:
    """Return the loops whose trips or cycles differ, matched by header, else by source line and depth."""
    partners = _match_loops(old.loops, new.loops, alignment)
    changes = []
    for old_loop, new_loop in partners:
        change = LoopChange(
            old_header=None if old_loop is None else old_loop.header,
            new_header=None if new_loop is None else new_loop.header,
            source=next((each.source for each in (new_loop, old_loop) if each is not None), ""),
            old_trips=None if old_loop is None else float(old_loop.trip_count),
            new_trips=None if new_loop is None else float(new_loop.trip_count),
            old_cycles=None if old_loop is None else sum(old_loop.launch_stack.values()),
            new_cycles=None if new_loop is None else sum(new_loop.launch_stack.values()),
        )
        if (change.old_trips, change.old_cycles) != (change.new_trips, change.new_cycles):
            changes.append(change)
    return tuple(sorted(changes, key=lambda each: -abs((each.new_cycles or 0) - (each.old_cycles or 0))))


def _match_loops(
    old: Sequence[LoopEntry], new: Sequence[LoopEntry], alignment: Alignment
) -> list[tuple[LoopEntry | None, LoopEntry | None]]:
    addresses = alignment.map_addresses()
    free = {loop.header: loop for loop in new}
    pairs: list[tuple[LoopEntry | None, LoopEntry | None]] = []
    rest = []
    for loop in old:
        partner = free.pop(addresses.get(loop.header, -1), None)
        if partner is None:
            rest.append(loop)
        else:
            pairs.append((loop, partner))
    for loop in rest:
        near = next(
            (each for each in free.values() if (each.source, each.depth) == (loop.source, loop.depth)), None
        )
        if near is not None:
            del free[near.header]
        pairs.append((loop, near))
    return [*pairs, *((None, loop) for loop in free.values())]


def list_wait_changes(alignment: Alignment) -> list[WaitChange]:
    """Return the waits for scoreboards that moved, those whose cycles changed most first.

    A wait and the instruction that sets its scoreboard are looked for in a straight line of code, which is
    right within a loop's body and guessed across branches.
    """
    old_waits, new_waits = _find_waits(alignment.old), _find_waits(alignment.new)
    changes = []
    for old_row, new_row in alignment.list_matched():
        for scoreboard, (producer, distance) in new_waits.get(new_row, {}).items():
            before = _find_old_wait(
                old_waits.get(old_row, {}), scoreboard, alignment.old, producer, alignment
            )
            if before is None or before == distance:
                continue
            entry = alignment.new[new_row]
            changes.append(
                WaitChange(
                    place=format_place(find_opcode_name(entry.instruction), entry.source, entry.address),
                    scoreboard=scoreboard,
                    producer=find_opcode_name(alignment.new[producer].instruction),
                    moved=distance - before,
                    old_cycles=sum(alignment.old[old_row].cpi_stack.values()),
                    new_cycles=sum(entry.cpi_stack.values()),
                )
            )
    return sorted(
        changes, key=lambda each: (-abs(each.new_cycles - each.old_cycles), each.place, each.scoreboard)
    )


def _find_old_wait(
    waits: Mapping[int, tuple[int, int]],
    scoreboard: int,
    old: Sequence[ListingEntry],
    producer: int,
    alignment: Alignment,
) -> int | None:
    """Return the distance of the old wait for an instruction of the same opcode, of any scoreboard."""
    wanted = find_opcode_name(alignment.new[producer].instruction)
    for _, (row, distance) in sorted(waits.items(), key=lambda each: (each[0] != scoreboard, each[0])):
        if find_opcode_name(old[row].instruction) == wanted:
            return distance
    return None


def _find_waits(listing: Sequence[ListingEntry]) -> dict[int, dict[int, tuple[int, int]]]:
    """Return by row and scoreboard the row that set it last before, and the distance to it."""
    setters: dict[int, int] = {}
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for row, entry in enumerate(listing):
        waits, read, write = _parse_control(entry.control)
        for scoreboard in waits:
            if scoreboard in setters:
                found.setdefault(row, {})[scoreboard] = (setters[scoreboard], row - setters[scoreboard])
        for setter in (read, write):
            if setter is not None:
                setters[setter] = row
    return found


def _parse_control(text: str) -> tuple[tuple[int, ...], int | None, int | None]:
    """Return the scoreboards that `[B--2---:R0:W1:-:S02]` waits for, and the two that it sets."""
    parts = text.strip("[]").split(":")
    if len(parts) != 5 or len(parts[0]) != 1 + _SCOREBOARDS:
        return (), None, None
    waits = tuple(int(letter) for letter in parts[0][1:] if letter.isdecimal())
    read, write = (int(part[1:]) if part[1:].isdecimal() else None for part in parts[1:3])
    return waits, read, write


def list_line_changes(alignment: Alignment) -> list[LineChange]:
    """Return the source lines whose cycles changed, the largest change first; none without line tables.

    Lines are those of the new side: cycles of an old instruction go to the line of its partner, so that
    lines that only moved do not show. Without a partner they stay at the old line.
    """
    moved = {a: alignment.new[b].source for a, b in alignment.list_matched()}
    renamed = _find_renamed_files(alignment)
    old_lines = _sum_by_line(
        (moved.get(row) or _rename_file(entry.source, renamed), entry)
        for row, entry in enumerate(alignment.old)
    )
    new_lines = _sum_by_line((entry.source, entry) for entry in alignment.new)
    changes = [
        _make_line_change(source, old_lines.get(source, {}), new_lines.get(source, {}))
        for source in sorted({*old_lines, *new_lines})
    ]
    return sorted(changes, key=lambda each: (-abs(each.new_cycles - each.old_cycles), each.source))


def _find_renamed_files(alignment: Alignment) -> dict[str, str]:
    """Return for each file of the old side the file of most partners of its instructions."""
    pairs = Counter(
        (_split_source(alignment.old[a].source)[0], _split_source(alignment.new[b].source)[0])
        for a, b in alignment.list_matched()
    )
    renamed: dict[str, str] = {}
    for (old, new), _ in pairs.most_common():
        renamed.setdefault(old, new)
    return renamed


def _split_source(source: str) -> tuple[str, str]:
    file, _, line = source.rpartition(":")
    return file, line


def _rename_file(source: str, renamed: Mapping[str, str]) -> str:
    file, line = _split_source(source)
    return f"{renamed[file]}:{line}" if renamed.get(file) else source


def _make_line_change(source: str, before: Mapping[str, float], after: Mapping[str, float]) -> LineChange:
    shifts = {stall: after.get(stall, 0.0) - before.get(stall, 0.0) for stall in {*before, *after}}
    stall = max(sorted(shifts), key=lambda each: abs(shifts[each]), default="")
    return LineChange(
        source=source,
        old_cycles=sum(before.values()),
        new_cycles=sum(after.values()),
        stall=stall,
        stall_change=shifts.get(stall, 0.0),
    )


def _sum_by_line(entries: Iterable[tuple[str, ListingEntry]]) -> dict[str, dict[str, float]]:
    lines: dict[str, dict[str, float]] = {}
    for source, entry in entries:
        if source:
            stack = lines.setdefault(source, {})
            for stall, cycles in entry.cpi_stack.items():
                stack[stall] = stack.get(stall, 0.0) + cycles
    return lines
