"""Shifts: SHF of a pair of words, SHL and SHR of one."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.semantics.operands import (
    WORD_BITS,
    NotUnderstoodError,
    Parts,
    Source,
    join_pair,
    make_step,
    word_literal,
)
from analyzer.execution.step import AffineRule, Step, Value
from analyzer.ir.program import InstructionForm

_TYPES = {"U32": (False, 32), "S32": (True, 32), "U64": (False, 64), "S64": (True, 64)}
_DIRECTIONS = {"L": True, "R": False}


def compile_funnel_shift(form: InstructionForm) -> Step:
    """SHF: one word of the pair (c, a) shifted; the amount is clamped to the type's width, or wrapped by .W.

    Words of the pair: a low, c high. `.HI` takes the upper word of the shifted pair, else the lower.
    """
    parts = Parts(form)
    is_left = parts.choose(_DIRECTIONS)
    is_signed, n_bits = parts.choose(_TYPES)
    wraps, takes_upper = parts.flag("W"), parts.flag("HI")
    result = parts.result()
    low, amount, high = (parts.plain_word() for _ in range(3))
    parts.finish()
    if is_left and not takes_upper and n_bits == 64:  # sm_5x and sm_6x print .L.U64 of the upper word
        raise NotUnderstoodError
    shift = _limited(amount, n_bits, wraps=wraps)
    if is_left:
        return _left_upper(low, shift, high, result) if takes_upper else _left(low, shift, result)
    if takes_upper:
        return _right(high, shift, result, is_signed=is_signed)
    return _right_lower(low, shift, high, result, is_signed=is_signed)


def compile_shift_left(form: InstructionForm) -> Step:
    """SHL."""
    parts = Parts(form)
    wraps = parts.flag("W")
    result, number, amount = parts.result(), parts.plain_word(), parts.plain_word()
    parts.finish()
    return _left(number, _limited(amount, WORD_BITS, wraps=wraps), result)


def compile_shift_right(form: InstructionForm) -> Step:
    """SHR, signed unless `.U32`."""
    parts = Parts(form)
    is_signed = not parts.flag("U32")
    wraps = parts.flag("W")
    result, number, amount = parts.result(), parts.plain_word(), parts.plain_word()
    parts.finish()
    return _right(number, _limited(amount, WORD_BITS, wraps=wraps), result, is_signed=is_signed)


def _limited(amount: Source, n_bits: int, *, wraps: bool) -> Source:
    """The shift amount, below or at the width."""
    if amount.literal is not None:
        return word_literal(amount.literal % n_bits if wraps else min(amount.literal, n_bits))
    if wraps:
        return amount.mapped(lambda value: value & np.uint32(n_bits - 1))
    return amount.mapped(lambda value: np.minimum(value, np.uint32(n_bits)))


def _left(number: Source, shift: Source, result: int) -> Step:
    """The lower word of a left shift is that of the low word alone."""
    if shift.literal is None:
        return make_step(
            lambda x, s: ((x.astype(np.uint64) << np.minimum(s, np.uint32(WORD_BITS))).astype(np.uint32),),
            [number, shift],
            [result],
            AffineRule.SELECT,
            watch=lambda x, s: (s,),
        )
    if shift.literal >= WORD_BITS:
        return _constant(0, result)
    amount = np.uint32(shift.literal)
    function = (lambda x: (x << amount,)) if shift.literal else (lambda x: (x,))
    return make_step(function, [number], [result], AffineRule.LINEAR)


def _constant(number: int, result: int) -> Step:
    return make_step(lambda x: (x,), [word_literal(number)], [result], AffineRule.LINEAR)


def _left_upper(low: Source, shift: Source, high: Source, result: int) -> Step:
    if shift.literal is None:
        return make_step(_left_upper_by, [low, shift, high], [result])
    count = shift.literal
    if count >= WORD_BITS:
        return _left(low, word_literal(count - WORD_BITS), result)
    if count == 0:
        return make_step(lambda y: (y,), [high], [result], AffineRule.LINEAR)
    up, down = np.uint32(count), np.uint32(WORD_BITS - count)
    if high.is_zero:
        return make_step(lambda x: (x >> down,), [low], [result], AffineRule.MONOTONE, is_upper=True)
    return make_step(
        lambda x, y: (x >> down | y << up,),
        [low, high],
        [result],
        AffineRule.SELECT,
        watch=lambda x, y: (x >> down,),
        is_upper=True,
    )


def _left_upper_by(x: Value, s: Value, y: Value) -> tuple[Value, ...]:
    pair, amount = join_pair(x, y), s.astype(np.uint64)
    # numpy leaves a shift by the whole width open
    shifted = np.where(s < 64, pair << np.minimum(amount, np.uint64(63)), np.uint64(0))
    return ((shifted >> np.uint64(WORD_BITS)).astype(np.uint32),)


def _right(number: Source, shift: Source, result: int, *, is_signed: bool) -> Step:
    """The upper word of a right shift is that of the high word alone."""
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
                watch=(lambda x: (x.view(np.int32) < 0,)) if is_sign else None,
                is_upper=is_sign,
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
        return _constant(0, result)
    amount = np.uint32(shift.literal)
    return make_step(lambda x: (x >> amount,), [number], [result], AffineRule.MONOTONE)


def _right_lower(low: Source, shift: Source, high: Source, result: int, *, is_signed: bool) -> Step:
    count = shift.literal
    if count is None:
        return make_step(_right_lower_by(is_signed), [low, shift, high], [result])
    if count >= WORD_BITS:
        return _right(high, word_literal(count - WORD_BITS), result, is_signed=is_signed)
    if count == 0 or high.is_zero:
        return _right(low, shift, result, is_signed=False)
    up, down = np.uint32(WORD_BITS - count), np.uint32(count)
    return make_step(
        lambda x, y: (x >> down | y << up,),
        [low, high],
        [result],
        AffineRule.SELECT,
        watch=lambda x, y: (x >> down,),
    )


def _right_lower_by(is_signed: bool) -> Callable[[Value, Value, Value], tuple[Value, ...]]:
    def signed(x: Value, s: Value, y: Value) -> tuple[Value, ...]:
        pair = join_pair(x, y).view(np.int64)
        return ((pair >> np.minimum(s, np.uint32(63)).astype(np.int64)).astype(np.uint32),)

    def unsigned(x: Value, s: Value, y: Value) -> tuple[Value, ...]:
        pair, amount = join_pair(x, y), s.astype(np.uint64)
        shifted = np.where(s < 64, pair >> np.minimum(amount, np.uint64(63)), np.uint64(0))
        return (shifted.astype(np.uint32),)

    return signed if is_signed else unsigned
