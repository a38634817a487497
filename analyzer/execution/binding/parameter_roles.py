"""Which parameters a kernel uses as pointers: those that are added to an address as they are.

A cubin says how large each parameter is, not what it is: 8 bytes are a pointer or a `size_t`, and of a struct
nothing is known. The code tells them apart. An address is followed back through copies and sums; a constant
word that is a plain addend of it, neither scaled nor negated, is the low word of a pointer.

    ULDC.64 UR6, c[0x0][0x220]                  # n: compared, never added
    ULDC.64 UR8, c[0x0][0x210]                  # x: a plain addend of the address, a pointer
    ISETP.GE.U32.AND P0, PT, R7, UR6, PT
    LEA R2, P0, R7, UR8, 0x2                    # (R7 << 2) + UR8
    LDG.E R4, desc[UR4][R2.64]

Only low words are followed: the carry of a sum takes the same way. What goes through memory, a call or a
select of bytes is not followed, so a pointer may be missed; nothing else is taken for one, except an offset
in bytes that is added unscaled.
"""

from collections.abc import Iterator
from functools import lru_cache

from analyzer.execution.binding.constant_reads import WORD_BYTES
from analyzer.flow.cfg import build_cfg
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.opcode import AddressSpace, Semantics
from analyzer.ir.operand import Address, ConstantBankOperand, DescriptorOperand, Operand, Register
from analyzer.isa.register_operands import find_register_unit

_FOLLOWED_SPACES = frozenset({AddressSpace.GLOBAL, AddressSpace.GENERIC})
_ALL_ADDENDS = frozenset({Semantics.MOVE, Semantics.SPECIAL_MOVE, Semantics.INT_ADD, Semantics.SELECT})
_LAST_ADDENDS = frozenset({Semantics.INT_MAD})  # the others are factors
_SHIFTED_SUMS = frozenset({Semantics.INT_SHIFT_ADD, Semantics.INT_SCALED_ADD})
_COPIES_BETWEEN_FILES = frozenset({"R2UR"})
_UPPER_HALVES = frozenset({"HI", "X"})


@lru_cache(maxsize=4)
def find_pointer_words(kernel: Kernel) -> frozenset[int]:
    """Return the offsets in constant bank 0 of the low words of values that are used as pointers."""
    chains = find_def_use_chains(build_cfg(kernel))
    forms = kernel.decode_forms(0, len(kernel))
    found: set[int] = set()
    seen: set[tuple[int, int]] = set()
    work = [
        (row, unit)
        for row, form in enumerate(forms)
        if form.opcode.space in _FOLLOWED_SPACES
        for operand in form.operands
        for unit in _find_base_units(operand, found)
    ]
    while work:
        row, unit = work.pop()
        for definer in _find_definers(chains, row, unit):
            if (definer, unit) in seen:
                continue
            seen.add((definer, unit))
            for operand in _find_addends(forms[definer], unit, found):
                work.append((definer, operand))
    return frozenset(found)


def _find_definers(chains: DefUseChains, row: int, unit: int) -> frozenset[int]:
    return chains.sources(row).definitions.get(unit, frozenset())


def _find_base_units(operand: Operand, found: set[int]) -> Iterator[int]:
    """Yield the units of the low words of an address."""
    address = operand.address if isinstance(operand, DescriptorOperand) else operand
    if isinstance(address, Address):
        for base in address.bases:
            yield from _find_units(base, found)


def _find_addends(form: InstructionForm, unit: int, found: set[int]) -> Iterator[int]:
    """Yield the units that are plain addends of the value that a form writes to a unit.

    Constant words among the addends go to `found`.
    """
    opcode = form.opcode
    if opcode.space is AddressSpace.CONSTANT or opcode.semantics is Semantics.CONSTANT_LOAD:
        place = form.defs.index(unit) if unit in form.defs else 0
        for operand in form.operands[1:]:
            if isinstance(operand, ConstantBankOperand) and _is_fixed(operand):
                found.add(operand.offset + WORD_BYTES * place)
        return
    if not _UPPER_HALVES.isdisjoint(opcode.modifiers) or not form.defs or form.defs[0] != unit:
        return
    values = [o for o in form.operands[1:] if isinstance(o, Register | ConstantBankOperand)]
    if opcode.semantics in _ALL_ADDENDS or opcode.name in _COPIES_BETWEEN_FILES:
        addends = values
    elif opcode.semantics in _LAST_ADDENDS:
        addends = values[-1:] if values and values[-1] is form.operands[-1] else []
    elif opcode.semantics in _SHIFTED_SUMS:
        addends = values[1:2]
    else:
        return
    for operand in addends:
        yield from _find_units(operand, found)


def _find_units(operand: Register | ConstantBankOperand, found: set[int]) -> Iterator[int]:
    if operand.is_negated or operand.is_inverted:
        return
    if isinstance(operand, Register):
        unit = find_register_unit(operand)
        if unit >= 0:
            yield unit
    elif _is_fixed(operand):
        found.add(operand.offset)


def _is_fixed(operand: ConstantBankOperand) -> bool:
    return operand.bank == 0 and (operand.base is None or operand.base.index is None)
