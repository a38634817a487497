"""What the code reads of constant bank 0, and which of its words it uses together as 64-bit values.

A dump without the argument layout still shows it: a pointer's two words end up in an address, in a carry
chain or in a wide operand. Copies are followed in the order of the text, not along branches.
"""

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct, field

from analyzer.ir.opcode import MEMORY_KINDS, Opcode, OpKind, Semantics, Space
from analyzer.ir.operand import Address, Constant, Described, Immediate, Operand, Register
from analyzer.ir.program import InstructionForm, Kernel
from analyzer.isa.roles import is_pair, is_wide_address, register_storage

WORD_BYTES = 4
_PAIR_BYTES = 8
_EXTENDED = frozenset({"X", "EX"})  # the upper half of a 64-bit operation
_MOVES = frozenset({Semantics.MOVE, Semantics.INT_MAD, Semantics.INT_ADD})
_DATA_KINDS = MEMORY_KINDS | {OpKind.MMA}  # wide operands of theirs are vectors, not 64-bit values
_COPIES = frozenset({"R2UR", "UMOV", "MOV"})


class ConstantReads(Struct, frozen=True):
    """Byte offsets in constant bank 0: words read, 64-bit values by their first word, those in addresses.

    indexed: offsets to which the code adds a register.
    """

    words: frozenset[int]
    pairs: frozenset[int]
    addresses: frozenset[int]
    indexed: frozenset[int]


@lru_cache(maxsize=4)
def constant_reads(kernel: Kernel) -> ConstantReads:
    """Reads of constant bank 0 in the whole kernel."""
    finder = _Finder()
    for text_id in kernel.text_ids.tolist():
        finder.take(kernel.vocabulary.form(text_id))
    return ConstantReads(
        frozenset(finder.words),
        frozenset(finder.pairs),
        frozenset(finder.addresses),
        frozenset(finder.indexed),
    )


class _Finder(Struct):
    """One pass over the text; `held` is the word that a register is a copy of, by storage number."""

    held: dict[int, int] = field(default_factory=dict)
    words: set[int] = field(default_factory=set)
    pairs: set[int] = field(default_factory=set)
    addresses: set[int] = field(default_factory=set)
    indexed: set[int] = field(default_factory=set)

    def take(self, form: InstructionForm) -> None:
        opcode = form.opcode
        fresh: dict[int, int] = {}
        if opcode.kind is OpKind.LOAD and opcode.space is Space.CONSTANT:
            fresh = self._load(form)
        elif (source := _copied(form)) is not None:
            fresh = self._copy(form, source)
        else:
            self._use(form)
        if opcode.kind is OpKind.CALL:
            self.held.clear()
        for number in form.written:
            self.held.pop(number, None)
        self.held.update(fresh)

    def _load(self, form: InstructionForm) -> dict[int, int]:
        fresh: dict[int, int] = {}
        width = max(form.opcode.width_bytes, 1)
        for constant in _constants(form.operands):
            if not _is_fixed(constant):
                self.indexed.add(constant.offset)
                continue
            first = constant.offset - constant.offset % WORD_BYTES
            offsets = range(first, constant.offset + width, WORD_BYTES)
            self.words.update(offsets)
            if width >= WORD_BYTES:
                fresh.update(zip(form.written, offsets, strict=False))
        return fresh

    def _copy(self, form: InstructionForm, source: Operand) -> dict[int, int]:
        offset: int | None = None
        if isinstance(source, Constant):
            self.words.add(source.offset)
            offset = source.offset
        elif isinstance(source, Register):
            offset = self.held.get(register_storage(source))
        return {} if offset is None or not form.written else {form.written[0]: offset}

    def _use(self, form: InstructionForm) -> None:
        extended = not _EXTENDED.isdisjoint(form.opcode.modifiers)
        for place, operand in enumerate(form.operands):
            if isinstance(operand, Constant):
                self._use_constant(form, place, operand, extended)
        if not self.held:
            return
        for low in _wide_bases(form):
            self._note_pair(low, is_address=True)
        if form.opcode.kind in _DATA_KINDS:
            return
        explicit = {register_storage(o) for o in form.operands if isinstance(o, Register)}
        for number in form.read:
            if number not in explicit:
                self._note_pair(number - 1)
            elif extended and (offset := self.held.get(number, 0)) % _PAIR_BYTES:
                self.pairs.add(offset - WORD_BYTES)

    def _use_constant(self, form: InstructionForm, place: int, constant: Constant, extended: bool) -> None:
        if constant.bank != 0:
            return
        if not _is_fixed(constant):
            self.indexed.add(constant.offset)
            return
        self.words.add(constant.offset)
        if _is_wide_constant(form, place):
            self.words.add(constant.offset + WORD_BYTES)
            self.pairs.add(constant.offset)
        elif extended and constant.offset % _PAIR_BYTES:
            self.pairs.add(constant.offset - WORD_BYTES)

    def _note_pair(self, low: int, *, is_address: bool = False) -> None:
        """Two registers read as one: a pair if they hold neighbouring words."""
        offset = self.held.get(low)
        if offset is None or offset % _PAIR_BYTES or self.held.get(low + 1) != offset + WORD_BYTES:
            return
        self.pairs.add(offset)
        if is_address:
            self.addresses.add(offset)


def _constants(operands: tuple[Operand, ...]) -> Iterator[Constant]:
    return (o for o in operands if isinstance(o, Constant) and o.bank == 0)


def _is_fixed(constant: Constant) -> bool:
    """No register, or RZ, is added to the offset."""
    return constant.base is None or constant.base.index is None


def _copied(form: InstructionForm) -> Operand | None:
    """What an instruction copies as it is: `MOV`, `R2UR`, and `IMAD` or `IADD3` with zeros."""
    opcode = form.opcode
    if not form.is_unconditional or (opcode.semantics not in _MOVES and opcode.name not in _COPIES):
        return None
    if not {"WIDE", "HI", *_EXTENDED}.isdisjoint(opcode.modifiers):
        return None
    sources = [o for o in form.operands[1:] if isinstance(o, Register | Constant | Immediate)]
    if opcode.semantics is Semantics.INT_MAD:
        if len(sources) != 3 or not (_is_zero(sources[0]) or _is_zero(sources[1])):
            return None
        sources = sources[2:]
    left = [o for o in sources if not _is_zero(o)]
    if len(left) != 1 or isinstance(left[0], Immediate) or _is_changed(left[0]):
        return None
    source = left[0]
    return None if isinstance(source, Constant) and (source.bank or not _is_fixed(source)) else source


def _is_zero(operand: Operand) -> bool:
    return (isinstance(operand, Register) and operand.index is None) or operand == Immediate(0)


def _is_changed(operand: Register | Constant | Immediate) -> bool:
    return not isinstance(operand, Immediate) and (operand.negated or operand.inverted or operand.absolute)


def _is_wide_constant(form: InstructionForm, place: int) -> bool:
    """Whether a constant operand stands for 64 bits: the addend of IMAD.WIDE, any of double precision."""
    opcode = form.opcode
    if opcode.kind is OpKind.DOUBLE or "64" in opcode.modifiers or "S64" in opcode.modifiers:
        return True
    if "WIDE" not in opcode.modifiers:
        return False
    return not any(isinstance(o, Register | Constant | Immediate) for o in form.operands[place + 1 :])


def _wide_bases(form: InstructionForm) -> Iterator[int]:
    """Low storage numbers of the 64-bit bases of the addresses that an instruction reaches."""
    for place, operand in enumerate(form.operands):
        match operand:
            case Described(address=Address() as address):
                wide = False
            case Address() as address:
                wide = _is_global(form.opcode, place)
            case _:
                continue
        for base in address.bases:
            if base.index is not None and is_pair(base, wide):
                yield register_storage(base)


def _is_global(opcode: Opcode, place: int) -> bool:
    return opcode.kind in MEMORY_KINDS and is_wide_address(opcode, place)
