"""Which scalar registers an instruction writes and reads, from the opcode's row and its operands.

A storage number names one 32-bit register or one predicate: R0..R254 are 0..254, UR0..UR126 follow
at `UNIFORM_BASE`, predicates at `PREDICATE_BASE`, uniform predicates at `UNIFORM_PREDICATE_BASE`.
"""

import re
from functools import cache, lru_cache

from msgspec import Struct

from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import GLOBAL_SPACES, MEMORY_KINDS, MmaShape, Opcode, OpKind
from analyzer.ir.operand import (
    Address,
    Constant,
    Described,
    Immediate,
    Operand,
    Predicate,
    PredicateFile,
    PredicateSet,
    Register,
    RegisterFile,
)
from analyzer.isa.mma import mma_table

UNIFORM_BASE = 256
PREDICATE_BASE = 384  # 127 uniform registers from sm_100 on
UNIFORM_PREDICATE_BASE = 392
STORAGE_SIZE = 400
_PREDICATES = 7
_REGISTER_BITS = 32

Storage = tuple[int, ...]
_Kinds = tuple[type[Operand], ...]  # of an instruction's operands
_PREDICATE_KINDS = (Predicate, PredicateSet)


def storage_name(number: int) -> str:
    """`R5`, `UR4`, `P0`, `UP1` for a storage number."""
    if number >= UNIFORM_PREDICATE_BASE:
        return f"UP{number - UNIFORM_PREDICATE_BASE}"
    if number >= PREDICATE_BASE:
        return f"P{number - PREDICATE_BASE}"
    if number >= UNIFORM_BASE:
        return f"UR{number - UNIFORM_BASE}"
    return f"R{number}"


def register_storage(register: Register) -> int:
    """Storage number of one register; -1 for RZ and URZ, which hold nothing."""
    return (_register(register, 1) or (-1,))[0]


def predicate_storage(predicate: Predicate) -> int:
    """Storage number of a predicate; -1 for PT and UPT."""
    return (_predicate(predicate) or (-1,))[0]


def operand_roles(
    opcode: Opcode, guard: Predicate | None, operands: tuple[Operand, ...]
) -> tuple[Storage, Storage]:
    """(written, read) storage numbers of one instruction, guard included among the read."""
    plan = _plan(opcode, tuple(map(type, operands)))
    written: Storage = ()
    read: Storage = () if guard is None else _predicate(guard)
    for place, (operand, width) in enumerate(zip(operands, plan.widths, strict=True)):
        if isinstance(operand, PredicateSet):
            found = _named_predicates(operand, operands)
        elif isinstance(operand, Address) and place >= plan.n_written:
            found = address_storage(opcode, place, operand)
        else:
            found = _storage(operand, width)
        if place < plan.n_written:
            written += found
        if place >= plan.n_written or (place == 0 and plan.adds):
            read += found
    return written, read


class _Plan(Struct, frozen=True):
    """What operands of these kinds are to an opcode: so many are written; widths in 32-bit registers, as if
    each were a register; adds: the first one is read as well.
    """

    n_written: int
    widths: tuple[int, ...]
    adds: bool


@cache
def _plan(opcode: Opcode, kinds: _Kinds) -> _Plan:
    n_written = _count_written(opcode.writes, kinds)
    widths = _register_widths(opcode, kinds, n_written)
    return _Plan(n_written, tuple(widths), opcode.writes.startswith("m"))


def may_write_fewer(operands: tuple[Operand, ...]) -> bool:
    """Whether an instruction may leave as they were some predicates that `operand_roles` says it writes."""
    return _predicate_mask(operands) is None and any(isinstance(o, PredicateSet) for o in operands)


def _predicate_mask(operands: tuple[Operand, ...]) -> int | None:
    """The mask that P2R and R2P end with, where it is told."""
    match operands:
        case (*_, Immediate(value=int() as mask)):
            return mask
        case _:
            return None


def _named_predicates(predicates: PredicateSet, operands: tuple[Operand, ...]) -> Storage:
    """Of the whole file those that the mask names."""
    mask = _predicate_mask(operands)
    base = PREDICATE_BASE if predicates.file is PredicateFile.GENERAL else UNIFORM_PREDICATE_BASE
    return tuple(base + place for place in range(_PREDICATES) if mask is None or mask >> place & 1)


def address_storage(opcode: Opcode, place: int, address: Address) -> Storage:
    """Storage numbers that the address at operand `place` is summed from."""
    wide = is_wide_address(opcode, place)
    return tuple(
        number for base in address.bases for number in _register(base, 2 if is_pair(base, wide) else 1)
    )


def is_wide_address(opcode: Opcode, place: int) -> bool:
    """64-bit address: `.E` says so; LDGSTS names its shared side first, which is never wide."""
    if opcode.kind is OpKind.ASYNC_COPY and place == 0:
        return False
    return opcode.space in GLOBAL_SPACES and "E" in opcode.modifiers


def is_pair(base: Register, wide: bool) -> bool:
    """`R2.64`, and in a wide address all but `R2.U32`: Volta and Turing print no `.64`."""
    return "64" in base.suffixes or (wide and "U32" not in base.suffixes)


@cache
def _pattern(writes: str) -> tuple[tuple[str, bool], ...]:
    """`rp?p?` as ((r, needed), (p, optional), (p, optional))."""
    return tuple((letter, mark == "?") for letter, mark in re.findall(r"([rpm])(\??)", writes))


def _count_written(writes: str, kinds: _Kinds) -> int:
    place = 0
    for letter, optional in _pattern(writes):
        if place >= len(kinds):
            break
        wanted = (Register,) if letter == "r" else _PREDICATE_KINDS
        if kinds[place] in wanted:
            place += 1
        elif not optional:
            break
    return place


def _register_widths(opcode: Opcode, kinds: _Kinds, n_written: int) -> list[int]:
    """32-bit registers of each operand, as if it were a register."""
    if opcode.mma is not None:
        return _mma_widths(opcode.mma, opcode.name, kinds)
    if opcode.kind in MEMORY_KINDS and opcode.width_bytes:
        # A 256-bit access has two groups of registers; a store's data are what it reads.
        data = kinds if opcode.kind is OpKind.STORE else kinds[:n_written]
        n_data = max(1, data.count(Register))
        return [max(1, opcode.width_bytes // (4 * n_data))] * len(kinds)
    if not opcode.widths:
        return [opcode.width] * len(kinds)
    widths = iter(opcode.widths)
    return [1 if kind in _PREDICATE_KINDS else next(widths, opcode.width) for kind in kinds]


def _mma_widths(shape: MmaShape, name: str, kinds: _Kinds) -> list[int]:
    """Fragment sizes of D, A, B, C in registers: elements x bits over the lanes that hold them."""
    bits_of = mma_table().bits
    family = mma_table().families[name]
    input_bits = next(
        (bits_of[t] for t, rate in mma_table().rates.items() if rate is shape.rate),
        bits_of[family.default_input],
    )

    def registers(elements: int, bits: int) -> int:
        return max(1, elements * bits // (WARP_LANES * _REGISTER_BITS * shape.warps))

    result = registers(shape.m * shape.n, shape.accumulator_bits)
    a = registers(shape.m * shape.k // (2 if shape.sparse else 1), input_bits)
    b = registers(shape.n * shape.k, input_bits)
    places = iter((result, a, b, result, 1, 1))
    widths = []
    for place, kind in enumerate(kinds):
        if kind in _PREDICATE_KINDS:
            widths.append(1)
        elif place > 1 and kinds[place - 1] is Described and shape.warps > 1:
            widths.append(result)
        else:
            widths.append(next(places, 1))
    return widths


@lru_cache(maxsize=1 << 14)
def _storage(operand: Operand, width: int) -> Storage:
    match operand:
        case Register(suffixes=suffixes):
            # A packed instruction may take one plain float: FFMA2 R4, R6.F32x2.HI_LO, R8.F32, ...
            return _register(operand, 1 if "F32" in suffixes else width)
        case Predicate():
            return _predicate(operand)
        case Constant(base=base):
            return () if base is None else _register(base, 1)
        case Address(bases=bases):
            return tuple(number for base in bases for number in _register(base, 1))
        case Described(kind=kind, descriptor=descriptor, address=address):
            words = 2 if kind in {"desc", "gdesc"} else 1
            inner = tuple(n for base in descriptor.bases for n in _register(base, words))
            return inner if address is None else inner + _pairs(address)
        case _:
            return ()


def _pairs(address: Address) -> Storage:
    return tuple(n for base in address.bases for n in _register(base, 2 if is_pair(base, False) else 1))


def _register(register: Register, width: int) -> Storage:
    if register.index is None:
        return ()
    if register.file is RegisterFile.UNIFORM:
        first, limit = UNIFORM_BASE + register.index, PREDICATE_BASE
    else:
        first, limit = register.index, UNIFORM_BASE
    if width <= 1 and first < limit:
        return (first,)
    return tuple(range(first, min(first + max(width, 1), limit)))


def _predicate(predicate: Predicate) -> Storage:
    if predicate.index is None or predicate.index >= _PREDICATES:
        return ()
    general = predicate.file is PredicateFile.GENERAL
    return ((PREDICATE_BASE if general else UNIFORM_PREDICATE_BASE) + predicate.index,)
