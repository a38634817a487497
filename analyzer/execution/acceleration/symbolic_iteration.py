"""One iteration of a loop, executed symbolically for all iterations to come.

Idea: let each register of the loop hold v + d * t in iteration t, with value v and delta d. Execute the body
once, with the rule of each opcode (`AffineRule`). If it leaves every register at v + d with the same d, and
no branch, guard, predicate or wrap-around changes before iteration T, then by induction T iterations are
equivalent: their counters are T times those of one, and their addresses those of one plus t times a step.

Invariant: `count_repeats` bounds T; each step may only lower it.

Example: `i += 1; p += 4; if (i < 100) loop` with i = 3, d = 1: i and p grow linearly, and `i < 100` holds
for t < 96, so T = 96; a load at p has step 4.
"""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.lowering.segments import LoweredAccess, MbarrierOperation, Segment
from analyzer.execution.lowering.step import AffineRule, ConstantRead, LaneFunction, Step, Value
from analyzer.execution.machine.abstract_machine import AbstractMachine, simplified
from analyzer.execution.machine.execution_counters import ExecutionCounters
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.local_memory import find_stack_offsets
from analyzer.execution.machine.register_state import (
    Deltas,
    LockstepGroup,
    RegisterState,
    RegisterView,
    UnknownOrigins,
    WarpIndices,
    collapse_uniform_axes,
    drop_inactive_origins,
    find_followed,
    make_divergent_origin,
)
from analyzer.execution.machine.shared_memory import has_known_store_data
from analyzer.execution.machine.tracked_memory import (
    TrackedMemory,
    compute_address_strides,
    compute_lane_addresses,
)
from analyzer.ir.arrays import BoolArray, IntArray
from analyzer.ir.opcode import GLOBAL_SPACES, AddressSpace, OpKind
from analyzer.ir.scheduling import WARP_SIZE

ENDLESS_REPEATS = 1 << 40
MIN_REPEATS = 2
MAX_PERIOD_SEGMENTS = 1024
_SIGN_BIT = 1 << 31
_ZERO_WORD: Value = np.zeros((1, 1), dtype=np.uint32)


class SymbolicIterationFailed(Exception):
    """Raised if iterations cannot be accelerated from here.

    leaving_warps: warps that leave the loop; the attempt may succeed for the others.
    is_permanent: it fails over any period in which the same registers grow.
    """

    def __init__(
        self, why: str, leaving_warps: WarpIndices | None = None, *, is_permanent: bool = False
    ) -> None:
        super().__init__(why)
        self.leaving_warps, self.is_permanent = leaving_warps, is_permanent


class SymbolicIteration(AbstractMachine):
    """Executes one period of a loop with growing registers; `count_repeats` says how often it repeats."""

    def __init__(self, parent: AbstractMachine, segment: Segment, group: LockstepGroup) -> None:
        super().__init__(
            parent.kernel,
            parent.batch,
            parent.decide_branch,
            parent.budget,
            (_FixedMbarrierCheck(),) if parent.listeners.on_mbarrier else (),
            parent.counters.memory_log.make_iteration_log(),
        )
        self.step_limit: int = (
            parent.step_limit if isinstance(parent, SymbolicIteration) else parent.budget.attempt_step_limit
        )
        self.parent, self.header_segment, self.first_group = parent, segment, group
        self.state: RegisterState = parent.state.copy()
        self.groups.live_lanes = parent.groups.live_lanes
        self.convergence.lane_masks = {n: mask.copy() for n, mask in parent.convergence.lane_masks.items()}
        self.overwritten_buffers = parent.overwritten_buffers
        self.max_repeats = ENDLESS_REPEATS  # bound for all warps
        self.warp_max_repeats: IntArray | None = None  # bound for each warp, if they differ
        # arrays whose range was checked, by their identities; kept, so that these are not used again
        self.checked_ranges: dict[tuple[int, ...], tuple[WarpIndices, Value, Deltas, BoolArray]] = {}
        if parent.tracked_memory is not None:
            self.tracked_memory = TrackedMemory(self.batch, self.order)
            self.tracked_memory.local = parent.tracked_memory.local.copy()
        self.loop = parent.loops_by_header[segment.index]
        self.exited_warps: BoolArray | None = None  # [warp], those that leave the loop
        self.header_arrivals = 0
        self.period = 1
        self.returned_group: LockstepGroup | None = None

    def run_period(self, iterations: int) -> ExecutionCounters:
        """Execute so many iterations and return their counters. Raises SymbolicIterationFailed."""
        self.period = iterations
        self.enqueue_group(
            self.header_segment.index, replace(self.first_group, mask=self.first_group.mask.copy())
        )
        with np.errstate(all="ignore"):
            while self.pending_groups:
                self.run_next_segment()
        if self.returned_group is None or not self.convergence.is_idle:
            raise SymbolicIterationFailed("warps part")
        group, back = self.drop_exited_warps(self.first_group), self.drop_exited_warps(self.returned_group)
        if self.convergence.cta_barriers.has_reduced:
            self._check_barrier_results()
        same = len(back.warp_indices) == len(group.warp_indices) and bool(
            (back.warp_indices == group.warp_indices).all()
        )
        if not same or bool((back.mask != group.mask).any()) or back.speculations != group.speculations:
            raise SymbolicIterationFailed("other warps come back")
        return self.counters

    def _check_barrier_results(self) -> None:
        """Check that later iterations reduce the predicates of the same threads at CTA barriers.

        Raises SymbolicIterationFailed.
        """
        if self.exited_warps is not None or self.parent.convergence.cta_barriers.pending:
            raise SymbolicIterationFailed("other threads come to a barrier")
        # of an outer loop that runs this one, too
        self.parent.convergence.cta_barriers.has_reduced = True

    def execute_segment(self, segment: Segment, group: LockstepGroup) -> None:
        """See `AbstractMachine`. Raises SymbolicIterationFailed if attempts have cost too much."""
        if self.budget.spent_steps > self.step_limit:
            raise SymbolicIterationFailed("too long")
        super().execute_segment(segment, group)

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """End the run when the group has returned to the header of the loop often enough."""
        if segment.index != self.header_segment.index:
            return super().handle_loop_header(segment, group)
        self.header_arrivals += 1
        if self.header_arrivals <= self.period:
            return False
        if self.returned_group is not None:
            raise SymbolicIterationFailed("warps part")
        self.returned_group = group
        return True

    def count_segment_runs(self, index: int) -> IntArray:
        """See `AbstractMachine`; includes the runs before this iteration."""
        return self.parent.count_segment_runs(index) + super().count_segment_runs(index)

    def find_speculative_exit_runs(self, loop: int) -> IntArray | None:
        """See `AbstractMachine`; includes exits before this iteration."""
        found = super().find_speculative_exit_runs(loop)
        return self.parent.find_speculative_exit_runs(loop) if found is None else found

    def drop_exited_warps(self, group: LockstepGroup) -> LockstepGroup:
        """Return the group without warps that have left the loop."""
        if self.exited_warps is None:
            return group
        stays = ~self.exited_warps[group.warp_indices]
        return self.groups.make_group(
            group.warp_indices[stays],
            group.mask[stays],
            group.speculations,
            has_all_lanes=group.has_all_lanes,
        )

    def enqueue_group(self, index: int | None, group: LockstepGroup) -> None:
        """See `AbstractMachine`; warps that leave the loop end here. Raises if all of them leave."""
        if index is not None and self.kernel.segments[index].block in self.loop.blocks:
            super().enqueue_group(index, group)
            return
        left = np.zeros(self.batch.n_warps, dtype=bool) if self.exited_warps is None else self.exited_warps
        left[group.warp_indices] = True
        if bool(left[self.first_group.warp_indices].all()):
            raise SymbolicIterationFailed("the loop ends")
        self.exited_warps = left

    def retire_lanes(self, group: LockstepGroup, gone: BoolArray) -> None:
        """Refuse lanes that exit: such an iteration does not repeat. Raises SymbolicIterationFailed."""
        raise SymbolicIterationFailed("a thread ends", group.warp_indices)

    # ---- what grows ------------------------------------------------------------------------------

    def apply_step(
        self, step: Step, view: RegisterView, lanes: BoolArray | None, unknown: UnknownOrigins | None
    ) -> None:
        """Execute a step, with the growth of its results if some inputs grow."""
        if self.forget_if_unknown(step, view, lanes, unknown):
            return
        step = simplified(step, view, unknown)
        deltas = [view.read_delta(what) if isinstance(what, int) else None for what in step.reads]
        for what in step.reads:
            if (
                isinstance(what, ConstantRead)
                and what.base is not None
                and view.read_delta(what.base) is not None
            ):
                raise SymbolicIterationFailed("an array of constants is indexed")
        if all(delta is None for delta in deltas):
            super().apply_step(step, view, lanes, unknown)
            return
        if step.affine_rule is AffineRule.UNKNOWN or (
            step.uses_active_mask and step.affine_rule is not AffineRule.LINEAR
        ):
            raise SymbolicIterationFailed("an instruction that is not affine", is_permanent=True)
        if step.uses_active_mask:
            self._apply_cross_lane(step, view, lanes, unknown, deltas)
            return
        words, origin = self.read_operands(step, view, unknown)
        relevant = view.active if lanes is None else view.active & lanes
        if origin is not None:
            relevant = relevant & find_followed(origin)
        growth = _StepGrowth(self, step, view, words, deltas, relevant)
        mask = None if lanes is None else self._limit_to_group(lanes, view)
        for slot, result, delta in zip(
            step.writes, growth.initial_results, growth.find_deltas(), strict=True
        ):
            if slot >= 0:
                view.write(slot, result, origin, delta, mask)

    def _apply_cross_lane(
        self,
        step: Step,
        view: RegisterView,
        lanes: BoolArray | None,
        unknown: UnknownOrigins | None,
        deltas: list[Deltas | None],
    ) -> None:
        """Execute a linear step that combines lanes: applied to the growth of its inputs it gives its own."""
        super().apply_step(step, view, lanes, unknown)
        active = view.active if lanes is None else view.active & lanes
        rows = np.broadcast_to(view.to_warp_rows(active), (len(view.group.warp_indices), WARP_SIZE))
        grown = step.apply(
            rows, *(_ZERO_WORD if delta is None else view.to_warp_rows(delta) for delta in deltas)
        )
        mask = None if lanes is None else self._limit_to_group(lanes, view)
        for slot, delta in zip(step.writes, grown, strict=True):
            if slot >= 0:
                view.write(
                    slot,
                    view.read_value(slot),
                    view.read_origin(slot),
                    _drop_zero_delta(view.from_warp_rows(delta)),
                    mask,
                )

    def count_repeats(self, rows: WarpIndices) -> IntArray:
        """Return how often the period repeats, for each of these warps or as one number for all."""
        if self.warp_max_repeats is None:
            return np.full(1, self.max_repeats, dtype=np.int64)
        if self.convergence.cta_barriers.has_reduced:  # a warp's iterations depend on those of others
            least = int(self.warp_max_repeats[self.first_group.warp_indices].min())
            return np.full(len(rows), min(least, self.max_repeats), dtype=np.int64)
        return np.minimum(self.warp_max_repeats[rows], self.max_repeats)

    def limit_repeats(self, view: RegisterView, counts: IntArray) -> None:
        """Bound the repetitions by `counts`, one number per warp or one for all."""
        rows = view.group.warp_indices
        is_all = self.exited_warps is None and len(rows) == len(self.first_group.warp_indices)
        if is_all and len(counts) == 1:
            self.max_repeats = min(self.max_repeats, int(counts[0]))
        else:
            if self.warp_max_repeats is None:
                self.warp_max_repeats = np.full(self.batch.n_warps, ENDLESS_REPEATS, dtype=np.int64)
            self.warp_max_repeats[rows] = np.minimum(self.warp_max_repeats[rows], counts)
        if is_all and bool((self.count_repeats(rows) < MIN_REPEATS).all()):
            raise SymbolicIterationFailed("few iterations are alike")

    def _touches_known_shared(
        self, access: LoweredAccess, view: RegisterView, addresses: NDArray[np.uint64] | None
    ) -> bool:
        """Return whether an access to shared memory reads or changes known bytes; None: any address."""
        tracked = self.parent.tracked_memory
        stores = access.kind is not OpKind.LOAD
        if tracked is None or not (stores or access.result_slots):
            return False
        return tracked.has_known_bytes(addresses, access.width_bytes) or (
            stores and has_known_store_data(access, view)
        )

    def limit_to_range(
        self,
        view: RegisterView,
        value: Value,
        delta: Deltas,
        relevant: BoolArray,
        *,
        is_unsigned: bool = False,
    ) -> None:
        """Bound the repetitions so that value + delta * t does not wrap around, signed or unsigned.

        relevant: lanes that count.
        is_unsigned: only an unsigned wrap-around counts.
        """
        key = (id(view.group.warp_indices), id(value), id(delta), id(relevant), is_unsigned)
        if key in self.checked_ranges:
            return
        self.checked_ranges[key] = (view.group.warp_indices, value, delta, relevant)
        within = np.uint32(0xFFFFFFFF if is_unsigned else _SIGN_BIT - 1)
        if delta.size == 1:
            step = int(delta.view(np.int32).reshape(1)[0])
            room = (~value if step >= 0 else value) & within
            if int(room.min()) >= (self.max_repeats - 1) * abs(step):  # no lane is tighter
                return
            least = np.where(relevant, room, within).min(axis=-1).astype(np.int64)
            counts = least // max(1, abs(step)) + 1
        else:
            steps = delta.view(np.int32).astype(np.int64)
            rooms = (np.where(steps >= 0, ~value, value) & within).astype(np.int64)
            rooms = np.where(relevant & (steps != 0), rooms, ENDLESS_REPEATS << 1)
            counts = rooms // np.maximum(np.abs(steps), 1) + 1
            counts = counts.min(axis=-1)
        self.limit_repeats(view, view.to_warp_vector(counts))

    def execute_access_part(
        self,
        access: LoweredAccess,
        view: RegisterView,
        lanes: BoolArray | None,
        active: BoolArray,
        unknown: UnknownOrigins | None,
    ) -> None:
        """See `AbstractMachine`; logs the step of addresses from one iteration to the next."""
        if access.bulk is not None and any(
            view.read_delta(slot) is not None for slot in access.bulk.size_registers
        ):
            raise SymbolicIterationFailed("copies of growing size")
        addresses = origin = steps = None
        if access.address is not None:
            addresses, origin = compute_lane_addresses(access.address, view)
            origin = drop_inactive_origins(origin, active)
            steps = compute_address_strides(access.address, view)
            for term in access.address.terms:
                delta = view.read_delta(term.slot)
                if delta is not None and term.is_pair:
                    relevant = active if origin is None else active & find_followed(origin)
                    self.limit_to_range(view, view.read_value(term.slot), delta, relevant, is_unsigned=True)
        self.counters.memory_log.record(access, view.group, active, addresses, origin, unknown, steps)
        moves = steps is not None and bool(steps.any())
        if access.space is AddressSpace.SHARED and access.space in self.tracked_spaces:
            if self._touches_known_shared(access, view, None if moves or origin is not None else addresses):
                raise SymbolicIterationFailed("shared memory changes")
            self.forget(access.result_slots, view, make_divergent_origin(access.row), lanes)
            return
        if moves and (
            (access.result_slots and self._reads_other_contents(steps)) or access.space is AddressSpace.LOCAL
        ):
            raise SymbolicIterationFailed("a buffer is read on")
        self._check_memory_contents(access, view, active, addresses if origin is None else None)
        self._transfer_data(access, view, lanes, addresses, origin)

    def _reads_other_contents(self, steps: IntArray | None) -> bool:
        """Return whether the next iteration may read other known contents than this one."""
        if self.batch.has_known_contents:
            return True
        return steps is not None and bool((steps % self.batch.fill_period_bytes).any())

    def _check_memory_contents(
        self,
        access: LoweredAccess,
        view: RegisterView,
        active: BoolArray,
        addresses: NDArray[np.uint64] | None,
    ) -> None:
        """Raise SymbolicIterationFailed if an access may change contents from one iteration to the next."""
        here = np.broadcast_to(view.to_warp_rows(active), view.group.mask.shape)
        if (
            access.space is AddressSpace.LOCAL
            and self.tracked_memory is not None
            and self.tracked_memory.local.cuts_growing_word(access, view, here, addresses)
        ):
            raise SymbolicIterationFailed("a part of a word that grows")
        if access.space is AddressSpace.LOCAL and addresses is not None and addresses.size > 1:
            places = find_stack_offsets(view, here, addresses, access.width_bytes)
            if places is None or len(places) > 1:
                raise SymbolicIterationFailed("many places of the stack")
        if access.kind is OpKind.LOAD or access.space not in GLOBAL_SPACES:
            return
        is_near = self.tracked_memory is not None and access.space is AddressSpace.GENERIC
        if self.overwritten_buffers.may_overwrite(active, addresses) or (
            is_near and self.tracked_memory is not None and not self.tracked_memory.is_global_only(addresses)
        ):
            raise SymbolicIterationFailed("a buffer changes")


class _FixedMbarrierCheck(ExecutionListener):
    """Fails if the next iteration uses other mbarriers: listeners must see all stages of a pipeline."""

    def on_mbarrier(self, operation: MbarrierOperation, view: RegisterView, lanes: BoolArray | None) -> None:
        """Check that the mbarrier's address does not grow. Raises SymbolicIterationFailed."""
        steps = None if operation.address is None else compute_address_strides(operation.address, view)
        if steps is not None and bool(steps.any()):
            raise SymbolicIterationFailed("other mbarriers follow")


class _StepGrowth:
    """Results of one step with growing inputs: first values, growth, and for how many iterations it holds."""

    def __init__(
        self,
        iteration: SymbolicIteration,
        step: Step,
        view: RegisterView,
        words: list[Value],
        deltas: list[Deltas | None],
        relevant: BoolArray,
    ) -> None:
        self.iteration, self.step, self.view, self.relevant_lanes = iteration, step, view, relevant
        self.words, self.input_deltas = words, deltas
        self.initial_results = step.apply(*words)

    def evaluate_at(self, t: IntArray, function: LaneFunction) -> tuple[Value, ...]:
        """Return `function` of the inputs in iteration t, [n_warp, 1] or [1, 1]."""
        times = self.view.from_warp_rows(t.astype(np.uint32))
        words = [
            word if delta is None else word + delta * times
            for word, delta in zip(self.words, self.input_deltas, strict=True)
        ]
        return function(*words)

    def find_deltas(self) -> list[Deltas | None]:
        """Return the growth of each result, None for 0, and bound the repetitions for which it holds."""
        rule = self.step.affine_rule
        if rule is AffineRule.BITWISE:
            return self._find_bitwise_deltas()
        if rule in (AffineRule.PRODUCT, AffineRule.PAIR_LINEAR) and self._has_two_growing_factors():
            raise SymbolicIterationFailed("a product of two that grow")
        needs_range = rule in (
            AffineRule.PAIR_LINEAR,
            AffineRule.MONOTONE,
            AffineRule.PIECEWISE_LINEAR,
        ) or any(result.dtype == np.bool_ for result in self.initial_results)
        if needs_range:
            self._limit_to_input_ranges()
        if rule is AffineRule.MONOTONE:
            if self.step.compute_invariants is None:
                self._limit_until_change(self.step.apply, self.initial_results)
            else:
                self._limit_until_change(
                    self.step.compute_invariants, self.step.compute_invariants(*self.words)
                )
            return [None] * len(self.initial_results)
        if rule is AffineRule.PIECEWISE_LINEAR and self.step.compute_invariants is not None:
            self._limit_until_change(self.step.compute_invariants, self.step.compute_invariants(*self.words))
        if any(result.dtype == np.bool_ for result in self.initial_results):
            self._limit_until_change(
                lambda *words: _select_predicates(self.step.apply(*words)),
                _select_predicates(self.initial_results),
            )
        if rule in (AffineRule.LINEAR, AffineRule.PRODUCT):
            return self._find_linear_deltas()
        second = self.evaluate_at(np.ones((1, 1), dtype=np.int64), self.step.apply)
        return (
            self._find_pair_deltas(second)
            if rule is AffineRule.PAIR_LINEAR
            else _subtract_words(self.initial_results, second)
        )

    def _find_linear_deltas(self) -> list[Deltas | None]:
        """Return the growth of a linear step; constant addends are left out, so that arrays stay small."""
        kept = {place for places in self.step.factors for place in places if self.input_deltas[place] is None}
        still = [
            word if word.dtype == np.bool_ or place in kept else _ZERO_WORD
            for place, word in enumerate(self.words)
        ]
        moved = [
            word if delta is None else delta for word, delta in zip(still, self.input_deltas, strict=True)
        ]
        return _subtract_words(self.step.apply(*still), self.step.apply(*moved))

    def _has_two_growing_factors(self) -> bool:
        """Return whether both factors of a product grow."""
        return all(
            any(self.input_deltas[place] is not None for place in places) for places in self.step.factors
        )

    def _limit_to_input_ranges(self) -> None:
        """Bound the repetitions so that no growing input wraps around."""
        for word, delta in zip(self.words, self.input_deltas, strict=True):
            if delta is not None:
                self.iteration.limit_to_range(self.view, word, delta, self.relevant_lanes)

    def _find_pair_deltas(self, second: tuple[Value, ...]) -> list[Deltas | None]:
        """Return the growth of a 64-bit sum's words: even while the low word does not wrap around."""
        low, high = self.initial_results[0], self.initial_results[1]
        before = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        after = second[0].astype(np.uint64) | second[1].astype(np.uint64) << np.uint64(32)
        growth = after - before
        low_delta = growth.astype(np.uint32)
        signed = low_delta.view(np.int32).astype(np.int64)
        high_delta = ((growth.view(np.int64) - signed) >> 32).astype(np.uint32)
        if low_delta.any():
            self.iteration.limit_to_range(self.view, low, low_delta, self.relevant_lanes, is_unsigned=True)
        return [_drop_zero_delta(low_delta), _drop_zero_delta(high_delta)]

    def _limit_until_change(self, compute_invariants: LaneFunction, start: tuple[Value, ...]) -> None:
        """Bound the repetitions to those in which all invariants keep their first values, `start`.

        Each is monotone in t: the last unchanged iteration is found by bisection, for each warp.
        """
        iteration, rows = self.iteration, self.view.group.warp_indices
        limits = iteration.count_repeats(rows)
        shape = (1, 1) if bool((limits == limits[:1]).all()) else (len(rows), 1)
        last = limits[: shape[0]].reshape(shape) - 1
        final = self.evaluate_at(last, compute_invariants)
        if all(np.array_equal(before, after) for before, after in zip(start, final, strict=True)):
            return
        if self._find_unchanged_warps(start, final).all():
            return
        low, high = np.zeros_like(last), last
        if shape[0] == 1 and len(rows) > 1 and any(v[..., :1].size > 1 for v in start):
            low, high = np.zeros((len(rows), 1), np.int64), np.repeat(last, len(rows), axis=0)
        still = self._find_unchanged_warps(start, self.evaluate_at(high, compute_invariants))
        low = np.where(still, high, low)
        while (high - low > 1).any():
            middle = np.minimum((low + high) // 2, 2 * low + 1)  # doubling: most change early
            same = self._find_unchanged_warps(start, self.evaluate_at(middle, compute_invariants))
            low = np.where(same, middle, low)
            high = np.where(same, high, middle)
        counts = np.where(still, last + 1, high)
        iteration.limit_repeats(self.view, counts[:, 0])

    def _find_unchanged_warps(self, start: tuple[Value, ...], now: tuple[Value, ...]) -> BoolArray:
        """Return the warps in which relevant lanes have the same values, [n_warp, 1] or [1, 1]."""
        same: BoolArray = np.ones((1, 1), dtype=bool)
        for before, after in zip(start, now, strict=True):
            differs = (before != after) & self.relevant_lanes
            same = same & self.view.to_warp_rows(~differs.any(axis=-1, keepdims=True))
        return same

    def _find_bitwise_deltas(self) -> list[Deltas | None]:
        """Return the growth of LOP3: bits below the lowest one that grows are fixed, others follow it."""
        growing = [place for place, delta in enumerate(self.input_deltas) if delta is not None]
        if len(growing) != 1:
            raise SymbolicIterationFailed("two that grow in one logic operation")
        place = growing[0]
        delta = self.input_deltas[place]
        assert delta is not None
        zeros, ones = list(self.words), list(self.words)
        zeros[place] = np.zeros((1, 1), dtype=np.uint32)
        ones[place] = np.full((1, 1), 0xFFFFFFFF, dtype=np.uint32)
        off, on = self.step.apply(*zeros), self.step.apply(*ones)
        fixed = int(np.bitwise_or.reduce(delta, axis=None))
        lowest = (fixed & -fixed) if fixed else 0
        moving = np.uint32(0xFFFFFFFF & ~(lowest - 1)) if lowest else np.uint32(0)
        found: list[Deltas | None] = []
        for first, a, b in zip(self.initial_results, off, on, strict=True):
            if first.dtype == np.bool_:
                self._limit_to_input_ranges()
                raise SymbolicIterationFailed("a predicate of logic")
            found.append(self._find_bit_delta(place, delta, (a ^ b) & moving, b, moving))
        return found

    def _find_bit_delta(
        self, place: int, delta: Deltas, depends: Value, on: Value, moving: np.uint32
    ) -> Deltas | None:
        """Return the growth of one result, None for 0, and bound the repetitions for which it holds.

        depends: result bits that follow the input.
        on: the result with all input bits set: a bit that is off in it follows the input inverted.
        moving: input bits that may change.
        """
        relevant = np.broadcast_to(
            self.relevant_lanes, np.broadcast_shapes(self.relevant_lanes.shape, depends.shape)
        )
        seen = np.broadcast_to(depends, relevant.shape)[relevant]
        if not seen.size or not seen.any():
            return None
        mask = int(seen.flat[0])
        is_uniform = bool((seen == mask).all())
        direct = is_uniform and bool(
            (np.broadcast_to(on, relevant.shape)[relevant] & np.uint32(mask) == mask).all()
        )
        if direct and mask == int(moving):
            return delta
        if direct and _is_low_bit_run(mask, int(moving)):
            self._limit_to_fixed_bits(place, mask.bit_length())
            return delta
        joint = int(np.bitwise_or.reduce(seen))
        self._limit_to_fixed_bits(place, (joint & -joint).bit_length() - 1)
        return None

    def _limit_to_fixed_bits(self, place: int, bit: int) -> None:
        """Bound the repetitions to those in which the input's bits from `bit` on stay the same."""
        self._limit_to_input_ranges()
        if bit < 32:
            shift = np.uint32(bit)
            self._limit_until_change(lambda *words: (words[place] >> shift,), (self.words[place] >> shift,))


def _is_low_bit_run(mask: int, moving: int) -> bool:
    """Return whether the bits are one run that begins at the lowest moving bit."""
    lowest = mask & -mask
    return lowest == moving & -moving and (mask + lowest) & mask == 0


def _select_predicates(results: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the predicates among results."""
    return tuple(result for result in results if result.dtype == np.bool_)


def _subtract_words(first: tuple[Value, ...], second: tuple[Value, ...]) -> list[Deltas | None]:
    """Return the differences of words, None for 0 and for predicates."""
    return [
        None if after.dtype == np.bool_ else _drop_zero_delta(after - before)
        for before, after in zip(first, second, strict=True)
    ]


def _drop_zero_delta(delta: Deltas) -> Deltas | None:
    """Return a delta as small as it is uniform, None if it is 0."""
    return collapse_uniform_axes(delta.astype(np.uint32, copy=False)) if delta.any() else None
