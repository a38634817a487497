"""Constant propagation on demand: the integer that a register holds at one point, if it is a constant.

The search goes backwards from the point to the last instruction that writes the register, through blocks with
a single predecessor only, and evaluates that instruction from its own operands in the same way.

Example: after `MOV R2, 0x10` and `IADD3 R3, R2, 0x4, RZ`, R3 is 0x14.
"""

import struct

from analyzer.flow.cfg import Cfg
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import OpKind, Semantics
from analyzer.ir.operand import Immediate, Operand, Register
from analyzer.isa.register_operands import find_register_unit

_MAX_LOOKBACK_INSTRUCTIONS = 2000
_MAX_RECURSION_DEPTH = 6
_WORD_MASK = 0xFFFFFFFF


def find_constant_before(cfg: Cfg, block: int, row: int, operand: Operand, depth: int = 0) -> int | None:
    """Return the value of an operand just before instruction `row` of `block`, as an unsigned 32-bit number.

    None if the value is not found to be a constant.
    """
    match operand:
        case Immediate(value=int(value)):
            return value & _WORD_MASK
        case Register(index=None, is_negated=False, is_inverted=False):
            return 0
        case Register() if depth < _MAX_RECURSION_DEPTH:
            register_value = _find_register_before(cfg, block, row, operand, depth)
            if register_value is None:
                return None
            register_value = ~register_value if operand.is_inverted else register_value
            return (-register_value if operand.is_negated else register_value) & _WORD_MASK
        case _:
            return None


def _find_register_before(cfg: Cfg, block: int, row: int, register: Register, depth: int) -> int | None:
    """Search backwards for the last write of a register and evaluate it."""
    plain = Register(register.file, register.index)
    seen: set[int] = set()
    for _ in range(_MAX_LOOKBACK_INSTRUCTIONS):
        row -= 1
        while row < cfg.blocks[block].start:
            before = cfg.predecessors[block]
            if len(before) != 1 or before[0] in seen:
                return None
            seen.add(block)
            block = before[0]
            row = cfg.blocks[block].stop - 1
        form = cfg.kernel.decode_form(row)
        if form.opcode.kind is OpKind.CALL:  # the callee may write anything
            return None
        if writes_register(form, plain):
            return _evaluate_instruction(cfg, block, row, form, plain, depth)
    return None


def writes_register(form: InstructionForm, register: Register) -> bool:
    """Return whether the instruction writes this register, alone or as part of a wider result."""
    return find_register_unit(register) in form.defs


def _evaluate_instruction(
    cfg: Cfg, block: int, row: int, form: InstructionForm, register: Register, depth: int
) -> int | None:
    """Return the constant that an instruction writes to a register; None if it is not constant."""
    if not form.is_unconditional:
        return None
    sources = [o for o in form.operands[1:] if isinstance(o, Register | Immediate)]
    if len(sources) != len([o for o in form.operands[1:] if not _is_constant_predicate(o)]):
        return _evaluate_zero_register(form)

    def value(operand: Operand) -> int | None:
        return find_constant_before(cfg, block, row, operand, depth + 1)

    match form.opcode.semantics:
        case Semantics.MOVE if _is_register(form.operands[0], register) and sources:
            return value(sources[0])
        case Semantics.INT_ADD if _is_low_result(form, register):
            terms = [value(source) for source in sources]
            return None if None in terms else sum(t for t in terms if t is not None) & _WORD_MASK
        case Semantics.INT_MAD if _is_low_result(form, register) and len(sources) == 3:
            a, b, c = (value(source) for source in sources)
            if c is not None and (a == 0 or b == 0):
                return c
            return None if a is None or b is None or c is None else (a * b + c) & _WORD_MASK
        case Semantics.HALF_FMA if _HALF_CONSTANT_MODIFIERS.issuperset(form.opcode.modifiers):
            return _pack_half_constants(sources)
        case _:
            return _evaluate_zero_register(form)


def _evaluate_zero_register(form: InstructionForm) -> int | None:
    """Return 0 for `CS2R R4, SRZ`, which clears a pair."""
    is_zero = form.opcode.semantics is Semantics.SPECIAL_MOVE and str(form.operands[-1]) == "SRZ"
    return 0 if is_zero else None


def _pack_half_constants(sources: list[Register | Immediate]) -> int | None:
    """Return the bits of two half floats that `HFMA2 R5, -RZ, RZ, a, b` loads, `b` in the low half."""
    if len(sources) != 4:
        return None
    match sources:
        case [Register(index=None), Register(index=None), Immediate(value=high), Immediate(value=low)]:
            try:
                high_bits, low_bits = (
                    struct.unpack("<H", struct.pack("<e", float(v)))[0] for v in (high, low)
                )
            except OverflowError:
                return None
            return int(high_bits) << 16 | int(low_bits)
        case _:
            return None


_HALF_CONSTANT_MODIFIERS = frozenset({"MMA"})  # others, such as BF16_V2, have other bits


def _is_low_result(form: InstructionForm, register: Register) -> bool:
    """Return whether the register is the low word of the result, without carry-in or shifted operand."""
    plain = {"X", "HI", "64", "WIDE", "SHL"}
    return _is_register(form.operands[0], register) and plain.isdisjoint(form.opcode.modifiers)


def _is_register(operand: Operand, register: Register) -> bool:
    return isinstance(operand, Register) and (operand.file, operand.index) == (
        register.file,
        register.index,
    )


def _is_constant_predicate(operand: Operand) -> bool:
    return not isinstance(operand, Register | Immediate) and str(operand) in _CONSTANT_PREDICATES


_CONSTANT_PREDICATES = frozenset({"PT", "!PT", "UPT", "!UPT"})
