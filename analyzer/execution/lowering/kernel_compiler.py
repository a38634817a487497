"""Lowering of a kernel: its slice becomes segments of actions (`segments`).

1. Slice the kernel (`slicing`); include mbarrier operations if that adds at most 2 % of instructions.
2. Split blocks where warps may wait for each other.
3. Turn each instruction of the slice into an action. Arithmetic becomes a step, compiled once for each
   distinct text; an instruction whose semantics are not modelled makes its results unknown.
4. Turn the last instruction of each segment into a terminator.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from analyzer.execution.lowering.bulk_operands import find_shared_address
from analyzer.execution.lowering.call_returns import find_return_sites
from analyzer.execution.lowering.corrected_seeds import is_corrected_seed
from analyzer.execution.lowering.guarded_liveness import Guard
from analyzer.execution.lowering.segments import (
    Action,
    ActionKind,
    AddressExpression,
    AddressTerm,
    BarrierOperation,
    BarrierReduction,
    CompiledKernel,
    LoweredAccess,
    MbarrierOperation,
    Segment,
    Terminator,
    TerminatorKind,
)
from analyzer.execution.lowering.semantics import compile_step
from analyzer.execution.lowering.slice_verification import find_slice_gaps
from analyzer.execution.lowering.slicing import (
    Slice,
    add_mbarriers_to_slice,
    build_control_slice,
    find_bulk_operands,
    find_copied_tensor_map,
    find_copy_coordinates,
    find_guard,
    find_mma_descriptor,
    find_reduced_predicate,
    has_mbarrier_waits,
)
from analyzer.execution.lowering.spin_loops import find_awaited_loads
from analyzer.execution.lowering.step import Step
from analyzer.execution.lowering.traps import find_trap_rows
from analyzer.flow.cfg import Cfg, EdgeKind
from analyzer.flow.loops import LoopForest, compute_loop_contiguous_order
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import MBARRIER_SEMANTICS, MEMORY_KINDS, AddressSpace, Opcode, OpKind, Semantics
from analyzer.ir.operand import (
    Address,
    BarrierRegister,
    DescriptorOperand,
    Immediate,
    Operand,
    Predicate,
    Register,
    get_address,
)
from analyzer.ir.scheduling import SchedClass
from analyzer.isa.register_operands import (
    COPIED_WORD_BASE,
    N_REGISTER_UNITS,
    PREDICATE_BASE,
    UNIFORM_REGISTER_BASE,
    find_address_units,
    find_constant_index,
    find_predicate_unit,
    find_register_unit,
    is_64bit_address,
    is_register_pair,
    is_zero_fill,
)

_WORD_BYTES = 4
_MAX_MBARRIER_SLICE_GROWTH = 1.02  # by number of instructions


def compile_kernel(
    cfg: Cfg, loop_forest: LoopForest, *, knows_memory: bool = True, knows_tensors: bool = False
) -> CompiledKernel:
    """Compile the slice of a kernel that its control flow and addresses depend on.

    Mbarrier operations are included if that adds few instructions. Options: see `build_control_slice`.
    """
    kernel_slice = build_control_slice(cfg, knows_memory=knows_memory, knows_tensors=knows_tensors)
    if has_mbarrier_waits(cfg) and not _has_mbarrier_copies(cfg):
        extended_slice = add_mbarriers_to_slice(cfg, kernel_slice)
        if sum(extended_slice.is_included) <= sum(kernel_slice.is_included) * _MAX_MBARRIER_SLICE_GROWTH:
            kernel_slice = extended_slice
    return _compile_verified(_KernelCompiler(cfg, loop_forest, kernel_slice, {}))


def _has_mbarrier_copies(cfg: Cfg) -> bool:
    """Return whether a copy completes on an mbarrier.

    It is a memory access too, and an instruction is compiled as one or the other.
    """
    copies = cfg.kernel.form_table.make_opcode_mask(_is_mbarrier_copy)
    return bool(copies[cfg.kernel.opcode_ids].any())


def _is_mbarrier_copy(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.MBARRIER_COPY


def recompile_with_mbarriers(kernel: CompiledKernel) -> CompiledKernel:
    """Return the kernel compiled with mbarrier operations in its slice."""
    if kernel.slice.tracks_mbarriers:
        return kernel
    extended_slice = add_mbarriers_to_slice(kernel.cfg, kernel.slice)
    return _compile_verified(
        _KernelCompiler(kernel.cfg, kernel.loop_forest, extended_slice, kernel.steps_by_text)
    )


def recompile_with_shared_addresses(kernel: CompiledKernel) -> CompiledKernel:
    """Return the kernel compiled with bulk copies as accesses to their first byte in shared memory."""
    compiler = _KernelCompiler(kernel.cfg, kernel.loop_forest, kernel.slice, kernel.steps_by_text)
    compiler.uses_shared_addresses = True
    return _compile_verified(compiler)


def _compile_verified(compiler: "_KernelCompiler") -> CompiledKernel:
    """Return the compiled kernel; what its actions read and none gives is made unknown."""
    found = compiler.compile()
    gaps = find_slice_gaps(found)
    if gaps.results:
        compiler.unset_results = gaps.results
        found = compiler.compile()
    return replace(found, unset_rows=tuple(sorted(gaps.results)), unset_registers=gaps.entry_registers)


class _KernelCompiler:
    """Compiler of one kernel and slice.

    steps: instructions compiled before, by text id
    """

    def __init__(
        self, cfg: Cfg, loop_forest: LoopForest, kernel_slice: Slice, steps: Mapping[int, Step | None]
    ) -> None:
        self.cfg, self.loop_forest, self.slice, self.steps = cfg, loop_forest, kernel_slice, dict(steps)
        self.split_rows = [self._find_split_rows(block.index) for block in cfg.blocks]
        self.entry_of: list[int] = []
        count = 0
        for split_rows in self.split_rows:
            self.entry_of.append(count)
            count += len(split_rows) + 1
        self.block_ranks = {
            block: rank
            for rank, block in enumerate(
                compute_loop_contiguous_order(cfg.interprocedural_successors, loop_forest)
            )
        }
        self.unmodeled_rows: set[int] = set()
        self.trap_rows = find_trap_rows(cfg)
        self.uses_shared_addresses = False
        self.unset_results: Mapping[int, tuple[int, ...]] = {}  # made unknown, see `slice_verification`
        addresses = cfg.kernel.addresses
        self.return_targets = tuple(
            (int(addresses[cfg.blocks[after].start]), self.entry_of[after])
            for after in find_return_sites(cfg)
        )

    def compile(self) -> CompiledKernel:
        """Build all segments."""
        segments = [part for block in self.cfg.blocks for part in self._build_segments(block.index)]
        return CompiledKernel(
            cfg=self.cfg,
            loop_forest=self.loop_forest,
            slice=self.slice,
            segments=tuple(segments),
            entry_segments=tuple(self.entry_of),
            unmodeled_rows=tuple(sorted(self.unmodeled_rows)),
            unset_rows=(),
            unset_registers=(),
            awaited_loads=find_awaited_loads(self.cfg, self.loop_forest),
            steps_by_text=self.steps,
        )

    def _find_split_rows(self, block: int) -> list[int]:
        """Return the rows inside a block at which warps may wait for each other."""
        kernel, span = self.cfg.kernel, self.cfg.blocks[block]
        waits = self.slice.waits_at_cta_barriers
        return [
            row
            for row in range(span.start, span.stop)
            if kernel.find_opcode(row).kind is OpKind.WARP_SYNC
            or (waits and kernel.find_opcode(row).sched_class is SchedClass.CTA_BARRIER)
        ]

    def _build_segments(self, block: int) -> list[Segment]:
        span, split_rows, first = self.cfg.blocks[block], self.split_rows[block], self.entry_of[block]
        block_rank = self.block_ranks.get(block, len(self.block_ranks) + block)
        parts = []
        start = span.start
        for number, split_row in enumerate((*split_rows, None)):
            stop = span.stop if split_row is None else split_row
            end = (
                self._build_terminator(block)
                if split_row is None
                else self._build_wait(split_row, first + number + 1)
            )
            actions = (*self._build_actions(start, stop), *self._build_unknown_results(split_row))
            parts.append(
                Segment(
                    index=first + number,
                    block=block,
                    start=start,
                    stop=span.stop if split_row is None else split_row + 1,
                    is_first=number == 0,
                    rank=(block_rank, number),
                    actions=actions,
                    terminator=end,
                    n_accesses=sum(len(action.accesses) for action in actions),
                    has_approximations=any(a.step is not None and a.step.error_ulps for a in actions),
                )
            )
            start = stop + 1
        return parts

    def _build_actions(self, start: int, stop: int) -> tuple[Action, ...]:
        found: list[Action] = []
        for row in range(start, stop):
            if (request := self._build_constant_request(row)) is not None:
                found.append(request)
            action, source = self._build_action(row), self.slice.unknown_results.get(row)
            if action is not None:
                found += _split_tracked_copy(action)
            if source is not None and self.slice.is_included[row]:
                form = self.cfg.kernel.decode_form(row)
                found.append(
                    Action(ActionKind.SET_UNKNOWN, row, find_guard(form), form.defs, origin_row=source)
                )
            found += self._build_unknown_results(row)
        return tuple(found)

    def _build_unknown_results(self, row: int | None) -> list[Action]:
        """Build the action that makes those results unknown which no other action gives."""
        slots = () if row is None else self.unset_results.get(row, ())
        if row is None or not slots:
            return []
        return [Action(ActionKind.SET_UNKNOWN, row, find_guard(self.cfg.kernel.decode_form(row)), slots)]

    def _build_constant_request(self, row: int) -> Action | None:
        """Build the request of an indexed constant load; another action computes what it loads."""
        form = self.cfg.kernel.decode_form(row)
        operand = find_constant_index(form.opcode, form.operands)
        if operand is None or operand.base is None or form.is_never_executed:
            return None
        address = Address((operand.base,), operand.offset)
        access = self._build_access(
            row, form, 0, address, AddressSpace.CONSTANT, OpKind.LOAD, (), results=(), data=()
        )
        return Action(ActionKind.ACCESS_MEMORY, row, find_guard(form), (), accesses=(access,))

    def _build_action(self, row: int) -> Action | None:
        form = self.cfg.kernel.decode_form(row)
        guard = find_guard(form)
        if form.is_never_executed:
            return None
        if row in self.trap_rows:
            return Action(ActionKind.TRAP, row, guard)
        if self.slice.tracks_shared and form.opcode.sched_class is SchedClass.CLUSTER_BARRIER:
            return Action(ActionKind.COMPLETE_WAIT, row, guard)
        if self.slice.tracks_mbarriers and form.opcode.semantics in MBARRIER_SEMANTICS:
            return Action(
                ActionKind.UPDATE_MBARRIER,
                row,
                guard,
                form.defs,
                mbarrier_operation=_make_mbarrier_operation(row, form),
            )
        if self.slice.tracks_mbarriers and (descriptor := find_mma_descriptor(form)):
            product = MbarrierOperation(row, None, None, find_register_unit(descriptor))
            return Action(ActionKind.UPDATE_MBARRIER, row, guard, (), mbarrier_operation=product)
        return self._build_plain_action(row, form, guard)

    def _build_plain_action(self, row: int, form: InstructionForm, guard: Guard | None) -> Action | None:
        opcode = form.opcode
        match opcode.kind:
            case OpKind.CONVERGENCE_OPEN:
                return Action(ActionKind.OPEN_CONVERGENCE, row, guard, barrier=_find_barrier_index(form))
            case OpKind.CONVERGENCE_BREAK:
                conditions = _list_predicates(form.operands)
                return (
                    Action(
                        ActionKind.BREAK_CONVERGENCE, row, guard, writes=(), barrier=_find_barrier_index(form)
                    )
                    if not conditions
                    else (
                        Action(
                            ActionKind.BREAK_CONVERGENCE,
                            row,
                            conditions[0],
                            barrier=_find_barrier_index(form),
                        )
                    )
                )
            case OpKind.CALL if row in self.cfg.external_call_rows:
                kept = _KEEPS_REGISTERS in opcode.modifiers
                return Action(ActionKind.SET_UNKNOWN, row, guard, () if kept else _CALL_CLOBBERED_SLOTS)
            case kind if kind in MEMORY_KINDS and opcode.space is not AddressSpace.CONSTANT:
                results = (
                    form.defs if self.slice.is_included[row] and row not in self.slice.unknown_results else ()
                )
                return Action(
                    ActionKind.ACCESS_MEMORY,
                    row,
                    guard,
                    form.defs,
                    accesses=self._build_accesses(row, form, results),
                )
            case _:
                pass
        if _find_barrier_operand(form) is not None and opcode.kind is OpKind.MOVE:
            return self._build_barrier_move(row, form, guard)
        if not self.slice.is_included[row] or row in self.slice.unknown_results:
            return None
        if opcode.sched_class is SchedClass.TENSOR_CORE_CONTROL and _has_result_predicate(form):
            return Action(ActionKind.ALLOCATE_TENSOR_MEMORY, row, guard, form.defs)
        if _is_granted(form):
            return Action(ActionKind.COMPLETE_WAIT, row, guard, form.defs)
        step = self._compile_step(row, form)
        if step is None:
            self.unmodeled_rows.add(row)
            return Action(ActionKind.SET_UNKNOWN, row, guard, form.defs)
        return Action(ActionKind.COMPUTE, row, guard, step.writes, step.copy_if_rounding())

    def _compile_step(self, row: int, form: InstructionForm) -> Step | None:
        text_id = int(self.cfg.kernel.text_ids[row])
        if text_id not in self.steps:
            self.steps[text_id] = compile_step(form)
        step = self.steps[text_id]
        if step is not None and step.error_ulps and is_corrected_seed(self.cfg, row):
            return replace(step, error_ulps=0)
        return step

    def _build_barrier_move(self, row: int, form: InstructionForm, guard: Guard | None) -> Action:
        first = form.operands[0]
        if isinstance(first, BarrierRegister):
            source = form.operands[-1]
            slots = (find_register_unit(source),) if isinstance(source, Register) else ()
            return Action(ActionKind.RESTORE_CONVERGENCE_BARRIER, row, guard, slots, barrier=first.index)
        slots = (find_register_unit(first),) if isinstance(first, Register) else ()
        return Action(
            ActionKind.SAVE_CONVERGENCE_BARRIER, row, guard, slots, barrier=_find_barrier_index(form)
        )

    def _build_accesses(
        self, row: int, form: InstructionForm, results: tuple[int, ...]
    ) -> tuple[LoweredAccess, ...]:
        """Build the access of an instruction; LDGSTS has two, a global load and a shared store."""
        opcode = form.opcode
        found = [
            (position, address)
            for position, operand in enumerate(form.operands)
            if (address := get_address(operand)) is not None
        ]
        is_elided = row in self.slice.elided_stores
        data = () if is_elided else _find_data_slots(form)
        masks = _find_trailing_predicates(form)
        if opcode.kind is OpKind.ASYNC_COPY and len(found) > 1:
            (shared_place, shared), (global_place, source) = found[0], found[1]
            # lanes that `masks` leave out store zeros
            copied = () if masks or is_elided or not self.slice.tracks_shared else _list_copied_words(opcode)
            store = self._build_access(
                row, form, shared_place, shared, AddressSpace.SHARED, OpKind.STORE, (), (), copied
            )
            if is_zero_fill(form.operands):
                return (store,)
            load = self._build_access(
                row, form, global_place, source, AddressSpace.GLOBAL, OpKind.LOAD, masks, copied, ()
            )
            return (load, store)
        space = opcode.space or AddressSpace.GLOBAL
        if opcode.kind is OpKind.BULK_COPY:
            return (self._build_bulk_access(row, form, space, masks, results),)
        if not found or opcode.kind is OpKind.TEXTURE:
            return (self._build_access(row, form, 0, None, space, opcode.kind, masks, results, ()),)
        position, address = found[-1]
        return (self._build_access(row, form, position, address, space, opcode.kind, masks, results, data),)

    def _build_bulk_access(
        self,
        row: int,
        form: InstructionForm,
        space: AddressSpace,
        masks: tuple[Guard, ...],
        results: tuple[int, ...],
    ) -> LoweredAccess:
        """Build the access of a bulk copy: to global memory, or to its first byte in shared memory."""
        found = self._build_access(row, form, 0, None, space, form.opcode.kind, masks, results, ())
        shared = find_shared_address(form)
        if not self.uses_shared_addresses or shared is None:
            return replace(
                found, bulk=find_bulk_operands(form, tracks_tensor_maps=self.slice.tracks_tensor_maps)
            )
        address = AddressExpression(terms=(AddressTerm(shared, False, 1),), offset=0, is_64_bit=False)
        return replace(found, space=AddressSpace.SHARED, address=address, width_bytes=1)

    def _build_access(
        self,
        row: int,
        form: InstructionForm,
        position: int,
        address: Address | None,
        space: AddressSpace,
        kind: OpKind,
        masks: tuple[Guard, ...],
        results: tuple[int, ...],
        data: tuple[int, ...],
    ) -> LoweredAccess:
        opcode = form.opcode
        wide = is_64bit_address(opcode, position) or (
            address is not None and any("64" in b.suffixes for b in address.bases)
        )
        return LoweredAccess(
            row=row,
            space=space,
            kind=kind,
            width_bytes=opcode.width_bytes,
            address=None if address is None else _make_address_expression(address, wide),
            lane_predicates=masks,
            result_slots=results,
            data_slots=data,
            n_matrices=opcode.width_bytes // 4 if opcode.sched_class is SchedClass.SHARED_MATRIX else 0,
            is_signed=not _SIGNED_MODIFIERS.isdisjoint(opcode.modifiers),
            atomic_operation=next((word for word in opcode.modifiers if word in _ATOMIC_OPERATIONS), ""),
        )

    def _build_wait(self, row: int, following: int) -> Terminator:
        form = self.cfg.kernel.decode_form(row)
        if form.opcode.kind is OpKind.WARP_SYNC:
            return Terminator(
                kind=TerminatorKind.WARP_SYNC, row=row, guard=find_guard(form), fall_through=following
            )
        (number, number_slot), (n_threads, n_threads_slot) = _find_barrier_operands(form)
        return Terminator(
            kind=TerminatorKind.CTA_BARRIER,
            row=row,
            guard=find_guard(form),
            fall_through=following,
            barrier=number or 0,
            barrier_slot=number_slot,
            is_arrive_only="ARV" in form.opcode.modifiers,
            n_threads=n_threads,
            n_threads_slot=n_threads_slot,
            reduction=_make_barrier_reduction(form) if self.slice.is_included[row] else None,
        )

    def _build_terminator(self, block: int) -> Terminator:
        row = self.cfg.blocks[block].stop - 1
        form = self.cfg.kernel.decode_form(row)
        fall_through = self.entry_of[block + 1] if block + 1 < len(self.cfg.blocks) else None
        guard = find_guard(form)
        if form.is_never_executed:
            return Terminator(kind=TerminatorKind.FALL_THROUGH, row=row, fall_through=fall_through)
        match form.opcode.kind:
            case OpKind.BRANCH:
                return self._build_branch(block, row, form, guard, fall_through)
            case OpKind.EXIT:
                conditions = _list_predicates(form.operands)
                return Terminator(
                    kind=TerminatorKind.EXIT,
                    row=row,
                    guard=guard,
                    fall_through=fall_through,
                    conditions=conditions,
                )
            case OpKind.CONVERGENCE_WAIT:
                return Terminator(
                    kind=TerminatorKind.RECONVERGE,
                    row=row,
                    guard=guard,
                    fall_through=fall_through,
                    barrier=_find_barrier_index(form),
                )
            case OpKind.BRANCH_INDIRECT:
                return self._build_indirect_branch(block, row, form, guard, fall_through)
            case OpKind.RETURN:
                slot = next((find_register_unit(o) for o in form.operands if isinstance(o, Register)), None)
                return Terminator(
                    kind=TerminatorKind.INDIRECT,
                    row=row,
                    guard=guard,
                    fall_through=fall_through,
                    indirect_targets=self.return_targets,
                    slot=slot,
                )
            case OpKind.CALL:
                return self._build_call(block, row, guard, fall_through)
            case _:
                return Terminator(kind=TerminatorKind.FALL_THROUGH, row=row, fall_through=fall_through)

    def _build_branch(
        self, block: int, row: int, form: InstructionForm, guard: Guard | None, fall_through: int | None
    ) -> Terminator:
        target = self.cfg.taken_targets.get(block)
        entry = None if target is None else self.entry_of[target]
        words = form.opcode.modifiers
        if "DIV" in words or "CONV" in words:
            registers = [o for o in form.operands if isinstance(o, Register)]
            slot = find_register_unit(registers[0]) if registers and not registers[0].is_inverted else None
            return Terminator(
                kind=TerminatorKind.DIVERGENCE_BRANCH,
                row=row,
                guard=guard,
                target=entry,
                fall_through=fall_through,
                slot=slot,
                is_taken_if_converged="CONV" in words,
            )
        conditions = (*((guard,) if guard else ()), *_list_predicates(form.operands))
        return Terminator(
            kind=TerminatorKind.BRANCH,
            row=row,
            target=entry,
            fall_through=fall_through,
            conditions=conditions,
        )

    def _build_indirect_branch(
        self, block: int, row: int, form: InstructionForm, guard: Guard | None, fall_through: int | None
    ) -> Terminator:
        slot = next((find_register_unit(o) for o in form.operands if isinstance(o, Register)), None)
        offsets = [o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int)]
        address = int(self.cfg.kernel.addresses[row])
        targets = tuple(
            (int(self.cfg.kernel.addresses[self.cfg.blocks[edge.target].start]), self.entry_of[edge.target])
            for edge in self.cfg.edges
            if edge.source == block and edge.kind in (EdgeKind.INDIRECT, EdgeKind.ASSUMED)
        )
        return Terminator(
            kind=TerminatorKind.INDIRECT,
            row=row,
            guard=guard,
            fall_through=fall_through,
            indirect_targets=targets,
            slot=slot,
            offset=address + 16 + (offsets[0] if offsets else 0),
        )

    def _build_call(self, block: int, row: int, guard: Guard | None, fall_through: int | None) -> Terminator:
        callee = next((target for caller, target in self.cfg.call_edges if caller == block), None)
        target = self.cfg.taken_targets.get(block) if callee is None else callee
        if target is None:  # an external call: assumed to return, see `Cfg.external_call_rows`
            return Terminator(kind=TerminatorKind.FALL_THROUGH, row=row, fall_through=fall_through)
        conditions = () if guard is None else (guard,)
        return Terminator(
            kind=TerminatorKind.BRANCH,
            row=row,
            target=self.entry_of[target],
            fall_through=fall_through,
            conditions=conditions,
        )


_KEEPS_REGISTERS = "KEEP"  # of a call at PTX level, which says what it returns
# What an external call may change: all but R1, R2, R16 to R19, R22 on and UR36 on, in which ptxas keeps
# values across calls of functions that it does not see (sm_75 to sm_120).
_CALL_CLOBBERED_SLOTS = (
    *(0, 3, *range(4, 16), 20, 21),
    *range(UNIFORM_REGISTER_BASE, UNIFORM_REGISTER_BASE + 36),
    *range(PREDICATE_BASE, N_REGISTER_UNITS),
)
_ATOMIC_OPERATIONS = frozenset({"OR", "AND", "XOR", "ADD", "POPC"})
_SIGNED_MODIFIERS = frozenset({"S8", "S16"})


def _is_granted(form: InstructionForm) -> bool:
    """Return whether an instruction is a wait or a request (USETMAXREG) that is assumed to succeed.

    Other instructions of these kinds read a state that is not followed.
    """
    waits = form.opcode.semantics is Semantics.MBARRIER_WAIT
    return waits or (form.opcode.kind is OpKind.CONTROL and _has_result_predicate(form))


def _list_copied_words(opcode: Opcode) -> tuple[int, ...]:
    """Return the units of the words that an LDGSTS copies."""
    return tuple(range(COPIED_WORD_BASE, COPIED_WORD_BASE + opcode.width_bytes // _WORD_BYTES))


def _split_tracked_copy(action: Action) -> tuple[Action, ...]:
    """Return the load and the store of an LDGSTS whose words are tracked, in this order; else the action."""
    copied = action.accesses[0].result_slots if len(action.accesses) > 1 else ()
    if not copied:
        return (action,)
    load, store = action.accesses
    return replace(action, writes=copied, accesses=(load,)), replace(action, accesses=(store,))


def _has_result_predicate(form: InstructionForm) -> bool:
    return any(PREDICATE_BASE <= slot < N_REGISTER_UNITS for slot in form.defs)


def _list_predicates(operands: tuple[Operand, ...]) -> tuple[Guard, ...]:
    return tuple(
        (find_predicate_unit(o), o.is_negated)
        for o in operands
        if isinstance(o, Predicate) and o.index is not None
    )


def _find_trailing_predicates(form: InstructionForm) -> tuple[Guard, ...]:
    """Return the predicate after the address, which disables lanes of the global access."""
    last = form.operands[-1] if form.operands else None
    if len(form.operands) > 1 and isinstance(last, Predicate) and last.index is not None:
        return ((find_predicate_unit(last), last.is_negated),)
    return ()


def _find_barrier_operands(form: InstructionForm) -> list[tuple[int | None, int | None]]:
    """Return number and threads of a CTA barrier, each as a printed value or the register that holds it."""
    found: list[tuple[int | None, int | None]] = []
    for operand in form.operands:
        match operand:
            case Immediate(value=int(value)):
                found.append((value, None))
            case Register(index=None):
                found.append((0, None))
            case Register():
                found.append((None, find_register_unit(operand)))
            case _:
                pass
    return [*found, (None, None), (None, None)][:2]


def _make_barrier_reduction(form: InstructionForm) -> BarrierReduction | None:
    """Build the reduction of a CTA barrier, None if it reduces nothing."""
    if form.opcode.semantics is not Semantics.BARRIER_REDUCTION:
        return None
    predicate = find_reduced_predicate(form)
    found = [_BARRIER_OPERATIONS[word] for word in form.opcode.modifiers if word in _BARRIER_OPERATIONS]
    if predicate is None or len(found) != 1:
        return BarrierReduction(BarrierOperation.UNKNOWN, None)
    (operation,) = found
    if predicate.index is None:
        return BarrierReduction(operation, None, not predicate.is_negated)
    return BarrierReduction(operation, (find_predicate_unit(predicate), predicate.is_negated))


_BARRIER_OPERATIONS = {
    "POPC": BarrierOperation.COUNT,
    "AND": BarrierOperation.ALL,
    "OR": BarrierOperation.ANY,
}


def _find_barrier_operand(form: InstructionForm) -> BarrierRegister | None:
    return next((o for o in form.operands if isinstance(o, BarrierRegister)), None)


def _find_barrier_index(form: InstructionForm) -> int:
    found = _find_barrier_operand(form)
    return 0 if found is None else found.index


def _find_address_slots(form: InstructionForm) -> frozenset[int]:
    slots: set[int] = set()
    for position, operand in enumerate(form.operands):
        address = get_address(operand)
        if address is not None:
            slots.update(find_address_units(form.opcode, position, address))
        if isinstance(operand, DescriptorOperand):
            slots.update(find_register_unit(base) + i for base in operand.descriptor.bases for i in (0, 1))
    return frozenset(slots)


def _find_data_slots(form: InstructionForm) -> tuple[int, ...]:
    """Return the registers that are stored; -1 for each word of RZ."""
    slots = tuple(n for n in form.uses if n not in _find_address_slots(form) and n < UNIFORM_REGISTER_BASE)
    last = next((o for o in reversed(form.operands) if isinstance(o, Register)), None)
    if slots or form.opcode.kind is not OpKind.STORE or last is None or last.index is not None:
        return slots
    return (-1,) * max(1, form.opcode.width_bytes // 4)


def _make_address_expression(address: Address, wide: bool) -> AddressExpression:
    terms = tuple(
        AddressTerm(find_register_unit(base), is_register_pair(base, wide), _find_scale(base))
        for base in address.bases
        if base.index is not None
    )
    return AddressExpression(terms=terms, offset=address.offset, is_64_bit=wide)


def _find_scale(base: Register) -> int:
    return next((_SCALES[word] for word in base.suffixes if word in _SCALES), 1)


_SCALES = {"X4": 4, "X8": 8, "X16": 16}


_MULTICAST_MODIFIER = "MULTICAST"


def _find_multicast_mask_register(form: InstructionForm) -> int | None:
    """Return the register with the mask of CTAs in the cluster that receive a multicast copy."""
    if _MULTICAST_MODIFIER not in form.opcode.modifiers:
        return None
    return next((find_register_unit(o) for o in form.operands if isinstance(o, Register)), None)


def _make_mbarrier_operation(row: int, form: InstructionForm) -> MbarrierOperation | None:
    """Build the mbarrier operation of an instruction, None if it has no address.

    A copy holds the address of its mbarrier in the register after the destination address.
    """
    semantics = form.opcode.semantics
    addresses = [operand for operand in form.operands if isinstance(operand, Address)]
    if semantics is None or not addresses:
        return None
    if semantics is Semantics.MBARRIER_COPY:
        if not addresses[0].bases:
            return None
        first = find_register_unit(addresses[0].bases[0])
        barrier = AddressExpression(terms=(AddressTerm(first + 1, False, 1),), offset=0, is_64_bit=False)
        return MbarrierOperation(
            row,
            semantics,
            barrier,
            _find_multicast_mask_register(form),
            find_copy_coordinates(form),
            find_copied_tensor_map(form),
        )
    last = form.operands[-1]
    slot = find_register_unit(last) if isinstance(last, Register) else None
    has_operand = "A1T0" not in form.opcode.modifiers  # arrive without expected bytes
    address = _make_address_expression(addresses[-1], False)
    return MbarrierOperation(row, semantics, address, slot if has_operand else None)
