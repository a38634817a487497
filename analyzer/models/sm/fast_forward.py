"""Skip iterations of a simulation that repeat what has been simulated.

The idea: warps that loop soon go through the same states again and again. One of them, the leader, marks
each end of an iteration: the time, where every warp stands and when it goes on, and how much is queued at
each resource. Where stretches of marks that follow each other take the same time, move every warp by the same
iterations, and leave the same waits and queues, what comes next is that stretch again. So all warps are moved
ahead by as many stretches as all of them have left, and the clock with them. What follows, the end of the
loops and the code behind them, is simulated again.

The invariant: a skip changes no warp's relation to another one. So only the iterations of warps change, and
the cycles that were skipped are kept aside: times inside the simulation stay as they are. Warps of a CTA that
meet at barriers or mbarriers are moved by equally many iterations.

Where states come again hardly (orders that change), the pace of all warps over some iterations stands for
what follows, and where no warp leads for so long, that over a number of steps. All of these numbers depend on
the programs alone, so that a sweep stops at the same place at each point.

Example: 128 iterations of 100 cycles, the first two of 300 and 120. Marks at 300, 420, 520, 620: the last two
take 100 each, so 123 iterations are skipped, and the last one is simulated.
"""

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from analyzer.models.sm.iteration_plan import WarpPlan
from analyzer.models.sm.memory_resources import LoadStorePath
from analyzer.models.sm.simulated_warp import SimulatedCta, SimulatedWarp

MIN_SKIPPED_ITERATIONS = 4  # of a sequence, so that it is worth a mark
_STRETCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)  # marks of the stretches that are compared
_COMPARED_MARKS = 8  # the latest ones, which have to repeat
_TOLERANCE = 1e-4  # of times and queues of stretches that are taken for equal
_PACE_STRETCH, _PACE_TOLERANCE = 8, 0.02  # of stretches of which only the pace is compared
# Stretches that are skipped at a pace that is not that of the loop before, and twice as many each time after.
_FIRST_PACE_STRETCHES = 2
_PACE_MARKS = 4  # after as many steps each, of which the pace from the second to the last is taken
_LEFT_ITERATIONS = 1  # of each warp, which are simulated after a skip
_MAX_APART = 4  # iterations, and part of those in a stretch, by which warps that meet may be apart
_CHANCE_PART = 8  # of the iterations of a stretch, by which warps in the same loop are apart by chance
_PATIENCE = 64  # ends of sequences for each warp without a mark, after which another warp leads


class Mark(Struct, frozen=True):
    """The state of an SM at the end of an iteration of the leader."""

    time: float
    dram_cycles: float  # of the DRAM's work so far
    places: tuple[tuple[int, int], ...]  # of each resident warp: its entry in the plan, iterations done
    waits: tuple[
        float, ...
    ]  # cycles until each warp goes on, 0 where others release it; queued at each resource


class Skip(Struct, frozen=True):
    """What a skip left out."""

    cycles: float = 0.0
    dram_cycles: float = 0.0  # of the DRAM's work


_NO_SKIP = Skip()


class _Move(Struct, frozen=True):
    """How far a warp comes in one stretch, and how many more it can do."""

    warp: SimulatedWarp
    entries: int
    iterations: int  # of its innermost loop
    n_done: int  # iterations that it did: of loops around others if it comes to other entries
    n_left: int
    meets: bool  # others of its CTA, in each iteration


class FastForward:
    """Marks of the leading warp of an SM, and the skips that they allow."""

    __slots__ = (
        "_ends",
        "_leader",
        "_marks",
        "_next_pace_mark",
        "_pace_marks",
        "_pace_steps",
        "_pace_stretches",
        "_paces",
        "meeting_sequences",
        "plans",
        "skipped_cycles",
        "skips",
    )

    def __init__(
        self,
        plans: Sequence[WarpPlan],
        meeting_sequences: Sequence[frozenset[int]],
        pace_steps: int,
        *,
        skips: bool,
    ) -> None:
        self.plans, self.skips = plans, skips
        self.skipped_cycles = 0.0  # so far
        self._paces: dict[tuple[int, int], float] = {}  # the last of each loop, in steps per cycle
        self._pace_steps = self._next_pace_mark = pace_steps  # from one mark of the pace to the next
        # By role: first steps of sequences in which warps of a CTA wait for each other.
        self.meeting_sequences = meeting_sequences
        self._leader: SimulatedWarp | None = None
        self._marks: dict[tuple[int, int], list[Mark]] = {}  # by (entry, -1) or (-1, kind of entry)
        self._pace_marks: list[Mark] = []
        self._ends, self._pace_stretches = 0, _FIRST_PACE_STRETCHES

    def forget(self) -> None:
        """Drop all marks, since CTAs have come or gone."""
        self._leader, self._ends, self._pace_stretches = None, 0, _FIRST_PACE_STRETCHES
        self._marks.clear()
        self._pace_marks.clear()

    def mark(
        self,
        warp: SimulatedWarp,
        key: tuple[int, int],
        time: float,
        n_steps: int,
        ctas: Sequence[SimulatedCta],
        path: LoadStorePath,
    ) -> None:
        """Mark the end of an iteration where its warp leads, or of many steps, and skip what repeats.

        key: entry of the loop, or kind of entry with which an iteration begins; n_steps: simulated so far.
        """
        if not self.skips:
            return
        if self._leads(warp, len(ctas) * len(warp.cta.warps)):
            skipped = self._skip(key, time, ctas, path)
        elif n_steps >= self._next_pace_mark:
            self._next_pace_mark = n_steps + self._pace_steps
            skipped = self._skip_at_pace(time, ctas, path)
        else:
            return
        self.skipped_cycles += skipped.cycles
        path.dram.skipped_cycles += skipped.cycles
        path.dram.work_cycles += skipped.dram_cycles

    def _leads(self, warp: SimulatedWarp, n_warps: int) -> bool:
        """Return whether a warp that has ended an iteration is the one that marks it."""
        if self._leader is warp:
            self._ends = 0
            return True
        self._ends += 1
        if self._leader is None or self._ends > _PATIENCE * n_warps:
            self._marks.clear()
            self._leader, self._ends = warp, 0
            return True
        return False

    def _skip(
        self, key: tuple[int, int], time: float, ctas: Sequence[SimulatedCta], path: LoadStorePath
    ) -> Skip:
        """Mark an iteration of the leader, and skip what repeats; return by how much all warps were moved."""
        warps = _list_warps(ctas)
        marks = self._marks.setdefault(key, [])
        marks.append(_make_mark(time, warps, path))
        stretch = next((one for one in _STRETCHES if _repeats(marks, one)), 0)
        if stretch:
            return self._skip_between(warps, marks[-1 - stretch], marks[-1])
        if not self._keeps_pace(warps, marks):
            return _NO_SKIP
        first = marks[-1 - 2 * _PACE_STRETCH]
        pace = self._count_steps(warps, first, marks[-1]) / (time - first.time)
        lasts = abs(pace - self._paces.get(key, 0.0)) <= _PACE_TOLERANCE * pace
        self._paces[key] = pace
        return self._skip_between(warps, first, marks[-1], math.inf if lasts else self._pace_stretches)

    def _keeps_pace(self, warps: Sequence[SimulatedWarp], marks: Sequence[Mark]) -> bool:
        """Return whether two stretches of marks have the same pace, steps of all warps over cycles."""
        if len(marks) <= 2 * _PACE_STRETCH:
            return False
        first, middle, last = marks[-1 - 2 * _PACE_STRETCH], marks[-1 - _PACE_STRETCH], marks[-1]
        before = self._count_steps(warps, first, middle) * (last.time - middle.time)
        now = self._count_steps(warps, middle, last) * (middle.time - first.time)
        return abs(now - before) <= _PACE_TOLERANCE * now

    def _count_steps(self, warps: Sequence[SimulatedWarp], first: Mark, last: Mark) -> int:
        """Count the steps of all warps between two marks."""
        return sum(
            self.plans[warp.role].count_steps(*now) - self.plans[warp.role].count_steps(*before)
            for warp, before, now in zip(warps, first.places, last.places, strict=True)
        )

    def _skip_at_pace(self, time: float, ctas: Sequence[SimulatedCta], path: LoadStorePath) -> Skip:
        """Mark that so many steps have been simulated; skip at their pace, and return by how much."""
        warps, marks = _list_warps(ctas), self._pace_marks
        marks.append(_make_mark(time, warps, path))
        if len(marks) < _PACE_MARKS:
            return _NO_SKIP
        return self._skip_between(warps, marks.pop(1), marks[-1], math.inf)

    def _skip_between(
        self, warps: Sequence[SimulatedWarp], first: Mark, last: Mark, most: float | None = None
    ) -> Skip:
        """Move all warps by as many stretches from mark to mark as they have left.

        most: stretches at the most, where their pace alone repeats; of the last one a part of all iterations
        will do then.
        """
        moves = self._even_out(self._find_moves(warps, first, last))
        n_parts = 1 if most is None else _count_parts(moves)
        if n_parts > 1:
            moves = [self._set_iterations(one, one.n_done // n_parts) if one.n_done else one for one in moves]
        for move, before, now in zip(moves, first.waits, last.waits, strict=False):
            if not move.n_done and now > 0.0 and first.time + before == last.time + now:
                return _NO_SKIP  # who waits for long goes on meanwhile
        n_stretches = min((move.n_left for move in moves if move.n_done), default=0)
        if n_stretches < 1:
            return _NO_SKIP
        if most is not None and most * n_parts < n_stretches:
            n_stretches, self._pace_stretches = int(most) * n_parts, 2 * self._pace_stretches
        for move in moves:
            move.warp.sequence += n_stretches * move.entries
            move.warp.iteration += n_stretches * move.iterations
        self._marks.clear()
        self._pace_marks.clear()
        moved = replace(last, places=_list_places(warps))
        factor = self._count_steps(warps, last, moved) / self._count_steps(warps, first, last)
        return Skip(factor * (last.time - first.time), factor * (last.dram_cycles - first.dram_cycles))

    def _find_moves(self, warps: Sequence[SimulatedWarp], first: Mark, last: Mark) -> list[_Move]:
        """Find how far each warp comes from one mark to the other."""
        moves: list[_Move] = []
        for warp, before, now in zip(warps, first.places, last.places, strict=True):
            entries, iterations, plan = now[0] - before[0], now[1] - before[1], self.plans[warp.role]
            if entries and now[0] < len(plan.sequences):
                entries = plan.count_repeated_entries(before[0], now[0])
                n_done = int(plan.n_outer_starts[now[0]] - plan.n_outer_starts[now[0] - entries])
                n_done = n_done or max(1, entries)
                n_left = plan.count_repetitions(now[0], entries) - _LEFT_ITERATIONS if entries else 0
                moves.append(_Move(warp, entries, 0, n_done, n_left, meets=True))
            elif now[0] < len(plan.sequences):
                sequence = plan.sequences[now[0]]
                meets = sequence.start in self.meeting_sequences[warp.role]
                n_left = sequence.iterations - now[1] - _LEFT_ITERATIONS
                n_left = n_left // iterations if iterations else 0
                moves.append(_Move(warp, 0, iterations, iterations, n_left, meets))
            else:  # it has ended, and if since the first mark, others cannot repeat what they did
                moves.append(_Move(warp, 0, 0, int(entries > 0), 0, meets=False))
        return moves

    def _even_out(self, moves: list[_Move]) -> list[_Move]:
        """Let warps do equally many iterations that do so but for chance; return none where they cannot.

        Those in the same loop may be an iteration apart, and are so by chance: moved as they are, CTAs in
        step would drift apart. Those of one CTA that meet in each iteration are apart by the stages of a
        pipeline.
        """
        by_loop: dict[tuple[int, int], list[_Move]] = {}
        for move in moves:
            if move.n_done and move.n_left:
                place = -1 if move.entries else move.warp.sequence
                by_loop.setdefault((move.warp.role, place), []).append(move)
        evened: dict[int, _Move] = {}
        for same in by_loop.values():
            amounts = [move.n_done for move in same]
            mean = round(sum(amounts) / len(amounts))
            if len(set(amounts)) > 1 and max(amounts) - min(amounts) <= 1 + mean // _CHANCE_PART:
                evened |= {id(move.warp): self._set_iterations(move, mean) for move in same}
        moves = [evened.get(id(move.warp), move) for move in moves]
        by_cta: dict[int, list[_Move]] = {}
        for move in moves:
            if move.meets:
                by_cta.setdefault(id(move.warp.cta), []).append(move)
        for same in by_cta.values():
            amounts = [move.n_done for move in same if move.n_left or move.n_done]
            if len(set(amounts)) <= 1:
                continue
            mean = round(sum(move.n_done for move in same) / len(same))
            if mean < 1 or max(amounts) - min(amounts) > _MAX_APART + mean // _MAX_APART:
                return []
            evened |= {id(move.warp): self._set_iterations(move, mean) for move in same}
        return [evened.get(id(move.warp), move) for move in moves]

    def _set_iterations(self, move: _Move, iterations: int) -> _Move:
        """Return a move by so many iterations; by none where entries do not repeat with each."""
        warp, plan = move.warp, self.plans[move.warp.role]
        sequence = warp.sequences[warp.sequence]
        if not move.entries:
            n_left = (sequence.iterations - warp.iteration - _LEFT_ITERATIONS) // iterations
            return _Move(warp, 0, iterations, iterations, n_left, move.meets)
        entries = move.entries // move.n_done * iterations
        repeats = move.entries % move.n_done == 0 and 0 < entries <= warp.sequence
        n_left = plan.count_repetitions(warp.sequence, entries) - _LEFT_ITERATIONS if repeats else 0
        return _Move(warp, entries, 0, iterations, n_left, meets=True)


def _count_parts(moves: Sequence[_Move]) -> int:
    """Return into how many parts of whole iterations of each warp a stretch can be divided."""
    return 1 if any(move.entries for move in moves) else math.gcd(*(move.n_done for move in moves))


def _list_warps(ctas: Sequence[SimulatedCta]) -> list[SimulatedWarp]:
    return [warp for cta in ctas for warp in cta.warps]


def _list_places(warps: Sequence[SimulatedWarp]) -> tuple[tuple[int, int], ...]:
    return tuple([(warp.sequence, warp.iteration) for warp in warps])


def _make_mark(time: float, warps: Sequence[SimulatedWarp], path: LoadStorePath) -> Mark:
    next_times = {id(warp): at for at, _, warp in path.heap}
    ends = [*(next_times.get(id(warp), time) for warp in warps), *path.list_queue_ends()]
    return Mark(
        time,
        path.dram.work_cycles,
        _list_places(warps),
        tuple([max(0.0, end - time) for end in ends]),
    )


def _repeats(marks: Sequence[Mark], stretch: int) -> bool:
    """Return whether the latest marks repeat after so many: the same times, moves of all warps and queues."""
    n_compared = max(_COMPARED_MARKS - stretch, stretch)
    if len(marks) <= n_compared + stretch:
        return False
    cycles = marks[-1].time - marks[-1 - stretch].time
    tolerance = _TOLERANCE * cycles
    for number in range(-1, -1 - n_compared, -1):
        now, before = marks[number], marks[number - stretch]
        if abs(now.time - before.time - cycles) > tolerance:
            return False
        if any(abs(one - two) > tolerance for one, two in zip(now.waits, before.waits, strict=True)):
            return False
    first, middle, last = marks[-1 - 2 * stretch], marks[-1 - stretch], marks[-1]
    return all(
        two[0] - one[0] == three[0] - two[0] and two[1] - one[1] == three[1] - two[1]
        for one, two, three in zip(first.places, middle.places, last.places, strict=True)
    )
