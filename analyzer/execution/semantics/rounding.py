"""Floats as values: float operands, rounding directions, sums and products with their errors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from analyzer.execution.semantics.operands import NotUnderstoodError, Parts, Source
from analyzer.execution.step import Value
from analyzer.ir.operand import Constant, Immediate, Register

NEAREST = "RN"
ROUNDINGS = {"RN": "RN", "RZ": "RZ", "RM": "RM", "RP": "RP"}
_TINY = np.float32(np.finfo(np.float32).tiny)
_SPLIT = np.float64((1 << 27) + 1)

Function = Callable[..., Any]


def quiet(function: Function) -> Function:
    """Infinities and NaNs are results, not warnings."""

    def calm(*values: Value) -> Any:
        with np.errstate(all="ignore"):
            return function(*values)

    return calm


def flush(number: Value) -> Value:
    """Subnormal singles become zeros of their sign (.FTZ)."""
    return np.where(np.abs(number) < _TINY, np.copysign(np.float32(0), number), number)


def single(parts: Parts, *, flushes: bool = False) -> Source:
    """A float32 operand."""
    source = _float(parts, 1, np.float32)
    return source.mapped(flush) if flushes else source


def double(parts: Parts) -> Source:
    """A float64 operand: a pair of registers, or a number."""
    return _float(parts, 2, np.float64)


def _float(parts: Parts, n_words: int, dtype: type[np.float32] | type[np.float64]) -> Source:
    source, operand = parts.raw(n_words)
    match operand:
        case Immediate(value=float(value), suffixes=()):
            return Source(constant=np.full((1, 1), value, dtype=dtype))
        case Register(inverted=False) | Constant(inverted=False):
            number = source.mapped(lambda words: words.view(dtype))
            number = number.mapped(np.abs) if operand.absolute else number
            return number.mapped(np.negative) if operand.negated else number
        case _:
            raise NotUnderstoodError


def single_bits(number: Value, *, flushes: bool = False) -> Value:
    """The word of a float32."""
    return (flush(number) if flushes else number).view(np.uint32)


def exact_sum(a: Value, b: Value) -> Value:
    """float64 sum rounded to odd, so that rounding it again to single is as good as rounding once."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view(np.int64)
    nudge = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    away = np.where((error > 0) == (total > 0), np.int64(1), np.int64(-1))
    return np.where(nudge, bits + away, bits).view(np.float64)


def narrow(number: Value, rounding: str) -> Value:
    """A float64 as the float32 beside it in the direction asked for."""
    near = number.astype(np.float32)
    if rounding == NEAREST:
        return near
    back = near.astype(np.float64)
    if rounding == "RP":
        return np.where(back < number, np.nextafter(near, np.float32(np.inf)), near)
    if rounding == "RM":
        return np.where(back > number, np.nextafter(near, np.float32(-np.inf)), near)
    return np.where(np.abs(back) > np.abs(number), np.nextafter(near, np.float32(0)), near)


def fused(a: Value, b: Value, c: Value) -> Value:
    """float64 a * b + c with the error of the product kept; a very large product loses it."""
    product = a * b
    a_high, b_high = (_SPLIT * a - (_SPLIT * a - a)), (_SPLIT * b - (_SPLIT * b - b))
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    part = total - product
    rest = (product - (total - part)) + (c - part) + error
    return np.where(np.isfinite(rest), total + rest, total)
