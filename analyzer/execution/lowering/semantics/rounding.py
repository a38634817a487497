"""Floating-point operands, rounding modes, and exact sums and products.

Single-precision results are computed in float64 and rounded once. Rounding twice would be wrong in rare
cases, so the float64 value is rounded to odd first (Boldo and Melquiond, IEEE Trans. Computers 57(4), 2008).
Products are split by Dekker's and Veltkamp's method (Dekker, Numer. Math. 18, 1971), sums by Knuth's TwoSum.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
)
from analyzer.execution.lowering.step import Value
from analyzer.ir.operand import ConstantBankOperand, Immediate, Register

ROUND_NEAREST = "RN"
ROUNDING_MODES = {"RN": "RN", "RZ": "RZ", "RM": "RM", "RP": "RP"}
_MIN_NORMAL_FLOAT32 = np.float32(np.finfo(np.float32).tiny)
_VELTKAMP_SPLITTER = np.float64((1 << 27) + 1)

Function = Callable[..., Any]


def ignore_float_errors(function: Function) -> Function:
    """Wrap a function so that infinities and NaNs raise no numpy warnings."""

    def wrapped(*values: Value) -> Any:
        with np.errstate(all="ignore"):
            return function(*values)

    return wrapped


def flush_subnormals(number: Value) -> Value:
    """Replace subnormal singles by zeros of the same sign (.FTZ)."""
    return np.where(np.abs(number) < _MIN_NORMAL_FLOAT32, np.copysign(np.float32(0), number), number)


def take_single(parser: OperandParser, *, flushes: bool = False) -> SourceOperand:
    """Take a float32 operand."""
    source = _take_float(parser, 1, np.float32)
    return source.map_value(flush_subnormals) if flushes else source


def take_double(parser: OperandParser) -> SourceOperand:
    """Take a float64 operand: a pair of registers, or a literal."""
    return _take_float(parser, 2, np.float64)


def _take_float(
    parser: OperandParser, n_words: int, dtype: type[np.float32] | type[np.float64]
) -> SourceOperand:
    source, operand = parser.take_raw(n_words)
    match operand:
        case Immediate(value=float(value), suffixes=()):
            return SourceOperand(constant=np.full((1, 1), value, dtype=dtype))
        case Register(is_inverted=False) | ConstantBankOperand(is_inverted=False):
            number = source.map_value(lambda words: words.view(dtype))
            number = number.map_value(np.abs) if operand.is_absolute else number
            return number.map_value(np.negative) if operand.is_negated else number
        case _:
            raise UnsupportedInstructionError


def to_single_bits(number: Value, *, flushes: bool = False) -> Value:
    """Return the bits of a float32."""
    return (flush_subnormals(number) if flushes else number).view(np.uint32)


def add_round_to_odd(a: Value, b: Value) -> Value:
    """Add float64 values and round to odd, so that rounding to single afterwards equals rounding once."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)  # TwoSum
    bits = total.view(np.int64)
    is_inexact_even = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    step = np.where((error > 0) == (total > 0), np.int64(1), np.int64(-1))
    return np.where(is_inexact_even, bits + step, bits).view(np.float64)


def round_to_single(number: Value, rounding: str) -> Value:
    """Round a float64 to float32 in one of `ROUNDING_MODES`."""
    near = number.astype(np.float32)
    if rounding == ROUND_NEAREST:
        return near
    back = near.astype(np.float64)
    if rounding == "RP":
        return np.where(back < number, np.nextafter(near, np.float32(np.inf)), near)
    if rounding == "RM":
        return np.where(back > number, np.nextafter(near, np.float32(-np.inf)), near)
    return np.where(np.abs(back) > np.abs(number), np.nextafter(near, np.float32(0)), near)


def fused_multiply_add(a: Value, b: Value, c: Value) -> Value:
    """Compute a * b + c in float64 with the rounding error of the product added.

    If splitting a very large factor overflows, the error is dropped.
    """
    product = a * b
    a_high, b_high = (
        (_VELTKAMP_SPLITTER * a - (_VELTKAMP_SPLITTER * a - a)),
        (_VELTKAMP_SPLITTER * b - (_VELTKAMP_SPLITTER * b - b)),
    )
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    part = total - product
    rest = (product - (total - part)) + (c - part) + error
    return np.where(np.isfinite(rest), total + rest, total)
