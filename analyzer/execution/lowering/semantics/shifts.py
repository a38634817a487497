"""Shifts: funnel shift of a pair of words (SHF), shifts of one word (SHL, SHR)."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    WORD_BITS,
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    join_pair,
    make_step,
    make_word_literal,
)
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm

_TYPES = {"U32": (False, 32), "S32": (True, 32), "U64": (False, 64), "S64": (True, 64)}
_IS_LEFT = {"L": True, "R": False}


def compile_funnel_shift(form: InstructionForm) -> Step:
    """Compile SHF: one word of the shifted pair (c, a), where a is the low word.

    `.HI` selects the upper word, else the lower. The shift amount is clamped to the width of the type, or
    taken modulo the width by .W.
    """
    parser = OperandParser(form)
    is_left = parser.take_choice(_IS_LEFT)
    is_signed, n_bits = parser.take_choice(_TYPES)
    wraps, takes_upper = parser.take_modifier("W"), parser.take_modifier("HI")
    result = parser.take_result()
    low, amount, high = (parser.take_plain_word() for _ in range(3))
    parser.expect_end()
    if is_left and not takes_upper and n_bits == 64:  # sm_5x and sm_6x print .L.U64 of the upper word
        raise UnsupportedInstructionError
    shift = _limit_shift(amount, n_bits, wraps=wraps)
    if is_left:
        return (
            _compile_left_upper(low, shift, high, result)
            if takes_upper
            else _compile_left(low, shift, result)
        )
    if takes_upper:
        return _compile_right(high, shift, result, is_signed=is_signed)
    return _compile_right_lower(low, shift, high, result, is_signed=is_signed)


def compile_shift_left(form: InstructionForm) -> Step:
    """Compile SHL."""
    parser = OperandParser(form)
    wraps = parser.take_modifier("W")
    result, number, amount = parser.take_result(), parser.take_plain_word(), parser.take_plain_word()
    parser.expect_end()
    return _compile_left(number, _limit_shift(amount, WORD_BITS, wraps=wraps), result)


def compile_shift_right(form: InstructionForm) -> Step:
    """Compile SHR, signed unless `.U32`."""
    parser = OperandParser(form)
    is_signed = not parser.take_modifier("U32")
    wraps = parser.take_modifier("W")
    result, number, amount = parser.take_result(), parser.take_plain_word(), parser.take_plain_word()
    parser.expect_end()
    return _compile_right(number, _limit_shift(amount, WORD_BITS, wraps=wraps), result, is_signed=is_signed)


def _limit_shift(amount: SourceOperand, n_bits: int, *, wraps: bool) -> SourceOperand:
    """Return the shift amount, clamped to the width or modulo the width."""
    if amount.literal is not None:
        return make_word_literal(amount.literal % n_bits if wraps else min(amount.literal, n_bits))
    if wraps:
        return amount.map_value(lambda value: value & np.uint32(n_bits - 1))
    return amount.map_value(lambda value: np.minimum(value, np.uint32(n_bits)))


def _compile_left(number: SourceOperand, shift: SourceOperand, result: int) -> Step:
    """Compile the lower word of a left shift, which depends on the low word only."""
    if shift.literal is None:
        return make_step(
            lambda x, s: ((x.astype(np.uint64) << np.minimum(s, np.uint32(WORD_BITS))).astype(np.uint32),),
            [number, shift],
            [result],
            AffineRule.PIECEWISE_LINEAR,
            compute_invariants=lambda x, s: (s,),
        )
    if shift.literal >= WORD_BITS:
        return _compile_constant(0, result)
    amount = np.uint32(shift.literal)
    function = (lambda x: (x << amount,)) if shift.literal else (lambda x: (x,))
    return make_step(function, [number], [result], AffineRule.LINEAR)


def _compile_constant(number: int, result: int) -> Step:
    return make_step(lambda x: (x,), [make_word_literal(number)], [result], AffineRule.LINEAR)


def _compile_left_upper(low: SourceOperand, shift: SourceOperand, high: SourceOperand, result: int) -> Step:
    """Compile the upper word of a left shift of the pair."""
    if shift.literal is None:
        return make_step(_shift_left_upper, [low, shift, high], [result])
    count = shift.literal
    if count >= WORD_BITS:
        return _compile_left(low, make_word_literal(count - WORD_BITS), result)
    if count == 0:
        return make_step(lambda y: (y,), [high], [result], AffineRule.LINEAR)
    up, down = np.uint32(count), np.uint32(WORD_BITS - count)
    if high.is_zero:
        return make_step(lambda x: (x >> down,), [low], [result], AffineRule.MONOTONE, is_upper_word=True)
    return make_step(
        lambda x, y: (x >> down | y << up,),
        [low, high],
        [result],
        AffineRule.PIECEWISE_LINEAR,
        compute_invariants=lambda x, y: (x >> down,),
        is_upper_word=True,
    )


def _shift_left_upper(x: Value, s: Value, y: Value) -> tuple[Value, ...]:
    pair, amount = join_pair(x, y), s.astype(np.uint64)
    # a shift by the whole width is undefined in numpy
    shifted = np.where(s < 64, pair << np.minimum(amount, np.uint64(63)), np.uint64(0))
    return ((shifted >> np.uint64(WORD_BITS)).astype(np.uint32),)


def _compile_right(number: SourceOperand, shift: SourceOperand, result: int, *, is_signed: bool) -> Step:
    """Compile the upper word of a right shift, which depends on the high word only."""
    most = np.uint32(WORD_BITS - 1)
    if shift.literal == 0:
        return make_step(lambda x: (x,), [number], [result], AffineRule.LINEAR)
    if is_signed:
        if shift.literal is not None:
            count = np.int32(min(shift.literal, WORD_BITS - 1))
            is_sign = count == WORD_BITS - 1
            return make_step(
                lambda x: ((x.view(np.int32) >> count).view(np.uint32),),
                [number],
                [result],
                AffineRule.MONOTONE,
                compute_invariants=(lambda x: (x.view(np.int32) < 0,)) if is_sign else None,
                is_upper_word=is_sign,
            )
        return make_step(
            lambda x, s: ((x.view(np.int32) >> np.minimum(s, most).view(np.int32)).view(np.uint32),),
            [number, shift],
            [result],
        )
    if shift.literal is None:
        return make_step(
            lambda x, s: ((x.astype(np.uint64) >> np.minimum(s, np.uint32(WORD_BITS))).astype(np.uint32),),
            [number, shift],
            [result],
        )
    if shift.literal >= WORD_BITS:
        return _compile_constant(0, result)
    amount = np.uint32(shift.literal)
    return make_step(lambda x: (x >> amount,), [number], [result], AffineRule.MONOTONE)


def _compile_right_lower(
    low: SourceOperand, shift: SourceOperand, high: SourceOperand, result: int, *, is_signed: bool
) -> Step:
    """Compile the lower word of a right shift of the pair."""
    count = shift.literal
    if count is None:
        return make_step(_make_right_lower(is_signed), [low, shift, high], [result])
    if count >= WORD_BITS:
        return _compile_right(high, make_word_literal(count - WORD_BITS), result, is_signed=is_signed)
    if count == 0 or high.is_zero:
        return _compile_right(low, shift, result, is_signed=False)
    up, down = np.uint32(WORD_BITS - count), np.uint32(count)
    return make_step(
        lambda x, y: (x >> down | y << up,),
        [low, high],
        [result],
        AffineRule.PIECEWISE_LINEAR,
        compute_invariants=lambda x, y: (x >> down,),
    )


def _make_right_lower(is_signed: bool) -> Callable[[Value, Value, Value], tuple[Value, ...]]:
    def signed(x: Value, s: Value, y: Value) -> tuple[Value, ...]:
        pair = join_pair(x, y).view(np.int64)
        return ((pair >> np.minimum(s, np.uint32(63)).astype(np.int64)).astype(np.uint32),)

    def unsigned(x: Value, s: Value, y: Value) -> tuple[Value, ...]:
        pair, amount = join_pair(x, y), s.astype(np.uint64)
        shifted = np.where(s < 64, pair >> np.minimum(amount, np.uint64(63)), np.uint64(0))
        return (shifted.astype(np.uint32),)

    return signed if is_signed else unsigned
