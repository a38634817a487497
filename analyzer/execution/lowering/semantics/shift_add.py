"""Shift and add: LEA, ULEA, ISCADD."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    WORD_BITS,
    Addend,
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    compute_carry,
    make_step,
)
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm

_DISCARDED = -1
_CARRY = np.uint64(1 << WORD_BITS)


def compile_shift_add(form: InstructionForm) -> Step:
    """Compile LEA: (a << shift) + b.

    `.HI` adds the upper word of the shifted pair (c, a); with `.SX32` the pair is a, sign-extended.
    """
    parser = OperandParser(form)
    is_high, is_extended, is_signed = (
        parser.take_modifier("HI"),
        parser.take_modifier("X"),
        parser.take_modifier("SX32"),
    )
    result = parser.take_result()
    carry_out = (*parser.take_result_predicates(1), _DISCARDED)[0]
    is_subtracted = False
    if is_high or carry_out == _DISCARDED:
        a = parser.take_plain_word() if is_high else parser.take_word()
    else:
        shifted = parser.take_addend()
        a, is_subtracted = shifted.source, shifted.is_negated
    b = parser.take_addend()
    c = parser.take_plain_word() if is_high and not is_signed else None
    shift = parser.take_immediate(WORD_BITS - 1)
    carry_in = parser.take_predicate() if is_extended else None
    parser.expect_end()
    if (is_extended or is_signed) and not is_high:
        raise UnsupportedInstructionError
    if b.is_negated and (is_extended or is_subtracted):
        raise UnsupportedInstructionError
    writes = (result, carry_out)
    if is_subtracted:
        return _compile_difference(a, b.source, shift, writes)
    if not is_high:
        return _compile_low(a, b, shift, writes)
    return _compile_high(a, b, c, carry_in, shift, writes)


def compile_scaled_add(form: InstructionForm) -> Step:
    """Compile ISCADD: (a << shift) + b."""
    parser = OperandParser(form)
    result, a, b = parser.take_result(), parser.take_word(), parser.take_addend()
    shift = parser.take_immediate(WORD_BITS - 1)
    parser.expect_end()
    return _compile_low(a, b, shift, (result, _DISCARDED))


def _compile_low(a: SourceOperand, b: Addend, shift: int, writes: tuple[int, int]) -> Step:
    """Compile the low word of (a << shift) + b and its carry."""
    amount, negated = np.uint32(shift), b.is_negated

    def add(x: Value, y: Value) -> tuple[Value, ...]:
        return ((x << amount) - y if negated else (x << amount) + y,)

    def add_with_carry(x: Value, y: Value) -> tuple[Value, ...]:
        shifted = x << amount
        if negated:  # 2^32 - y + shifted >= 2^32 if shifted >= y
            return shifted - y, shifted >= y
        total = shifted + y
        return total, compute_carry(total, shifted, y)

    def carries(x: Value, y: Value) -> tuple[Value, ...]:
        """Return the multiples of 2^32 in the sum and in the shifted word; their difference is the carry."""
        whole = x.astype(np.uint64) << np.uint64(shift)
        whole = whole + _CARRY - y if negated else whole + y
        return whole >> np.uint64(WORD_BITS), x.astype(np.uint64) >> np.uint64(WORD_BITS - shift)

    if writes[1] == _DISCARDED:
        if b.source.is_zero:
            return make_step(lambda x: (x << amount,), [a], writes[:1], AffineRule.LINEAR)
        return make_step(add, [a, b.source], writes[:1], AffineRule.LINEAR)
    return make_step(
        add_with_carry,
        [a, b.source],
        writes,
        AffineRule.PIECEWISE_LINEAR,
        compute_invariants=carries,
        is_upper_word=True,
    )


def _compile_difference(a: SourceOperand, b: SourceOperand, shift: int, writes: tuple[int, int]) -> Step:
    """Compile b - (a << shift) and its carry, which is true if nothing is borrowed.

    Compilers add this carry to the complement of the shifted pair's upper word.
    """
    amount = np.uint32(shift)

    def apply(x: Value, y: Value) -> tuple[Value, ...]:
        shifted = x << amount
        return y - shifted, y >= shifted

    def carries(x: Value, y: Value) -> tuple[Value, ...]:
        """Return the multiples of 2^32 in 2^32 + y - shifted and in the shifted word."""
        whole = y.astype(np.uint64) + _CARRY - (x.astype(np.uint64) << np.uint64(shift))
        return (whole >> np.uint64(WORD_BITS)).astype(np.uint32), x.astype(np.uint64) >> np.uint64(
            WORD_BITS - shift
        )

    return make_step(
        apply, [a, b], writes, AffineRule.PIECEWISE_LINEAR, compute_invariants=carries, is_upper_word=True
    )


def _compile_high(
    a: SourceOperand,
    b: Addend,
    c: SourceOperand | None,
    carry_in: SourceOperand | None,
    shift: int,
    writes: tuple[int, int],
) -> Step:
    """Compile b plus the upper word of a shifted pair (c, a); without c, of a sign-extended."""
    sources = [a, b.source, *([] if c is None or c.is_zero else [c])]
    has_upper, negated, has_carry = len(sources) == 3, b.is_negated, carry_in is not None
    if carry_in is not None:
        sources.append(carry_in)
    from_low = make_shift_overflow(shift, is_signed=c is None)

    def upper(x: Value, *others: Value) -> Value:
        return from_low(x) | others[0] << np.uint32(shift) if has_upper else from_low(x)

    def apply(x: Value, y: Value, *others: Value) -> tuple[Value, ...]:
        total = upper(x, *others) - y if negated else upper(x, *others) + y
        return (total + others[-1] if has_carry else total,)

    def apply_with_carry(x: Value, y: Value, *others: Value) -> tuple[Value, ...]:
        addend = _CARRY - y.astype(np.uint64) if negated else y
        total = upper(x, *others).astype(np.uint64) + addend
        total = total + others[-1] if has_carry else total
        return total.astype(np.uint32), total >= _CARRY

    def compute_invariants(x: Value, *others: Value) -> tuple[Value, ...]:
        # While these are constant, the result is b plus a shifted c plus a constant.
        return (from_low(x),)

    if writes[1] == _DISCARDED:
        return make_step(
            apply,
            sources,
            writes[:1],
            AffineRule.PIECEWISE_LINEAR,
            compute_invariants=compute_invariants,
            is_upper_word=has_carry,
        )
    if has_upper:  # the shifted c may wrap where c does not, so the carry is not monotone
        return make_step(apply_with_carry, sources, writes)
    return make_step(
        apply_with_carry, sources, writes, AffineRule.PIECEWISE_LINEAR, compute_invariants=compute_invariants
    )


def make_shift_overflow(shift: int, *, is_signed: bool) -> Callable[[Value], Value]:
    """Make the function of the low word that gives the bits a left shift moves into the upper word."""
    if is_signed:
        down = np.int32(min(WORD_BITS - shift, WORD_BITS - 1))
        return lambda x: (x.view(np.int32) >> down).view(np.uint32)
    if shift == 0:
        return lambda x: x & np.uint32(0)
    return lambda x: x >> np.uint32(WORD_BITS - shift)
