"""Abstract execution of many warps at once.

Idea: run the slice of the kernel that control flow and addresses depend on, with one array per register for
all warps of a batch. Warps at the same segment run in lockstep as a `LockstepGroup`. A branch splits a group
by lanes. The parts meet again where the hardware lets them: at BSYNC, with the lanes that its convergence
barrier holds, and at WARPSYNC. Of all waiting groups the one whose segment is first in reverse postorder
runs next, so that groups ahead wait for groups behind and merge with them.

Invariant: each live lane is in exactly one group that runs or waits (`pending_groups`, `ConvergenceState`).

Example, one warp, `if (lane < 8) A; else B; C`:

    {32 lanes: entry} -> {8 lanes: A, 24 lanes: B} -> A runs, waits at BSYNC -> B runs -> {32 lanes: C}
"""

from collections.abc import Callable, Iterable

import numpy as np

from analyzer.execution.lowering.segments import (
    Action,
    ActionKind,
    CompiledKernel,
    LoweredAccess,
    Segment,
    Terminator,
)
from analyzer.execution.lowering.step import ConstantRead, SpecialRead, Step, StepInput, Value
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.approximations import ApproximateResults
from analyzer.execution.machine.budget import Budget
from analyzer.execution.machine.bulk_copies import split_access
from analyzer.execution.machine.convergence import ConvergenceState
from analyzer.execution.machine.cta_barriers import GroupSuccessors
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.execution_counters import make_counters
from analyzer.execution.machine.execution_listener import EventListeners, ExecutionListener
from analyzer.execution.machine.group_factory import GroupFactory
from analyzer.execution.machine.register_state import (
    ALL_LANES,
    LockstepGroup,
    RegisterState,
    RegisterView,
    UnknownOrigins,
    collapse_uniform_axes,
    drop_inactive_origins,
    find_followed,
    join_origins,
    make_divergent_origin,
    mark_divergent,
)
from analyzer.execution.machine.shared_memory import AbstractWord
from analyzer.execution.machine.speculation import SpeculationTracker
from analyzer.execution.machine.terminators import TerminatorExecutor
from analyzer.execution.machine.tracked_memory import (
    OverwrittenBuffers,
    TrackedMemory,
    compute_lane_addresses,
)
from analyzer.execution.machine.unknown_words import find_origin_if_all_unknown
from analyzer.execution.machine.warp_order import WarpOrder
from analyzer.ir.arrays import Addresses, BoolArray, IntArray
from analyzer.ir.opcode import GLOBAL_SPACES, AddressSpace, OpKind, waits_for_others
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.isa.register_operands import PREDICATE_BASE

DecideBranch = Callable[["AbstractMachine", RegisterView, Terminator, UnknownOrigins], BoolArray]

_LARGE_ARRAY_SIZE = 4096
_WARP_ROW_NDIM = 2  # dimensions of an array of some warps' lanes
_WRITING_KINDS = frozenset({OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION})


class AbstractMachine:
    """Executes a compiled kernel for a batch of warps.

    decide_branch: returns the lanes that take a branch whose condition is unknown.
    listeners: are called in this order at each event.
    memory_log: which accesses to log; None for all of them.
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        batch: CtaBatch,
        decide_branch: DecideBranch,
        budget: Budget,
        listeners: Iterable[ExecutionListener] = (),
        memory_log: AccessLog | None = None,
    ) -> None:
        self.kernel, self.batch, self.decide_branch, self.budget = kernel, batch, decide_branch, budget
        self.state = RegisterState((*batch.cta_shape, batch.launch_shape.warps_per_cta))
        self.has_cta_columns = 1 not in batch.cta_shape
        self.counters = make_counters(kernel, batch, memory_log)
        self.listeners = EventListeners(listeners)
        self.groups = GroupFactory(batch)
        self.pending_groups: dict[int, list[LockstepGroup]] = {}
        self.speculation = SpeculationTracker(kernel, batch, self.counters)
        self.order = WarpOrder(batch.n_warps, batch.launch_shape.warps_per_cta, batch.unknown_words.doubts)
        self.convergence = ConvergenceState(kernel, batch, self.groups, self.speculation, self.order, self)
        self.terminators = TerminatorExecutor(self.groups, self.convergence, self.speculation, self)
        self.tracked_spaces = kernel.slice.tracked_spaces
        self.tracked_memory = TrackedMemory(batch, self.order) if self.tracked_spaces else None
        self.overwritten_buffers = OverwrittenBuffers(batch.image.allocations, self.order)
        # header runs of each warp when it last left a loop on assumption, by loop
        self.speculative_exit_runs: dict[int, IntArray] = {}
        self.loops_by_header, self.header_ranks = kernel.loops_by_header, kernel.header_ranks

    def count_segment_runs(self, index: int) -> IntArray:
        """Return how often each warp has run a segment."""
        runs: IntArray = self.counters.segment_runs[index]
        return runs

    def find_speculative_exit_runs(self, loop: int) -> IntArray | None:
        """Return header runs of each warp when it last left a loop on assumption; None if none has."""
        return self.speculative_exit_runs.get(loop)

    # ---- scheduling ------------------------------------------------------------------------------

    def start(self) -> None:
        """Enqueue all warps at the entry of the kernel."""
        self.state.mark_unset(self.kernel.unset_registers, self.batch.find_unset_origin)
        rows = np.arange(self.batch.n_warps, dtype=np.int64)
        if (loop := self.loops_by_header.get(self.kernel.entry_segments[0])) is not None:
            self.counters.loop_entries[loop.index] += 1  # a pasted loop begins the code
        self.enqueue_group(
            self.kernel.entry_segments[0],
            self.groups.make_group(rows, self.groups.live_lanes.copy(), (), has_all_lanes=True),
        )

    def run(self) -> None:
        """Execute until all warps have exited. Raises StopExecution if the budget is used up."""
        with np.errstate(all="ignore"):
            while self.run_next_segment():
                pass

    def run_next_segment(self) -> bool:
        """Run the groups of the first segment at which groups wait; return False if none waits."""
        if not self.pending_groups and not self.convergence.release_deadlocked():
            return False
        segments = self.kernel.segments
        index = min(self.pending_groups, key=lambda i: self.header_ranks.get(i, segments[i].rank))
        groups, later = self.groups.merge_groups(self.pending_groups.pop(index))
        if later:
            self.pending_groups[index] = later
        segment = segments[index]
        for group in groups:
            if segment.is_first and index in self.loops_by_header and self.handle_loop_header(segment, group):
                continue
            self.execute_segment(segment, group)
        return True

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """Return True if a group that arrives at a loop's header must not run it.

        An extension point for subclasses, no listener event: it may advance the group by many iterations
        (registers and counters), or end it here, and a listener must not change the execution.
        """
        return False

    def enqueue_group(self, index: int | None, group: LockstepGroup) -> None:
        """Let a group wait at a segment; None is the end of the code."""
        if index is None or not len(group.warp_indices):
            return
        segment = self.kernel.segments[index]
        if group.speculations and segment.is_first:
            self._end_speculation(segment.block, group)
        self.pending_groups.setdefault(index, []).append(group)

    def _end_speculation(self, block: int, group: LockstepGroup) -> None:
        """End a speculation at the block where its paths meet: registers that they wrote become unknown."""
        for place, speculation in enumerate(group.speculations):
            if speculation.reconvergence_block != block:
                continue
            written = self.batch.find_region_writes(speculation.branch_row, speculation.reconvergence_block)
            needed = self.kernel.slice.live_in[block]
            view = RegisterView(self.state, group)
            unknown = mark_divergent(np.full((1, 1), speculation.origin, dtype=np.int32))
            for slot in written:
                if needed >> slot & 1:
                    view.write(slot, view.read_value(slot), unknown)
            for slot in self.tracked_memory.local.speculative_slots if self.tracked_memory else ():
                view.write(slot, view.read_value(slot), unknown)
            view.flush()
            group.speculations = group.speculations[:place]
            return

    def execute_segment(self, segment: Segment, group: LockstepGroup) -> None:
        """Run one segment of a group and enqueue its successors."""
        view = RegisterView(self.state, group, all_lanes=group.has_all_lanes and self.batch.is_fully_live)
        self.counters.count_segment(segment, view, self.batch)
        for on_segment in self.listeners.on_segment:
            on_segment(segment, view)
        if segment.has_approximations:
            self._execute_approximations(segment, view)
        else:
            for action in segment.actions:
                self._execute_action(action, view)
        self._charge_budget(segment, view)
        successors = self._execute_terminator(segment, view)
        view.flush()
        for index, part in successors:
            loop = self.loops_by_header.get(index) if index is not None else None
            if loop is not None and segment.block not in loop.blocks:
                self.counters.loop_entries[loop.index, part.warp_indices] += 1
            self.enqueue_group(index, part)

    def _execute_approximations(self, segment: Segment, view: RegisterView) -> None:
        """Execute the actions of a segment, and find out whether the last bits of approximations matter."""
        results = ApproximateResults(self, view)
        for action in segment.actions:
            sides = results.prepare(action)
            self._execute_action(action, view)
            results.keep(action, sides)
        results.finish(segment)

    def _charge_budget(self, segment: Segment, view: RegisterView) -> None:
        """Charge a segment: steps of a group of all warps cost the words that they write, others all rows."""
        n_actions, n_lanes = len(segment.actions), len(view.group.warp_indices) * WARP_SIZE
        if not view.group.has_all_warps:
            self.budget.spend(n_actions, segment.n_accesses, n_actions * n_lanes)
            return
        by_row = 1 + sum(action.step is None or action.step.uses_active_mask for action in segment.actions)
        self.budget.spend(n_actions, segment.n_accesses, view.n_words_written + by_row * n_lanes // 2)

    def _execute_terminator(self, segment: Segment, view: RegisterView) -> GroupSuccessors:
        """Return the segments at which a group continues, and the part of the group that does."""
        return self.terminators.execute(segment.terminator, view)

    # ---- actions ---------------------------------------------------------------------------------

    def _execute_action(self, action: Action, view: RegisterView) -> None:  # noqa: C901 - calls would cost as much as actions
        """Execute one action in the lanes whose guard is true or unknown."""
        lanes: BoolArray | None = None
        unknown: UnknownOrigins | None = None
        if action.guard is not None:
            lanes, unknown = view.evaluate_guard(action.guard)
            unknown = drop_inactive_origins(unknown, view.active)
            if unknown is None:
                if not (lanes & view.active).any():
                    return
                if lanes.all():
                    lanes = None
            else:
                lanes = lanes | ~find_followed(unknown)
                unknown = mark_divergent(unknown)
        match action.kind:
            case ActionKind.COMPUTE if action.step is not None:
                self.apply_step(action.step, view, lanes, unknown)
            case ActionKind.ACCESS_MEMORY:
                for access in action.accesses:
                    self._execute_access(access, view, lanes, unknown)
            case ActionKind.SET_UNKNOWN:
                self.forget(action.writes, view, make_divergent_origin(action.unknown_row), lanes)
            case ActionKind.COMPLETE_WAIT | ActionKind.ALLOCATE_TENSOR_MEMORY:
                self._complete_wait(action, view, lanes)
            case ActionKind.UPDATE_MBARRIER:
                if action.mbarrier_operation is not None:
                    for on_mbarrier in self.listeners.on_mbarrier:
                        on_mbarrier(action.mbarrier_operation, view, lanes)
                self._complete_wait(action, view, lanes)
            case ActionKind.TRAP:
                self.counters.record_trap(action.row, view.group, is_certain=unknown is None)
            case _:
                self.convergence.apply_barrier_action(action, view, lanes)

    def forget(self, writes: Iterable[int], view: RegisterView, origin: int, lanes: BoolArray | None) -> None:
        """Make registers unknown; they hold zero (see `UnknownWords`)."""
        unknown = np.full((1, 1), origin, dtype=np.int32)
        mask = None if lanes is None else self._limit_to_group(lanes, view)
        for slot in writes:
            if slot >= 0:
                nothing = np.zeros((1, 1), dtype=bool if slot >= PREDICATE_BASE else np.uint32)
                view.write(slot, nothing, unknown, None, mask)

    def _complete_wait(self, action: Action, view: RegisterView, lanes: BoolArray | None) -> None:
        """End a wait: its predicate becomes true; a state word is unknown, an allocated address is zero."""
        if waits_for_others(self.kernel.cfg.kernel.find_opcode(action.row)):
            self.order.see_all(view.group.warp_indices)
        mask = None if lanes is None else self._limit_to_group(lanes, view)
        for slot in action.writes:
            if slot >= PREDICATE_BASE:
                view.write(slot, np.ones((1, 1), dtype=bool), None, None, mask)
            elif slot >= 0:
                is_opaque = action.kind is not ActionKind.ALLOCATE_TENSOR_MEMORY
                origin = np.full((1, 1), make_divergent_origin(action.row), np.int32) if is_opaque else None
                view.write(slot, np.zeros((1, 1), dtype=np.uint32), origin, None, mask)

    def _limit_to_group(self, lanes: BoolArray, view: RegisterView) -> BoolArray:
        """Return those of `lanes` that are in the group."""
        return lanes if view.group.has_all_lanes else lanes & view.mask

    def read_operand(self, what: StepInput, view: RegisterView) -> tuple[Value, UnknownOrigins | None]:
        """Return a word that a step reads, and its origin where it is unknown."""
        if isinstance(what, int):
            return view.read_value(what), view.read_origin(what)
        if isinstance(what, SpecialRead):
            value, origin = self.batch.read_special_register(what.name)
            return view.select_group(value), origin
        return self._read_constant(what, view)

    def _read_constant(self, what: ConstantRead, view: RegisterView) -> tuple[Value, UnknownOrigins | None]:
        """Return a word of a constant bank, at an offset in a register if there is one."""
        if what.base is None:
            return self.batch.read_constant(what.bank, what.offset)
        base, origin = view.read_value(what.base), view.read_origin(what.base)
        offsets = (base.astype(np.uint32) + np.uint32(what.offset & 0xFFFFFFFF)).astype(np.int64)
        value, unknown = self.batch.read_constants(what.bank, offsets)
        return value, join_origins(origin, unknown)

    def read_operands(
        self, step: Step, view: RegisterView, unknown: UnknownOrigins | None
    ) -> tuple[list[Value], UnknownOrigins | None]:
        """Return what a step reads, and the joint origin of its unknown inputs and its guard, `unknown`."""
        guard, found = unknown, [self.read_operand(what, view) for what in step.reads]
        words, sources = [value for value, _ in found], [source for _, source in found]
        for source in sources:
            if source is not None:
                unknown = join_origins(unknown, source)
        if (
            step.is_equality_compare
            and guard is None
            and self.batch.unknown_words.is_known_unequal(words, sources, view)
        ):
            return words, None
        if unknown is not None and self.batch.unknown_words.makes_divergent(step, words, sources, unknown):
            unknown = mark_divergent(unknown)
        return words, unknown

    def forget_if_unknown(
        self, step: Step, view: RegisterView, lanes: BoolArray | None, unknown: UnknownOrigins | None
    ) -> bool:
        """Return whether all inputs of a step are unknown; its results are then made unknown."""
        origin = find_origin_if_all_unknown(step, view, unknown)
        if origin is not None:
            self.forget(step.writes, view, origin, lanes)
        return origin is not None

    def apply_step(
        self, step: Step, view: RegisterView, lanes: BoolArray | None, unknown: UnknownOrigins | None
    ) -> None:
        """Execute one compiled instruction."""
        if self.forget_if_unknown(step, view, lanes, unknown):
            return
        step = simplified(step, view, unknown)
        words, origin = self.read_operands(step, view, unknown)
        if step.uses_active_mask:
            active = view.active if lanes is None else view.active & lanes
            rows = np.broadcast_to(view.to_warp_rows(active), (len(view.group.warp_indices), WARP_SIZE))
            results = tuple(map(view.from_warp_rows, step.apply(rows, *map(view.to_warp_rows, words))))
            if origin is not None:
                origin = _merge_warp_origins(origin, active)
        else:
            results = step.apply(*words)
            for on_step in self.listeners.on_step:
                on_step(step, words, results, view)
            if self.has_cta_columns:
                results = tuple(map(_collapse_result, results))
        mask = None if lanes is None else self._limit_to_group(lanes, view)
        for slot, result in zip(step.writes, results, strict=True):
            if slot >= 0:
                view.write(slot, result, origin, None, mask)

    def find_access_lanes(
        self,
        access: LoweredAccess,
        view: RegisterView,
        lanes: BoolArray | None,
        unknown: UnknownOrigins | None,
    ) -> tuple[BoolArray, UnknownOrigins | None]:
        """Return the lanes that may take part in an access, and the origin where that is unknown."""
        active = view.active if lanes is None else view.active & lanes
        for guard in access.lane_predicates:
            more, source = view.evaluate_guard(guard)
            if source is not None:
                more, unknown = more | ~find_followed(source), join_origins(unknown, source)
            active = active & more
        return active, drop_inactive_origins(unknown, active)

    def _execute_access(
        self,
        access: LoweredAccess,
        view: RegisterView,
        lanes: BoolArray | None,
        unknown: UnknownOrigins | None,
    ) -> None:
        """Execute an access; each part of a bulk copy of another size alone."""
        active, unknown = self.find_access_lanes(access, view, lanes, unknown)
        for part in split_access(access, view, active, self.batch.image.tensors):
            self.execute_access_part(part.access, view, lanes, part.active, unknown)

    def execute_access_part(
        self,
        access: LoweredAccess,
        view: RegisterView,
        lanes: BoolArray | None,
        active: BoolArray,
        unknown: UnknownOrigins | None,
    ) -> None:
        """Log an access of these active lanes, and change the registers and the memory that it writes."""
        addresses = origin = None
        if access.address is not None:
            addresses, origin = compute_lane_addresses(access.address, view)
            origin = drop_inactive_origins(origin, active)
        for on_access in self.listeners.on_access:
            on_access(access, active, addresses if origin is None else None)
        self.counters.memory_log.record(access, view.group, active, addresses, origin, unknown)
        self._transfer_data(access, view, lanes, addresses, origin)

    def _transfer_data(
        self,
        access: LoweredAccess,
        view: RegisterView,
        lanes: BoolArray | None,
        addresses: Addresses | None,
        origin: UnknownOrigins | None,
    ) -> None:
        """Load and store contents of buffers, and of shared and local memory if the slice needs them."""
        mask = None if lanes is None else self._limit_to_group(lanes, view)
        if access.result_slots:
            loaded = None
            is_awaited = access.row in self.kernel.awaited_loads
            if addresses is not None and access.kind is OpKind.LOAD and not is_awaited:
                loaded = self._load_known(access, view, addresses, lanes)
            if loaded is None:
                source = self.batch.unknown_words.find_load_origin(access, view.active, addresses, origin)
                self.forget_loaded(access, view, addresses, source, lanes)
            else:
                for slot, word in zip(access.result_slots, loaded, strict=True):
                    view.write(slot, word.value, join_origins(word.origin, origin), word.delta, mask)
        if access.kind not in _WRITING_KINDS:
            if access.bulk is not None and access.bulk.kind in _WRITING_KINDS:
                self.overwritten_buffers.store(access, view, ALL_LANES, None)
            return
        known = addresses if origin is None else None
        active = view.active if lanes is None else view.active & lanes
        if access.space in GLOBAL_SPACES:
            self.overwritten_buffers.store(access, view, active, known)
        if self.tracked_memory is not None:
            self._store_tracked(self.tracked_memory, access, view, active, known)
        while self.order.late_loads:  # this store has put them in doubt
            self.speculation.mark_all_blocks(self.order.late_loads.pop())

    def _store_tracked(
        self,
        memory: TrackedMemory,
        access: LoweredAccess,
        view: RegisterView,
        active: BoolArray,
        addresses: Addresses | None,
    ) -> None:
        """Store to shared or local memory."""
        if access.space in self.tracked_spaces:
            memory.store(access, view, active, addresses)
        elif access.space is AddressSpace.DISTRIBUTED_SHARED:
            memory.forget_shared()

    def forget_loaded(
        self,
        access: LoweredAccess,
        view: RegisterView,
        at: Addresses | None,
        source: int,
        lanes: BoolArray | None,
    ) -> None:
        """Make the results of an access unknown; source: the origin of its words."""
        self.forget(access.result_slots, view, source, lanes)

    def _load_known(
        self, access: LoweredAccess, view: RegisterView, addresses: Addresses, lanes: BoolArray | None
    ) -> list[AbstractWord] | None:
        """Return the loaded words, one per result register; None if nothing of them is known."""
        if access.space in GLOBAL_SPACES:
            loaded = self.batch.load_global(access, addresses)
            if loaded is not None:
                active = view.active if lanes is None else view.active & lanes
                self.overwritten_buffers.note_load(access, view, active, addresses)
            return self.overwritten_buffers.mark_stale(access, addresses, loaded)
        if self.tracked_memory is not None and access.space in self.tracked_spaces:
            return self.tracked_memory.load(access, view, addresses, lanes)
        return None

    # ---- groups ----------------------------------------------------------------------------------

    def decide_unknown_branch(
        self, view: RegisterView, end: Terminator, unknown: UnknownOrigins
    ) -> BoolArray:
        """Return the lanes that take a branch whose condition is unknown."""
        return self.decide_branch(self, view, end, unknown)

    def retire_lanes(self, group: LockstepGroup, gone: BoolArray) -> None:
        """End lanes of a group that exit."""
        self.groups.live_lanes[group.warp_indices] &= ~gone
        self.batch.is_fully_live = self.batch.is_fully_live and not gone.any()
        self.convergence.release_after_exit(group)


def simplified(step: Step, view: RegisterView, unknown: UnknownOrigins | None) -> Step:
    """Return the cheaper variant of a step that combines lanes if all of them hold the same known word."""
    if step.uniform_variant is None or unknown is not None or not isinstance(first := step.reads[0], int):
        return step
    arrays = (view.read_value(first), view.read_delta(first))
    is_same = view.read_origin(first) is None and all(
        array is None or array.shape[-1] == 1 for array in arrays
    )
    return step.uniform_variant if is_same else step


def _collapse_result(value: Value) -> Value:
    """Collapse uniform axes of a result that depends on the CTA alone, or is large."""
    is_of_ctas = value.ndim > _WARP_ROW_NDIM and value.shape[2:] == (1, 1) and 1 not in value.shape[:2]
    return collapse_uniform_axes(value) if is_of_ctas or value.size >= _LARGE_ARRAY_SIZE else value


def _merge_warp_origins(origin: UnknownOrigins, active: BoolArray) -> UnknownOrigins:
    """Return the origin of a result that combines lanes: one unknown active lane makes it unknown."""
    found: UnknownOrigins = np.where(active, origin, 0).max(axis=-1, keepdims=True).astype(np.int32)
    return found
