"""CTA barriers: threads that wait for each other, and what a barrier computes of their predicates.

The rules ("barrier", PTX ISA):

1. BAR.SYNC N waits for all live threads of the CTA, or for the number of threads that it names. Threads that
   have exited are waited for no longer. Each of the numbered barriers counts for itself.
2. BAR.ARV arrives and goes on.
3. BAR.RED waits too, and reduces a predicate over the threads that came: in how many it is true, whether in
   all, whether in any. B2R.RESULT reads the last such result of its thread, so it is kept like a register.

Invariant: a result is known only if it is the same for all values of what is unknown: predicates,
threads that come or have ended on an assumption, threads that came in another way (BAR.SYNC) or in too great
a number.

    BAR.RED.POPC 0x0, P0      8 warps, P0 true in 115 lanes: each thread then reads 115
    B2R.RESULT R0
"""

from typing import Any, Protocol
from weakref import proxy

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.lowering.segments import BarrierOperation, BarrierReduction, Terminator
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.group_factory import GroupFactory
from analyzer.execution.machine.register_state import (
    DIVERGENT_FLAG,
    LockstepGroup,
    RegisterState,
    RegisterView,
    UnknownOrigins,
    collapse_uniform_axes,
    make_divergent_origin,
)
from analyzer.execution.machine.speculation import SpeculationTracker
from analyzer.execution.machine.warp_order import Times, WarpOrder
from analyzer.ir.arrays import BoolArray, IntArray
from analyzer.ir.scheduling import WARP_SIZE

GroupSuccessors = list[tuple[int | None, LockstepGroup]]  # segments, None where the code ends

_NUMBER_MASK = 0xF  # 16 barriers
_COUNT_SHIFT, _COUNT_MASK = 16, 0xFFF  # of a register that holds number and threads
_ALL_THREADS = -1

# How the threads of a CTA came to a barrier: not yet, without a reduction, in several ways.
_NOT_YET, _PLAIN, _MIXED = 0, 1, 9
_CODES = {
    BarrierOperation.COUNT: 2,
    BarrierOperation.ALL: 3,
    BarrierOperation.ANY: 4,
    BarrierOperation.UNKNOWN: _MIXED,
}


class GroupScheduler(Protocol):
    """Part of the machine that released groups go to."""

    def enqueue_group(self, index: int | None, group: LockstepGroup) -> None:
        """Let a group wait for its turn at a segment."""


class _Votes(Struct, eq=False):
    """Predicates of some warps at a barrier, [n_warp, 32], and where they are unknown their origins."""

    bits: BoolArray
    origins: UnknownOrigins


class _Pending(Struct, eq=False):
    """A barrier at which threads have arrived."""

    arrived: BoolArray  # [n_warp, 32] of the batch
    expected: IntArray  # [cta], threads that open it, `_ALL_THREADS` for all that live
    codes: NDArray[np.int8]  # [cta], see above
    votes: _Votes  # of the whole batch
    times: Times  # [n_warp], of their last arrivals, see `WarpOrder`
    waiting: GroupSuccessors  # with the segments at which they continue
    state: RegisterState
    row: int


class CtaBarriers:
    """Barriers of all CTAs of a batch."""

    def __init__(
        self,
        batch: CtaBatch,
        groups: GroupFactory,
        speculation: SpeculationTracker,
        order: WarpOrder,
        scheduler: GroupScheduler,
        *,
        tracks_results: bool,
    ) -> None:
        self.batch, self.groups, self.speculation, self.order = batch, groups, speculation, order
        self.scheduler: GroupScheduler = proxy(scheduler)
        self.tracks_results = tracks_results
        self.pending: dict[int, _Pending] = {}  # by number
        self.has_reduced = False  # a predicate has been reduced
        # by CTA: origin of the assumption on which threads have ended, 0 for none
        self._exit_doubts: UnknownOrigins = np.zeros(len(batch.cta_numbers), dtype=np.int32)

    @property
    def is_idle(self) -> bool:
        """True if no group waits."""
        return not any(barrier.waiting for barrier in self.pending.values())

    # ---- arrivals --------------------------------------------------------------------------------

    def wait(self, end: Terminator, view: RegisterView) -> GroupSuccessors:
        """Execute BAR: return the groups that do not have to wait."""
        group = view.group
        numbers, counts, origin = _read_operands(end, view)
        votes = _collect_votes(end.reduction, view) if self.tracks_results else None
        view.flush()
        if origin:
            # Which threads meet is not known: they go on, and nothing that follows is exact.
            self.speculation.mark_all_blocks(end.row, origin)
            self._write_unknown(view.state, group, end.row)
            return [(end.fall_through, group)]
        found: GroupSuccessors = []
        for number, count in sorted(set(zip(numbers.tolist(), counts.tolist(), strict=True))):
            here = (numbers == number) & (counts == count)
            if here.all():
                return self._arrive(number, count, end, view.state, group, votes)
            part = self.groups.make_subgroup(
                group.warp_indices[here], group.mask[here], group, group.speculations
            )
            own = None if votes is None else _Votes(votes.bits[here], votes.origins[here])
            found += self._arrive(number, count, end, view.state, part, own)
        return found

    def _arrive(
        self,
        number: int,
        count: int,
        end: Terminator,
        state: RegisterState,
        group: LockstepGroup,
        votes: _Votes | None,
    ) -> GroupSuccessors:
        """Let a group arrive at one barrier; return it if it does not have to wait."""
        can_pass = end.reduction is None or count == _ALL_THREADS
        if can_pass and self._has_all_arrived(group, end):
            if end.reduction is not None and votes is not None:
                barrier = self._make_pending(state, end.row)
                self._add_votes(barrier, group, end.reduction, votes)
                is_here = np.zeros(len(self.batch.cta_numbers), dtype=bool)
                is_here[self.batch.cta_indices[group.warp_indices]] = True
                self._write_results(barrier, [group], *self._reduce(barrier, is_here))
            self.order.see_all(group.warp_indices)
            return [(end.fall_through, group)]
        barrier = self.pending.setdefault(number, self._make_pending(state, end.row))
        barrier.expected[self.batch.cta_indices[group.warp_indices]] = count
        self._add_votes(barrier, group, end.reduction, votes)
        if not end.is_arrive_only:
            barrier.waiting.append((end.fall_through, group))
        self._release(number)
        return [(end.fall_through, group)] if end.is_arrive_only else []

    def _make_pending(self, state: RegisterState, row: int) -> _Pending:
        n_ctas = len(self.batch.cta_numbers)
        lanes = (self.batch.n_warps, WARP_SIZE) if self.tracks_results else (0, WARP_SIZE)
        return _Pending(
            arrived=np.zeros_like(self.groups.live_lanes),
            expected=np.full(n_ctas, _ALL_THREADS, dtype=np.int64),
            codes=np.zeros(n_ctas, dtype=np.int8),
            votes=_Votes(np.zeros(lanes, dtype=bool), np.zeros(lanes, dtype=np.int32)),
            times=np.zeros(self.batch.n_warps, dtype=np.int32),
            waiting=[],
            state=state,
            row=row,
        )

    def _add_votes(
        self,
        barrier: _Pending,
        group: LockstepGroup,
        reduction: BarrierReduction | None,
        votes: _Votes | None,
    ) -> None:
        """Add the threads of a group to a barrier, and how they came."""
        rows = group.warp_indices
        barrier.arrived[rows] |= group.mask
        barrier.times[rows] = self.order.tick()
        if votes is None:
            return
        ctas = np.unique(self.batch.cta_indices[rows])
        code = _PLAIN if reduction is None else _CODES[reduction.operation]
        known = barrier.codes[ctas]
        barrier.codes[ctas] = np.where((known == _NOT_YET) | (known == code), code, _MIXED)
        origins = votes.origins
        if group.speculations:  # whether they come at all is assumed
            doubt = max(speculation.origin for speculation in group.speculations)
            origins = np.where(group.mask & (origins == 0), np.int32(doubt), origins)
        barrier.votes.bits[rows] = np.where(group.mask, votes.bits, barrier.votes.bits[rows])
        barrier.votes.origins[rows] = np.where(group.mask, origins, barrier.votes.origins[rows])

    def _has_all_arrived(self, group: LockstepGroup, end: Terminator) -> bool:
        """Return whether all live warps of these CTAs arrive at once, and no thread arrived before."""
        if not group.has_all_lanes or end.is_arrive_only or self.pending:
            return False
        if group.has_all_warps:
            return True
        n_ctas = len(self.batch.cta_numbers)
        came = np.bincount(self.batch.cta_indices[group.warp_indices], minlength=n_ctas)
        alive = np.bincount(
            self.batch.cta_indices, weights=self.groups.live_lanes.any(axis=1), minlength=n_ctas
        )
        return bool(((came == 0) | (came == alive)).all())

    # ---- releases --------------------------------------------------------------------------------

    def release_after_exit(self, group: LockstepGroup) -> None:
        """Release warps that waited only for threads of the group that have exited."""
        if group.speculations:
            ctas = self.batch.cta_indices[group.warp_indices]
            self._exit_doubts[ctas] = max(speculation.origin for speculation in group.speculations)
        for number in list(self.pending):
            self._release(number)

    def release_deadlocked(self) -> bool:
        """Release the groups at the first barrier at which some wait; return False if none waits.

        Hardware would hang there: no count that follows is exact.
        """
        number = next((number for number, barrier in self.pending.items() if barrier.waiting), None)
        if number is None:
            return False
        barrier = self.pending.pop(number)
        for index, part in barrier.waiting:
            if index is not None:
                self.speculation.mark_all_blocks(barrier.row)
            self._write_unknown(barrier.state, part, barrier.row)
            self.scheduler.enqueue_group(index, part)
        return True

    def _release(self, number: int) -> None:
        """Release the warps at a barrier in those CTAs of which enough threads have arrived."""
        batch, live, barrier = self.batch, self.groups.live_lanes, self.pending[number]
        n_ctas = len(batch.cta_numbers)
        came = np.bincount(batch.cta_indices, weights=(barrier.arrived & live).sum(axis=1), minlength=n_ctas)
        wanted = np.bincount(batch.cta_indices, weights=live.sum(axis=1), minlength=n_ctas)
        wanted = np.where(barrier.expected == _ALL_THREADS, wanted, np.minimum(wanted, barrier.expected))
        is_open = (came > 0) & (came >= wanted)
        if not is_open.any():
            return
        barrier.codes[is_open & (came > wanted)] = _MIXED  # which of them met is not known
        results = self._reduce(barrier, is_open)
        rows = is_open[batch.cta_indices]
        self._order_warps(barrier, is_open)
        barrier.arrived[rows] = False
        barrier.codes[is_open] = _NOT_YET
        if not barrier.arrived.any():
            del self.pending[number]
        waiting, barrier.waiting = barrier.waiting, []
        for index, group in waiting:
            is_released = rows[group.warp_indices]
            for chosen, here in ((True, is_released), (False, ~is_released)):
                if not here.any():
                    continue
                part = group if bool(here.all()) else self._make_subgroup(group, here)
                if not chosen:
                    barrier.waiting.append((index, part))
                    continue
                self._write_results(barrier, [part], *results)
                self.scheduler.enqueue_group(index, part)

    def _order_warps(self, barrier: _Pending, is_open: BoolArray) -> None:
        """Order what came before the barrier before what the warps do that it releases, in open CTAs."""
        came = np.flatnonzero(barrier.arrived.any(axis=1) & is_open[self.batch.cta_indices])
        is_whole = (barrier.expected == _ALL_THREADS)[self.batch.cta_indices]
        self.order.see_all(came[is_whole[came]])
        waits = np.zeros(self.batch.n_warps, dtype=bool)
        for _, group in barrier.waiting:
            waits[group.warp_indices] = True
        some = came[~is_whole[came]]
        if len(some):
            self.order.pass_barrier(some, some[waits[some]], barrier.times[some])

    def _make_subgroup(self, group: LockstepGroup, here: BoolArray) -> LockstepGroup:
        """Return some warps of a group."""
        return self.groups.make_subgroup(
            group.warp_indices[here], group.mask[here], group, group.speculations
        )

    # ---- results ---------------------------------------------------------------------------------

    def _reduce(
        self, barrier: _Pending, is_open: BoolArray
    ) -> tuple[NDArray[np.int8], IntArray, UnknownOrigins]:
        """Reduce the votes of the open CTAs; return how they came, the results and their origins, [cta]."""
        codes = np.where(is_open, barrier.codes, _NOT_YET).astype(np.int8)
        n_ctas = len(codes)
        values, origins = np.zeros(n_ctas, dtype=np.int64), np.zeros(n_ctas, dtype=np.int32)
        if not self.tracks_results or bool((codes <= _PLAIN).all()):
            return codes, values, origins
        self.has_reduced = True
        votes, arrived = barrier.votes, barrier.arrived
        unknown = np.where(arrived, votes.origins, 0)
        known = arrived & (unknown == 0)

        def count(lanes: BoolArray) -> IntArray:
            found = np.bincount(self.batch.cta_indices, weights=lanes.sum(axis=1), minlength=n_ctas)
            return found.astype(np.int64)

        n_true, n_false = count(known & votes.bits), count(known & ~votes.bits)
        np.maximum.at(origins, self.batch.cta_indices, unknown.max(axis=1))
        origins = np.maximum(origins, self._exit_doubts)
        is_any, is_all = codes == _CODES[BarrierOperation.ANY], codes == _CODES[BarrierOperation.ALL]
        values = np.where(is_any, n_true > 0, np.where(is_all, n_false == 0, n_true))
        is_decided = (is_any & (n_true > 0)) | (is_all & (n_false > 0))
        origins = np.where(is_decided, 0, origins)
        origins = np.where(codes == _MIXED, make_divergent_origin(barrier.row), origins)
        origins = np.where(origins != 0, origins | DIVERGENT_FLAG, 0).astype(np.int32)
        return codes, values.astype(np.int64), origins

    def _write_results(
        self,
        barrier: _Pending,
        parts: list[LockstepGroup],
        codes: NDArray[np.int8],
        values: IntArray,
        origins: UnknownOrigins,
    ) -> None:
        """Write the results of their CTAs to the registers of groups; what no barrier gives is unknown.

        codes, values, origins: see `_reduce`.
        """
        unknown = np.int32(make_divergent_origin(barrier.row))
        for part in parts:
            ctas = self.batch.cta_indices[part.warp_indices]
            if not self.tracks_results or bool((codes[ctas] <= _PLAIN).all()):
                continue
            view = RegisterView(barrier.state, part)
            is_count = codes[ctas] == _CODES[BarrierOperation.COUNT]
            is_truth = np.isin(codes[ctas], (_CODES[BarrierOperation.ALL], _CODES[BarrierOperation.ANY]))
            for slot, is_given, dtype in (
                (_RESULT.word_slot, is_count, np.uint32),
                (_RESULT.predicate_slot, is_truth, np.bool_),
            ):
                origin = np.where(is_given, origins[ctas], unknown)
                rows = np.where(origin == 0, values[ctas], 0).astype(dtype)
                view.write(
                    slot,
                    _compact(view, rows),
                    _compact(view, origin.astype(np.int32)) if origin.any() else None,
                )
            view.flush()

    def _write_unknown(self, state: RegisterState, group: LockstepGroup, row: int) -> None:
        """Make the result of a barrier unknown for a group."""
        if not self.tracks_results:
            return
        view = RegisterView(state, group)
        origin = np.full((1, 1), make_divergent_origin(row), dtype=np.int32)
        view.write(_RESULT.word_slot, np.zeros((1, 1), dtype=np.uint32), origin)
        view.write(_RESULT.predicate_slot, np.zeros((1, 1), dtype=bool), origin)
        view.flush()


_RESULT = BarrierReduction(BarrierOperation.UNKNOWN, None)


def _compact(view: RegisterView, rows: NDArray[Any]) -> NDArray[Any]:
    """Return one number per warp in the shape of the view, as small as it is uniform."""
    return collapse_uniform_axes(view.from_warp_rows(rows[:, None]))


def _read_first_lane(slot: int, view: RegisterView) -> tuple[IntArray, int]:
    """Return a register in the first lane of each warp of the group, and the origin if one is unknown."""
    mask = view.group.mask
    lanes, warps = mask.argmax(axis=1), np.arange(len(mask))
    value = np.broadcast_to(view.to_warp_rows(view.read_value(slot)), mask.shape)[warps, lanes]
    origin = view.read_origin(slot)
    if origin is not None:
        origin = np.broadcast_to(view.to_warp_rows(origin), mask.shape)[warps, lanes]
    return value.astype(np.int64), 0 if origin is None else int(origin.max())


def _read_operands(end: Terminator, view: RegisterView) -> tuple[IntArray, IntArray, int]:
    """Return number and threads of a barrier for each warp of the group, and the origin if unknown.

    One register for both holds the number in its lowest bits and the threads in its upper half.
    """
    n_warps = len(view.group.warp_indices)
    numbers = np.full(n_warps, end.barrier, dtype=np.int64)
    counts = np.full(n_warps, _ALL_THREADS if end.n_threads is None else end.n_threads, dtype=np.int64)
    origin = 0
    if end.barrier_slot is not None:
        words, origin = _read_first_lane(end.barrier_slot, view)
        numbers = words & _NUMBER_MASK
        if end.n_threads_slot == end.barrier_slot:
            counts = words >> _COUNT_SHIFT & _COUNT_MASK
    if end.n_threads_slot is not None and end.n_threads_slot != end.barrier_slot:
        counts, unknown = _read_first_lane(end.n_threads_slot, view)
        origin = max(origin, unknown)
    return numbers, np.where(counts == 0, _ALL_THREADS, counts), origin


def _collect_votes(reduction: BarrierReduction | None, view: RegisterView) -> _Votes:
    """Return the predicates that a group brings to a barrier."""
    shape = view.group.mask.shape
    if reduction is None or reduction.vote is None:
        bits = np.full(shape, reduction is not None and reduction.constant_vote)
        return _Votes(bits, np.zeros(shape, dtype=np.int32))
    value, origin = view.evaluate_guard(reduction.vote)
    unknown = np.zeros((1, 1), dtype=np.int32) if origin is None else view.to_warp_rows(origin)
    return _Votes(np.broadcast_to(view.to_warp_rows(value), shape), np.broadcast_to(unknown, shape))
