"""Reads of constant bank 0: the words that the code loads, and which of them form 64-bit values.

A dump without parameter information still shows the layout: the two words of a pointer are used in an
address, in a carry chain or in a 64-bit operand. One pass over the text tracks which constant word each
register holds. Copies are followed in the order of the text, not along branches, so the result is a
heuristic.

    MOV R2, c[0x0][0x160]
    MOV R3, c[0x0][0x164]
    LDG.E R4, [R2.64]          # words 0x160 and 0x164 are one 64-bit value, used as an address
"""

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct, field

from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.opcode import MEMORY_KINDS, AddressSpace, Opcode, OpKind, Semantics
from analyzer.ir.operand import Address, ConstantBankOperand, DescriptorOperand, Immediate, Operand, Register
from analyzer.isa.register_operands import find_register_unit, is_64bit_address, is_register_pair

WORD_BYTES = 4
_PAIR_BYTES = 8
_CARRY_MODIFIERS = frozenset({"X", "EX"})  # the upper half of a 64-bit operation
_MOVE_SEMANTICS = frozenset({Semantics.MOVE, Semantics.INT_MAD, Semantics.INT_ADD})
_VECTOR_OPERAND_KINDS = MEMORY_KINDS | {OpKind.MMA}  # their wide operands are vectors, not 64-bit values
_COPY_OPCODES = frozenset({"R2UR", "UMOV", "MOV"})


class ConstantReads(Struct, frozen=True):
    """Byte offsets in constant bank 0 that the code reads."""

    words: frozenset[int]
    pairs: frozenset[int]  # first words of 64-bit values
    addresses: frozenset[int]  # first words of 64-bit values that are used in addresses
    indexed: frozenset[int]  # offsets to which the code adds a register


@lru_cache(maxsize=4)
def find_constant_reads(kernel: Kernel) -> ConstantReads:
    """Find all reads of constant bank 0 in a kernel."""
    finder = _ConstantReadFinder()
    for text_id in kernel.text_ids.tolist():
        finder.visit(kernel.form_table.decode_form(text_id))
    return ConstantReads(
        frozenset(finder.words),
        frozenset(finder.pairs),
        frozenset(finder.addresses),
        frozenset(finder.indexed),
    )


class _ConstantReadFinder(Struct):
    """State of one pass over the text, see `ConstantReads`."""

    # Offset of the constant word that a register holds a copy of, by storage number.
    offset_by_register: dict[int, int] = field(default_factory=dict)
    words: set[int] = field(default_factory=set)
    pairs: set[int] = field(default_factory=set)
    addresses: set[int] = field(default_factory=set)
    indexed: set[int] = field(default_factory=set)

    def visit(self, form: InstructionForm) -> None:
        """Record the reads of an instruction, and update the copies that registers hold."""
        opcode = form.opcode
        fresh: dict[int, int] = {}
        if opcode.kind is OpKind.LOAD and opcode.space is AddressSpace.CONSTANT:
            fresh = self._visit_load(form)
        elif (source := _find_copy_source(form)) is not None:
            fresh = self._visit_copy(form, source)
        else:
            self._visit_use(form)
        if opcode.kind is OpKind.CALL:
            self.offset_by_register.clear()
        for number in form.defs:
            self.offset_by_register.pop(number, None)
        self.offset_by_register.update(fresh)

    def _visit_load(self, form: InstructionForm) -> dict[int, int]:
        fresh: dict[int, int] = {}
        width = max(form.opcode.width_bytes, 1)
        for constant in _find_constants(form.operands):
            if not _has_fixed_offset(constant):
                self.indexed.add(constant.offset)
                continue
            first = constant.offset - constant.offset % WORD_BYTES
            offsets = range(first, constant.offset + width, WORD_BYTES)
            self.words.update(offsets)
            if width >= WORD_BYTES:
                fresh.update(zip(form.defs, offsets, strict=False))
        return fresh

    def _visit_copy(self, form: InstructionForm, source: Operand) -> dict[int, int]:
        offset: int | None = None
        if isinstance(source, ConstantBankOperand):
            self.words.add(source.offset)
            offset = source.offset
        elif isinstance(source, Register):
            offset = self.offset_by_register.get(find_register_unit(source))
        return {} if offset is None or not form.defs else {form.defs[0]: offset}

    def _visit_use(self, form: InstructionForm) -> None:
        extended = not _CARRY_MODIFIERS.isdisjoint(form.opcode.modifiers)
        for position, operand in enumerate(form.operands):
            if isinstance(operand, ConstantBankOperand):
                self._visit_constant_operand(form, position, operand, extended)
        if not self.offset_by_register:
            return
        for low in _find_wide_bases(form):
            self._record_pair(low, is_address=True)
        if form.opcode.kind in _VECTOR_OPERAND_KINDS:
            return
        explicit = {find_register_unit(o) for o in form.operands if isinstance(o, Register)}
        for number in form.uses:
            if number not in explicit:
                self._record_pair(number - 1)
            elif extended and (offset := self.offset_by_register.get(number, 0)) % _PAIR_BYTES:
                self.pairs.add(offset - WORD_BYTES)

    def _visit_constant_operand(
        self, form: InstructionForm, position: int, constant: ConstantBankOperand, extended: bool
    ) -> None:
        if constant.bank != 0:
            return
        if not _has_fixed_offset(constant):
            self.indexed.add(constant.offset)
            return
        self.words.add(constant.offset)
        if _is_wide_constant(form, position):
            self.words.add(constant.offset + WORD_BYTES)
            self.pairs.add(constant.offset)
        elif extended and constant.offset % _PAIR_BYTES:
            self.pairs.add(constant.offset - WORD_BYTES)

    def _record_pair(self, low: int, *, is_address: bool = False) -> None:
        """Record a 64-bit value if a register pair holds the two words of an aligned pair."""
        offset = self.offset_by_register.get(low)
        if (
            offset is None
            or offset % _PAIR_BYTES
            or self.offset_by_register.get(low + 1) != offset + WORD_BYTES
        ):
            return
        self.pairs.add(offset)
        if is_address:
            self.addresses.add(offset)


def _find_constants(operands: tuple[Operand, ...]) -> Iterator[ConstantBankOperand]:
    return (o for o in operands if isinstance(o, ConstantBankOperand) and o.bank == 0)


def _has_fixed_offset(constant: ConstantBankOperand) -> bool:
    """Return whether no register, or RZ, is added to the offset."""
    return constant.base is None or constant.base.index is None


def _find_copy_source(form: InstructionForm) -> Operand | None:
    """Return the operand that an instruction copies unchanged: MOV, R2UR, and IMAD or IADD3 with zeros."""
    opcode = form.opcode
    if not form.is_unconditional or (
        opcode.semantics not in _MOVE_SEMANTICS and opcode.name not in _COPY_OPCODES
    ):
        return None
    if not {"WIDE", "HI", *_CARRY_MODIFIERS}.isdisjoint(opcode.modifiers):
        return None
    sources = [o for o in form.operands[1:] if isinstance(o, Register | ConstantBankOperand | Immediate)]
    if opcode.semantics is Semantics.INT_MAD:
        if len(sources) != 3 or not (_is_zero(sources[0]) or _is_zero(sources[1])):
            return None
        sources = sources[2:]
    left = [o for o in sources if not _is_zero(o)]
    if len(left) != 1 or isinstance(left[0], Immediate) or _has_source_modifier(left[0]):
        return None
    source = left[0]
    return (
        None
        if isinstance(source, ConstantBankOperand) and (source.bank or not _has_fixed_offset(source))
        else source
    )


def _is_zero(operand: Operand) -> bool:
    return (isinstance(operand, Register) and operand.index is None) or operand == Immediate(0)


def _has_source_modifier(operand: Register | ConstantBankOperand | Immediate) -> bool:
    return not isinstance(operand, Immediate) and (
        operand.is_negated or operand.is_inverted or operand.is_absolute
    )


def _is_wide_constant(form: InstructionForm, position: int) -> bool:
    """Return whether a constant operand has 64 bits: the addend of IMAD.WIDE, any of double precision."""
    opcode = form.opcode
    if opcode.kind is OpKind.DOUBLE or "64" in opcode.modifiers or "S64" in opcode.modifiers:
        return True
    if "WIDE" not in opcode.modifiers:
        return False
    return not any(
        isinstance(o, Register | ConstantBankOperand | Immediate) for o in form.operands[position + 1 :]
    )


def _find_wide_bases(form: InstructionForm) -> Iterator[int]:
    """Yield the low storage numbers of the 64-bit base registers in the addresses of an instruction."""
    for position, operand in enumerate(form.operands):
        match operand:
            case DescriptorOperand(address=Address() as address):
                wide = False
            case Address() as address:
                wide = _has_wide_address(form.opcode, position)
            case _:
                continue
        for base in address.bases:
            if base.index is not None and is_register_pair(base, wide):
                yield find_register_unit(base)


def _has_wide_address(opcode: Opcode, position: int) -> bool:
    return opcode.kind in MEMORY_KINDS and is_64bit_address(opcode, position)
