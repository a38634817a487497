"""Verification of a compiled kernel: what its actions read has a value, or is unknown and says so.

Execution runs the instructions of the slice alone. An instruction that it skips while something later reads a
register that this instruction writes would leave an old value there, and counts that depend on it would look
exact. So the segments are checked after they are built, with no help of the analysis that chose the slice:

1. Liveness, backwards over the segments, by what actions and terminators read and write themselves.
2. A row of the code with a result that is live after it must have an action that writes this result. If it
   has none, the result is a gap: it must be made unknown.
3. Registers that are live at the entry are read before anything sets them: they are unknown too.

Invariant: after gaps are filled, each register that an action reads was written by the last instruction of
the code, on the way to it, that may write it; or it is unknown.

    B2R R0                 no action            gap: R0, since the next one reads it
    ISETP.GE P0, R7, R0    reads R7, R0
    @P0 EXIT               reads P0
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from analyzer.execution.lowering.call_returns import find_interprocedural_successors
from analyzer.execution.lowering.guarded_liveness import Guard, StorageMasks, apply_kills, apply_reads
from analyzer.execution.lowering.segments import (
    Action,
    ActionKind,
    AddressExpression,
    CompiledKernel,
    Segment,
)
from analyzer.execution.lowering.step import ConstantRead
from analyzer.execution.lowering.worklist import Worklist
from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.opcode import AddressSpace, Semantics
from analyzer.ir.operand import Immediate, Predicate, Register, UnparsedOperand
from analyzer.isa.register_operands import (
    BARRIER_RESULT_WORD,
    N_REGISTER_UNITS,
    UNIFORM_REGISTER_BASE,
    find_predicate_unit,
    find_register_unit,
)

_ALL_UNITS = tuple(range(N_REGISTER_UNITS))
_MAX_RESULT_WORDS = 4  # that an unknown instruction may write from a register on
_AND_TABLE = 0xC0  # of LOP3: first and second operand
_WORD = 0xFFFFFFFF


class SliceGaps(Struct, frozen=True):
    """Registers that actions read and that none gives a value."""

    results: Mapping[int, tuple[int, ...]]  # by row, results of the instruction there
    entry_registers: tuple[int, ...]  # read before anything sets them


class _Effect(Struct, frozen=True):
    """What an action does to registers; it reads all that its masks name."""

    row: int
    masks: StorageMasks


def find_slice_gaps(kernel: CompiledKernel) -> SliceGaps:
    """Find the registers that actions of a compiled kernel read and that none gives a value."""
    kept = kernel.slice.tracked_spaces - {AddressSpace.GENERIC}
    effects = [_list_effects(segment, kept) for segment in kernel.segments]
    successors = _list_successors(kernel)
    live_in = _solve_liveness(effects, successors)
    results: dict[int, tuple[int, ...]] = {}
    written = _WrittenUnits(kernel.cfg.kernel)
    for segment, own in zip(kernel.segments, effects, strict=True):
        live = _join_live(successors[segment.index], live_in)
        results.update(_find_gaps_in_segment(segment, own, live, written))
    entry = kernel.entry_segments[0]
    if live_in[entry]:
        effects = [[_drop_merged_reads(one, kernel.cfg.kernel) for one in own] for own in effects]
        live_in = _solve_liveness(effects, successors)
    return SliceGaps(results, _list_units(live_in[entry]))


def _drop_merged_reads(effect: _Effect, kernel: Kernel) -> _Effect:
    """Leave out what an instruction only carries along: what nothing has set is never used afterwards.

    A PRMT puts a part into a register, so the compiler keeps 16-bit variables (`PRMT R3, RZ, 0x7610, R3`); a
    P2R saves all predicates, those too that have no value yet. A LOP3 clears one bit of a register whose bits
    keep predicates (`LOP3.LUT R252, R252, 0xfffffffe, RZ, 0xc0, !PT`), of which no other may be set yet.
    """
    semantics, masks = kernel.find_opcode(effect.row).semantics, effect.masks
    if semantics is Semantics.PERMUTE or (
        semantics is Semantics.LOGIC and _clears_one_bit(effect.row, kernel)
    ):
        reads = masks.required_reads & ~masks.writes
    elif semantics is Semantics.PREDICATES_TO_WORD:
        reads = 0
    else:
        return effect
    return _Effect(effect.row, StorageMasks(masks.writes, masks.kills, masks.reads, reads, masks.guard))


def _clears_one_bit(row: int, kernel: Kernel) -> bool:
    """True for `LOP3.LUT R1, R1, 0xfffffffe, RZ, 0xc0, !PT` with any one bit missing in the mask."""
    values = [one.value for one in kernel.decode_form(row).operands if isinstance(one, Immediate)]
    if len(values) < 2 or values[1] != _AND_TABLE or not isinstance(values[0], int):
        return False
    return (~values[0] & _WORD).bit_count() == 1


def _solve_liveness(effects: list[list[_Effect]], successors: list[list[int]]) -> list[int]:
    """Return what is live at the entry of each segment."""
    predecessors: list[list[int]] = [[] for _ in effects]
    for index, ways in enumerate(successors):
        for successor in ways:
            predecessors[successor].append(index)
    live_in = [0] * len(effects)
    worklist = Worklist(range(len(effects)), backward=True)
    for index in worklist:
        live, guarded_reads = _join_live(successors[index], live_in), dict[Guard, int]()
        for effect in effects[index]:
            live = _step_back(effect.masks, live, guarded_reads)
        if live != live_in[index]:
            live_in[index] = live
            worklist.add(predecessors[index])
    return live_in


def _find_gaps_in_segment(
    segment: Segment, effects: list[_Effect], live: int, written: "_WrittenUnits"
) -> dict[int, tuple[int, ...]]:
    """Return the gaps of one segment by row; live: what is live at its end."""
    found: dict[int, tuple[int, ...]] = {}
    guarded_reads: dict[Guard, int] = {}
    place = 0
    for row in range(segment.stop - 1, segment.start - 1, -1):
        live_after, given = live, 0
        while place < len(effects) and effects[place].row == row:
            given |= effects[place].masks.writes
            live = _step_back(effects[place].masks, live, guarded_reads)
            place += 1
        if live_after and (gap := written.find_mask(row) & live_after & ~given):
            found[row] = _list_units(gap)
    return found


def _list_successors(kernel: CompiledKernel) -> list[list[int]]:
    """Return the segments that may come next, by segment; a return leads back to calls of its function."""
    ways = find_interprocedural_successors(kernel.cfg)
    segments = kernel.segments
    return [
        [
            after
            for after in segment.terminator.successors
            if segments[after].block == segment.block or segments[after].block in ways[segment.block]
        ]
        for segment in segments
    ]


def _join_live(successors: list[int], live_in: list[int]) -> int:
    live = 0
    for successor in successors:
        live |= live_in[successor]
    return live


def _step_back(masks: StorageMasks, live: int, guarded_reads: dict[Guard, int]) -> int:
    """Return what is live before an action; live: what is after it."""
    if masks.writes:
        live &= ~apply_kills(masks, guarded_reads)
    if masks.required_reads or masks.guard is not None:
        live |= apply_reads(masks, masks.required_reads, live, guarded_reads)
    return live


def _list_effects(segment: Segment, kept_spaces: frozenset[AddressSpace]) -> list[_Effect]:
    """Return the effects of a segment's terminator and actions, last first.

    kept_spaces: memory whose contents execution keeps, so that it reads what is stored there.
    """
    end = segment.terminator
    writes = _make_mask(end.writes)
    effects = [_Effect(end.row, StorageMasks(writes, writes, 0, _make_mask(end.reads), end.guard))]
    for action in reversed(segment.actions):
        writes = _find_writes(action)
        reads = find_action_reads(action, kept_spaces)
        effects.append(_Effect(action.row, StorageMasks(writes, writes, 0, reads, action.guard)))
    return effects


def find_action_reads(action: Action, kept_spaces: frozenset[AddressSpace]) -> int:
    """Return the mask of the registers that an action reads besides its guard.

    kept_spaces: memory whose contents execution keeps, so that it reads what is stored there.
    """
    slots: list[int] = []
    if action.kind is ActionKind.RESTORE_CONVERGENCE_BARRIER:
        slots += action.writes  # here the register that is read
    for read in () if action.step is None else action.step.reads:
        if isinstance(read, int):
            slots.append(read)
        elif isinstance(read, ConstantRead) and read.base is not None:
            slots.append(read.base)
    for access in action.accesses:
        slots += _list_address_slots(access.address)
        slots += access.data_slots if access.space in kept_spaces else ()
        slots += [slot for slot, _ in access.lane_predicates]
        if access.bulk is not None:
            slots += [access.bulk.shared_address, *access.bulk.size_registers, *access.bulk.address_registers]
    if (operation := action.mbarrier_operation) is not None:
        slots += [*_list_address_slots(operation.address), *operation.coordinates]
        if operation.operand_slot is not None:
            slots.append(operation.operand_slot)
        if operation.tensor_map is not None:
            slots += [operation.tensor_map, operation.tensor_map + 1]
    return _make_mask(slots)


def _list_address_slots(address: AddressExpression | None) -> list[int]:
    if address is None:
        return []
    return [term.slot + word for term in address.terms for word in range(1 + term.is_pair)]


def _find_writes(action: Action) -> int:
    """Return the mask of the registers to which an action gives a value, or makes unknown."""
    match action.kind:
        case ActionKind.COMPUTE:
            return 0 if action.step is None else _make_mask(action.step.writes)
        case ActionKind.ACCESS_MEMORY:
            return _make_mask(slot for access in action.accesses for slot in access.result_slots)
        case ActionKind.RESTORE_CONVERGENCE_BARRIER:
            return 0
        case _:
            return _make_mask(action.writes)


class _WrittenUnits:
    """The registers that each instruction of a kernel may write."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._masks: dict[int, int] = {}  # by text id

    def find_mask(self, row: int) -> int:
        """Return the mask of the registers that the instruction at a row may write."""
        text_id = int(self.kernel.text_ids[row])
        found = self._masks.get(text_id)
        if found is None:
            found = self._masks[text_id] = _make_mask(find_written_units(self.kernel.decode_form(row)))
        return found


def find_written_units(form: InstructionForm) -> tuple[int, ...]:
    """Return the registers that an instruction may write.

    Of one whose operands could not be read these are all, of an unknown one all that it names.
    """
    if form.is_never_executed:
        return ()
    if form.opcode.destination_pattern and any(isinstance(o, UnparsedOperand) for o in form.operands):
        return _ALL_UNITS
    if form.opcode.is_known:
        return form.defs
    units = list(form.defs)
    for operand in form.operands:
        if isinstance(operand, Predicate):
            units.append(find_predicate_unit(operand))
        elif isinstance(operand, Register) and (first := find_register_unit(operand)) >= 0:
            limit = UNIFORM_REGISTER_BASE if first < UNIFORM_REGISTER_BASE else BARRIER_RESULT_WORD
            units += range(first, min(first + _MAX_RESULT_WORDS, limit))
    return tuple(dict.fromkeys(units))


def _make_mask(slots: Iterable[int]) -> int:
    mask = 0
    for slot in slots:
        if 0 <= slot < N_REGISTER_UNITS:
            mask |= 1 << slot
    return mask


def _list_units(mask: int) -> tuple[int, ...]:
    return tuple(slot for slot in range(N_REGISTER_UNITS) if mask >> slot & 1)
