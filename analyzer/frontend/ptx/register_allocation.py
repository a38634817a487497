"""Register numbers for virtual code, by linear scan (Poletto and Sarkar, TOPLAS 1999).

Each word has one live interval in layout order, from its first definition to its last use, stretched over the
blocks at whose entry or exit it is live. Groups are placed in the order in which they begin, at the lowest
aligned place where no word meets an interval that is there already.

Invariant: two words with the same register have intervals that do not meet, so whatever path is taken, each
read sees the last write to its own word.

    0  LDG G0:0          interval of G0:0 is [1, 4)
    1  FADD G1:0, G0:0   of G1:0 it is [3, 6): a result may take the register of an operand that ends here
    2  STG G1:0

Where more than 254 registers would be needed, words go to local memory (`spilling`). Predicates beyond P6 and
UP6 are kept in words.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from analyzer.frontend.ptx.spilling import GroupSpan, choose_spills, spill_groups
from analyzer.frontend.ptx.virtual_code import (
    PredicateRef,
    VirtualBlock,
    VirtualCode,
    VirtualInstruction,
    WordRef,
    list_word_refs,
)

_STACK_POINTER = 1
_PREDICATE_NAMES = (*(f"P{i}" for i in range(7)), *(f"UP{i}" for i in range(7)))
_MAX_ALIGNMENT = 4
_GROWTH = 64
MAX_REGISTERS = 255  # R0 to R254
_MAX_SPILL_ROUNDS = 8
_CROWDED_WORDS = 240  # alignment leaves gaps
_SPILL_MARGIN = 6  # words fewer that may be live in each round: alignment leaves gaps


class Allocation(Struct, frozen=True):
    """Numbers of all words and names of all predicates."""

    words: tuple[tuple[int, ...], ...]  # [group][word]
    predicates: tuple[str, ...]
    n_registers: int  # that are needed at once, with the gaps of alignment
    n_spilled_predicates: int
    stack_bytes: int = 0  # of words in local memory


class _Interval(Struct):
    start: int
    stop: int


def allocate_registers(code: VirtualCode, most: int = MAX_REGISTERS) -> Allocation:
    """Number the registers of a kernel.

    Predicates that find no place are moved to words first, then words beyond `most` registers to the stack.
    """
    n_spilled = 0
    while True:
        intervals = _find_intervals(code)
        names, unplaced = _place_predicates(code, intervals)
        if not unplaced:
            break
        n_spilled += len(unplaced)
        _move_to_words(code, unplaced)
    words, n_registers = _place_words(code, intervals)
    stack_bytes, limit = 0, most
    for _ in range(_MAX_SPILL_ROUNDS):
        if n_registers <= most:
            break
        limit -= _SPILL_MARGIN
        chosen = choose_spills(code, _find_spans(code, intervals), limit)
        if not chosen:
            continue
        stack_bytes = spill_groups(code, chosen, stack_bytes)
        intervals = _find_intervals(code)
        names, _ = _place_predicates(code, intervals)
        words, n_registers = _place_words(code, intervals)
    return Allocation(words, names, n_registers, n_spilled, stack_bytes)


def is_crowded(code: VirtualCode) -> bool:
    """Return whether more words or predicates are live somewhere than there are registers for them."""
    found, numbering = _find_intervals(code)
    words, predicates = found[: numbering.n_words], found[numbering.n_words :]
    return _find_most(words) > _CROWDED_WORDS or _find_most(predicates) > len(_PREDICATE_NAMES)


def _find_most(intervals: "list[_Interval | None]") -> int:
    """Return how many intervals meet at most."""
    events = sorted(e for i in intervals if i is not None for e in ((i.start, 1), (i.stop, -1)))
    most = now = 0
    for _, step in sorted(events):
        now += step
        most = max(most, now)
    return most


def _find_spans(code: VirtualCode, intervals: "tuple[list[_Interval | None], Numbering]") -> list[GroupSpan]:
    """Return where each group is live, in instructions."""
    found, numbering = intervals
    spans = []
    for group, size in enumerate(code.group_sizes):
        own = [i for i in found[numbering.bases[group] : numbering.bases[group] + size] if i is not None]
        if own:
            start, stop = min(i.start for i in own) // 2, max(i.stop for i in own) // 2 + 1
            spans.append(GroupSpan(group, start, stop, size))
    return spans


# Liveness. Words and predicates have common numbers: words first, group by group, then predicates.


class Numbering(Struct):
    """Numbers of words and predicates in masks."""

    bases: list[int]  # by group, of its first word
    n_words: int  # predicates come after

    @classmethod
    def of(cls, code: VirtualCode) -> "Numbering":
        """Number the words of a kernel."""
        bases, total = [], 0
        for size in code.group_sizes:
            bases.append(total)
            total += size
        return cls(bases, total)

    def list_words(self, ref: WordRef) -> range:
        """Return the numbers of the words of an operand."""
        first = self.bases[ref.group] + ref.word
        return range(first, first + ref.n_words)


def list_defs(instruction: VirtualInstruction, numbering: Numbering) -> list[int]:
    """Return the numbers that an instruction writes."""
    found: list[int] = []
    for operand in instruction.operands[: instruction.n_defs]:
        if isinstance(operand, WordRef):
            found += numbering.list_words(operand)
        elif isinstance(operand, PredicateRef):
            found.append(numbering.n_words + operand.number)
    return found


def list_uses(instruction: VirtualInstruction, numbering: Numbering) -> list[int]:
    """Return the numbers that an instruction reads: an instruction under a guard keeps what it writes."""
    found: list[int] = []
    guarded = instruction.guard is not None or instruction.keeps_defs
    for operand in instruction.operands[0 if guarded else instruction.n_defs :]:
        if isinstance(operand, PredicateRef):
            found.append(numbering.n_words + operand.number)
        for ref in list_word_refs(operand):
            found += numbering.list_words(ref)
    if instruction.guard is not None:
        found.append(numbering.n_words + instruction.guard.number)
    return found


def _make_mask(numbers: list[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def find_live_outs(code: VirtualCode, numbering: Numbering) -> list[int]:
    """Return the mask of what is live at the end of each block."""
    needed, killed = [], []
    for block in code.blocks:
        uses, defs = 0, 0
        for instruction in block.code:
            uses |= _make_mask(list_uses(instruction, numbering)) & ~defs
            if instruction.guard is None:
                defs |= _make_mask(list_defs(instruction, numbering))
        needed.append(uses)
        killed.append(defs)
    predecessors: list[list[int]] = [[] for _ in code.blocks]
    for index, block in enumerate(code.blocks):
        for successor in block.successors:
            predecessors[successor].append(index)
    live_in, live_out = [0] * len(code.blocks), [0] * len(code.blocks)
    work = list(range(len(code.blocks)))
    while work:
        index = work.pop()
        out = 0
        for successor in code.blocks[index].successors:
            out |= live_in[successor]
        live_out[index] = out
        entry = needed[index] | (out & ~killed[index])
        if entry != live_in[index]:
            live_in[index] = entry
            work += predecessors[index]
    return live_out


def remove_dead_code(code: VirtualCode) -> None:
    """Remove instructions without effect whose results nothing reads, until nothing changes."""
    numbering = Numbering.of(code)
    while True:
        n_before = sum(len(block.code) for block in code.blocks)
        for block, live in zip(code.blocks, find_live_outs(code, numbering), strict=True):
            _sweep_block(block, live, numbering)
        if sum(len(block.code) for block in code.blocks) == n_before:
            return


def _sweep_block(block: VirtualBlock, live: int, numbering: Numbering) -> None:
    kept: list[VirtualInstruction] = []
    for instruction in reversed(block.code):
        defs = _make_mask(list_defs(instruction, numbering))
        if not instruction.has_effect and instruction.n_defs and not defs & live:
            continue
        kept.append(instruction)
        if instruction.guard is None:
            live &= ~defs
        live |= _make_mask(list_uses(instruction, numbering))
    block.code = kept[::-1]


def _list_bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _find_intervals(code: VirtualCode) -> tuple[list[_Interval | None], Numbering]:
    """Return the live interval of each word and predicate; None for what does not occur."""
    numbering = Numbering.of(code)
    found: list[_Interval | None] = [None] * (numbering.n_words + code.n_predicates)

    def extend(number: int, start: int, stop: int) -> None:
        interval = found[number]
        if interval is None:
            found[number] = _Interval(start, stop)
            return
        interval.start, interval.stop = min(interval.start, start), max(interval.stop, stop)

    position = 0
    live_outs = find_live_outs(code, numbering)
    for block, live in zip(code.blocks, live_outs, strict=True):
        begin, end = 2 * position, 2 * (position + len(block.code))
        defined = 0
        for instruction in block.code:
            for number in list_uses(instruction, numbering):
                first = 2 * position if defined >> number & 1 else begin
                extend(number, first, 2 * position + 1)
            defs = list_defs(instruction, numbering)
            for number in defs:
                extend(number, 2 * position + 1, 2 * position + 2)
            defined |= _make_mask(defs)
            position += 1
        for number in _list_bits(live):
            extend(number, begin if not defined >> number & 1 else end - 1, end)
    return found, numbering


# Predicates


def _place_predicates(
    code: VirtualCode, intervals: tuple[list[_Interval | None], Numbering]
) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the predicates, and those that find no place: of those that meet, the longest."""
    found, numbering = intervals
    names = ["PT"] * code.n_predicates
    active: list[tuple[int, int]] = []  # (stop, predicate)
    unplaced: list[int] = []
    free = list(_PREDICATE_NAMES[::-1])
    order = sorted(
        (interval.start, number, interval.stop)
        for number in range(code.n_predicates)
        if (interval := found[numbering.n_words + number]) is not None
    )
    for start, number, stop in order:
        free += [names[other] for end, other in active if end <= start]
        active = [(end, other) for end, other in active if end > start]
        free.sort(key=_PREDICATE_NAMES.index, reverse=True)
        if not free:
            longest = max(active)
            if longest[0] <= stop:
                unplaced.append(number)
                continue
            active.remove(longest)
            unplaced.append(longest[1])
            free.append(names[longest[1]])
        names[number] = free.pop()
        active.append((stop, number))
    return tuple(names), unplaced


def _move_to_words(code: VirtualCode, predicates: list[int]) -> None:
    """Keep predicates in words: each definition writes 0 or 1, each use compares with 0 first."""
    homes = {number: code.add_group(1) for number in predicates}
    for block in code.blocks:
        block.code = [part for instruction in block.code for part in _rewrite(code, instruction, homes)]


def _rewrite(
    code: VirtualCode, instruction: VirtualInstruction, homes: dict[int, int]
) -> Iterator[VirtualInstruction]:
    moved = {
        operand.number
        for operand in (*instruction.operands, instruction.guard)
        if isinstance(operand, PredicateRef) and operand.number in homes
    }
    if not moved:
        yield instruction
        return
    fresh = {number: code.add_predicate() for number in moved}
    is_used = {number for number in moved if _reads_predicate(instruction, number)}

    def rename(ref: PredicateRef) -> PredicateRef:
        return PredicateRef(fresh.get(ref.number, ref.number), ref.is_negated)

    def make(mnemonic: str, operands: tuple[object, ...]) -> VirtualInstruction:
        return VirtualInstruction(
            mnemonic,
            operands,  # type: ignore[arg-type]
            1 if mnemonic == "SEL" else 2,
            None,
            instruction.line,
            instruction.source_line,
        )

    for number in sorted(is_used):
        yield make(
            "ISETP.NE.U32.AND",
            (PredicateRef(fresh[number]), "PT", WordRef(homes[number]), "RZ", "PT"),
        )
    operands = tuple(rename(o) if isinstance(o, PredicateRef) else o for o in instruction.operands)
    guard = None if instruction.guard is None else rename(instruction.guard)
    yield VirtualInstruction(
        instruction.mnemonic,
        operands,
        instruction.n_defs,
        guard,
        instruction.line,
        instruction.source_line,
        instruction.has_effect,
        instruction.keeps_defs,
    )
    for operand in instruction.operands[: instruction.n_defs]:
        if isinstance(operand, PredicateRef) and operand.number in homes:
            bit = PredicateRef(fresh[operand.number], True)
            yield make("SEL", (WordRef(homes[operand.number]), "RZ", "0x1", bit))


def _reads_predicate(instruction: VirtualInstruction, number: int) -> bool:
    start = 0 if instruction.guard is not None else instruction.n_defs
    return any(
        isinstance(operand, PredicateRef) and operand.number == number
        for operand in (*instruction.operands[start:], instruction.guard)
    )


# Words


class _Register(Struct):
    """Intervals that one register holds, in order."""

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)

    def is_free(self, interval: _Interval) -> bool:
        """Return whether an interval meets none of those held."""
        place = bisect_left(self.starts, interval.stop)
        return place == 0 or self.stops[place - 1] <= interval.start

    def add(self, interval: _Interval) -> None:
        """Hold an interval."""
        place = bisect_left(self.starts, interval.start)
        self.starts.insert(place, interval.start)
        self.stops.insert(place, interval.stop)


class _RegisterFile:
    """Registers, as many as are asked for.

    `busy_until` is where the last interval of each ends. Groups come by their starts, so a register whose
    last interval has ended is free; only before the file grows, gaps between intervals are searched.
    """

    def __init__(self) -> None:
        self.registers = [_Register() for _ in range(_GROWTH)]
        self.busy_until = np.zeros(_GROWTH, dtype=np.int64)
        self.busy_until[_STACK_POINTER] = np.iinfo(np.int64).max
        self.n_used = 0

    def place(self, own: Sequence[_Interval | None], preferred: int | None) -> int:
        """Return the register from which a group is placed: the preferred one, else the lowest."""
        start = min(interval.start for interval in own if interval is not None)
        if preferred is not None and self._fits(preferred, own):
            return self._add(preferred, own)
        base = self._find_free(start, len(own))
        if base + len(own) > self.n_used:
            step = _find_step(len(own))
            gap = next((b for b in range(0, self.n_used - len(own) + 1, step) if self._fits(b, own)), None)
            base = base if gap is None else gap
        return self._add(base, own)

    def _find_free(self, start: int, size: int) -> int:
        step = _find_step(size)
        while True:
            free = self.busy_until <= start
            n_starts = max(0, len(free) - size + 1)
            fits = free[:n_starts].copy()
            for position in range(1, size if n_starts else 1):
                fits &= free[position : position + n_starts]  # empty where the file is too small
            found = np.flatnonzero(fits[::step])
            if len(found):
                return int(found[0]) * step
            self._grow(size)

    def _grow(self, size: int) -> None:
        n = max(_GROWTH, 2 * size)
        self.registers += [_Register() for _ in range(n)]
        self.busy_until = np.append(self.busy_until, np.zeros(n, dtype=np.int64))

    def _fits(self, base: int, own: Sequence[_Interval | None]) -> bool:
        if base % _find_step(len(own)) or base + len(own) > len(self.registers):
            return False
        if base <= _STACK_POINTER < base + len(own):
            return False
        return all(
            interval is None or self.registers[base + position].is_free(interval)
            for position, interval in enumerate(own)
        )

    def _add(self, base: int, own: Sequence[_Interval | None]) -> int:
        for position, interval in enumerate(own):
            if interval is not None:
                self.registers[base + position].add(interval)
                last = int(self.busy_until[base + position])
                self.busy_until[base + position] = max(last, interval.stop)
        self.n_used = max(self.n_used, base + len(own))
        return base


def _find_step(size: int) -> int:
    return min(1 << (size - 1).bit_length(), _MAX_ALIGNMENT)


def _place_words(
    code: VirtualCode, intervals: tuple[list[_Interval | None], Numbering]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return the register of each word, and how many there are; a copy stays where its source is."""
    found, numbering = intervals
    file, bases = _RegisterFile(), [0] * len(code.group_sizes)
    placed = [False] * len(bases)
    sources = _find_copy_sources(code)
    order = []
    for group, size in enumerate(code.group_sizes):
        own = found[numbering.bases[group] : numbering.bases[group] + size]
        starts = [interval.start for interval in own if interval is not None]
        if starts:
            order.append((min(starts), group))
    for _, group in sorted(order):
        own = found[numbering.bases[group] : numbering.bases[group] + code.group_sizes[group]]
        preferred = None
        if (hint := sources.get(group)) is not None and placed[hint.group]:
            preferred = bases[hint.group] + hint.word
        bases[group] = file.place(own, preferred)
        placed[group] = True
    words = tuple(tuple(range(base, base + size)) for base, size in zip(bases, code.group_sizes, strict=True))
    return words, file.n_used


def _find_copy_sources(code: VirtualCode) -> dict[int, WordRef]:
    """Return for each group the word that a copy moves to its first word."""
    found: dict[int, WordRef] = {}
    for block in code.blocks:
        for instruction in block.code:
            if instruction.mnemonic != "MOV":
                continue
            target, source = instruction.operands
            if isinstance(target, WordRef) and isinstance(source, WordRef) and not target.word:
                found[target.group] = source
    return found
