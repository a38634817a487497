"""Which instructions control flow and addresses depend on, so that only they need be executed.

A backward pass over the blocks: a register is needed if a branch, a guard or an address may read it, or
an instruction whose result is needed. A value that only instructions under one guard read is not needed
before a write under the same guard, which keeps `@P MOV R6` / `@P IMAD.WIDE R6` from dragging in what
R6 held before. Words of a stack frame that is only reached through the stack pointer count as registers do:
one spilled address does not drag in all other spills.

Where branches hang on what was loaded from shared memory or on products of matrices (the slow way of a
division behind a loop, say), what nobody can know is not computed (`analyzer.execution.knowledge`).
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.bulk_forms import BulkForm, box_read, bulk_write, tensor_dimensions
from analyzer.execution.frames import FRAME_KINDS, frame_words, has_plain_frame
from analyzer.execution.knowledge import Deed, lost_stores, stores_knowledge, unknowable
from analyzer.execution.returning import followers_of
from analyzer.execution.sweeps import Sweeps
from analyzer.execution.tickets import asked_tickets
from analyzer.execution.unread import unread_stores
from analyzer.flow.cfg import Cfg
from analyzer.ir.machine import SchedClass
from analyzer.ir.opcode import FLOW_KINDS, MBARRIER_MEANINGS, MEMORY_KINDS, Opcode, OpKind, Semantics, Space
from analyzer.ir.operand import Address, Barrier, Described, Predicate, Register
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import (
    STORAGE_SIZE,
    address_storage,
    may_write_fewer,
    predicate_storage,
    register_storage,
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

    rows: tuple[bool, ...]
    needed: tuple[int, ...]
    keeps_shared: bool
    keeps_local: bool
    has_mbarriers: bool = False
    has_tensors: bool = False
    has_frame: bool = False
    opaque: Mapping[int, int] = {}
    lost: frozenset[int] = frozenset()
    unkept: frozenset[int] = frozenset()

    @property
    def kept_spaces(self) -> frozenset[Space]:
        """Spaces in which accesses may meet contents that are needed."""
        kept = {Space.SHARED} if self.keeps_shared else set()
        kept |= {Space.LOCAL} if self.keeps_local else set()
        return frozenset(kept | {Space.GENERIC} if kept else kept)


class _Use(Struct, frozen=True):
    """An instruction as the pass sees it: masks over storage numbers."""

    writes: int
    kills: int
    reads: int
    always: int
    guard: Guard | None


class _Wants(Struct, frozen=True, kw_only=True):
    """What a slice is to hold besides; flow: branches and guards, not only addresses; lost: rows that
    store what nobody can know; unkept: these and those that store what no needed load reads.
    """

    keeps_shared: bool = False
    keeps_local: bool = False
    has_mbarriers: bool = False
    has_tensors: bool = False
    flow: bool = True
    opaque: Mapping[int, int] = {}
    lost: frozenset[int] = frozenset()
    unkept: frozenset[int] = frozenset()


def slice_control(cfg: Cfg, *, knows_memory: bool = True, knows_tensors: bool = False) -> Slice:
    """The slice of a kernel that decides branches, guards of memory accesses, and addresses.

    knows_memory: contents of global memory may be given; knows_tensors: so is what descriptors stand for.
    """
    wants = _Wants(has_tensors=knows_tensors)
    control = _settled(cfg, wants)
    if knows_memory or not _wants_opaque(cfg, control):
        return control
    unknown = _unknowable(cfg)
    addresses = _settled(cfg, replace(wants, flow=False, lost=unknown.stores))
    opaque = {row: source for row, source in unknown.results.items() if not addresses.rows[row]}
    return _settled(cfg, replace(wants, opaque=opaque, lost=unknown.stores)) if opaque else control


def add_mbarriers(cfg: Cfg, control: Slice) -> Slice:
    """The slice, and which mbarriers instructions use, with which parity or how many bytes."""
    wants = _Wants(
        keeps_shared=control.keeps_shared,
        keeps_local=control.keeps_local,
        has_mbarriers=True,
        has_tensors=control.has_tensors,
        opaque=control.opaque,
        lost=control.lost,
    )
    return _settled(cfg, wants)


def _settled(cfg: Cfg, wants: _Wants) -> Slice:
    """What is loaded for the slice may bring memory into it, which then brings more."""
    while True:
        found = _Pass(cfg, wants).run()
        shared = wants.keeps_shared or bool(_loads_from(cfg, found, Space.SHARED))
        local = wants.keeps_local or bool(_loads_from(cfg, found, Space.LOCAL))
        if (shared, local) == (wants.keeps_shared, wants.keeps_local):
            return _without_unread(cfg, wants, found) if shared else found
        wants = replace(wants, keeps_shared=shared, keeps_local=local)


def _without_unread(cfg: Cfg, wants: _Wants, found: Slice) -> Slice:
    """The slice without what is stored to shared memory behind all loads from it that are needed."""
    while True:
        loads = _loads_from(cfg, found, Space.SHARED)
        unkept = wants.lost | unread_stores(cfg, loads)
        if unkept == found.unkept:
            return found
        found = _Pass(cfg, replace(wants, unkept=unkept)).run()


def _wants_opaque(cfg: Cfg, control: Slice) -> bool:
    """Whether the slice holds what most likely nobody can know.

    Shared memory behind mbarriers tells which tile is next, or where tensor memory is.
    """
    is_product = cfg.kernel.vocabulary.mask(_gives_product)[cfg.kernel.opcode_ids]
    has_products = any(control.rows[row] for row in np.flatnonzero(is_product).tolist())
    return has_products or (control.keeps_shared and not has_mbarriers(cfg))


def _gives_product(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.MMA or (opcode.kind is OpKind.LOAD and opcode.space is Space.TENSOR)


class _Unknowable(Struct, frozen=True):
    """results: rows whose results nobody can know, with the row that this comes from; stores: those that put
    nothing else into shared memory.
    """

    results: Mapping[int, int]
    stores: frozenset[int]


def _unknowable(cfg: Cfg) -> _Unknowable:
    """What hangs on products of matrices or on shared memory, where that holds nothing known."""
    followers, starts = followers_of(cfg), [block.start for block in cfg.blocks]
    doubts = _deeds(cfg, _DOUBTED_SPACES)
    deeds = _deeds(cfg, _NOWHERE if stores_knowledge(doubts, followers) else _SHARED_SPACES)
    return _Unknowable(unknowable(deeds, followers, starts), lost_stores(deeds, followers, starts))


_NOWHERE: frozenset[Space] = frozenset()
_SHARED_SPACES = frozenset({Space.SHARED, Space.DISTRIBUTED_SHARED})
_DOUBTED_SPACES = _SHARED_SPACES | {Space.GLOBAL, Space.GENERIC, Space.TEXTURE}


def _deeds(cfg: Cfg, unknown_spaces: frozenset[Space]) -> list[list[Deed]]:
    """Of each block; unknown_spaces: what is loaded from there is unknown."""
    asked = {row: _mask(tickets) for row, tickets in asked_tickets(cfg).items()}
    return [
        [_deed(cfg, row, unknown_spaces, asked.get(row, 0)) for row in range(block.start, block.stop)]
        for block in cfg.blocks
    ]


def _deed(cfg: Cfg, row: int, unknown_spaces: frozenset[Space], tickets: int) -> Deed:
    """tickets: registers of which it tells the same whatever they hold."""
    form = cfg.kernel.form(row)
    if form.is_never:
        return Deed(0, 0, 0, 0)
    opcode, guard = form.opcode, _guard_bit(form)
    use = _whole_use(form, guard_of(form), 0)
    is_source = _gives_product(opcode) or opcode.sched is SchedClass.SHARED_MATRIX
    is_load = opcode.kind in _LOADING or opcode.kind is OpKind.TEXTURE
    stored = None
    if opcode.kind in _STORING and opcode.space in (*_SHARED_SPACES, Space.GENERIC):
        stored = _data_needs(form)
    return Deed(
        writes=use.writes,
        kills=use.kills,
        reads=0 if opcode.kind in MEMORY_KINDS else use.reads & ~tickets,
        guard=guard,
        is_source=is_source or (is_load and opcode.space in unknown_spaces),
        stored=stored,
    )


def has_mbarriers(cfg: Cfg) -> bool:
    """Whether a kernel waits for mbarriers."""
    kernel = cfg.kernel
    waits = kernel.vocabulary.mask(lambda opcode: opcode.semantics is Semantics.MBARRIER_WAIT)
    return bool(waits[kernel.opcode_ids].any())


def _loads_from(cfg: Cfg, found: Slice, space: Space) -> list[int]:
    """Rows of loads that are needed."""
    kernel = cfg.kernel
    return [
        row
        for row, needed in enumerate(found.rows)
        if needed
        and kernel.opcode(row).space in (space, Space.GENERIC)
        and kernel.opcode(row).kind in _LOADING
        and row not in found.opaque
    ]


_LOADING = frozenset({OpKind.LOAD, OpKind.ATOMIC})
_STORING = frozenset({OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION})


class _Pass:
    def __init__(self, cfg: Cfg, wants: _Wants) -> None:
        self.cfg, self.wants = cfg, wants
        self.known = _plain_uses(cfg).copy()
        self.has_frame = has_plain_frame(cfg)
        self.uses = [[self._use(row) for row in range(block.start, block.stop)] for block in cfg.blocks]
        self.followers = followers_of(cfg)

    def run(self) -> Slice:
        needed = [0] * len(self.cfg.blocks)
        before: list[list[int]] = [[] for _ in needed]
        for block, followers in enumerate(self.followers):
            for follower in followers:
                before[follower].append(block)
        waiting = Sweeps(range(len(needed)), backward=True)
        for block in waiting:
            entry = self._through(block, needed)
            if entry != needed[block]:
                needed[block] = entry
                waiting.add(before[block])
        rows = [False] * len(self.cfg.kernel)
        for block in range(len(needed)):
            self._through(block, needed, rows)
        registers = (1 << STORAGE_SIZE) - 1
        return Slice(
            rows=tuple(rows),
            needed=tuple(n & registers for n in needed),
            keeps_shared=self.wants.keeps_shared,
            keeps_local=self.wants.keeps_local,
            has_mbarriers=self.wants.has_mbarriers,
            has_tensors=self.wants.has_tensors,
            has_frame=self.has_frame,
            opaque=self.wants.opaque,
            lost=self.wants.lost,
            unkept=self.wants.unkept,
        )

    def _through(self, block: int, needed: list[int], rows: list[bool] | None = None) -> int:
        """Needs at the block's entry from those of its followers; marks rows whose result is needed."""
        live = 0
        for follower in self.followers[block]:
            live |= needed[follower]
        start = self.cfg.blocks[block].start
        owned: dict[Guard, int] = {}  # what only instructions under this guard read
        for place in range(len(self.uses[block]) - 1, -1, -1):
            use = self.uses[block][place]
            wanted = bool(use.writes & live)
            if rows is not None and wanted:
                rows[start + place] = True
            if use.writes:
                live &= ~_kill(use, owned)
            reads = use.always | (use.reads if wanted else 0)
            if reads:
                live |= _add_needs(use, reads, live, owned)
        return live

    def _use(self, row: int) -> _Use:
        text_id = int(self.cfg.kernel.text_ids[row])
        use = self.known.get(text_id)
        if use is None:
            use = self.known[text_id] = self._use_of(self.cfg.kernel.form(row))
        if row in self.wants.opaque:
            use = _Use(use.writes, use.kills, 0, use.always, use.guard)
        if row in self.wants.unkept:
            form = self.cfg.kernel.form(row)
            use = _Use(use.writes, use.kills, use.reads, use.always & ~_data_needs(form), use.guard)
        return use

    def _use_of(self, form: InstructionForm) -> _Use:
        if form.is_never:
            return _Use(0, 0, 0, 0, None)
        guard = guard_of(form)
        if self.has_frame and form.opcode.space is Space.LOCAL and form.opcode.kind in FRAME_KINDS:
            return self._frame_use(form, guard)
        return _whole_use(form, guard, self._always(form))

    def _frame_use(self, form: InstructionForm, guard: Guard | None) -> _Use:
        """A spill writes words of the frame from registers, a fill the other way."""
        words, address = frame_words(form), address_needs(form) | _guard_bit(form)
        if form.opcode.kind is OpKind.STORE:
            return _Use(words, words, _mask(form.read), address, guard)
        writes = _mask(form.written)
        return _Use(writes, writes, words | _mask(form.read), address, guard)

    def _always(self, form: InstructionForm) -> int:
        """What is needed though no one may want the result: of branches everything, of accesses addresses."""
        opcode = form.opcode
        waits = opcode.sched is SchedClass.CTA_BARRIER and self.wants.keeps_shared
        restores = opcode.kind is OpKind.MOVE and any(
            isinstance(o, Barrier) for o in form.operands
        )  # BMOV B, R
        tells = self.wants.has_mbarriers and opcode.semantics in MBARRIER_MEANINGS
        if self.wants.has_mbarriers and (descriptor := product_descriptor(form)):
            return _mask((register_storage(descriptor),))
        if self.wants.flow and (opcode.kind in FLOW_KINDS or waits or restores or tells):
            return _mask((*form.read, *copy_coordinates(form), *_copy_barrier(form), *_copy_tensor(form)))
        if opcode.kind not in MEMORY_KINDS or opcode.space is Space.CONSTANT:
            return 0
        reads = address_needs(form) | (_guard_bit(form) if self.wants.flow else 0)
        if (bulk := bulk_of(form, has_tensors=self.wants.has_tensors)) is not None:
            reads |= _mask((bulk.shared, *bulk.sizing, *bulk.placing))
        stores = opcode.kind in (OpKind.STORE, OpKind.ATOMIC, OpKind.REDUCTION)
        keeps_shared = self.wants.keeps_shared and opcode.space in (Space.SHARED, Space.GENERIC)
        keeps_local = self.wants.keeps_local and opcode.space in (Space.LOCAL, Space.GENERIC)
        if stores and (keeps_shared or keeps_local):
            reads |= _mask(form.read)
        return reads


def _whole_use(form: InstructionForm, guard: Guard | None, always: int) -> _Use:
    writes = _mask(form.written)
    kills = 0 if may_write_fewer(form.operands) else writes
    return _Use(writes, kills, _mask(form.read), always, guard)


@lru_cache(maxsize=2)
def _plain_uses(cfg: Cfg) -> dict[int, _Use]:
    """Uses of arithmetic, by text: they are the same whatever else is wanted."""
    kernel = cfg.kernel
    plain = kernel.vocabulary.mask(_is_plain)[kernel.opcode_ids]
    forms = {int(text_id): kernel.vocabulary.form(int(text_id)) for text_id in kernel.text_ids[plain]}
    return {
        text_id: _whole_use(form, guard_of(form), 0) for text_id, form in forms.items() if not form.is_never
    }


def _is_plain(opcode: Opcode) -> bool:
    return opcode.kind in _PLAIN_KINDS


_PLAIN_KINDS = frozenset(
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


def _kill(use: _Use, owned: dict[Guard, int]) -> int:
    """What a write makes unneeded before it; `owned` forgets it, and guards whose predicate changes here."""
    killed = use.kills if use.guard is None else use.kills & owned.get(use.guard, 0)
    for guard in list(owned):
        if use.writes >> guard[0] & 1:
            del owned[guard]
        else:
            owned[guard] &= ~killed
    return killed


def _add_needs(use: _Use, reads: int, live: int, owned: dict[Guard, int]) -> int:
    """What a read makes needed before it, its guard included."""
    own = 0 if use.guard is None else owned.get(use.guard, 0) | (reads & ~live & ~(1 << use.guard[0]))
    for guard in owned:
        owned[guard] &= ~reads
    if use.guard is None:
        return reads
    owned[use.guard] = own
    return reads | 1 << use.guard[0]


def address_needs(form: InstructionForm) -> int:
    """Mask of what a memory instruction's addresses, and predicates that mask its lanes, read."""
    needs = 0
    for place, operand in enumerate(form.operands):
        match operand:
            case Address():
                needs |= _mask(address_storage(form.opcode, place, operand))
            case Described(address=Address() as address):
                needs |= _mask(address_storage(form.opcode, place, address))
            case Predicate() if place:
                needs |= _mask((predicate_storage(operand),))
            case _:
                pass
    return needs & _mask(form.read)


def _data_needs(form: InstructionForm) -> int:
    """Mask of what a store reads only to store it."""
    return _mask(form.read) & ~address_needs(form) & ~_guard_bit(form)


def product_descriptor(form: InstructionForm) -> Register | None:
    """The register with the instruction descriptor of a product of the tensor core, which holds its tile."""
    for operand in form.operands:
        if isinstance(operand, Described) and operand.kind == "idesc" and operand.descriptor.bases:
            return operand.descriptor.bases[0]
    return None


def copy_coordinates(form: InstructionForm) -> tuple[int, ...]:
    """What a copy brings: registers behind address and mbarrier of a tensor copy, else its source."""
    dimensions, places = tensor_dimensions(form), _copy_places(form)
    if dimensions and places:
        return tuple(range(places[0] + 2, places[0] + 2 + dimensions))
    return (places[1], places[1] + 1) if len(places) > 1 else ()


def copied_tensor(form: InstructionForm) -> int | None:
    """The register with the address of the descriptor of the tensor that a copy brings a box of."""
    box = box_read(form)
    return None if box is None else box.tensor


def _copy_tensor(form: InstructionForm) -> tuple[int, ...]:
    tensor = copied_tensor(form)
    return () if tensor is None else (tensor, tensor + 1)


def _copy_barrier(form: InstructionForm) -> tuple[int, ...]:
    return tuple(first + 1 for first in _copy_places(form)[:1])


def _copy_places(form: InstructionForm) -> list[int]:
    """First registers of the addresses of a copy that arrives at an mbarrier: destination, source."""
    if form.opcode.semantics is not Semantics.MBARRIER_COPY:
        return []
    addresses = [operand for operand in form.operands if isinstance(operand, Address) and operand.bases]
    return [register_storage(address.bases[0]) for address in addresses]


def bulk_of(form: InstructionForm, *, has_tensors: bool) -> BulkForm | None:
    """What a copy of the engine reads that tells which bytes of global memory it touches."""
    found = bulk_write(form) or box_read(form)
    return found if found is None or found.tensor is None or has_tensors else None


def guard_of(form: InstructionForm) -> Guard | None:
    """The guard of an instruction, None where there is none or it is always true."""
    if form.guard is None or form.guard.index is None:
        return None
    return predicate_storage(form.guard), form.guard.negated


def _guard_bit(form: InstructionForm) -> int:
    guard = guard_of(form)
    return 0 if guard is None else 1 << guard[0]


def _mask(numbers: tuple[int, ...]) -> int:
    mask = 0
    for number in numbers:
        if number >= 0:
            mask |= 1 << number
    return mask
