"""Loop acceleration: many iterations at once, where registers grow evenly.

Idea, as in loop acceleration and scalar evolution (induction variables, add recurrences), but at run time:

1. At each arrival of a group at a loop header, take a snapshot of the registers that are live there.
2. If the snapshots of the last arrivals differ by the same amounts every `period` iterations, these amounts
   are the growth of the registers.
3. Execute one period with this growth (`SymbolicIteration`). It confirms the growth, or fails, and returns
   the number of periods that run in the same way.
4. Add the counters of the period that many times, advance the registers, and continue after them. The last of
   these periods is executed, so that the exit of the loop is seen.

Nested loops. A symbolic iteration of an outer loop accelerates its inner loops in the same way. What grows
along both loops is a sum of the growths along each. The iterations of the inner loop before and after the
accelerated ones are executed with the growth along the outer loop. A condition that holds along these two
edges, and along the inner loop in the first iteration of the outer one, holds for all iterations in between:
along each loop it changes in one direction only (see `AffineRule`).

Invariant: counters, registers and logged accesses are those of execution iteration by iteration.

Example: `for (i = 0; i < 1000; i++) sum += a[i]` is executed for a few iterations, in which i grows by 1 and
the address by 4. A symbolic iteration finds in how many more `i < 1000` holds; these are accelerated.
"""

from weakref import proxy

import numpy as np
from msgspec.structs import replace

from analyzer.execution.acceleration.loop_history import (
    MAX_SNAPSHOTS,
    AccelerationGains,
    LoopHistory,
    RegisterSnapshot,
    count_kept_snapshots,
    select_remaining,
)
from analyzer.execution.acceleration.symbolic_iteration import (
    ENDLESS_REPEATS,
    MIN_REPEATS,
    SymbolicIteration,
    SymbolicIterationFailed,
)
from analyzer.execution.lowering.segments import Segment
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.budget import EndlessLoop
from analyzer.execution.machine.execution_counters import ExecutionCounters
from analyzer.execution.machine.register_state import (
    ALL_LANES,
    Deltas,
    LockstepGroup,
    RegisterView,
    UnknownOrigins,
    WarpIndices,
    collapse_uniform_axes,
    find_followed,
)
from analyzer.ir.arrays import BoolArray, IntArray
from analyzer.isa.register_operands import N_REGISTER_UNITS, PREDICATE_BASE

_MIN_OUTER_ARRIVALS = (
    6  # before an outer loop is first tried: its symbolic iteration accelerates the inner loops again
)
_MAX_EXIT_RETRIES = 3
_MIN_PASSES = 3  # entries of a loop in a row without an iteration, after which the first arrival is not kept
_MAX_WARP_TRIPS = 1 << 34  # some minutes on any GPU
# Loops of people end after some. One that counts to the value of a pointer goes from one overflow of a low
# word to the next.
_MAX_GAINS_PER_ENTRY = 64


class LoopAccelerator:
    """Accelerates the loops of one machine."""

    def __init__(self, machine: AbstractMachine, outer: "LoopAccelerator | None" = None) -> None:
        """Accelerate the loops of `machine`.

        outer: of the machine around it, if that is a symbolic iteration: registers grow along its loop.
        """
        # the machine owns this; a proxy, so that no cycle keeps its arrays alive
        self.machine: AbstractMachine = proxy(machine)
        self.is_inner = outer is not None
        # headers of loops whose last gain ended with the loop; shared with the machines around this one
        self.ending_loops: set[int] = set() if outer is None else outer.ending_loops
        # by warp: runs of segments that were counted without being executed
        self.accelerated_segments: IntArray = np.zeros(machine.batch.n_warps, dtype=np.int64)
        # by header segment, likewise below
        self.histories: dict[int, LoopHistory] = {}
        self.failures: dict[int, int] = {}
        self.passes: dict[int, int] = {}
        self.gains: dict[int, AccelerationGains] = {}
        # by header and group: registers whose growth makes every attempt fail
        self.rejected_growths: dict[tuple[int, ...], list[frozenset[int]]] = {}
        self.needed_slots: dict[int, list[int]] = {}
        self.segment_ranges: dict[int, slice] = {}
        self.depths: dict[int, int] = {} if outer is None else outer.depths

    def accelerate(self, segment: Segment, group: LockstepGroup) -> None:
        """Accelerate iterations of a group, if possible, before it runs the header of its loop."""
        history = self.histories.get(segment.index)
        loop = self.machine.loops_by_header[segment.index].index
        self.machine.budget.spend_at_header(self._find_depth(segment))
        entries = int(self.machine.counters.loop_entries[loop, group.warp_indices[0]])
        if history is None or history.n_entries != entries or not history.follow_group(group, self.machine):
            passes = self._count_passes(segment, history)
            failures = self.failures.get(segment.index, 0)
            history = LoopHistory(replace(group), n_entries=entries, n_failures=failures)
            self.histories[segment.index] = history
            if passes >= _MIN_PASSES:
                history.n_arrivals += 1
                return
        history.snapshots.append(self._take_snapshot(segment, group))
        del history.snapshots[: -count_kept_snapshots(history.snapshots[-1])]
        history.n_arrivals += 1
        gains = self.gains.setdefault(segment.index, AccelerationGains())
        if gains.ends_loop(history.n_arrivals, entries):
            self.ending_loops.add(segment.index)
        if history.n_arrivals < history.next_attempt or (
            history.is_outer and not self._is_outer_attempt_allowed(segment, history)
        ):
            return
        found = self._find_candidates(group, history, gains)[: 1 if history.is_outer else None]
        before = self.machine.budget.spent_steps
        for period, growth in found:
            if any(
                slots <= growth.keys()
                for slots in self.rejected_growths.get(_make_group_key(segment, group), ())
            ):
                continue
            n_accelerated = self._try_period(segment, group, period, growth, history.snapshots[-1])
            if n_accelerated:
                gains.record_success(period, n_accelerated, history.n_arrivals, entries)
                self._check_end(segment, gains)
                del self.histories[segment.index]
                self.failures[segment.index] = 0
                break
        else:
            gains.record_failure(history.n_arrivals)
            if history.is_outer and not self.is_inner:
                self.machine.budget.wasted_steps += self.machine.budget.spent_steps - before
            history.n_failures += bool(found) or history.n_arrivals > MAX_SNAPSHOTS
            self.failures[segment.index] = history.n_failures
            history.next_attempt = history.n_arrivals + history.count_pause_arrivals()

    def _count_passes(self, segment: Segment, history: LoopHistory | None) -> int:
        """Count the entries of a loop in a row that came to its header once: those of waits that are over."""
        is_pass = history is not None and history.n_arrivals == 1
        passes = self.passes[segment.index] = self.passes.get(segment.index, 0) + 1 if is_pass else 0
        return passes

    def _check_end(self, segment: Segment, gains: AccelerationGains) -> None:
        """Raise EndlessLoop for a loop that goes on after many accelerations since it was entered."""
        if gains.n_in_entry > _MAX_GAINS_PER_ENTRY:
            where = f"the loop at {self._find_header_address(segment):#x}"
            raise EndlessLoop(f"{where} has no end in sight after {gains.n_in_entry:,} accelerations")

    def _is_outer_attempt_allowed(self, segment: Segment, history: LoopHistory) -> bool:
        """Return whether an outer loop may be tried after so many arrivals and failed attempts."""
        least = 0 if segment.index in self.ending_loops else _MIN_OUTER_ARRIVALS
        return history.n_arrivals >= least and (self.is_inner or self.machine.budget.is_attempt_affordable)

    def _find_slots(self, segment: Segment) -> list[int]:
        """Return the slots that are live at a loop header, and all words of the stack."""
        if segment.index not in self.needed_slots:
            mask = self.machine.kernel.slice.live_in[segment.block]
            self.needed_slots[segment.index] = [slot for slot in range(N_REGISTER_UNITS) if mask >> slot & 1]
        tracked = self.machine.tracked_memory
        return self.needed_slots[segment.index] + (tracked.local.slots if tracked else [])

    def _find_segment_range(self, segment: Segment) -> slice:
        """Return the range from a loop's first segment to its last."""
        if segment.index not in self.segment_ranges:
            blocks = self.machine.loops_by_header[segment.index].blocks
            inside = [other.index for other in self.machine.kernel.segments if other.block in blocks]
            self.segment_ranges[segment.index] = slice(inside[0], inside[-1] + 1)
        return self.segment_ranges[segment.index]

    def _find_depth(self, segment: Segment) -> int:
        """Return how many loops contain that of a header."""
        if segment.index not in self.depths:
            enclosing = self.machine.kernel.loop_forest.find_enclosing_loops(segment.block)
            self.depths[segment.index] = len(enclosing) - 1
        return self.depths[segment.index]

    def _take_snapshot(self, segment: Segment, group: LockstepGroup) -> RegisterSnapshot:
        """Return what the live registers of a group hold at a loop header."""
        view = RegisterView(self.machine.state, group)
        slots = self._find_slots(segment)
        ran = (
            self.machine.counters.segment_runs[self._find_segment_range(segment)].sum(axis=0)
            - self.accelerated_segments
        )
        self.machine.state.exclusive_arrays.clear()  # arrays of a snapshot must not be written in place
        return RegisterSnapshot(
            {slot: view.read_value(slot) for slot in slots},
            {slot: view.read_origin(slot) for slot in slots},
            ran[group.warp_indices],
            int(self.accelerated_segments[group.warp_indices].max(initial=0)),
        )

    def _find_candidates(
        self, group: LockstepGroup, history: LoopHistory, gains: AccelerationGains
    ) -> list[tuple[int, dict[int, Deltas]]]:
        """Return possible periods with the growth over each, first those over which fewest registers grow.

        If fewer registers grow, more of them have returned to their value.
        """
        mask = _make_lane_mask(RegisterView(self.machine.state, group))
        found = [
            (period, growth)
            for period in history.iterate_candidate_periods()
            if gains.is_worth_trying(period, history.n_arrivals)
            and (growth := _find_constant_growth(history.snapshots, period, mask)) is not None
        ]
        return sorted(found, key=lambda candidate: len(candidate[1]))

    def _try_period(
        self,
        segment: Segment,
        group: LockstepGroup,
        period: int,
        growth: dict[int, Deltas],
        now: RegisterSnapshot,
        attempts: int = _MAX_EXIT_RETRIES,
    ) -> int:
        """Accelerate iterations if a symbolic iteration succeeds; return how many.

        Warps that leave the loop in it are excluded, and the others tried again.
        """
        self.machine.budget.spend_symbolic_iteration()
        iteration = self._make_iteration(segment, group)
        iteration.state.deltas = [None] * len(iteration.state.deltas)
        view = RegisterView(iteration.state, group)
        for slot, delta in growth.items():
            view.write(slot, view.read_value(slot), view.read_origin(slot), delta)
        view.flush()
        try:
            counters = iteration.run_period(period)
        except SymbolicIterationFailed as failed:
            if failed.is_permanent:
                self.rejected_growths.setdefault(_make_group_key(segment, group), []).append(
                    frozenset(growth)
                )
            rest = None if failed.leaving_warps is None else self._exclude_warps(group, failed.leaving_warps)
            if rest is None or not attempts:
                return 0
            growth, now = self._restrict_to_group(group, rest, growth, now)
            return self._try_period(segment, rest, period, growth, now, attempts - 1)
        rest = iteration.drop_exited_warps(group)
        if rest is not group:
            growth, now = self._restrict_to_group(group, rest, growth, now)
            if self.is_inner:  # warps that left may stay in later iterations of the outer loop
                return self._try_period(segment, rest, period, growth, now, attempts - 1) if attempts else 0
        is_taken = self._commit_iterations(segment, rest, growth, now, iteration, counters, period)
        return period * int(iteration.count_repeats(rest.warp_indices).max()) if is_taken else 0

    def _make_iteration(self, segment: Segment, group: LockstepGroup) -> SymbolicIteration:
        """Return a machine for one symbolic iteration."""
        if self.machine.listeners.on_mbarrier:  # listeners must see each iteration of inner loops
            return SymbolicIteration(self.machine, segment, group)
        return _OuterIteration(self.machine, segment, group, self)

    def _record_nested(
        self,
        segment: Segment,
        group: LockstepGroup,
        growth: dict[int, Deltas],
        counters: ExecutionCounters,
        period: int,
        repeats: int,
    ) -> bool:
        """Log an inner loop's period, repeated, within an iteration of the outer loop, if possible."""
        outer = self._run_outer_iteration(segment, group, period, {})
        later = self._run_outer_iteration(segment, group, period, growth) if outer is not None else None
        return (
            outer is not None
            and later is not None
            and self.machine.counters.memory_log.add_nested_iterations(
                counters.memory_log, outer.memory_log, later.memory_log, repeats
            )
        )

    def _run_outer_iteration(
        self, segment: Segment, group: LockstepGroup, period: int, offsets: dict[int, Deltas]
    ) -> ExecutionCounters | None:
        """Return the counters of a period with growth along the outer loop, None if it changes that growth.

        offsets: what is added to registers before.
        """
        iteration = self._make_iteration(segment, group)
        view = RegisterView(iteration.state, group)
        for slot, delta in offsets.items():
            view.write(slot, view.read_value(slot) + delta, view.read_origin(slot), view.read_delta(slot))
        view.flush()
        try:
            counters = iteration.run_period(period)
        except SymbolicIterationFailed:
            return None
        if iteration.exited_warps is not None:
            return None
        before, after = RegisterView(self.machine.state, group), RegisterView(iteration.state, group)
        mask = _make_lane_mask(after)
        for slot in self._find_slots(segment):
            origin = after.read_origin(slot)
            relevant = mask if origin is None else mask & find_followed(origin)
            if not _is_same_growth(before.read_delta(slot), after.read_delta(slot), relevant):
                return None
        return counters

    def _restrict_to_group(
        self, group: LockstepGroup, rest: LockstepGroup, growth: dict[int, Deltas], now: RegisterSnapshot
    ) -> tuple[dict[int, Deltas], RegisterSnapshot]:
        """Return growth and registers of the rest of a group."""
        whole, view = RegisterView(self.machine.state, group), RegisterView(self.machine.state, rest)
        places = np.searchsorted(group.warp_indices, rest.warp_indices)
        growth, values, origins = (
            select_remaining(arrays, whole, view, places) for arrays in (growth, now.values, now.origins)
        )
        return growth, RegisterSnapshot(values, origins, now.segment_runs[places], now.accelerated_segments)

    def _exclude_warps(self, group: LockstepGroup, leaving: WarpIndices) -> LockstepGroup | None:
        """Return the group without the warps that leave; None if all or none leave."""
        stays = ~np.isin(group.warp_indices, leaving)
        if not stays.any() or bool(stays.all()):
            return None
        rows, mask = group.warp_indices[stays], group.mask[stays]
        return self.machine.groups.make_group(
            rows, mask, group.speculations, has_all_lanes=group.has_all_lanes
        )

    def _commit_iterations(
        self,
        segment: Segment,
        group: LockstepGroup,
        growth: dict[int, Deltas],
        now: RegisterSnapshot,
        iteration: SymbolicIteration,
        counters: ExecutionCounters,
        period: int,
    ) -> bool:
        """Advance counters, log and registers by all equivalent iterations; return False if too few.

        Raises EndlessLoop if the loop has no end.
        """
        machine = self.machine
        repeat_bounds = iteration.count_repeats(group.warp_indices)
        if self.is_inner:
            # one more is executed at the end: it shows whether the same holds along the outer loop
            repeat_bounds = repeat_bounds.min(keepdims=True) - 1
        if bool((repeat_bounds < MIN_REPEATS).all()) or not self._is_growth_confirmed(
            iteration, segment, group, growth, now
        ):
            return False
        if bool((repeat_bounds >= ENDLESS_REPEATS).any()):
            if self.is_inner:
                return False
            raise EndlessLoop(f"the loop at {self._find_header_address(segment):#x} has no end")
        # the period after these is executed, so that the exit of the loop is seen
        repeats = np.zeros(machine.batch.n_warps, dtype=np.int64)
        repeats[group.warp_indices] = np.maximum(repeat_bounds, 0)
        if self.is_inner:
            if not self._record_nested(segment, group, growth, counters, period, int(repeat_bounds[0])):
                return False
        else:
            machine.counters.memory_log.add_iterations(counters.memory_log, repeats)
        self._record_inner_exits(iteration, counters, repeats)
        for on_accelerated_loop in machine.listeners.on_accelerated_loop:
            on_accelerated_loop(group.warp_indices, repeats, counters)
        ran = np.flatnonzero(counters.segment_runs.any(axis=1))
        machine.counters.segment_runs[ran] += counters.segment_runs[ran] * repeats
        if bool((machine.counters.segment_runs[segment.index] > _MAX_WARP_TRIPS).any()):
            where = f"the loop at {self._find_header_address(segment):#x}"
            raise EndlessLoop(f"a warp runs {where} more than {_MAX_WARP_TRIPS:,} times")
        machine.counters.active_lanes[ran] += counters.active_lanes[ran] * repeats
        machine.counters.loop_entries += counters.loop_entries * repeats
        self.accelerated_segments += counters.segment_runs.sum(axis=0) * repeats
        machine.counters.speculative_blocks |= counters.speculative_blocks
        for row, weight in counters.speculative_instructions.items():
            mean = float(repeats[group.warp_indices].mean())
            machine.counters.speculative_instructions[row] = (
                machine.counters.speculative_instructions.get(row, 0.0) + weight * mean
            )
        self._advance_registers(segment, group, growth, repeats[group.warp_indices])
        return True

    def _record_inner_exits(
        self, iteration: SymbolicIteration, counters: ExecutionCounters, repeats: IntArray
    ) -> None:
        """Record speculative exits of inner loops, as in the last of the accelerated iterations."""
        machine = self.machine
        for loop, left in iteration.speculative_exit_runs.items():
            before = machine.find_speculative_exit_runs(loop)
            known = np.zeros_like(left) if before is None else before
            header = machine.kernel.entry_segments[machine.kernel.loop_forest.loops[loop].header]
            last = left + np.maximum(repeats - 1, 0) * counters.segment_runs[header]
            machine.speculative_exit_runs[loop] = np.where((left != known) & (repeats > 0), last, known)

    def _find_header_address(self, segment: Segment) -> int:
        """Return the address of a loop's first instruction."""
        cfg = self.machine.kernel.cfg
        return int(cfg.kernel.addresses[cfg.blocks[segment.block].start])

    def _is_growth_confirmed(
        self,
        iteration: SymbolicIteration,
        segment: Segment,
        group: LockstepGroup,
        growth: dict[int, Deltas],
        now: RegisterSnapshot,
    ) -> bool:
        """Return whether the registers grew by the supposed growth in the period, and would grow so again."""
        view = RegisterView(iteration.state, group)
        mask = _make_lane_mask(view)
        for slot in self._find_slots(segment):
            before, after = now.values[slot], view.read_value(slot)
            origin, later = now.origins[slot], view.read_origin(slot)
            if not _has_same_unknowns(origin, later, mask):
                return False
            relevant = mask if later is None else mask & find_followed(later)
            wanted = growth.get(slot)
            grown = before if wanted is None else before + wanted
            if bool(((after != grown) & relevant).any()):
                return False
            delta = view.read_delta(slot)
            if not _is_same_growth(wanted, delta, relevant):
                return False
        return True

    def _advance_registers(
        self, segment: Segment, group: LockstepGroup, growth: dict[int, Deltas], repeats: IntArray
    ) -> None:
        """Add the growth to the registers, `repeats` times."""
        view = RegisterView(self.machine.state, group)
        times = repeats if (repeats != repeats[0]).any() else repeats[:1]
        shaped = view.from_warp_rows(times[:, None].astype(np.uint32))
        for slot, delta in growth.items():
            view.write(
                slot, view.read_value(slot) + delta * shaped, view.read_origin(slot), view.read_delta(slot)
            )
        view.flush()


class _OuterIteration(SymbolicIteration):
    """A symbolic iteration that accelerates the loops inside of its own."""

    def __init__(
        self, parent: AbstractMachine, segment: Segment, group: LockstepGroup, outer: LoopAccelerator
    ) -> None:
        super().__init__(parent, segment, group)
        self.accelerator = LoopAccelerator(self, outer)

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        if segment.index == self.header_segment.index:
            return super().handle_loop_header(segment, group)
        self.accelerator.accelerate(segment, group)
        return False


def _make_group_key(segment: Segment, group: LockstepGroup) -> tuple[int, ...]:
    """Return a key of a loop and of the part of its warps that a group has."""
    return segment.index, int(group.warp_indices[0]), len(group.warp_indices)


def _make_lane_mask(view: RegisterView) -> BoolArray:
    """Return the lanes of the group, as small as the array broadcasts."""
    return ALL_LANES if bool(view.mask.all()) else view.mask


def _find_constant_growth(
    snapshots: list[RegisterSnapshot], period: int, mask: BoolArray
) -> dict[int, Deltas] | None:
    """Return the growth of registers over the last period, None if it was another one before."""
    middle, new = snapshots[-1 - period], snapshots[-1]
    old = snapshots[-1 - 2 * period] if len(snapshots) > 2 * period else None
    found: dict[int, Deltas] = {}
    for slot, value in new.values.items():
        origin = new.origins[slot]
        relevant = mask if origin is None else mask & find_followed(origin)
        before = middle.values.get(slot)
        if before is None:
            return None
        if value is before:
            continue
        earlier = before if old is None else old.values.get(slot)
        if earlier is None:
            return None
        if slot >= PREDICATE_BASE and slot < N_REGISTER_UNITS:
            if bool(((value != before) & relevant).any()):
                return None
            continue
        delta = value - before
        if old is not None and bool(((before - earlier != delta) & relevant).any()):
            return None
        delta = np.where(relevant, delta, 0).astype(np.uint32) if origin is not None else delta
        if delta.any():
            found[slot] = collapse_uniform_axes(delta)
    return found if _is_growth_stable(snapshots, period, found, mask) else None


def _is_growth_stable(
    snapshots: list[RegisterSnapshot], period: int, growth: dict[int, Deltas], mask: BoolArray
) -> bool:
    """Return whether the other arrivals of the last period, too, grew so since the period before.

    If not, a register has wrapped around. With fewer snapshots than two periods only those that exist are
    compared: the symbolic iteration checks the rest.
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


def _is_same_growth(first: Deltas | None, second: Deltas | None, relevant: BoolArray) -> bool:
    """Return whether two growths are equal in relevant lanes; None is 0."""
    left = np.zeros((1, 1), np.uint32) if first is None else first
    right = np.zeros((1, 1), np.uint32) if second is None else second
    return not bool(((left != right) & relevant).any())


def _has_same_unknowns(first: UnknownOrigins | None, second: UnknownOrigins | None, mask: BoolArray) -> bool:
    """Return whether the same lanes are unknown."""
    if first is None and second is None:
        return True
    zero = np.zeros((1, 1), dtype=np.int32)
    left = (zero if first is None else first) != 0
    right = (zero if second is None else second) != 0
    return not bool(((left != right) & mask).any())
