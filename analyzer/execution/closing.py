"""Loops in closed form: many iterations at once, where registers grow evenly.

At each arrival at a loop's header the registers that the loop needs are remembered. Where the last arrivals
differ by the same amounts every `period` iterations, a `Trial` checks one period and says how many alike
follow; they are then taken in one step.

A trial closes loops inside of its own in the same way, at the first of its iterations. What grows along both
loops is a sum of what grows along each: iterations of the inner loop before and behind those taken at once
are executed as all in the trial are, with what grows along the outer loop. A condition that holds along these
two edges, and along the inner loop in the first iteration of the outer one, holds in between as well: along
each loop it changes one way only (see `AffineRule`).
"""

from weakref import proxy

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.budget import EndlessLoop
from analyzer.execution.histories import HISTORY, Gains, History, Snapshot, all_left, kept_like
from analyzer.execution.lanes import ALL_LANES, Deltas, Group, Origins, Rows, View, smallest
from analyzer.execution.machine import Machine
from analyzer.execution.program import Segment
from analyzer.execution.step import Bits
from analyzer.execution.tally import Tally
from analyzer.execution.trial import ENDLESS, LEAST_REPEATS, Trial, TrialFailed
from analyzer.isa.roles import PREDICATE_BASE, STORAGE_SIZE

IntArray = NDArray[np.int64]

_FIRST_OUTER = 6  # arrivals before a loop is tried in which others were closed: a trial closes them again
_MOST_LEAVING = 3
_MOST_TRIPS = 1 << 34  # some minutes on any GPU


class Closer:
    """Watches the headers of a machine and takes many iterations at once where it may."""

    def __init__(self, machine: Machine, *, is_inner: bool = False) -> None:
        """is_inner: the machine is a trial, in which registers grow along its own loop."""
        self.machine: Machine = proxy(machine)  # which owns this, as it does its `Convergence`
        self.is_inner = is_inner
        self.taken: IntArray = np.zeros(machine.batch.n_warps, dtype=np.int64)  # segments, all at once
        self.histories: dict[int, History] = {}
        self.failures: dict[int, int] = {}
        self.gains: dict[int, Gains] = {}
        # registers with whose growth a loop never closes, by header and group
        self.hopeless: dict[tuple[int, ...], list[frozenset[int]]] = {}
        self.needed: dict[int, list[int]] = {}
        self.ranges: dict[int, slice] = {}

    def __call__(self, segment: Segment, group: Group) -> bool:
        """Called before a group runs a loop's header; True where the group has nothing to run."""
        history = self.histories.get(segment.index)
        loop = self.machine.headers[segment.index].index
        entries = int(self.machine.tally.entries[loop, group.rows[0]])
        if history is None or history.entries != entries or not history.goes_on(group, self.machine):
            failures = self.failures.get(segment.index, 0)
            history = History(replace(group), entries=entries, failures=failures)
            self.histories[segment.index] = history
        history.snapshots.append(self._snapshot(segment, group))
        del history.snapshots[: -kept_like(history.snapshots[-1])]
        history.arrivals += 1
        if history.arrivals < history.next_try or (history.is_outer and not self._may_try_outer(history)):
            return False
        gains = self.gains.setdefault(segment.index, Gains())
        found = self._candidates(group, history, gains)[: 1 if history.is_outer else None]
        before = self.machine.budget.spent
        for period, growth in found:
            if any(slots <= growth.keys() for slots in self.hopeless.get(_key(segment, group), ())):
                continue
            taken = self._try(segment, group, period, growth, history.snapshots[-1])
            if taken:
                gains.note(period, taken, history.arrivals)
                del self.histories[segment.index]
                self.failures[segment.index] = 0
                break
        else:
            gains.note_arrivals(history.arrivals)
            if history.is_outer and not self.is_inner:
                self.machine.budget.lost += self.machine.budget.spent - before
            history.failures += bool(found) or history.arrivals > HISTORY
            self.failures[segment.index] = history.failures
            history.next_try = history.arrivals + history.pause()
        return False

    def _may_try_outer(self, history: History) -> bool:
        return history.arrivals >= _FIRST_OUTER and (self.is_inner or self.machine.budget.may_try)

    def _slots(self, segment: Segment) -> list[int]:
        if segment.index not in self.needed:
            mask = self.machine.kernel.slice.needed[segment.block]
            self.needed[segment.index] = [slot for slot in range(STORAGE_SIZE) if mask >> slot & 1]
        tracked = self.machine.tracked
        return self.needed[segment.index] + (list(tracked.local.values()) if tracked else [])

    def _range_of(self, segment: Segment) -> slice:
        """Where a loop's segments stand among all."""
        if segment.index not in self.ranges:
            blocks = self.machine.headers[segment.index].blocks
            inside = [other.index for other in self.machine.kernel.segments if other.block in blocks]
            self.ranges[segment.index] = slice(inside[0], inside[-1] + 1)
        return self.ranges[segment.index]

    def _snapshot(self, segment: Segment, group: Group) -> Snapshot:
        view = View(self.machine.state, group)
        slots = self._slots(segment)
        ran = self.machine.tally.segments[self._range_of(segment)].sum(axis=0) - self.taken
        self.machine.state.owned.clear()  # what is remembered must not be written in place
        return Snapshot(
            {slot: view.value(slot) for slot in slots},
            {slot: view.origin(slot) for slot in slots},
            ran[group.rows],
            int(self.taken[group.rows].max(initial=0)),
        )

    def _candidates(
        self, group: Group, history: History, gains: Gains
    ) -> list[tuple[int, dict[int, Deltas]]]:
        """Periods that may be, and what grows over each; first those over which fewest registers grow.

        Where fewer grow, more have come round.
        """
        mask = _mask(View(self.machine.state, group))
        found = [
            (period, growth)
            for period in history.periods()
            if gains.wants(period, history.arrivals)
            and (growth := _even_growth(history.snapshots, period, mask)) is not None
        ]
        return sorted(found, key=lambda candidate: len(candidate[1]))

    def _try(
        self,
        segment: Segment,
        group: Group,
        period: int,
        growth: dict[int, Deltas],
        now: Snapshot,
        attempts: int = _MOST_LEAVING,
    ) -> int:
        """Take iterations at once if a trial allows it; how many. Warps that leave meanwhile are left out."""
        trial = self._trial(segment, group)
        trial.state.deltas = [None] * len(trial.state.deltas)
        view = View(trial.state, group)
        for slot, delta in growth.items():
            view.write(slot, view.value(slot), view.origin(slot), delta)
        view.flush()
        try:
            tally = trial.run_period(period)
        except TrialFailed as failed:
            if failed.is_lasting:
                self.hopeless.setdefault(_key(segment, group), []).append(frozenset(growth))
            rest = None if failed.leaving is None else self._without(group, failed.leaving)
            if rest is None or not attempts:
                return 0
            growth, now = self._left(group, rest, growth, now)
            return self._try(segment, rest, period, growth, now, attempts - 1)
        rest = trial.staying(group)
        if rest is not group:
            growth, now = self._left(group, rest, growth, now)
            if self.is_inner:  # along the outer loop nothing is known of those that left
                return self._try(segment, rest, period, growth, now, attempts - 1) if attempts else 0
        is_taken = self._commit(segment, rest, growth, now, trial, tally, period)
        return period * int(trial.repeats(rest.rows).max()) if is_taken else 0

    def _trial(self, segment: Segment, group: Group) -> Trial:
        trial = Trial(self.machine, segment, group)
        if self.machine.ears is None:
            trial.on_header = Closer(trial, is_inner=True)
        return trial

    def _nest(
        self,
        segment: Segment,
        group: Group,
        growth: dict[int, Deltas],
        tally: Tally,
        period: int,
        repeats: int,
    ) -> bool:
        """Log what a period of the inner loop tallied within an iteration of the outer one, if possible."""
        outer = self._run_outer(segment, group, period, {})
        later = self._run_outer(segment, group, period, growth) if outer is not None else None
        return (
            outer is not None
            and later is not None
            and self.machine.tally.memory.nest(tally.memory, outer.memory, later.memory, repeats)
        )

    def _run_outer(
        self, segment: Segment, group: Group, period: int, ahead: dict[int, Deltas]
    ) -> Tally | None:
        """What a period tallies with growths along the outer loop, which it must leave as they are.

        ahead: by how much registers are further on than they are now.
        """
        trial = self._trial(segment, group)
        view = View(trial.state, group)
        for slot, delta in ahead.items():
            view.write(slot, view.value(slot) + delta, view.origin(slot), view.delta(slot))
        view.flush()
        try:
            tally = trial.run_period(period)
        except TrialFailed:
            return None
        if trial.left is not None:
            return None
        before, after = View(self.machine.state, group), View(trial.state, group)
        mask = _mask(after)
        for slot in self._slots(segment):
            origin = after.origin(slot)
            relevant = mask if origin is None else mask & (origin == 0)
            if not _same_growth(before.delta(slot), after.delta(slot), relevant):
                return None
        return tally

    def _left(
        self, group: Group, rest: Group, growth: dict[int, Deltas], now: Snapshot
    ) -> tuple[dict[int, Deltas], Snapshot]:
        """Growth and registers of the rest of a group."""
        whole, view = View(self.machine.state, group), View(self.machine.state, rest)
        places = np.searchsorted(group.rows, rest.rows)
        growth, values, origins = (
            all_left(arrays, whole, view, places) for arrays in (growth, now.values, now.origins)
        )
        return growth, Snapshot(values, origins, now.ran[places], now.taken)

    def _without(self, group: Group, leaving: Rows) -> Group | None:
        """The group's other warps; None where there are none."""
        stays = ~np.isin(group.rows, leaving)
        if not stays.any() or bool(stays.all()):
            return None
        rows, mask = group.rows[stays], group.mask[stays]
        return self.machine.made(rows, mask, group.doubts, is_full=group.is_full)

    def _commit(
        self,
        segment: Segment,
        group: Group,
        growth: dict[int, Deltas],
        now: Snapshot,
        trial: Trial,
        tally: Tally,
        period: int,
    ) -> bool:
        machine = self.machine
        least = trial.repeats(group.rows)
        if self.is_inner:
            # the last one tells whether it is so along the outer loop too
            least = least.min(keepdims=True) - 1
        if bool((least < LEAST_REPEATS).all()) or not self._is_even(trial, segment, group, growth, now):
            return False
        if bool((least >= ENDLESS).any()):
            if self.is_inner:
                return False
            raise EndlessLoop(f"the loop at {self._address(segment):#x} has no end")
        # the last of the alike iterations is left to be executed, so that its exit is seen
        repeats = np.zeros(machine.batch.n_warps, dtype=np.int64)
        repeats[group.rows] = np.maximum(least, 0)
        if self.is_inner:
            if not self._nest(segment, group, growth, tally, period, int(least[0])):
                return False
        else:
            machine.tally.memory.absorb(tally.memory, repeats)
        self._note_left(trial, tally, repeats)
        if machine.watcher is not None:
            machine.watcher.note_loop(group.rows, repeats, tally)
        ran = np.flatnonzero(tally.segments.any(axis=1))
        machine.tally.segments[ran] += tally.segments[ran] * repeats
        if bool((machine.tally.segments[segment.index] > _MOST_TRIPS).any()):
            where = f"the loop at {self._address(segment):#x}"
            raise EndlessLoop(f"a warp runs {where} more than {_MOST_TRIPS:,} times")
        machine.tally.lanes[ran] += tally.lanes[ran] * repeats
        machine.tally.entries += tally.entries * repeats
        self.taken += tally.segments.sum(axis=0) * repeats
        machine.tally.doubted |= tally.doubted
        for row, weight in tally.hanging.items():
            mean = float(repeats[group.rows].mean())
            machine.tally.hanging[row] = machine.tally.hanging.get(row, 0.0) + weight * mean
        self._advance(segment, group, growth, repeats[group.rows])
        return True

    def _note_left(self, trial: Trial, tally: Tally, repeats: IntArray) -> None:
        """Inner loops that a period left on assumption were left in the last iteration taken at once too."""
        machine = self.machine
        for loop, left in trial.left_at.items():
            before = machine.left_before(loop)
            known = np.zeros_like(left) if before is None else before
            header = machine.kernel.entry_of[machine.kernel.nest.loops[loop].header]
            last = left + np.maximum(repeats - 1, 0) * tally.segments[header]
            machine.left_at[loop] = np.where((left != known) & (repeats > 0), last, known)

    def _address(self, segment: Segment) -> int:
        cfg = self.machine.kernel.cfg
        return int(cfg.kernel.addresses[cfg.blocks[segment.block].start])

    def _is_even(
        self, trial: Trial, segment: Segment, group: Group, growth: dict[int, Deltas], now: Snapshot
    ) -> bool:
        """The registers have grown by what they were taken to grow by, and would again."""
        view = View(trial.state, group)
        mask = _mask(view)
        for slot in self._slots(segment):
            before, after = now.values[slot], view.value(slot)
            origin, later = now.origins[slot], view.origin(slot)
            if not _same_unknown(origin, later, mask):
                return False
            relevant = mask if later is None else mask & (later == 0)
            wanted = growth.get(slot)
            grown = before if wanted is None else before + wanted
            if bool(((after != grown) & relevant).any()):
                return False
            delta = view.delta(slot)
            if not _same_growth(wanted, delta, relevant):
                return False
        return True

    def _advance(self, segment: Segment, group: Group, growth: dict[int, Deltas], repeats: IntArray) -> None:
        view = View(self.machine.state, group)
        times = repeats if (repeats != repeats[0]).any() else repeats[:1]
        shaped = view.shaped(times[:, None].astype(np.uint32))
        for slot, delta in growth.items():
            view.write(slot, view.value(slot) + delta * shaped, view.origin(slot), view.delta(slot))
        view.flush()


def _key(segment: Segment, group: Group) -> tuple[int, ...]:
    """Parts of a loop's warps that go other ways inside of it are told apart."""
    return segment.index, int(group.rows[0]), len(group.rows)


def _mask(view: View) -> Bits:
    """Lanes of the group, as small as it broadcasts."""
    return ALL_LANES if bool(view.mask.all()) else view.mask


def _even_growth(snapshots: list[Snapshot], period: int, mask: Bits) -> dict[int, Deltas] | None:
    """Growth of each register over the last period, None where it was not the same before."""
    middle, new = snapshots[-1 - period], snapshots[-1]
    old = snapshots[-1 - 2 * period] if len(snapshots) > 2 * period else None
    found: dict[int, Deltas] = {}
    for slot, value in new.values.items():
        origin = new.origins[slot]
        relevant = mask if origin is None else mask & (origin == 0)
        before = middle.values.get(slot)
        if before is None:
            return None
        if value is before:
            continue
        earlier = before if old is None else old.values.get(slot)
        if earlier is None:
            return None
        if slot >= PREDICATE_BASE and slot < STORAGE_SIZE:
            if bool(((value != before) & relevant).any()):
                return None
            continue
        delta = value - before
        if old is not None and bool(((before - earlier != delta) & relevant).any()):
            return None
        delta = np.where(relevant, delta, 0).astype(np.uint32) if origin is not None else delta
        if delta.any():
            found[slot] = smallest(delta)
    return found if _grew_so_before(snapshots, period, found, mask) else None


def _grew_so_before(snapshots: list[Snapshot], period: int, growth: dict[int, Deltas], mask: Bits) -> bool:
    """Arrivals of the last period were as far from those a period before: no counter has wrapped.

    Those that there are: where the trial is bold, it finds out about the others.
    """
    for place in range(max(period, len(snapshots) - period), len(snapshots) - 1):
        later, earlier = snapshots[place], snapshots[place - period]
        for slot, delta in growth.items():
            now, before = later.values.get(slot), earlier.values.get(slot)
            if now is None or before is None or later.origins[slot] is not None:
                continue
            if bool(((now - before != delta) & mask).any()):
                return False
    return True


def _same_growth(first: Deltas | None, second: Deltas | None, relevant: Bits) -> bool:
    left = np.zeros((1, 1), np.uint32) if first is None else first
    right = np.zeros((1, 1), np.uint32) if second is None else second
    return not bool(((left != right) & relevant).any())


def _same_unknown(first: Origins | None, second: Origins | None, mask: Bits) -> bool:
    if first is None and second is None:
        return True
    zero = np.zeros((1, 1), dtype=np.int32)
    left = (zero if first is None else first) != 0
    right = (zero if second is None else second) != 0
    return not bool(((left != right) & mask).any())
