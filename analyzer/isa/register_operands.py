"""The registers and predicates that an instruction writes and reads (its defs and uses).

The opcode's row says how many leading operands are written and how many 32-bit registers each operand takes.
The operands say which registers. All are numbered as register units, each a 32-bit register or a predicate:
R0 to R254 are units 0 to 254, UR0 to UR126 begin at `UNIFORM_REGISTER_BASE`, predicates at `PREDICATE_BASE`,
uniform predicates at `UNIFORM_PREDICATE_BASE`.

    @P1 LDG.E.64 R4, [R2.64+0x8]      defs R4, R5; uses P1, R2, R3

The result of a barrier that reduces a predicate (BAR.RED) stands in no register that has a name until
B2R.RESULT reads it. It has two units of its own, a word and a predicate. So have the words on their way from
global to shared memory (LDGSTS), which pass through no register at all.
"""

import re
from functools import cache, lru_cache

from msgspec import Struct

from analyzer.ir.opcode import (
    GLOBAL_SPACES,
    MEMORY_KINDS,
    AddressSpace,
    MmaShape,
    Opcode,
    OpKind,
    Semantics,
)
from analyzer.ir.operand import (
    Address,
    ConstantBankOperand,
    DescriptorOperand,
    Immediate,
    Operand,
    Predicate,
    PredicateFile,
    PredicateFileOperand,
    Register,
    RegisterFile,
)
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.isa.mma_shapes import load_mma_table

UNIFORM_REGISTER_BASE = 256
COPIED_WORD_BASE = 384  # 127 uniform registers from sm_100 on
PREDICATE_BASE = 388
UNIFORM_PREDICATE_BASE = 396
N_REGISTER_UNITS = 404
# numbers of URZ and PT, which are no registers
BARRIER_RESULT_WORD = COPIED_WORD_BASE - 1
BARRIER_RESULT_PREDICATE = UNIFORM_PREDICATE_BASE - 1
_N_PREDICATES = 7
_REGISTER_BITS = 32

RegisterUnits = tuple[int, ...]
_OperandTypes = tuple[type[Operand], ...]
_PREDICATE_TYPES = (Predicate, PredicateFileOperand)


def format_register_unit(number: int) -> str:
    """Return the printed name of a register unit: `R5`, `UR4`, `P0`, `UP1`."""
    if number == BARRIER_RESULT_WORD:
        return "barrier count"
    if number == BARRIER_RESULT_PREDICATE:
        return "barrier predicate"
    if COPIED_WORD_BASE <= number < PREDICATE_BASE:
        return f"copied word {number - COPIED_WORD_BASE}"
    if number >= UNIFORM_PREDICATE_BASE:
        return f"UP{number - UNIFORM_PREDICATE_BASE}"
    if number >= PREDICATE_BASE:
        return f"P{number - PREDICATE_BASE}"
    if number >= UNIFORM_REGISTER_BASE:
        return f"UR{number - UNIFORM_REGISTER_BASE}"
    return f"R{number}"


def find_register_unit(register: Register) -> int:
    """Return the unit of one register, -1 for RZ and URZ, which hold nothing."""
    return (_find_register_units(register, 1) or (-1,))[0]


def find_predicate_unit(predicate: Predicate) -> int:
    """Return the unit of a predicate, -1 for PT and UPT."""
    return (_find_predicate_units(predicate) or (-1,))[0]


def find_defs_and_uses(
    opcode: Opcode, guard: Predicate | None, operands: tuple[Operand, ...]
) -> tuple[RegisterUnits, RegisterUnits]:
    """Return (written units, read units) of one instruction; the guard is read."""
    layout = _make_operand_layout(opcode, tuple(map(type, operands)))
    written: RegisterUnits = ()
    read: RegisterUnits = () if guard is None else _find_predicate_units(guard)
    for position, (operand, width) in enumerate(zip(operands, layout.widths, strict=True)):
        if isinstance(operand, PredicateFileOperand):
            found = _find_masked_predicates(operand, operands)
        elif isinstance(operand, Address) and position >= layout.n_defs:
            found = find_address_units(opcode, position, operand)
        else:
            found = _find_operand_units(operand, width)
        if position < layout.n_defs:
            written += found
        if position >= layout.n_defs or (position == 0 and layout.is_first_read):
            read += found
    if opcode.semantics is Semantics.BARRIER_REDUCTION:
        written += (BARRIER_RESULT_WORD, BARRIER_RESULT_PREDICATE)
    if opcode.semantics is Semantics.BARRIER_RESULT:
        read += tuple(
            BARRIER_RESULT_WORD if unit < PREDICATE_BASE else BARRIER_RESULT_PREDICATE for unit in written
        )
    return written, read


class _OperandLayout(Struct, frozen=True):
    """Roles of an opcode's operands, given their types."""

    n_defs: int  # leading operands that are written
    widths: tuple[int, ...]  # 32-bit registers of each operand, as if it were a register
    is_first_read: bool  # the first operand is read as well


@cache
def _make_operand_layout(opcode: Opcode, kinds: _OperandTypes) -> _OperandLayout:
    n_written = _count_defs(opcode.destination_pattern, kinds)
    widths = _find_register_widths(opcode, kinds, n_written)
    return _OperandLayout(n_written, tuple(widths), opcode.destination_pattern.startswith("m"))


def is_zero_fill(operands: tuple[Operand, ...]) -> bool:
    """Return whether a copy to shared memory reads nothing: `LDGSTS [R1], [R2.64], !PT` writes zeros."""
    last = operands[-1] if operands else None
    return isinstance(last, Predicate) and last.index is None and last.is_negated


def is_partial_predicate_write(operands: tuple[Operand, ...]) -> bool:
    """Return whether some of the predicates among the defs of an instruction may keep their values.

    That is so where it writes the predicate file through a mask that is not known.
    """
    return _find_predicate_mask(operands) is None and any(
        isinstance(o, PredicateFileOperand) for o in operands
    )


def _find_predicate_mask(operands: tuple[Operand, ...]) -> int | None:
    """Return the mask that P2R and R2P end with, None if it is no immediate."""
    match operands:
        case (*_, Immediate(value=int() as mask)):
            return mask
        case _:
            return None


def _find_masked_predicates(predicates: PredicateFileOperand, operands: tuple[Operand, ...]) -> RegisterUnits:
    """Return the units of the predicates that the mask selects, all of the file if it is not known."""
    mask = _find_predicate_mask(operands)
    base = PREDICATE_BASE if predicates.file is PredicateFile.GENERAL else UNIFORM_PREDICATE_BASE
    return tuple(base + bit for bit in range(_N_PREDICATES) if mask is None or mask >> bit & 1)


def find_address_units(opcode: Opcode, position: int, address: Address) -> RegisterUnits:
    """Return the units of the registers that the address at operand `position` is the sum of."""
    wide = is_64bit_address(opcode, position)
    return tuple(
        number
        for base in address.bases
        for number in _find_register_units(base, 2 if is_register_pair(base, wide) else 1)
    )


def find_constant_index(opcode: Opcode, operands: tuple[Operand, ...]) -> ConstantBankOperand | None:
    """Return the operand of a constant load whose lanes may read different words, None elsewhere."""
    if opcode.space is not AddressSpace.CONSTANT:
        return None
    for operand in operands:
        match operand:
            case ConstantBankOperand(base=Register(file=RegisterFile.GENERAL, index=int())):
                return operand
            case _:
                pass
    return None


def is_64bit_address(opcode: Opcode, position: int) -> bool:
    """Return whether the address at operand `position` has 64 bits, as `.E` says.

    LDGSTS has its shared-memory address first, which is never wide.
    """
    if opcode.kind is OpKind.ASYNC_COPY and position == 0:
        return False
    return opcode.space in GLOBAL_SPACES and "E" in opcode.modifiers


def is_register_pair(base: Register, wide: bool) -> bool:
    """Return whether a base of an address is a pair of registers.

    That is `R2.64`, and in a 64-bit address all but `R2.U32`: Volta and Turing print no `.64`.
    """
    return "64" in base.suffixes or (wide and "U32" not in base.suffixes)


@cache
def _parse_destination_pattern(writes: str) -> tuple[tuple[str, bool], ...]:
    """Return `rp?p?` as (("r", False), ("p", True), ("p", True)): role, and whether it may be missing."""
    return tuple((letter, mark == "?") for letter, mark in re.findall(r"([rpm])(\??)", writes))


def _count_defs(writes: str, kinds: _OperandTypes) -> int:
    """Return how many leading operands fit the pattern of written operands."""
    position = 0
    for letter, optional in _parse_destination_pattern(writes):
        if position >= len(kinds):
            break
        types = (Register,) if letter == "r" else _PREDICATE_TYPES
        if kinds[position] in types:
            position += 1
        elif not optional:
            break
    return position


def _find_register_widths(opcode: Opcode, kinds: _OperandTypes, n_written: int) -> list[int]:
    """Return the 32-bit registers of each operand, as if it were a register."""
    if opcode.mma_shape is not None:
        return _find_mma_register_widths(opcode.mma_shape, opcode.name, kinds)
    if opcode.kind in MEMORY_KINDS and opcode.width_bytes:
        # A 256-bit access has two groups of registers; a store's data are what it reads.
        data = kinds if opcode.kind is OpKind.STORE else kinds[:n_written]
        n_data = max(1, data.count(Register))
        return [max(1, opcode.width_bytes // (4 * n_data))] * len(kinds)
    if not opcode.registers_by_operand:
        return [opcode.operand_registers] * len(kinds)
    widths = iter(opcode.registers_by_operand)
    return [1 if kind in _PREDICATE_TYPES else next(widths, opcode.operand_registers) for kind in kinds]


def _find_mma_register_widths(shape: MmaShape, name: str, kinds: _OperandTypes) -> list[int]:
    """Return the registers of each fragment: its bits over those of one register of all lanes."""
    bits_of = load_mma_table().bits
    family = load_mma_table().families[name]
    input_bits = next(
        (bits_of[t] for t, rate in load_mma_table().rates.items() if rate is shape.tensor_rate),
        bits_of[family.default_input],
    )
    if family.in_bytes:
        input_bits = 8

    def registers(elements: int, bits: int) -> int:
        return max(1, elements * bits // (WARP_SIZE * _REGISTER_BITS * shape.n_warps))

    result = registers(shape.m * shape.n, shape.accumulator_bits)
    a = registers(shape.m * shape.k // (2 if shape.is_sparse else 1), input_bits)
    b = registers(shape.n * shape.k, input_bits)
    data_widths = iter((result, a, b, result, 1, 1))
    widths = []
    for position, kind in enumerate(kinds):
        if kind in _PREDICATE_TYPES:
            widths.append(1)
        elif position > 1 and kinds[position - 1] is DescriptorOperand and shape.n_warps > 1:
            widths.append(result)
        else:
            widths.append(next(data_widths, 1))
    return widths


@lru_cache(maxsize=1 << 14)
def _find_operand_units(operand: Operand, width: int) -> RegisterUnits:
    match operand:
        case Register(suffixes=suffixes):
            # A packed instruction may take one plain float: FFMA2 R4, R6.F32x2.HI_LO, R8.F32, ...
            return _find_register_units(operand, 1 if "F32" in suffixes else width)
        case Predicate():
            return _find_predicate_units(operand)
        case ConstantBankOperand(base=base):
            return () if base is None else _find_register_units(base, 1)
        case Address(bases=bases):
            return tuple(number for base in bases for number in _find_register_units(base, 1))
        case DescriptorOperand(kind=kind, descriptor=descriptor, address=address):
            words = 2 if kind in {"desc", "gdesc"} else 1
            inner = tuple(n for base in descriptor.bases for n in _find_register_units(base, words))
            return inner if address is None else inner + _find_pair_units(address)
        case _:
            return ()


def _find_pair_units(address: Address) -> RegisterUnits:
    return tuple(
        n
        for base in address.bases
        for n in _find_register_units(base, 2 if is_register_pair(base, False) else 1)
    )


def _find_register_units(register: Register, width: int) -> RegisterUnits:
    if register.index is None:
        return ()
    if register.file is RegisterFile.UNIFORM:
        first, limit = UNIFORM_REGISTER_BASE + register.index, BARRIER_RESULT_WORD
    else:
        first, limit = register.index, UNIFORM_REGISTER_BASE
    if width <= 1 and first < limit:
        return (first,)
    return tuple(range(first, min(first + max(width, 1), limit)))


def _find_predicate_units(predicate: Predicate) -> RegisterUnits:
    if predicate.index is None or predicate.index >= _N_PREDICATES:
        return ()
    general = predicate.file is PredicateFile.GENERAL
    return ((PREDICATE_BASE if general else UNIFORM_PREDICATE_BASE) + predicate.index,)
