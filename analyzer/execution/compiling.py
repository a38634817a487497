"""Compiles a kernel's slice into segments of actions."""

from msgspec.structs import replace

from analyzer.execution.bulk_forms import shared_side
from analyzer.execution.program import (
    Access,
    Action,
    ActionKind,
    AddressForm,
    CompiledKernel,
    End,
    EndKind,
    Segment,
    Signal,
    Term,
)
from analyzer.execution.returning import after_calls
from analyzer.execution.semantics import compile_step
from analyzer.execution.slicing import (
    Guard,
    Slice,
    add_mbarriers,
    bulk_of,
    copied_tensor,
    copy_coordinates,
    guard_of,
    has_mbarriers,
    product_descriptor,
    slice_control,
)
from analyzer.execution.step import Step
from analyzer.execution.waiting import awaited_rows
from analyzer.flow.cfg import Cfg, EdgeKind
from analyzer.flow.loops import LoopNest, inside_first
from analyzer.ir.machine import SchedClass
from analyzer.ir.opcode import MBARRIER_MEANINGS, MEMORY_KINDS, OpKind, Semantics, Space
from analyzer.ir.operand import Address, Barrier, Described, Immediate, Operand, Predicate, Register
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import (
    UNIFORM_BASE,
    address_storage,
    is_pair,
    is_wide_address,
    predicate_storage,
    register_storage,
)

_HARDLY_MORE = 1.02


def compile_kernel(
    cfg: Cfg, nest: LoopNest, *, knows_memory: bool = True, knows_tensors: bool = False
) -> CompiledKernel:
    """Compile the slice of a kernel that its control flow and addresses depend on (see `slice_control`).

    What is said to mbarriers is in it where that takes hardly any more instructions.
    """
    wanted = slice_control(cfg, knows_memory=knows_memory, knows_tensors=knows_tensors)
    if has_mbarriers(cfg) and not _has_copies(cfg):
        wider = add_mbarriers(cfg, wanted)
        if sum(wider.rows) <= sum(wanted.rows) * _HARDLY_MORE:
            wanted = wider
    return _Compiler(cfg, nest, wanted, {}).compile()


def _has_copies(cfg: Cfg) -> bool:
    """Some copy says something to an mbarrier, and is an access too: it cannot be compiled as both."""
    copies = cfg.kernel.vocabulary.mask(lambda opcode: opcode.semantics is Semantics.MBARRIER_COPY)
    return bool(copies[cfg.kernel.opcode_ids].any())


def with_mbarriers(kernel: CompiledKernel) -> CompiledKernel:
    """The same kernel, with what its instructions say to mbarriers in its slice."""
    if kernel.slice.has_mbarriers:
        return kernel
    wider = add_mbarriers(kernel.cfg, kernel.slice)
    return _Compiler(kernel.cfg, kernel.nest, wider, kernel.steps).compile()


def with_shared_sides(kernel: CompiledKernel) -> CompiledKernel:
    """The same kernel, in which copies of the engine are accesses to where they begin in shared memory."""
    compiler = _Compiler(kernel.cfg, kernel.nest, kernel.slice, kernel.steps)
    compiler.takes_shared_sides = True
    return compiler.compile()


class _Compiler:
    def __init__(self, cfg: Cfg, nest: LoopNest, wanted: Slice, steps: dict[int, Step | None]) -> None:
        self.cfg, self.nest, self.slice, self.steps = cfg, nest, wanted, steps
        self.cuts = [self._cuts(block.index) for block in cfg.blocks]
        self.entry_of: list[int] = []
        count = 0
        for cuts in self.cuts:
            self.entry_of.append(count)
            count += len(cuts) + 1
        self.places = {block: place for place, block in enumerate(inside_first(cfg.flow, nest))}
        self.unknown: set[int] = set()
        self.takes_shared_sides = False
        addresses = cfg.kernel.addresses
        self.after_calls = tuple(
            (int(addresses[cfg.blocks[after].start]), self.entry_of[after]) for after in after_calls(cfg)
        )

    def compile(self) -> CompiledKernel:
        segments = [part for block in self.cfg.blocks for part in self._segments(block.index)]
        return CompiledKernel(
            cfg=self.cfg,
            nest=self.nest,
            slice=self.slice,
            segments=tuple(segments),
            entry_of=tuple(self.entry_of),
            unknown_steps=tuple(sorted(self.unknown)),
            awaited=awaited_rows(self.cfg, self.nest),
            steps=self.steps,
        )

    def _cuts(self, block: int) -> list[int]:
        """Rows inside a block at which warps may wait."""
        kernel, span = self.cfg.kernel, self.cfg.blocks[block]
        waits = self.slice.keeps_shared
        return [
            row
            for row in range(span.start, span.stop)
            if kernel.opcode(row).kind is OpKind.WARP_SYNC
            or (waits and kernel.opcode(row).sched is SchedClass.CTA_BARRIER)
        ]

    def _segments(self, block: int) -> list[Segment]:
        span, cuts, first = self.cfg.blocks[block], self.cuts[block], self.entry_of[block]
        place = self.places.get(block, len(self.places) + block)
        parts = []
        start = span.start
        for number, cut in enumerate((*cuts, None)):
            stop = span.stop if cut is None else cut
            end = self._end(block) if cut is None else self._wait(cut, first + number + 1)
            parts.append(
                Segment(
                    index=first + number,
                    block=block,
                    start=start,
                    stop=span.stop if cut is None else cut + 1,
                    is_first=number == 0,
                    rank=(place, number),
                    actions=self._actions(start, stop),
                    end=end,
                )
            )
            start = stop + 1
        return parts

    def _actions(self, start: int, stop: int) -> tuple[Action, ...]:
        found: list[Action] = []
        for row in range(start, stop):
            action, source = self._action(row), self.slice.opaque.get(row)
            if action is not None:
                found.append(action)
            if source is not None and self.slice.rows[row]:
                form = self.cfg.kernel.form(row)
                found.append(Action(ActionKind.FORGET, source, guard_of(form), form.written))
        return tuple(found)

    def _action(self, row: int) -> Action | None:
        form = self.cfg.kernel.form(row)
        guard = guard_of(form)
        if form.is_never:
            return None
        if self.slice.has_mbarriers and form.opcode.semantics in MBARRIER_MEANINGS:
            return Action(ActionKind.SIGNAL, row, guard, form.written, signal=_signal(row, form))
        if self.slice.has_mbarriers and (descriptor := product_descriptor(form)):
            product = Signal(row, None, None, register_storage(descriptor))
            return Action(ActionKind.SIGNAL, row, guard, (), signal=product)
        return self._plain_action(row, form, guard)

    def _plain_action(self, row: int, form: InstructionForm, guard: Guard | None) -> Action | None:
        opcode = form.opcode
        match opcode.kind:
            case OpKind.CONVERGENCE_OPEN:
                return Action(ActionKind.OPEN, row, guard, barrier=_barrier(form))
            case OpKind.CONVERGENCE_BREAK:
                conditions = _predicates(form.operands)
                return (
                    Action(ActionKind.BREAK, row, guard, writes=(), barrier=_barrier(form))
                    if not conditions
                    else (Action(ActionKind.BREAK, row, conditions[0], barrier=_barrier(form)))
                )
            case OpKind.CALL if row in self.cfg.leaving:
                return Action(ActionKind.FORGET, row, guard, _RETURNED)
            case kind if kind in MEMORY_KINDS and opcode.space is not Space.CONSTANT:
                results = form.written if self.slice.rows[row] and row not in self.slice.opaque else ()
                return Action(
                    ActionKind.ACCESS, row, guard, form.written, accesses=self._accesses(row, form, results)
                )
            case _:
                pass
        if _barrier_operand(form) is not None and opcode.kind is OpKind.MOVE:
            return self._barrier_move(row, form, guard)
        if not self.slice.rows[row] or row in self.slice.opaque:
            return None
        if opcode.sched is SchedClass.TENSOR_CORE_CONTROL:
            return Action(ActionKind.ALLOCATE, row, guard, form.written)
        if opcode.kind in _GRANTED:
            return Action(ActionKind.PASS, row, guard, form.written)
        step = self._step(row, form)
        if step is None:
            self.unknown.add(row)
            return Action(ActionKind.FORGET, row, guard, form.written)
        return Action(ActionKind.STEP, row, guard, step.writes, step.of_one_place())

    def _step(self, row: int, form: InstructionForm) -> Step | None:
        text_id = int(self.cfg.kernel.text_ids[row])
        if text_id not in self.steps:
            self.steps[text_id] = compile_step(form)
        return self.steps[text_id]

    def _barrier_move(self, row: int, form: InstructionForm, guard: Guard | None) -> Action:
        first = form.operands[0]
        if isinstance(first, Barrier):
            source = form.operands[-1]
            slots = (register_storage(source),) if isinstance(source, Register) else ()
            return Action(ActionKind.RESTORE, row, guard, slots, barrier=first.index)
        slots = (register_storage(first),) if isinstance(first, Register) else ()
        return Action(ActionKind.SAVE, row, guard, slots, barrier=_barrier(form))

    def _accesses(self, row: int, form: InstructionForm, results: tuple[int, ...]) -> tuple[Access, ...]:
        """One access, or for LDGSTS two: what it reads from global and what it writes to shared memory."""
        opcode = form.opcode
        found = [
            (place, address)
            for place, operand in enumerate(form.operands)
            if (address := _address_of(operand)) is not None
        ]
        data = () if row in self.slice.unkept else _data_slots(form)
        masks = _trailing_masks(form)
        if opcode.kind is OpKind.ASYNC_COPY and len(found) > 1:
            (shared_place, shared), (global_place, source) = found[0], found[1]
            return (
                self._access(row, form, global_place, source, Space.GLOBAL, OpKind.LOAD, masks, (), ()),
                self._access(row, form, shared_place, shared, Space.SHARED, OpKind.STORE, (), (), ()),
            )
        space = opcode.space or Space.GLOBAL
        if opcode.kind is OpKind.BULK_COPY:
            return (self._bulk_access(row, form, space, masks, results),)
        if not found or opcode.kind is OpKind.TEXTURE:
            return (self._access(row, form, 0, None, space, opcode.kind, masks, results, ()),)
        place, address = found[-1]
        return (self._access(row, form, place, address, space, opcode.kind, masks, results, data),)

    def _bulk_access(
        self,
        row: int,
        form: InstructionForm,
        space: Space,
        masks: tuple[Guard, ...],
        results: tuple[int, ...],
    ) -> Access:
        """Of the engine: what registers tell of its bytes in global memory, or where they are in shared."""
        found = self._access(row, form, 0, None, space, form.opcode.kind, masks, results, ())
        shared = shared_side(form)
        if not self.takes_shared_sides or shared is None:
            return replace(found, bulk=bulk_of(form, has_tensors=self.slice.has_tensors))
        address = AddressForm(terms=(Term(shared, False, 1),), offset=0, wide=False)
        return replace(found, space=Space.SHARED, address=address, width_bytes=1)

    def _access(
        self,
        row: int,
        form: InstructionForm,
        place: int,
        address: Address | None,
        space: Space,
        kind: OpKind,
        masks: tuple[Guard, ...],
        results: tuple[int, ...],
        data: tuple[int, ...],
    ) -> Access:
        opcode = form.opcode
        wide = is_wide_address(opcode, place) or (
            address is not None and any("64" in b.suffixes for b in address.bases)
        )
        return Access(
            row=row,
            space=space,
            kind=kind,
            width_bytes=opcode.width_bytes,
            address=None if address is None else _address_form(address, wide),
            masks=masks,
            results=results,
            data=data,
            n_matrices=opcode.width_bytes // 4 if opcode.sched is SchedClass.SHARED_MATRIX else 0,
            is_signed=not _SIGNED.isdisjoint(opcode.modifiers),
            operation=next((word for word in opcode.modifiers if word in _OPERATIONS), ""),
        )

    def _wait(self, row: int, following: int) -> End:
        form = self.cfg.kernel.form(row)
        if form.opcode.kind is OpKind.WARP_SYNC:
            return End(kind=EndKind.WARP_SYNC, row=row, guard=guard_of(form), fall=following)
        numbers = [o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int)]
        return End(
            kind=EndKind.CTA_BARRIER,
            row=row,
            guard=guard_of(form),
            fall=following,
            barrier=numbers[0] if numbers else 0,
            arrives_only="ARV" in form.opcode.modifiers,
            count=numbers[1] if len(numbers) > 1 else None,
        )

    def _end(self, block: int) -> End:
        row = self.cfg.blocks[block].stop - 1
        form = self.cfg.kernel.form(row)
        fall = self.entry_of[block + 1] if block + 1 < len(self.cfg.blocks) else None
        guard = guard_of(form)
        if form.is_never:
            return End(kind=EndKind.NEXT, row=row, fall=fall)
        match form.opcode.kind:
            case OpKind.BRANCH:
                return self._branch(block, row, form, guard, fall)
            case OpKind.EXIT:
                conditions = _predicates(form.operands)
                return End(kind=EndKind.EXIT, row=row, guard=guard, fall=fall, conditions=conditions)
            case OpKind.CONVERGENCE_WAIT:
                return End(kind=EndKind.MEET, row=row, guard=guard, fall=fall, barrier=_barrier(form))
            case OpKind.BRANCH_INDIRECT:
                return self._indirect(block, row, form, guard, fall)
            case OpKind.RETURN:
                slot = next((register_storage(o) for o in form.operands if isinstance(o, Register)), None)
                return End(
                    kind=EndKind.INDIRECT,
                    row=row,
                    guard=guard,
                    fall=fall,
                    targets=self.after_calls,
                    slot=slot,
                )
            case OpKind.CALL:
                return self._call(block, row, guard, fall)
            case _:
                return End(kind=EndKind.NEXT, row=row, fall=fall)

    def _branch(
        self, block: int, row: int, form: InstructionForm, guard: Guard | None, fall: int | None
    ) -> End:
        target = self.cfg.taken.get(block)
        entry = None if target is None else self.entry_of[target]
        words = form.opcode.modifiers
        if "DIV" in words or "CONV" in words:
            registers = [o for o in form.operands if isinstance(o, Register)]
            slot = register_storage(registers[0]) if registers and not registers[0].inverted else None
            return End(
                kind=EndKind.MASK_BRANCH,
                row=row,
                guard=guard,
                target=entry,
                fall=fall,
                slot=slot,
                wants_together="CONV" in words,
            )
        conditions = (*((guard,) if guard else ()), *_predicates(form.operands))
        return End(kind=EndKind.BRANCH, row=row, target=entry, fall=fall, conditions=conditions)

    def _indirect(
        self, block: int, row: int, form: InstructionForm, guard: Guard | None, fall: int | None
    ) -> End:
        slot = next((register_storage(o) for o in form.operands if isinstance(o, Register)), None)
        offsets = [o.value for o in form.operands if isinstance(o, Immediate) and isinstance(o.value, int)]
        address = int(self.cfg.kernel.addresses[row])
        targets = tuple(
            (int(self.cfg.kernel.addresses[self.cfg.blocks[edge.target].start]), self.entry_of[edge.target])
            for edge in self.cfg.edges
            if edge.source == block and edge.kind in (EdgeKind.INDIRECT, EdgeKind.ASSUMED)
        )
        return End(
            kind=EndKind.INDIRECT,
            row=row,
            guard=guard,
            fall=fall,
            targets=targets,
            slot=slot,
            offset=address + 16 + (offsets[0] if offsets else 0),
        )

    def _call(self, block: int, row: int, guard: Guard | None, fall: int | None) -> End:
        callee = next((target for caller, target in self.cfg.calls if caller == block), None)
        target = self.cfg.taken.get(block) if callee is None else callee
        if target is None:  # taken to come back, see `Cfg.leaving`
            return End(kind=EndKind.NEXT, row=row, fall=fall)
        conditions = () if guard is None else (guard,)
        return End(
            kind=EndKind.BRANCH, row=row, target=self.entry_of[target], fall=fall, conditions=conditions
        )


_RETURNED = tuple(range(4, 16))  # registers that hold arguments of a call, and then what it returns
_OPERATIONS = frozenset({"OR", "AND", "XOR", "ADD", "POPC"})
# Waits and requests to the system (USETMAXREG): what they ask for is granted; tensor memory stands apart.
_GRANTED = frozenset({OpKind.BARRIER, OpKind.CONTROL})
_SIGNED = frozenset({"S8", "S16"})


def _predicates(operands: tuple[Operand, ...]) -> tuple[Guard, ...]:
    return tuple(
        (predicate_storage(o), o.negated)
        for o in operands
        if isinstance(o, Predicate) and o.index is not None
    )


def _trailing_masks(form: InstructionForm) -> tuple[Guard, ...]:
    """Predicates behind the address: they switch the global side off lane by lane."""
    last = form.operands[-1] if form.operands else None
    if len(form.operands) > 1 and isinstance(last, Predicate) and last.index is not None:
        return ((predicate_storage(last), last.negated),)
    return ()


def _barrier_operand(form: InstructionForm) -> Barrier | None:
    return next((o for o in form.operands if isinstance(o, Barrier)), None)


def _barrier(form: InstructionForm) -> int:
    found = _barrier_operand(form)
    return 0 if found is None else found.index


def _address_of(operand: Operand) -> Address | None:
    match operand:
        case Address():
            return operand
        case Described(address=Address() as address):
            return address
        case _:
            return None


def _address_slots(form: InstructionForm) -> frozenset[int]:
    slots: set[int] = set()
    for place, operand in enumerate(form.operands):
        address = _address_of(operand)
        if address is not None:
            slots.update(address_storage(form.opcode, place, address))
        if isinstance(operand, Described):
            slots.update(register_storage(base) + i for base in operand.descriptor.bases for i in (0, 1))
    return frozenset(slots)


def _data_slots(form: InstructionForm) -> tuple[int, ...]:
    """Registers that are stored; of RZ as many -1 as there are words."""
    slots = tuple(n for n in form.read if n not in _address_slots(form) and n < UNIFORM_BASE)
    last = next((o for o in reversed(form.operands) if isinstance(o, Register)), None)
    if slots or form.opcode.kind is not OpKind.STORE or last is None or last.index is not None:
        return slots
    return (-1,) * max(1, form.opcode.width_bytes // 4)


def _address_form(address: Address, wide: bool) -> AddressForm:
    terms = tuple(
        Term(register_storage(base), is_pair(base, wide), _scale(base))
        for base in address.bases
        if base.index is not None
    )
    return AddressForm(terms=terms, offset=address.offset, wide=wide)


def _scale(base: Register) -> int:
    return next((_SCALES[word] for word in base.suffixes if word in _SCALES), 1)


_SCALES = {"X4": 4, "X8": 8, "X16": 16}


_MULTICAST = "MULTICAST"


def _mask_register(form: InstructionForm) -> int | None:
    """The one that says to which CTAs of the cluster a copy goes."""
    if _MULTICAST not in form.opcode.modifiers:
        return None
    return next((register_storage(one) for one in form.operands if isinstance(one, Register)), None)


def _signal(row: int, form: InstructionForm) -> Signal | None:
    """Copies name their mbarrier in the register behind that of the address they write to."""
    meaning = form.opcode.semantics
    addresses = [operand for operand in form.operands if isinstance(operand, Address) and operand.bases]
    if meaning is None or not addresses:
        return None
    if meaning is Semantics.MBARRIER_COPY:
        first = register_storage(addresses[0].bases[0])
        barrier = AddressForm(terms=(Term(first + 1, False, 1),), offset=0, wide=False)
        return Signal(
            row, meaning, barrier, _mask_register(form), copy_coordinates(form), copied_tensor(form)
        )
    last = form.operands[-1]
    word = register_storage(last) if isinstance(last, Register) else None
    is_told = "A1T0" not in form.opcode.modifiers
    address = _address_form(addresses[-1], False)
    return Signal(row, meaning, address, word if is_told else None)
