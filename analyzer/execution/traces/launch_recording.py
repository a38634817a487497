"""Execution told to a recorder, warp by warp: the rows that run, the lanes that guards leave, addresses.

Guards of instructions outside of the slice are told only where their predicate is computed all the same:
every write of it that may come before is in the slice. The others run in all lanes of their block.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from weakref import proxy

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.call_returns import find_interprocedural_successors
from analyzer.execution.lowering.segments import (
    Action,
    CompiledKernel,
    LoweredAccess,
    Segment,
    TerminatorKind,
)
from analyzer.execution.lowering.slicing import Guard, find_guard
from analyzer.execution.lowering.step import BoolArray, Step, WordArray
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.access_log import AccessLog, Addresses
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.convergence import GroupSuccessors
from analyzer.execution.machine.cta_batch import CtaBatch, LaunchShape, limit_ctas_by_memory
from analyzer.execution.machine.random_data import RandomData
from analyzer.execution.machine.register_state import (
    DIVERGENT_FLAG,
    LockstepGroup,
    RegisterView,
    UnknownOrigins,
)
from analyzer.execution.machine.shared_memory import AbstractWord
from analyzer.execution.machine.unknown_words import AddressConfidence
from analyzer.execution.traces.execution_recorder import ExecutionRecorder, LaneMaskArray, WarpArray
from analyzer.ir.opcode import OpKind
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.isa.register_operands import PREDICATE_BASE, is_partial_predicate_write
from analyzer.text.errors import UsageError

_MAX_BATCH_WARPS = 4096
_STEP_LIMIT = 200_000_000
_SHORTEN_HINT = "--trip gives loops an end, --ctas N records the first N thread blocks alone"

IntArray = NDArray[np.int64]


class GuardTable(Struct, frozen=True, eq=False):
    """Guards of a kernel's instructions.

    known[segment]: guards whose lanes execution knows, by row; None for one that is always false.
    blind: rows whose guards it does not know.
    """

    known_guards: tuple[tuple[tuple[int, Guard | None], ...], ...]
    unknown_guard_rows: tuple[int, ...]


@lru_cache(maxsize=4)
def build_guard_table(kernel: CompiledKernel) -> GuardTable:
    """Which guards execution knows."""
    stale = _find_stale_predicates(kernel)
    known, blind = [], []
    for segment in kernel.segments:
        acts = {action.row for action in segment.actions} | {segment.terminator.row}
        found: list[tuple[int, Guard | None]] = []
        for row in range(segment.start, segment.stop):
            form = kernel.cfg.kernel.decode_form(row)
            guard = find_guard(form)
            if form.is_never_executed:
                found.append((row, None))
            elif guard is not None and (row in acts or not stale[row] >> guard[0] & 1):
                found.append((row, guard))
            elif guard is not None:
                blind.append(row)
        known.append(tuple(found))
    return GuardTable(tuple(known), tuple(blind))


def _find_stale_predicates(kernel: CompiledKernel) -> list[int]:
    """For each row a mask of the predicates that may differ from what hardware has there."""
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
            spoils, settles = effects[row]
            stale = stale & ~settles | spoils
        for follower in followers[index]:
            if stale & ~at_entry[follower]:
                at_entry[follower] |= stale
                work.append(follower)
    return found


def _find_predicate_effect(kernel: CompiledKernel, row: int) -> tuple[int, int]:
    """Predicates that the instruction makes stale, and those that it makes right."""
    form = kernel.cfg.kernel.decode_form(row)
    if form.is_never_executed:
        return 0, 0
    written = sum(1 << slot for slot in set(form.defs) if slot >= PREDICATE_BASE)
    if not kernel.slice.is_included[row]:
        return written, 0
    is_partial = find_guard(form) is not None or is_partial_predicate_write(form.operands)
    return 0, 0 if is_partial else written


class _SegmentRun(Struct, eq=False):
    """One run of a segment while it goes on."""

    warps: WarpArray
    lanes: LaneMaskArray
    remaining_guards: Iterator[tuple[int, Guard | None]]
    next_guard: tuple[int, Guard | None] | None = None
    has_unknown_branch: bool = False


class RecordingMachine(AbstractMachine):
    """A machine that tells a recorder what it does. It must not close loops.

    stand_ins: random words for unknown ones. Addresses that hang on these alone are told, and those in which
    zeros stand for unknown words, where `UnknownWords` trusts them.
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
        end, telling = segment.terminator, self.segment_run
        self._record_guards(end.row, view, is_branch=end.kind in (TerminatorKind.BRANCH, TerminatorKind.EXIT))
        ahead = super()._execute_terminator(segment, view)
        if telling.has_unknown_branch:
            # a guess decided: lanes that took the branch are those that did not fall through
            stayed = np.zeros_like(telling.lanes)
            for index, part in ahead:
                if index == end.fall_through and index != end.target:
                    stayed[np.searchsorted(view.group.warp_indices, part.warp_indices)] |= part.mask
            self.recorder.record_guard(end.row, telling.warps, telling.lanes & ~stayed)
        return ahead

    def _record_guards(self, row: int, view: RegisterView, *, is_branch: bool = False) -> None:
        """Guards of rows up to this one, whose predicates have the values that those rows see."""
        telling = self.segment_run
        while telling.next_guard is not None and telling.next_guard[0] <= row:
            at, guard = telling.next_guard
            telling.next_guard = next(telling.remaining_guards, None)
            if guard is None:
                self.recorder.record_guard(at, telling.warps, np.zeros_like(telling.lanes))
                continue
            lanes, unknown = view.evaluate_guard(guard)
            if unknown is not None and is_branch and at == row:
                telling.has_unknown_branch = True
                continue
            if unknown is not None:
                lanes = lanes | (unknown != 0)
            own = self._broadcast_lanes(lanes, view)
            if (own != telling.lanes).any():
                self.recorder.record_guard(at, telling.warps, own)

    def forget_if_unknown(
        self, step: Step, view: RegisterView, lanes: BoolArray | None, unknown: UnknownOrigins | None
    ) -> bool:
        """See `AbstractMachine`; random words are worked with."""
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
        words = self.random_data.make_words(access, at, is_uniform=source < DIVERGENT_FLAG)
        for slot, word in zip(access.result_slots, words, strict=True):
            if slot >= 0:
                view.write(slot, word, origin, None, mask)

    def _load_known(
        self, access: LoweredAccess, view: RegisterView, addresses: Addresses, lanes: BoolArray | None
    ) -> list[AbstractWord] | None:
        """Zeros that shared and local memory hold for unknown words are none to go by."""
        loaded = super()._load_known(access, view, addresses, lanes)
        if self.random_data is None or loaded is None or not self.random_data.has_random_data(access.row):
            return loaded
        words = self.random_data.make_words(access, addresses, is_uniform=False)
        return [_fill_unknown(known, word) for known, word in zip(loaded, words, strict=True)]

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
        """Of a copy to shared memory the global side alone: a trace tells nothing of the other."""
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
        lost: NDArray[np.bool_] = np.any(active & unknown, axis=1)
        if not lost.all():
            self.recorder.record_access(access.row, warps[~lost], active[~lost], addresses[~lost])
        if lost.any():
            self.recorder.record_unknown_access(access.row, warps[lost], active[lost])


def _fill_unknown(loaded: AbstractWord, word: WordArray) -> AbstractWord:
    """The word where zero stands for what is not known."""
    if loaded.origin is None:
        return loaded
    is_empty = (loaded.origin != 0) & (loaded.value == 0)
    return AbstractWord(np.where(is_empty, word, loaded.value), loaded.origin, loaded.delta)


class _RecordingLog(AccessLog):
    """A log that tells of requests, and keeps none: nobody adds up what was recorded."""

    def __init__(self, machine: RecordingMachine) -> None:
        super().__init__(machine.batch)
        self.machine: RecordingMachine = proxy(machine)  # which owns this

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
        """Lanes whose addresses nobody knows."""
        if (
            origin is None
            or self.batch.unknown_words.assess_confidence(origin, active) >= self.machine.min_trust
        ):
            return None
        if self.machine.random_data is not None and self.machine.random_data.covers_unknowns(origin, active):
            return None
        lost: LaneMaskArray = self._broadcast_rows(origin, group) != 0
        return lost

    def _broadcast_rows(self, array: NDArray[Any], group: LockstepGroup) -> NDArray[Any]:
        """One row per warp of the group."""
        if array.ndim > 2:
            n_warps = len(group.warp_indices) // len(self.batch.cta_numbers)
            shape = (*self.batch.cta_shape, n_warps, WARP_SIZE)
            return np.broadcast_to(array, shape).reshape(-1, WARP_SIZE)
        own = (len(group.warp_indices), WARP_SIZE)
        return array if array.shape == own else np.broadcast_to(array, own)


class RecordingSummary(Struct, frozen=True, eq=False):
    """How a recording came about: `hanging` are rows of branches that a guess decided."""

    n_ctas: int
    speculative_rows: tuple[int, ...]


def record_launch(
    kernel: CompiledKernel,
    image: ConstantImage,
    shape: LaunchShape,
    guesser: BranchDecider,
    recorder: ExecutionRecorder,
    n_ctas: int | None = None,
) -> RecordingSummary:
    """Execute a grid, or its first CTAs, and tell the recorder. Raises UsageError where it does not end."""
    count = min(shape.grid.count, n_ctas or shape.grid.count)
    size = limit_ctas_by_memory(kernel, shape, _MAX_BATCH_WARPS // shape.warps_per_cta)
    speculative_rows: set[int] = set()
    for first in range(0, count, size):
        numbers = np.arange(first, min(count, first + size), dtype=np.int64)
        batch = CtaBatch(kernel, image, shape, numbers, np.ones(len(numbers)))
        machine = RecordingMachine(kernel, batch, guesser, recorder, Budget(_STEP_LIMIT))
        machine.start()
        try:
            machine.run()
        except StopExecution as stop:
            raise UsageError(f"the launch cannot be recorded: {stop}", hint=_SHORTEN_HINT) from None
        speculative_rows.update(machine.counters.speculative_instructions)
    return RecordingSummary(count, tuple(sorted(speculative_rows)))
