"""Execution that reports to a recorder, warp by warp: rows that run, lanes that guards leave, addresses.

The machine executes only the slice that decides control flow and addresses. A guard outside of the slice can
be reported only if its predicate still has the right value. A forward data-flow analysis finds where
that holds: a predicate is stale after a write outside of the slice, and right again after an unconditional
write inside it. Instructions whose guards are stale are reported in all lanes of their block.

Invariant: a predicate that is not stale at a row has, in every active lane, its value on hardware.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any
from weakref import proxy

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.call_returns import find_interprocedural_successors
from analyzer.execution.lowering.guarded_liveness import Guard
from analyzer.execution.lowering.segments import (
    Action,
    CompiledKernel,
    LoweredAccess,
    Segment,
    TerminatorKind,
)
from analyzer.execution.lowering.slicing import find_guard
from analyzer.execution.lowering.step import Step, WordArray
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_barriers import GroupSuccessors
from analyzer.execution.machine.cta_batch import CtaBatch, LaunchShape, limit_ctas_by_memory
from analyzer.execution.machine.random_data import RandomData
from analyzer.execution.machine.register_state import (
    DIVERGENT_FLAG,
    LockstepGroup,
    RegisterView,
    UnknownOrigins,
    make_divergent_origin,
)
from analyzer.execution.machine.shared_memory import AbstractWord
from analyzer.execution.machine.tracked_memory import TrackedMemory
from analyzer.execution.machine.unknown_words import AddressConfidence
from analyzer.execution.traces.execution_recorder import ExecutionRecorder, LaneMaskArray, WarpArray
from analyzer.ir.arrays import Addresses, BoolArray, IntArray
from analyzer.ir.opcode import SHARED_SPACES, OpKind
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.isa.register_operands import PREDICATE_BASE, is_partial_predicate_write
from analyzer.text.errors import UsageError

_CTA_SHIFT = np.uint64(32)  # above all shared addresses
_MAX_BATCH_WARPS = 4096
DEFAULT_RECORDED_STEPS = 40_000  # some seconds; to record a step takes several times as long as to execute it
_SHORTEN_HINT = (
    "--trip gives loops an end, --ctas N records the first N thread blocks alone, "
    "--step-limit N allows more steps for 4,096 warps"
)


class GuardTable(Struct, frozen=True, eq=False):
    """Guards of a kernel's instructions."""

    # [segment]: (row, guard) where execution knows the guard's lanes; None for a guard that is always false.
    known_guards: tuple[tuple[tuple[int, Guard | None], ...], ...]
    unknown_guard_rows: tuple[int, ...]  # rows whose guards' lanes it does not know


@lru_cache(maxsize=4)
def build_guard_table(kernel: CompiledKernel) -> GuardTable:
    """Find the guards whose lanes execution knows."""
    stale = _find_stale_predicates(kernel)
    known, unknown_rows = [], []
    for segment in kernel.segments:
        executed = {action.row for action in segment.actions} | {segment.terminator.row}
        found: list[tuple[int, Guard | None]] = []
        for row in range(segment.start, segment.stop):
            form = kernel.cfg.kernel.decode_form(row)
            guard = find_guard(form)
            if form.is_never_executed:
                found.append((row, None))
            elif guard is not None and (row in executed or not stale[row] >> guard[0] & 1):
                found.append((row, guard))
            elif guard is not None:
                unknown_rows.append(row)
        known.append(tuple(found))
    return GuardTable(tuple(known), tuple(unknown_rows))


def _find_stale_predicates(kernel: CompiledKernel) -> list[int]:
    """Return for each row a mask of the predicates that may differ from their values on hardware."""
    cfg = kernel.cfg
    effects = [_find_predicate_effect(kernel, row) for row in range(len(cfg.kernel))]
    followers = find_interprocedural_successors(cfg)
    at_entry = [0] * len(cfg.blocks)
    work = list(range(len(cfg.blocks)))
    found = [0] * len(cfg.kernel)
    while work:
        index = work.pop()
        stale, block = at_entry[index], cfg.blocks[index]
        for row in range(block.start, block.stop):
            found[row] = stale
            made_stale, made_right = effects[row]
            stale = stale & ~made_right | made_stale
        for follower in followers[index]:
            if stale & ~at_entry[follower]:
                at_entry[follower] |= stale
                work.append(follower)
    return found


def _find_predicate_effect(kernel: CompiledKernel, row: int) -> tuple[int, int]:
    """Return masks of the predicates that an instruction makes stale, and of those that it makes right."""
    form = kernel.cfg.kernel.decode_form(row)
    if form.is_never_executed:
        return 0, 0
    written = sum(1 << slot for slot in set(form.defs) if slot >= PREDICATE_BASE)
    if not kernel.slice.is_included[row]:
        return written, 0
    is_partial = find_guard(form) is not None or is_partial_predicate_write(form.operands)
    return 0, 0 if is_partial else written


class _SegmentRun(Struct, eq=False):
    """Run of a segment that is being executed."""

    warps: WarpArray
    lanes: LaneMaskArray
    remaining_guards: Iterator[tuple[int, Guard | None]]  # after `next_guard`
    next_guard: tuple[int, Guard | None] | None = None  # the next one to report
    has_unknown_branch: bool = False  # the outcome of its branch is assumed


class RecordingMachine(AbstractMachine):
    """A machine that reports to a recorder. It must not accelerate loops.

    random_data: replaces unknown words by random ones. Addresses that depend on no other unknown words are
    reported as known. So are those in which zeros replace unknown words, if `UnknownWords` trusts them.
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        batch: CtaBatch,
        decide: BranchDecider,
        recorder: ExecutionRecorder,
        budget: Budget,
        *,
        random_data: RandomData | None = None,
    ) -> None:
        super().__init__(kernel, batch, decide, budget)
        self.recorder = recorder
        self.random_data = random_data
        if random_data is not None and self.tracked_memory is not None:
            self.tracked_memory = TrackedMemory(batch, random_data.find_random_lanes)
        self.min_trust = AddressConfidence.EXACT if random_data is None else AddressConfidence.LOCATION
        self.warp_numbers: WarpArray = (
            batch.cta_numbers[batch.cta_indices] * batch.launch_shape.warps_per_cta + batch.warp_ids
        )
        self.guard_table = build_guard_table(kernel)
        self.segment_run = _SegmentRun(self.warp_numbers, self.groups.live_lanes, iter(()))
        self.counters.memory_log = _RecordingLog(self)

    def execute_segment(self, segment: Segment, group: LockstepGroup) -> None:
        """See `AbstractMachine`."""
        guards = iter(self.guard_table.known_guards[segment.index])
        self.segment_run = _SegmentRun(self.warp_numbers[group.warp_indices], group.mask, guards)
        if segment.start < segment.stop:
            self.recorder.record_run(segment.start, segment.stop, self.segment_run.warps, group.mask)
            self.segment_run.next_guard = next(guards, None)
        super().execute_segment(segment, group)

    def _execute_action(self, action: Action, view: RegisterView) -> None:
        self._record_guards(action.row, view)
        super()._execute_action(action, view)

    def _execute_terminator(self, segment: Segment, view: RegisterView) -> GroupSuccessors:
        end, run = segment.terminator, self.segment_run
        self._record_guards(end.row, view, is_branch=end.kind in (TerminatorKind.BRANCH, TerminatorKind.EXIT))
        ahead = super()._execute_terminator(segment, view)
        if run.has_unknown_branch:
            # the outcome was assumed: lanes that took the branch are those that did not fall through
            fell_through = np.zeros_like(run.lanes)
            for index, part in ahead:
                if index == end.fall_through and index != end.target:
                    fell_through[np.searchsorted(view.group.warp_indices, part.warp_indices)] |= part.mask
            self.recorder.record_guard(end.row, run.warps, run.lanes & ~fell_through)
        return ahead

    def _record_guards(self, row: int, view: RegisterView, *, is_branch: bool = False) -> None:
        """Report guards of rows up to this one; predicates still have the values that those rows read.

        is_branch: the row ends the segment and may branch.
        """
        run = self.segment_run
        while run.next_guard is not None and run.next_guard[0] <= row:
            at, guard = run.next_guard
            run.next_guard = next(run.remaining_guards, None)
            if guard is None:
                self.recorder.record_guard(at, run.warps, np.zeros_like(run.lanes))
                continue
            lanes, unknown = view.evaluate_guard(guard)
            if unknown is not None and is_branch and at == row:
                run.has_unknown_branch = True
                continue
            if unknown is not None:
                lanes = lanes | (unknown != 0)
            own = self._broadcast_lanes(lanes, view)
            if (own != run.lanes).any():
                self.recorder.record_guard(at, run.warps, own)

    def forget_if_unknown(
        self, step: Step, view: RegisterView, lanes: BoolArray | None, unknown: UnknownOrigins | None
    ) -> bool:
        """See `AbstractMachine`; random words are not forgotten."""
        return self.random_data is None and super().forget_if_unknown(step, view, lanes, unknown)

    def forget_loaded(
        self,
        access: LoweredAccess,
        view: RegisterView,
        at: Addresses | None,
        source: int,
        lanes: BoolArray | None,
    ) -> None:
        """See `AbstractMachine`."""
        if self.random_data is None or at is None or not self.random_data.has_random_data(access.row):
            super().forget_loaded(access, view, at, source, lanes)
            return
        origin = np.full((1, 1), source, dtype=np.int32)
        mask = None if lanes is None else self._limit_to_group(lanes, view)
        words = self._make_random_words(access, view, at, is_uniform=source < DIVERGENT_FLAG)
        for slot, word in zip(access.result_slots, words, strict=True):
            if slot >= 0:
                view.write(slot, word, origin, None, mask)

    def _load_known(
        self, access: LoweredAccess, view: RegisterView, addresses: Addresses, lanes: BoolArray | None
    ) -> list[AbstractWord] | None:
        """See `AbstractMachine`: words that memory does not hold become random words."""
        loaded = super()._load_known(access, view, addresses, lanes)
        if self.random_data is None or loaded is None or not self.random_data.has_random_data(access.row):
            return loaded
        words = self._make_random_words(access, view, addresses, is_uniform=False)
        unset = (make_divergent_origin(access.row), self.batch.unset_stack_origin)
        return [_fill_unset(held, word, unset) for held, word in zip(loaded, words, strict=True)]

    def _make_random_words(
        self, access: LoweredAccess, view: RegisterView, at: Addresses, *, is_uniform: bool
    ) -> list[WordArray]:
        """Return random words, one per result register; each CTA has others at its shared addresses."""
        assert self.random_data is not None
        if access.space in SHARED_SPACES:
            ctas = self.segment_run.warps // self.batch.launch_shape.warps_per_cta
            at = view.from_warp_rows(view.to_warp_rows(at) + (ctas.view(np.uint64) << _CTA_SHIFT)[:, None])
        return self.random_data.make_words(access, at, is_uniform=is_uniform)

    def _broadcast_lanes(self, lanes: BoolArray, view: RegisterView) -> LaneMaskArray:
        found: LaneMaskArray = (
            np.broadcast_to(view.to_warp_rows(lanes), self.segment_run.lanes.shape) & self.segment_run.lanes
        )
        return found

    def report_access(
        self,
        access: LoweredAccess,
        active: LaneMaskArray,
        addresses: Addresses | None,
        unknown: LaneMaskArray | None,
    ) -> None:
        """Report an access to the recorder; of LDGSTS the global side only, as a tracer does."""
        kind = self.kernel.cfg.kernel.find_opcode(access.row).kind
        if kind is OpKind.ASYNC_COPY and access.kind is OpKind.STORE:
            return
        warps = self.segment_run.warps
        if addresses is None or access.bulk is not None:
            self.recorder.record_unknown_access(access.row, warps, active)
            return
        if self.random_data is not None:
            addresses = self.random_data.fit_addresses(access, addresses)
        if unknown is None:
            self.recorder.record_access(access.row, warps, active, addresses)
            return
        is_unknown: NDArray[np.bool_] = np.any(active & unknown, axis=1)
        if not is_unknown.all():
            self.recorder.record_access(
                access.row, warps[~is_unknown], active[~is_unknown], addresses[~is_unknown]
            )
        if is_unknown.any():
            self.recorder.record_unknown_access(access.row, warps[is_unknown], active[is_unknown])


def _fill_unset(loaded: AbstractWord, word: WordArray, unset: Sequence[int]) -> AbstractWord:
    """Put a random word where memory holds none; unset: origins of such words."""
    if loaded.origin is None:
        return loaded
    return AbstractWord(
        np.where(np.isin(loaded.origin, unset), word, loaded.value), loaded.origin, loaded.delta
    )


class _RecordingLog(AccessLog):
    """A log that passes requests on to the machine's recorder and keeps none."""

    def __init__(self, machine: RecordingMachine) -> None:
        super().__init__(machine.batch)
        self.machine: RecordingMachine = proxy(machine)  # weak: the machine owns this log

    def record(
        self,
        access: LoweredAccess,
        group: LockstepGroup,
        active: BoolArray,
        addresses: Addresses | None,
        origin: UnknownOrigins | None,
        unknown: UnknownOrigins | None,
        steps: IntArray | None = None,
    ) -> None:
        """See `AccessLog`."""
        self.machine.report_access(
            access,
            self._broadcast_rows(active, group) & group.mask,
            None if addresses is None else self._broadcast_rows(addresses, group),
            self._find_unknown_lanes(origin, active, group),
        )

    def _find_unknown_lanes(
        self, origin: UnknownOrigins | None, active: BoolArray, group: LockstepGroup
    ) -> LaneMaskArray | None:
        """Return the lanes whose addresses are unknown; None if there are none."""
        if (
            origin is None
            or self.batch.unknown_words.assess_confidence(origin, active) >= self.machine.min_trust
        ):
            return None
        if self.machine.random_data is not None and self.machine.random_data.covers_unknowns(origin, active):
            return None
        is_unknown: LaneMaskArray = self._broadcast_rows(origin, group) != 0
        return is_unknown

    def _broadcast_rows(self, array: NDArray[Any], group: LockstepGroup) -> NDArray[Any]:
        """Broadcast an array to one row per warp of the group, [n_warp, 32]."""
        if array.ndim > 2:
            n_warps = len(group.warp_indices) // len(self.batch.cta_numbers)
            shape = (*self.batch.cta_shape, n_warps, WARP_SIZE)
            return np.broadcast_to(array, shape).reshape(-1, WARP_SIZE)
        own = (len(group.warp_indices), WARP_SIZE)
        return array if array.shape == own else np.broadcast_to(array, own)


class RecordingSummary(Struct, frozen=True, eq=False):
    """Extent of a recording, and the assumptions in it."""

    n_ctas: int
    speculative_rows: tuple[int, ...]  # rows of branches whose outcome was assumed


def record_launch(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: LaunchShape,
    branch_decider: BranchDecider,
    recorder: ExecutionRecorder,
    n_ctas: int | None = None,
    step_limit: int = DEFAULT_RECORDED_STEPS,
) -> RecordingSummary:
    """Execute a grid, or its first `n_ctas` CTAs, and report to a recorder.

    step_limit: steps of the warps that are executed together, at most 4,096; what takes more is mostly a loop
    whose bound is wrong. Raises UsageError if execution does not end within it.
    """
    count = min(shape.grid.count, n_ctas or shape.grid.count)
    size = limit_ctas_by_memory(kernel, shape, _MAX_BATCH_WARPS // shape.warps_per_cta)
    speculative_rows: set[int] = set()
    for first in range(0, count, size):
        numbers = np.arange(first, min(count, first + size), dtype=np.int64)
        batch = CtaBatch(kernel, image, shape, numbers, np.ones(len(numbers)))
        machine = RecordingMachine(kernel, batch, branch_decider, recorder, Budget(step_limit))
        machine.start()
        try:
            machine.run()
        except StopExecution as stop:
            raise UsageError(f"the launch cannot be recorded: {stop}", hint=_SHORTEN_HINT) from None
        speculative_rows.update(machine.counters.speculative_instructions)
    return RecordingSummary(count, tuple(sorted(speculative_rows)))
