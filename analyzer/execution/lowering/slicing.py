"""Program slicing: the instructions that control flow and addresses depend on (Weiser, ICSE 1981).

A backward dataflow analysis over the blocks, as for live variables. A register is live if a branch, a guard
or an address may read it, or an instruction whose result is live. Instructions with a live result are in the
slice.

Two refinements keep the slice small:

1. Guards (`guarded_liveness`). A value that is read only under one guard is dead before a write under the
   same guard.

2. Spills. Words of a stack frame with fixed offsets are tracked like registers (`spill_slots`): one spilled
   address does not bring all other spills into the slice.

Where a branch depends on values loaded from shared memory or on MMA results (for example the slow path of a
division after the main loop), values that cannot be known are not computed (`unknown_values`).

Invariant: each instruction that can change a live storage number is in the slice, or its results are declared
unknown (`Slice.unknown_results`).
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.lowering.atomic_counters import find_counter_compares
from analyzer.execution.lowering.bulk_operands import (
    BulkOperands,
    count_tensor_dimensions,
    parse_bulk_store,
    parse_tensor_load,
)
from analyzer.execution.lowering.call_returns import find_interprocedural_successors
from analyzer.execution.lowering.dead_shared_stores import find_dead_shared_stores
from analyzer.execution.lowering.guarded_liveness import Guard, StorageMasks, apply_kills, apply_reads
from analyzer.execution.lowering.spill_slots import (
    SPILL_KINDS,
    fills_whole_words,
    has_fixed_stack_frame,
    make_spill_slot_mask,
)
from analyzer.execution.lowering.unknown_values import (
    Effect,
    find_unknown_results,
    find_unknown_stores,
    has_known_shared_store,
)
from analyzer.execution.lowering.worklist import Worklist
from analyzer.flow.cfg import Cfg
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import (
    ARITHMETIC_KINDS,
    CONTROL_FLOW_KINDS,
    MBARRIER_SEMANTICS,
    MEMORY_KINDS,
    SHARED_SPACES,
    AddressSpace,
    Opcode,
    OpKind,
    Semantics,
)
from analyzer.ir.operand import Address, BarrierRegister, DescriptorOperand, Predicate, Register
from analyzer.ir.scheduling import SchedClass
from analyzer.isa.register_operands import (
    N_REGISTER_UNITS,
    find_address_units,
    find_constant_index,
    find_predicate_unit,
    find_register_unit,
    is_partial_predicate_write,
)


class Slice(Struct, frozen=True, eq=False):
    """Instructions to execute, and the storage numbers that are live at the entry of each block."""

    is_included: tuple[bool, ...]  # by row
    live_in: tuple[int, ...]  # by block: mask over storage numbers
    tracks_shared: bool  # contents of shared memory are needed
    tracks_local: bool  # contents of local memory are needed
    tracks_barrier_results: bool = False  # results of reductions at CTA barriers are needed
    tracks_mbarriers: bool = False  # operations on mbarriers are recorded
    tracks_tensor_maps: bool = False  # boxes of tensors that are copied are found
    tracks_spill_slots: bool = False  # local memory is a stack frame with fixed offsets
    unknown_results: Mapping[int, int] = {}  # rows whose results are set unknown -> row of the origin
    unknown_stores: frozenset[int] = frozenset()  # rows that store only unknown words to shared memory
    elided_stores: frozenset[int] = frozenset()  # these and dead stores to shared memory

    @property
    def waits_at_cta_barriers(self) -> bool:
        """True if warps of a CTA must wait for each other: something passes from one to another."""
        return self.tracks_shared or self.tracks_barrier_results

    @property
    def tracked_spaces(self) -> frozenset[AddressSpace]:
        """Address spaces whose accesses may reach tracked memory contents."""
        kept = {AddressSpace.SHARED} if self.tracks_shared else set()
        kept |= {AddressSpace.LOCAL} if self.tracks_local else set()
        return frozenset(kept | {AddressSpace.GENERIC} if kept else kept)


class _SliceOptions(Struct, frozen=True, kw_only=True):
    """Contents of a slice besides addresses; see the fields of `Slice`."""

    tracks_shared: bool = False
    tracks_local: bool = False
    tracks_barrier_results: bool = False
    tracks_mbarriers: bool = False
    tracks_tensor_maps: bool = False
    includes_control_flow: bool = True  # operands of branches and guards of accesses
    unknown_results: Mapping[int, int] = {}
    unknown_stores: frozenset[int] = frozenset()
    elided_stores: frozenset[int] = frozenset()


def build_control_slice(cfg: Cfg, *, knows_memory: bool = True, knows_tensors: bool = False) -> Slice:
    """Build the slice that determines branches, guards of memory accesses, and addresses.

    knows_memory: contents of global memory may be given by the user
    knows_tensors: layouts of tensor maps are given by the user
    """
    options = _SliceOptions(tracks_tensor_maps=knows_tensors)
    control = _slice_to_fixpoint(cfg, options)
    if knows_memory or not _has_likely_unknown_values(cfg, control):
        return control
    unknown = _find_unknown_values(cfg)
    addresses = _slice_to_fixpoint(cfg, replace(options, includes_control_flow=False))
    if addresses.tracks_shared:  # words that nobody knows may pass from one slot to another
        unknown = replace(unknown, stores=frozenset())
    unknown_results = {
        row: source for row, source in unknown.results.items() if not addresses.is_included[row]
    }
    return (
        _slice_to_fixpoint(
            cfg, replace(options, unknown_results=unknown_results, unknown_stores=unknown.stores)
        )
        if unknown_results
        else control
    )


def add_mbarriers_to_slice(cfg: Cfg, control: Slice) -> Slice:
    """Build the slice again, with the operands of mbarrier operations (address, parity, bytes) included."""
    options = _SliceOptions(
        tracks_shared=control.tracks_shared,
        tracks_local=control.tracks_local,
        tracks_mbarriers=True,
        tracks_tensor_maps=control.tracks_tensor_maps,
        unknown_results=control.unknown_results,
        unknown_stores=control.unknown_stores,
    )
    return _slice_to_fixpoint(cfg, options)


def _slice_to_fixpoint(cfg: Cfg, options: _SliceOptions) -> Slice:
    """Build the slice; track shared or local memory once the slice loads from it, until nothing changes."""
    while True:
        found = _BackwardPass(cfg, options).run()
        shared = options.tracks_shared or bool(_find_needed_loads(cfg, found, AddressSpace.SHARED))
        local = options.tracks_local or bool(_find_needed_loads(cfg, found, AddressSpace.LOCAL))
        reduces = options.tracks_barrier_results or _has_needed_reductions(cfg, found)
        if (shared, local, reduces) == (
            options.tracks_shared,
            options.tracks_local,
            options.tracks_barrier_results,
        ):
            return _elide_dead_shared_stores(cfg, options, found) if shared else found
        options = replace(options, tracks_shared=shared, tracks_local=local, tracks_barrier_results=reduces)


def _elide_dead_shared_stores(cfg: Cfg, options: _SliceOptions, found: Slice) -> Slice:
    """Remove the data operands of dead shared stores from the slice, until nothing changes."""
    while True:
        loads = _find_needed_loads(cfg, found, AddressSpace.SHARED)
        elided_stores = options.unknown_stores | find_dead_shared_stores(cfg, loads)
        if elided_stores == found.elided_stores:
            return found
        found = _BackwardPass(cfg, replace(options, elided_stores=elided_stores)).run()


def _has_likely_unknown_values(cfg: Cfg, control: Slice) -> bool:
    """Return whether the slice computes with MMA results or shared memory of unknown contents.

    Kernels with mbarriers keep known values in shared memory: the next tile, or the address of tensor memory.
    """
    is_product = cfg.kernel.form_table.make_opcode_mask(_produces_mma_result)[cfg.kernel.opcode_ids]
    has_products = any(control.is_included[row] for row in np.flatnonzero(is_product).tolist())
    return has_products or (control.tracks_shared and not has_mbarrier_waits(cfg))


def _produces_mma_result(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.MMA or (opcode.kind is OpKind.LOAD and opcode.space is AddressSpace.TENSOR)


class _UnknownValues(Struct, frozen=True):
    """Instructions whose results cannot be known for any arguments of the launch."""

    results: Mapping[int, int]  # row -> row of the origin
    stores: frozenset[int]  # rows that store only such values to shared memory


def _find_unknown_values(cfg: Cfg) -> _UnknownValues:
    """Find what depends on MMA results, and on shared memory if no store puts a known value there."""
    successors, starts = find_interprocedural_successors(cfg), [block.start for block in cfg.blocks]
    may_effects = _build_effects(cfg, _POSSIBLY_UNKNOWN_SPACES)
    effects = _build_effects(
        cfg, _NO_SPACES if has_known_shared_store(may_effects, successors) else SHARED_SPACES
    )
    return _UnknownValues(
        find_unknown_results(effects, successors, starts), find_unknown_stores(effects, successors, starts)
    )


_NO_SPACES: frozenset[AddressSpace] = frozenset()
_POSSIBLY_UNKNOWN_SPACES = SHARED_SPACES | {AddressSpace.GLOBAL, AddressSpace.GENERIC, AddressSpace.TEXTURE}


def _build_effects(cfg: Cfg, unknown_spaces: frozenset[AddressSpace]) -> list[list[Effect]]:
    """Build the effects of all instructions, by block.

    unknown_spaces: spaces whose loads return unknown values
    """
    counter_reads = {
        row: _make_mask(counter_registers) for row, counter_registers in find_counter_compares(cfg).items()
    }
    return [
        [
            _build_effect(cfg, row, unknown_spaces, counter_reads.get(row, 0))
            for row in range(block.start, block.stop)
        ]
        for block in cfg.blocks
    ]


def _build_effect(
    cfg: Cfg, row: int, unknown_spaces: frozenset[AddressSpace], counter_registers: int
) -> Effect:
    """Build the effect of one instruction.

    counter_registers: mask of registers whose value does not change its result (`atomic_counters`)
    """
    form = cfg.kernel.decode_form(row)
    if form.is_never_executed:
        return Effect(0, 0, 0, 0)
    opcode, guard = form.opcode, _make_guard_mask(form)
    masks = _build_register_masks(form, find_guard(form), 0)
    is_source = _produces_mma_result(opcode) or opcode.sched_class is SchedClass.SHARED_MATRIX
    is_load = opcode.kind in _LOAD_KINDS or opcode.kind is OpKind.TEXTURE
    store_mask = None
    if opcode.kind in _STORE_KINDS and opcode.space in (*SHARED_SPACES, AddressSpace.GENERIC):
        store_mask = _find_data_reads(form)
    return Effect(
        writes=masks.writes,
        kills=masks.kills,
        # what a barrier reduces comes from other threads too
        reads=0
        if opcode.kind in MEMORY_KINDS or _reduces_at_barrier(opcode)
        else masks.reads & ~counter_registers,
        guard_mask=guard,
        is_unknown_source=is_source or (is_load and opcode.space in unknown_spaces),
        shared_store_mask=store_mask,
    )


def has_mbarrier_waits(cfg: Cfg) -> bool:
    """Return whether a kernel waits on mbarriers."""
    kernel = cfg.kernel
    waits = kernel.form_table.make_opcode_mask(_is_mbarrier_wait)
    return bool(waits[kernel.opcode_ids].any())


def _is_mbarrier_wait(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.MBARRIER_WAIT


def _find_needed_loads(cfg: Cfg, found: Slice, space: AddressSpace) -> list[int]:
    """Return the rows of loads from a space that are in the slice and have known results."""
    kernel = cfg.kernel
    return [
        row
        for row, needed in enumerate(found.is_included)
        if needed
        and kernel.find_opcode(row).space in (space, AddressSpace.GENERIC)
        and kernel.find_opcode(row).kind in _LOAD_KINDS
        and row not in found.unknown_results
    ]


def _has_needed_reductions(cfg: Cfg, found: Slice) -> bool:
    """Return whether the slice needs the result of a reduction at a CTA barrier."""
    kernel = cfg.kernel
    rows = np.flatnonzero(kernel.form_table.make_opcode_mask(_reduces_at_barrier)[kernel.opcode_ids])
    return any(found.is_included[row] for row in rows.tolist())


def _reduces_at_barrier(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.BARRIER_REDUCTION


_LOAD_KINDS = frozenset({OpKind.LOAD, OpKind.ATOMIC})
_STORE_KINDS = frozenset({OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION})


class _BackwardPass:
    """Backward liveness analysis of one kernel, which marks the instructions with a live result."""

    def __init__(self, cfg: Cfg, options: _SliceOptions) -> None:
        self.cfg, self.options = cfg, options
        self.masks_by_text = _build_arithmetic_masks(cfg).copy()
        self.tracks_spill_slots = has_fixed_stack_frame(cfg)
        self.masks = [
            [self._find_masks(row) for row in range(block.start, block.stop)] for block in cfg.blocks
        ]
        self.successors = find_interprocedural_successors(cfg)

    def run(self) -> Slice:
        """Iterate to the fixpoint, then mark the instructions with a live result."""
        live_in = [0] * len(self.cfg.blocks)
        predecessors: list[list[int]] = [[] for _ in live_in]
        for block, successors in enumerate(self.successors):
            for successor in successors:
                predecessors[successor].append(block)
        worklist = Worklist(range(len(live_in)), backward=True)
        for block in worklist:
            entry = self._transfer_block(block, live_in)
            if entry != live_in[block]:
                live_in[block] = entry
                worklist.add(predecessors[block])
        is_included = [False] * len(self.cfg.kernel)
        for block in range(len(live_in)):
            self._transfer_block(block, live_in, is_included)
        registers = (1 << N_REGISTER_UNITS) - 1
        return Slice(
            is_included=tuple(is_included),
            live_in=tuple(mask & registers for mask in live_in),
            tracks_shared=self.options.tracks_shared,
            tracks_local=self.options.tracks_local,
            tracks_barrier_results=self.options.tracks_barrier_results,
            tracks_mbarriers=self.options.tracks_mbarriers,
            tracks_tensor_maps=self.options.tracks_tensor_maps,
            tracks_spill_slots=self.tracks_spill_slots,
            unknown_results=self.options.unknown_results,
            unknown_stores=self.options.unknown_stores,
            elided_stores=self.options.elided_stores,
        )

    def _transfer_block(self, block: int, live_in: list[int], is_included: list[bool] | None = None) -> int:
        """Return what is live at the entry of a block, from what is live at its successors.

        is_included: by row, set to True where a result is live
        """
        live = 0
        for successor in self.successors[block]:
            live |= live_in[successor]
        start = self.cfg.blocks[block].start
        guarded_reads: dict[Guard, int] = {}  # live storage that only instructions under this guard read
        for position in range(len(self.masks[block]) - 1, -1, -1):
            masks = self.masks[block][position]
            has_live_result = bool(masks.writes & live)
            if is_included is not None and has_live_result:
                is_included[start + position] = True
            if masks.writes:
                live &= ~apply_kills(masks, guarded_reads)
            reads = masks.required_reads | (masks.reads if has_live_result else 0)
            if reads:
                live |= apply_reads(masks, reads, live, guarded_reads)
        return live

    def _find_masks(self, row: int) -> StorageMasks:
        text_id = int(self.cfg.kernel.text_ids[row])
        masks = self.masks_by_text.get(text_id)
        if masks is None:
            masks = self.masks_by_text[text_id] = self._build_masks(self.cfg.kernel.decode_form(row))
        if row in self.options.unknown_results:
            masks = StorageMasks(masks.writes, masks.kills, 0, masks.required_reads, masks.guard)
        if row in self.options.elided_stores:
            form = self.cfg.kernel.decode_form(row)
            masks = StorageMasks(
                masks.writes,
                masks.kills,
                masks.reads,
                masks.required_reads & ~_find_data_reads(form),
                masks.guard,
            )
        return masks

    def _build_masks(self, form: InstructionForm) -> StorageMasks:
        if form.is_never_executed:
            return StorageMasks(0, 0, 0, 0, None)
        guard = find_guard(form)
        if (
            self.tracks_spill_slots
            and form.opcode.space is AddressSpace.LOCAL
            and form.opcode.kind in SPILL_KINDS
        ):
            return self._build_spill_masks(form, guard)
        return _build_register_masks(form, guard, self._find_required_reads(form))

    def _build_spill_masks(self, form: InstructionForm, guard: Guard | None) -> StorageMasks:
        """Build the masks of a spill (registers to frame words) or a fill (frame words to registers)."""
        words, address = make_spill_slot_mask(form), find_address_reads(form) | _make_guard_mask(form)
        if form.opcode.kind is OpKind.STORE:
            killed = words if fills_whole_words(form) else 0
            return StorageMasks(words, killed, _make_mask(form.uses), address, guard)
        writes = _make_mask(form.defs)
        return StorageMasks(writes, writes, words | _make_mask(form.uses), address, guard)

    def _find_required_reads(self, form: InstructionForm) -> int:
        """Return the mask of reads that are live in any case: all of branches, addresses of accesses."""
        opcode = form.opcode
        waits = opcode.sched_class is SchedClass.CTA_BARRIER and (
            self.options.tracks_shared or self.options.tracks_barrier_results
        )
        restores = opcode.kind is OpKind.MOVE and any(
            isinstance(o, BarrierRegister) for o in form.operands
        )  # BMOV B, R
        updates_mbarrier = self.options.tracks_mbarriers and opcode.semantics in MBARRIER_SEMANTICS
        if self.options.tracks_mbarriers and (descriptor := find_mma_descriptor(form)):
            return _make_mask((find_register_unit(descriptor),))
        if waits and self.options.includes_control_flow:
            reduced = find_reduced_predicate(form)
            vote = None if reduced is None else find_predicate_unit(reduced)
            return _make_mask(tuple(unit for unit in form.uses if unit != vote)) | _make_guard_mask(form)
        if self.options.includes_control_flow and (
            opcode.kind in CONTROL_FLOW_KINDS or restores or updates_mbarrier
        ):
            return _make_mask(
                (
                    *form.uses,
                    *find_copy_coordinates(form),
                    *_find_copy_mbarrier(form),
                    *_find_tensor_map_registers(form),
                )
            )
        if opcode.kind not in MEMORY_KINDS:
            return 0
        if opcode.space is AddressSpace.CONSTANT:
            return self._find_constant_address_reads(form)
        reads = find_address_reads(form) | self._make_control_mask(form)
        if (bulk := find_bulk_operands(form, tracks_tensor_maps=self.options.tracks_tensor_maps)) is not None:
            reads |= _make_mask((bulk.shared_address, *bulk.size_registers, *bulk.address_registers))
        stores = opcode.kind in (OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION)
        tracks_shared = self.options.tracks_shared and opcode.space in (
            AddressSpace.SHARED,
            AddressSpace.GENERIC,
        )
        tracks_local = self.options.tracks_local and opcode.space in (
            AddressSpace.LOCAL,
            AddressSpace.GENERIC,
        )
        if stores and (tracks_shared or tracks_local):
            reads |= _make_mask(form.uses)
        return reads

    def _find_constant_address_reads(self, form: InstructionForm) -> int:
        """Return the mask of what decides how many words of a constant bank a warp reads."""
        index = find_constant_index(form.opcode, form.operands)
        if index is None or index.base is None:
            return 0
        return _make_mask((find_register_unit(index.base),)) | self._make_control_mask(form)

    def _make_control_mask(self, form: InstructionForm) -> int:
        return _make_guard_mask(form) if self.options.includes_control_flow else 0


def _build_register_masks(form: InstructionForm, guard: Guard | None, required_reads: int) -> StorageMasks:
    writes = _make_mask(form.defs)
    kills = 0 if is_partial_predicate_write(form.operands) else writes
    return StorageMasks(writes, kills, _make_mask(form.uses), required_reads, guard)


@lru_cache(maxsize=2)
def _build_arithmetic_masks(cfg: Cfg) -> dict[int, StorageMasks]:
    """Build the masks of arithmetic instructions by text id; they do not depend on the options."""
    kernel = cfg.kernel
    plain = kernel.form_table.make_opcode_mask(_is_arithmetic)[kernel.opcode_ids]
    forms = {int(text_id): kernel.form_table.decode_form(int(text_id)) for text_id in kernel.text_ids[plain]}
    return {
        text_id: _build_register_masks(form, find_guard(form), 0)
        for text_id, form in forms.items()
        if not form.is_never_executed
    }


def _is_arithmetic(opcode: Opcode) -> bool:
    return opcode.kind in _ARITHMETIC_KINDS


_ARITHMETIC_KINDS = ARITHMETIC_KINDS | {OpKind.SPECIAL_REGISTER}


def find_address_reads(form: InstructionForm) -> int:
    """Return the mask of registers in the addresses of a form, and of predicates that disable its lanes."""
    reads = 0
    for position, operand in enumerate(form.operands):
        match operand:
            case Address():
                reads |= _make_mask(find_address_units(form.opcode, position, operand))
            case DescriptorOperand(address=Address() as address):
                reads |= _make_mask(find_address_units(form.opcode, position, address))
            case Predicate() if position:
                reads |= _make_mask((find_predicate_unit(operand),))
            case _:
                pass
    return reads & _make_mask(form.uses)


def _find_data_reads(form: InstructionForm) -> int:
    """Return the mask of registers that a store reads only as data."""
    return _make_mask(form.uses) & ~find_address_reads(form) & ~_make_guard_mask(form)


def find_reduced_predicate(form: InstructionForm) -> Predicate | None:
    """Return the predicate that a barrier reduces over its threads, None for other forms."""
    last = form.operands[-1] if form.operands else None
    return last if _reduces_at_barrier(form.opcode) and isinstance(last, Predicate) else None


def find_mma_descriptor(form: InstructionForm) -> Register | None:
    """Return the register with the instruction descriptor of a tcgen05 MMA, which encodes the tile shape."""
    for operand in form.operands:
        if isinstance(operand, DescriptorOperand) and operand.kind == "idesc" and operand.descriptor.bases:
            return operand.descriptor.bases[0]
    return None


def find_copy_coordinates(form: InstructionForm) -> tuple[int, ...]:
    """Return the registers that select what a copy loads: coordinates of a tensor copy, else its source."""
    dimensions, positions = count_tensor_dimensions(form), _find_copy_addresses(form)
    if dimensions and positions:
        return tuple(range(positions[0] + 2, positions[0] + 2 + dimensions))
    return (positions[1], positions[1] + 1) if len(positions) > 1 else ()


def find_copied_tensor_map(form: InstructionForm) -> int | None:
    """Return the register with the address of the tensor map of a tensor load, None for other forms."""
    box = parse_tensor_load(form)
    return None if box is None else box.tensor_map


def _find_tensor_map_registers(form: InstructionForm) -> tuple[int, ...]:
    tensor = find_copied_tensor_map(form)
    return () if tensor is None else (tensor, tensor + 1)


def _find_copy_mbarrier(form: InstructionForm) -> tuple[int, ...]:
    return tuple(first + 1 for first in _find_copy_addresses(form)[:1])


def _find_copy_addresses(form: InstructionForm) -> list[int]:
    """Return the low registers of destination and source of a copy that completes on an mbarrier."""
    if form.opcode.semantics is not Semantics.MBARRIER_COPY:
        return []
    addresses = [operand for operand in form.operands if isinstance(operand, Address) and operand.bases]
    return [find_register_unit(address.bases[0]) for address in addresses]


def find_bulk_operands(form: InstructionForm, *, tracks_tensor_maps: bool) -> BulkOperands | None:
    """Return the operands of a bulk copy that determine its bytes in global memory.

    None for other forms, and for tensor copies if tensor maps are not tracked.
    """
    found = parse_bulk_store(form) or parse_tensor_load(form)
    return found if found is None or found.tensor_map is None or tracks_tensor_maps else None


def find_guard(form: InstructionForm) -> Guard | None:
    """Return the guard of an instruction, None if there is none or it is always true."""
    if form.guard is None or form.guard.index is None:
        return None
    return find_predicate_unit(form.guard), form.guard.is_negated


def _make_guard_mask(form: InstructionForm) -> int:
    guard = find_guard(form)
    return 0 if guard is None else 1 << guard[0]


def _make_mask(numbers: tuple[int, ...]) -> int:
    mask = 0
    for number in numbers:
        if number >= 0:
            mask |= 1 << number
    return mask
