"""Which instructions control flow and addresses depend on, so that only they need be executed.

A backward pass over the blocks: a register is needed if a branch, a guard or an address may read it, or
an instruction whose result is needed. A value that only instructions under one guard read is not needed
before a write under the same guard, which keeps `@P MOV R6` / `@P IMAD.WIDE R6` from dragging in what
R6 held before. Words of a stack frame that is only reached through the stack pointer count as registers do:
one spilled address does not drag in all other spills.

Where branches hang on what was loaded from shared memory or on products of matrices (the slow way of a
division behind a loop, say), what nobody can know is not computed (`unknown_values`).
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
from analyzer.execution.lowering.spill_slots import SPILL_KINDS, has_fixed_stack_frame, make_spill_slot_mask
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
    CONTROL_FLOW_KINDS,
    MBARRIER_SEMANTICS,
    MEMORY_KINDS,
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
    find_predicate_unit,
    find_register_unit,
    is_partial_predicate_write,
)

Guard = tuple[int, bool]  # storage number of the predicate, negated


class Slice(Struct, frozen=True, eq=False):
    """Rows to execute, and what each block needs at its entry.

    rows[r]: whether instruction r is needed; needed[b]: mask of storage numbers at the start of block b;
    keeps_shared, keeps_local: contents of shared or local memory are needed; has_mbarriers: so is what is
    said to mbarriers; has_tensors: and which boxes of tensors are copied; has_frame: local memory is a frame
    of spilled registers, reached at fixed offsets; opaque: instructions whose results are only declared
    unknown, with the row that this comes from; lost: stores to shared memory of what nobody can know; unkept:
    these, and those behind which no load that is needed comes.
    """

    is_included: tuple[bool, ...]
    live_in: tuple[int, ...]
    tracks_shared: bool
    tracks_local: bool
    tracks_mbarriers: bool = False
    tracks_tensor_maps: bool = False
    tracks_spill_slots: bool = False
    unknown_results: Mapping[int, int] = {}
    unknown_stores: frozenset[int] = frozenset()
    elided_stores: frozenset[int] = frozenset()

    @property
    def tracked_spaces(self) -> frozenset[AddressSpace]:
        """Spaces in which accesses may meet contents that are needed."""
        kept = {AddressSpace.SHARED} if self.tracks_shared else set()
        kept |= {AddressSpace.LOCAL} if self.tracks_local else set()
        return frozenset(kept | {AddressSpace.GENERIC} if kept else kept)


class _StorageMasks(Struct, frozen=True):
    """An instruction as the pass sees it: masks over storage numbers."""

    writes: int
    kills: int
    reads: int
    required_reads: int
    guard: Guard | None


class _SliceOptions(Struct, frozen=True, kw_only=True):
    """What a slice is to hold besides; flow: branches and guards, not only addresses; lost: rows that
    store what nobody can know; unkept: these and those that store what no needed load reads.
    """

    tracks_shared: bool = False
    tracks_local: bool = False
    tracks_mbarriers: bool = False
    tracks_tensor_maps: bool = False
    includes_control_flow: bool = True
    unknown_results: Mapping[int, int] = {}
    unknown_stores: frozenset[int] = frozenset()
    elided_stores: frozenset[int] = frozenset()


def build_control_slice(cfg: Cfg, *, knows_memory: bool = True, knows_tensors: bool = False) -> Slice:
    """The slice of a kernel that decides branches, guards of memory accesses, and addresses.

    knows_memory: contents of global memory may be given; knows_tensors: so is what descriptors stand for.
    """
    options = _SliceOptions(tracks_tensor_maps=knows_tensors)
    control = _slice_to_fixpoint(cfg, options)
    if knows_memory or not _has_likely_unknown_values(cfg, control):
        return control
    unknown = _find_unknown_values(cfg)
    addresses = _slice_to_fixpoint(
        cfg, replace(options, includes_control_flow=False, unknown_stores=unknown.stores)
    )
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
    """The slice, and which mbarriers instructions use, with which parity or how many bytes."""
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
    """What is loaded for the slice may bring memory into it, which then brings more."""
    while True:
        found = _BackwardPass(cfg, options).run()
        shared = options.tracks_shared or bool(_find_needed_loads(cfg, found, AddressSpace.SHARED))
        local = options.tracks_local or bool(_find_needed_loads(cfg, found, AddressSpace.LOCAL))
        if (shared, local) == (options.tracks_shared, options.tracks_local):
            return _elide_dead_shared_stores(cfg, options, found) if shared else found
        options = replace(options, tracks_shared=shared, tracks_local=local)


def _elide_dead_shared_stores(cfg: Cfg, options: _SliceOptions, found: Slice) -> Slice:
    """The slice without what is stored to shared memory behind all loads from it that are needed."""
    while True:
        loads = _find_needed_loads(cfg, found, AddressSpace.SHARED)
        elided_stores = options.unknown_stores | find_dead_shared_stores(cfg, loads)
        if elided_stores == found.elided_stores:
            return found
        found = _BackwardPass(cfg, replace(options, elided_stores=elided_stores)).run()


def _has_likely_unknown_values(cfg: Cfg, control: Slice) -> bool:
    """Whether the slice holds what most likely nobody can know.

    Shared memory behind mbarriers tells which tile is next, or where tensor memory is.
    """
    is_product = cfg.kernel.form_table.make_opcode_mask(_produces_mma_result)[cfg.kernel.opcode_ids]
    has_products = any(control.is_included[row] for row in np.flatnonzero(is_product).tolist())
    return has_products or (control.tracks_shared and not has_mbarrier_waits(cfg))


def _produces_mma_result(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.MMA or (opcode.kind is OpKind.LOAD and opcode.space is AddressSpace.TENSOR)


class _UnknownValues(Struct, frozen=True):
    """results: rows whose results nobody can know, with the row that this comes from; stores: those that put
    nothing else into shared memory.
    """

    results: Mapping[int, int]
    stores: frozenset[int]


def _find_unknown_values(cfg: Cfg) -> _UnknownValues:
    """What hangs on products of matrices or on shared memory, where that holds nothing known."""
    successors, starts = find_interprocedural_successors(cfg), [block.start for block in cfg.blocks]
    may_effects = _build_effects(cfg, _POSSIBLY_UNKNOWN_SPACES)
    effects = _build_effects(
        cfg, _NO_SPACES if has_known_shared_store(may_effects, successors) else _SHARED_SPACES
    )
    return _UnknownValues(
        find_unknown_results(effects, successors, starts), find_unknown_stores(effects, successors, starts)
    )


_NO_SPACES: frozenset[AddressSpace] = frozenset()
_SHARED_SPACES = frozenset({AddressSpace.SHARED, AddressSpace.DISTRIBUTED_SHARED})
_POSSIBLY_UNKNOWN_SPACES = _SHARED_SPACES | {AddressSpace.GLOBAL, AddressSpace.GENERIC, AddressSpace.TEXTURE}


def _build_effects(cfg: Cfg, unknown_spaces: frozenset[AddressSpace]) -> list[list[Effect]]:
    """Of each block; unknown_spaces: what is loaded from there is unknown."""
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
    """tickets: registers of which it tells the same whatever they hold."""
    form = cfg.kernel.decode_form(row)
    if form.is_never_executed:
        return Effect(0, 0, 0, 0)
    opcode, guard = form.opcode, _make_guard_mask(form)
    masks = _build_register_masks(form, find_guard(form), 0)
    is_source = _produces_mma_result(opcode) or opcode.sched_class is SchedClass.SHARED_MATRIX
    is_load = opcode.kind in _LOAD_KINDS or opcode.kind is OpKind.TEXTURE
    stored = None
    if opcode.kind in _STORE_KINDS and opcode.space in (*_SHARED_SPACES, AddressSpace.GENERIC):
        stored = _find_data_reads(form)
    return Effect(
        writes=masks.writes,
        kills=masks.kills,
        reads=0 if opcode.kind in MEMORY_KINDS else masks.reads & ~counter_registers,
        guard_mask=guard,
        is_unknown_source=is_source or (is_load and opcode.space in unknown_spaces),
        shared_store_mask=stored,
    )


def has_mbarrier_waits(cfg: Cfg) -> bool:
    """Whether a kernel waits for mbarriers."""
    kernel = cfg.kernel
    waits = kernel.form_table.make_opcode_mask(_is_mbarrier_wait)
    return bool(waits[kernel.opcode_ids].any())


def _is_mbarrier_wait(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.MBARRIER_WAIT


def _find_needed_loads(cfg: Cfg, found: Slice, space: AddressSpace) -> list[int]:
    """Rows of loads that are needed."""
    kernel = cfg.kernel
    return [
        row
        for row, needed in enumerate(found.is_included)
        if needed
        and kernel.find_opcode(row).space in (space, AddressSpace.GENERIC)
        and kernel.find_opcode(row).kind in _LOAD_KINDS
        and row not in found.unknown_results
    ]


_LOAD_KINDS = frozenset({OpKind.LOAD, OpKind.ATOMIC})
_STORE_KINDS = frozenset({OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION})


class _BackwardPass:
    def __init__(self, cfg: Cfg, options: _SliceOptions) -> None:
        self.cfg, self.options = cfg, options
        self.masks_by_text = _build_arithmetic_masks(cfg).copy()
        self.tracks_spill_slots = has_fixed_stack_frame(cfg)
        self.uses = [
            [self._find_masks(row) for row in range(block.start, block.stop)] for block in cfg.blocks
        ]
        self.successors = find_interprocedural_successors(cfg)

    def run(self) -> Slice:
        needed = [0] * len(self.cfg.blocks)
        before: list[list[int]] = [[] for _ in needed]
        for block, successors in enumerate(self.successors):
            for successor in successors:
                before[successor].append(block)
        worklist = Worklist(range(len(needed)), backward=True)
        for block in worklist:
            entry = self._transfer_block(block, needed)
            if entry != needed[block]:
                needed[block] = entry
                worklist.add(before[block])
        rows = [False] * len(self.cfg.kernel)
        for block in range(len(needed)):
            self._transfer_block(block, needed, rows)
        registers = (1 << N_REGISTER_UNITS) - 1
        return Slice(
            is_included=tuple(rows),
            live_in=tuple(n & registers for n in needed),
            tracks_shared=self.options.tracks_shared,
            tracks_local=self.options.tracks_local,
            tracks_mbarriers=self.options.tracks_mbarriers,
            tracks_tensor_maps=self.options.tracks_tensor_maps,
            tracks_spill_slots=self.tracks_spill_slots,
            unknown_results=self.options.unknown_results,
            unknown_stores=self.options.unknown_stores,
            elided_stores=self.options.elided_stores,
        )

    def _transfer_block(self, block: int, needed: list[int], rows: list[bool] | None = None) -> int:
        """Needs at the block's entry from those of its followers; marks rows whose result is needed."""
        live = 0
        for successor in self.successors[block]:
            live |= needed[successor]
        start = self.cfg.blocks[block].start
        guarded_reads: dict[Guard, int] = {}  # what only instructions under this guard read
        for place in range(len(self.uses[block]) - 1, -1, -1):
            masks = self.uses[block][place]
            wanted = bool(masks.writes & live)
            if rows is not None and wanted:
                rows[start + place] = True
            if masks.writes:
                live &= ~_apply_kills(masks, guarded_reads)
            reads = masks.required_reads | (masks.reads if wanted else 0)
            if reads:
                live |= _apply_reads(masks, reads, live, guarded_reads)
        return live

    def _find_masks(self, row: int) -> _StorageMasks:
        text_id = int(self.cfg.kernel.text_ids[row])
        masks = self.masks_by_text.get(text_id)
        if masks is None:
            masks = self.masks_by_text[text_id] = self._build_masks(self.cfg.kernel.decode_form(row))
        if row in self.options.unknown_results:
            masks = _StorageMasks(masks.writes, masks.kills, 0, masks.required_reads, masks.guard)
        if row in self.options.elided_stores:
            form = self.cfg.kernel.decode_form(row)
            masks = _StorageMasks(
                masks.writes,
                masks.kills,
                masks.reads,
                masks.required_reads & ~_find_data_reads(form),
                masks.guard,
            )
        return masks

    def _build_masks(self, form: InstructionForm) -> _StorageMasks:
        if form.is_never_executed:
            return _StorageMasks(0, 0, 0, 0, None)
        guard = find_guard(form)
        if (
            self.tracks_spill_slots
            and form.opcode.space is AddressSpace.LOCAL
            and form.opcode.kind in SPILL_KINDS
        ):
            return self._build_spill_masks(form, guard)
        return _build_register_masks(form, guard, self._find_required_reads(form))

    def _build_spill_masks(self, form: InstructionForm, guard: Guard | None) -> _StorageMasks:
        """A spill writes words of the frame from registers, a fill the other way."""
        words, address = make_spill_slot_mask(form), find_address_reads(form) | _make_guard_mask(form)
        if form.opcode.kind is OpKind.STORE:
            return _StorageMasks(words, words, _make_mask(form.uses), address, guard)
        writes = _make_mask(form.defs)
        return _StorageMasks(writes, writes, words | _make_mask(form.uses), address, guard)

    def _find_required_reads(self, form: InstructionForm) -> int:
        """What is needed though no one may want the result: of branches everything, of accesses addresses."""
        opcode = form.opcode
        waits = opcode.sched_class is SchedClass.CTA_BARRIER and self.options.tracks_shared
        restores = opcode.kind is OpKind.MOVE and any(
            isinstance(o, BarrierRegister) for o in form.operands
        )  # BMOV B, R
        tells = self.options.tracks_mbarriers and opcode.semantics in MBARRIER_SEMANTICS
        if self.options.tracks_mbarriers and (descriptor := find_mma_descriptor(form)):
            return _make_mask((find_register_unit(descriptor),))
        if self.options.includes_control_flow and (
            opcode.kind in CONTROL_FLOW_KINDS or waits or restores or tells
        ):
            return _make_mask(
                (
                    *form.uses,
                    *find_copy_coordinates(form),
                    *_find_copy_mbarrier(form),
                    *_find_tensor_map_registers(form),
                )
            )
        if opcode.kind not in MEMORY_KINDS or opcode.space is AddressSpace.CONSTANT:
            return 0
        reads = find_address_reads(form) | (
            _make_guard_mask(form) if self.options.includes_control_flow else 0
        )
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


def _build_register_masks(form: InstructionForm, guard: Guard | None, always: int) -> _StorageMasks:
    writes = _make_mask(form.defs)
    kills = 0 if is_partial_predicate_write(form.operands) else writes
    return _StorageMasks(writes, kills, _make_mask(form.uses), always, guard)


@lru_cache(maxsize=2)
def _build_arithmetic_masks(cfg: Cfg) -> dict[int, _StorageMasks]:
    """Uses of arithmetic, by text: they are the same whatever else is wanted."""
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


_ARITHMETIC_KINDS = frozenset(
    {
        OpKind.INTEGER,
        OpKind.FLOAT,
        OpKind.HALF,
        OpKind.DOUBLE,
        OpKind.CONVERT,
        OpKind.SPECIAL_FUNCTION,
        OpKind.PREDICATE,
        OpKind.SPECIAL_REGISTER,
    }
)


def _apply_kills(masks: _StorageMasks, guarded_reads: dict[Guard, int]) -> int:
    """What a write makes unneeded before it; `exclusive_arrays` forgets it, and guards whose predicate
    changes here.
    """
    killed = masks.kills if masks.guard is None else masks.kills & guarded_reads.get(masks.guard, 0)
    for guard in list(guarded_reads):
        if masks.writes >> guard[0] & 1:
            del guarded_reads[guard]
        else:
            guarded_reads[guard] &= ~killed
    return killed


def _apply_reads(masks: _StorageMasks, reads: int, live: int, guarded_reads: dict[Guard, int]) -> int:
    """What a read makes needed before it, its guard included."""
    own = (
        0
        if masks.guard is None
        else guarded_reads.get(masks.guard, 0) | (reads & ~live & ~(1 << masks.guard[0]))
    )
    for guard in guarded_reads:
        guarded_reads[guard] &= ~reads
    if masks.guard is None:
        return reads
    guarded_reads[masks.guard] = own
    return reads | 1 << masks.guard[0]


def find_address_reads(form: InstructionForm) -> int:
    """Mask of what a memory instruction's addresses, and predicates that mask its lanes, read."""
    needs = 0
    for place, operand in enumerate(form.operands):
        match operand:
            case Address():
                needs |= _make_mask(find_address_units(form.opcode, place, operand))
            case DescriptorOperand(address=Address() as address):
                needs |= _make_mask(find_address_units(form.opcode, place, address))
            case Predicate() if place:
                needs |= _make_mask((find_predicate_unit(operand),))
            case _:
                pass
    return needs & _make_mask(form.uses)


def _find_data_reads(form: InstructionForm) -> int:
    """Mask of what a store reads only to store it."""
    return _make_mask(form.uses) & ~find_address_reads(form) & ~_make_guard_mask(form)


def find_mma_descriptor(form: InstructionForm) -> Register | None:
    """The register with the instruction descriptor of a product of the tensor core, which holds its tile."""
    for operand in form.operands:
        if isinstance(operand, DescriptorOperand) and operand.kind == "idesc" and operand.descriptor.bases:
            return operand.descriptor.bases[0]
    return None


def find_copy_coordinates(form: InstructionForm) -> tuple[int, ...]:
    """What a copy brings: registers behind address and mbarrier of a tensor copy, else its source."""
    dimensions, places = count_tensor_dimensions(form), _find_copy_addresses(form)
    if dimensions and places:
        return tuple(range(places[0] + 2, places[0] + 2 + dimensions))
    return (places[1], places[1] + 1) if len(places) > 1 else ()


def find_copied_tensor_map(form: InstructionForm) -> int | None:
    """The register with the address of the descriptor of the tensor that a copy brings a box of."""
    box = parse_tensor_load(form)
    return None if box is None else box.tensor_map


def _find_tensor_map_registers(form: InstructionForm) -> tuple[int, ...]:
    tensor = find_copied_tensor_map(form)
    return () if tensor is None else (tensor, tensor + 1)


def _find_copy_mbarrier(form: InstructionForm) -> tuple[int, ...]:
    return tuple(first + 1 for first in _find_copy_addresses(form)[:1])


def _find_copy_addresses(form: InstructionForm) -> list[int]:
    """First registers of the addresses of a copy that arrives at an mbarrier: destination, source."""
    if form.opcode.semantics is not Semantics.MBARRIER_COPY:
        return []
    addresses = [operand for operand in form.operands if isinstance(operand, Address) and operand.bases]
    return [find_register_unit(address.bases[0]) for address in addresses]


def find_bulk_operands(form: InstructionForm, *, tracks_tensor_maps: bool) -> BulkOperands | None:
    """What a copy of the engine reads that tells which bytes of global memory it touches."""
    found = parse_bulk_store(form) or parse_tensor_load(form)
    return found if found is None or found.tensor_map is None or tracks_tensor_maps else None


def find_guard(form: InstructionForm) -> Guard | None:
    """The guard of an instruction, None where there is none or it is always true."""
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
