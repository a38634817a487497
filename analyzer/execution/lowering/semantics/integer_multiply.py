"""Integer multiplication: IMAD in all forms, UIMAD, IDP."""

import numpy as np

from analyzer.execution.lowering.semantics.integer_add import IntegerSum
from analyzer.execution.lowering.semantics.operand_parser import (
    FALSE_PREDICATE,
    WORD_BITS,
    Addend,
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    compute_carry,
    make_step,
    split_pair,
)
from analyzer.execution.lowering.semantics.shift_add import make_shift_overflow
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm

_DISCARDED = -1
_MIN_RECIPROCAL = 1 << 20  # smallest literal taken for the reciprocal of a division by a constant


def compile_multiply_add(form: InstructionForm) -> Step:
    """Compile IMAD: a * b + c, of which the low word, the high word (`.HI`) or both (`.WIDE`).

    The modifiers MOV, IADD and SHL name special uses and change nothing.
    """
    parser = OperandParser(form)
    for word in ("MOV", "IADD", "SHL"):
        parser.take_modifier(word)
    is_unsigned, is_extended = parser.take_modifier("U32"), parser.take_modifier("X")
    is_wide, is_high = parser.take_modifier("WIDE"), parser.take_modifier("HI")
    results = parser.take_results(2 if is_wide else 1)
    carry_out = (*parser.take_result_predicates(1), _DISCARDED)[0]
    if is_wide or is_high:
        a, b, c = parser.take_plain_word(), parser.take_plain_word(), parser.take_addend(wide=True)
    else:
        a, b, c = parser.take_word(), parser.take_word(), parser.take_addend()
    carry_in = parser.take_predicate() if is_extended else None
    parser.expect_end()
    if not is_wide and not is_high:
        if carry_out != _DISCARDED or (is_extended and c.is_negated):
            raise UnsupportedInstructionError
        return _compile_low_product(a, b, c, carry_in, results)
    if c.is_negated and (carry_out != _DISCARDED or carry_in is not None):
        raise UnsupportedInstructionError
    if carry_out != _DISCARDED and (carry_in is not None or not is_unsigned):
        raise UnsupportedInstructionError
    if is_high and carry_in is not None:
        raise UnsupportedInstructionError
    shift = _find_log2(b)
    halves = c.source.halves
    if is_wide and shift is not None and halves and len(form.operands) == 4 and not c.is_negated:
        return _compile_scaled_pair(a, shift, halves, results, is_signed=not is_unsigned)
    return _compile_wide_product(a, b, c, carry_in, (*results, carry_out), is_unsigned=is_unsigned)


def _compile_low_product(
    a: SourceOperand, b: SourceOperand, c: Addend, carry: SourceOperand | None, results: tuple[int, ...]
) -> Step:
    """Compile the low word of a * b + c, as a sum where a factor is 0 or 1."""
    carries = [] if carry is None else [carry]
    if a.literal is not None:
        a, b = b, a
    if a.is_zero or b.is_zero:
        total = IntegerSum([c], carries)
        return make_step(total.make_low_word(), total.sources, results, AffineRule.LINEAR)
    if b.literal == 1:
        total = IntegerSum([Addend(a, False), c], carries)
        return make_step(total.make_low_word(), total.sources, results, AffineRule.LINEAR)
    rest = IntegerSum([c], carries)
    rule, factors = (AffineRule.PRODUCT, ([a], [b])) if b.literal is None else (AffineRule.LINEAR, ([], []))
    if rest.sources[0].is_zero:
        return make_step(lambda x, y: (x * y,), [a, b], results, rule, factors=factors)
    add = rest.make_low_word()

    def apply(x: Value, y: Value, *others: Value) -> tuple[Value, ...]:
        return (x * y + add(*others)[0],)

    function = apply if len(rest.sources) > 1 or c.is_negated else _multiply_add
    return make_step(function, [a, b, *rest.sources], results, rule, factors=factors)


def _multiply_add(x: Value, y: Value, z: Value) -> tuple[Value, ...]:
    return (x * y + z,)


def _compile_wide_product(
    a: SourceOperand,
    b: SourceOperand,
    c: Addend,
    carry: SourceOperand | None,
    writes: tuple[int, ...],
    *,
    is_unsigned: bool,
) -> Step:
    """Compile a 64-bit product and sum.

    writes: results and carry, three of .WIDE and two of .HI
    """
    extend = _zero_extend if is_unsigned else _sign_extend
    wide_a, wide_b = a.map_value(extend), b.map_value(extend)
    has_sum = not c.source.is_zero
    sources = [wide_a, wide_b] + ([c.source] if has_sum else [])
    if carry is not None:
        sources.append(carry)
    is_wide = len(writes) == 3

    def total(x: Value, y: Value, *others: Value) -> Value:
        product = x * y
        if has_sum:
            product = product - others[0] if c.is_negated else product + others[0]
        return product if carry is None else product + others[-1]

    def with_carry(x: Value, y: Value, *others: Value) -> tuple[Value, ...]:
        number = total(x, y, *others)
        halves = split_pair(number) if is_wide else (_get_upper_word(number),)
        return (*halves, number < others[0] if has_sum else FALSE_PREDICATE)

    if writes[-1] != _DISCARDED:
        return make_step(with_carry, sources, writes)
    if not is_wide:
        # With a constant factor and no addend the upper word is monotone.
        is_monotone = not has_sum and b.literal is not None
        rule = AffineRule.MONOTONE if is_monotone else AffineRule.UNKNOWN
        return make_step(lambda *values: (_get_upper_word(total(*values)),), sources, writes[:1], rule)
    factors: tuple[list[SourceOperand], list[SourceOperand]] = (
        ([wide_a], [wide_b]) if a.literal is None and b.literal is None else ([], [])
    )
    divides = not has_sum and carry is None and _is_reciprocal(b)
    return make_step(
        lambda *values: split_pair(total(*values)),
        sources,
        writes[:2],
        AffineRule.PAIR_LINEAR,
        factors=factors,
        quotient_index=1 if divides else None,
    )


def _is_reciprocal(factor: SourceOperand) -> bool:
    """Return whether a literal is a reciprocal, not the stride of an array: large and odd."""
    literal = factor.literal or 0
    return bool(literal & 1) and literal >= _MIN_RECIPROCAL


def _get_upper_word(number: Value) -> Value:
    return (number >> np.uint64(WORD_BITS)).astype(np.uint32)


def _find_log2(factor: SourceOperand) -> int | None:
    """Return log2 of a literal that is a power of two below 2^31, else None."""
    number = factor.literal or 0
    return number.bit_length() - 1 if number.bit_count() == 1 and number < 1 << WORD_BITS - 1 else None


def _compile_scaled_pair(
    a: SourceOperand,
    shift: int,
    c: tuple[SourceOperand, SourceOperand],
    results: tuple[int, ...],
    *,
    is_signed: bool,
) -> Step:
    """Compile address + index * size by words, which is twice as fast as a 64-bit product."""
    amount, move_up = np.uint32(shift), make_shift_overflow(shift, is_signed=is_signed)

    def apply(x: Value, low: Value, high: Value) -> tuple[Value, ...]:
        scaled = x << amount
        total = scaled + low
        return total, move_up(x) + high + compute_carry(total, scaled, low)

    return make_step(apply, [a, *c], results, AffineRule.PAIR_LINEAR)


def _zero_extend(word: Value) -> Value:
    return word.astype(np.uint64)


def _sign_extend(word: Value) -> Value:
    return word.view(np.int32).astype(np.int64).view(np.uint64)


_BYTE_TYPES = {"S8": np.int8, "U8": np.uint8}


def compile_dot_product(form: InstructionForm) -> Step:
    """Compile IDP.4A: four products of bytes, added to a word."""
    match form.opcode.modifiers:
        case ("4A", left, right) if left in _BYTE_TYPES and right in _BYTE_TYPES:
            a_type, b_type = _BYTE_TYPES[left], _BYTE_TYPES[right]
        case _:
            raise UnsupportedInstructionError
    parser = OperandParser(form)
    for word in form.opcode.modifiers:
        parser.take_modifier(word)
    result, a, b, c = (
        parser.take_result(),
        parser.take_plain_word(),
        parser.take_plain_word(),
        parser.take_word(),
    )
    parser.expect_end()

    def apply(x: Value, y: Value, z: Value) -> tuple[Value, ...]:
        total = z
        for shift in range(0, WORD_BITS, 8):
            left = (x >> np.uint32(shift)).astype(a_type).astype(np.int32)
            right = (y >> np.uint32(shift)).astype(b_type).astype(np.int32)
            total = total + (left * right).view(np.uint32)
        return (total,)

    return make_step(apply, [a, b, c], [result])


def compile_divide(form: InstructionForm) -> Step:
    """Compile VIRTDIV: quotient (DIV) or remainder (REM) of 64-bit integers, rounded to zero.

    By zero the quotient is all ones and the remainder the dividend, as ptxas's routines give them.
    """
    parser = OperandParser(form)
    gives_rest = parser.take_choice({"REM": True, "DIV": False})
    is_signed = parser.take_choice({"S64": True, "U64": False})
    results = parser.take_results(2)
    a, b = parser.take_plain_pair(), parser.take_plain_pair()
    parser.expect_end()

    def apply(x: Value, y: Value) -> tuple[Value, ...]:
        is_negative = np.zeros((1, 1), dtype=np.bool_)
        flips = is_negative
        if is_signed:
            is_negative, flips = x.view(np.int64) < 0, y.view(np.int64) < 0
            x, y = np.where(is_negative, np.negative(x), x), np.where(flips, np.negative(y), y)
        is_zero = y == 0
        quotient = x // np.where(is_zero, np.uint64(1), y)
        rest = x - quotient * y
        if gives_rest:
            return split_pair(np.where(is_negative, np.negative(rest), rest))
        signed = np.where(is_negative ^ flips, np.negative(quotient), quotient)
        return split_pair(np.where(is_zero, np.uint64(0xFFFFFFFFFFFFFFFF), signed))

    return make_step(apply, [a, b], results)
