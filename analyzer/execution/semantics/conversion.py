"""Conversions between integers and floats: I2F, F2I, F2F, FRND."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.semantics.operands import (
    NotUnderstoodError,
    Parts,
    Source,
    make_step,
    split_pair,
)
from analyzer.execution.semantics.rounding import (
    NEAREST,
    ROUNDINGS,
    double,
    exact_sum,
    flush,
    narrow,
    quiet,
    single,
    single_bits,
)
from analyzer.execution.step import Step, Value
from analyzer.ir.program import InstructionForm

_INTEGERS: dict[str, type[np.integer]] = {
    "S8": np.int8,
    "U8": np.uint8,
    "S16": np.int16,
    "U16": np.uint16,
    "S32": np.int32,
    "U32": np.uint32,
    "S64": np.int64,
    "U64": np.uint64,
}
_IS_DOUBLE = {"F32": False, "F64": True}
_BYTES = {"B0": 0, "B1": 1, "B2": 2, "B3": 3}
_TO_INTEGER: dict[str, np.ufunc] = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil}
_WIDE_BITS = 64


def compile_int_to_float(form: InstructionForm) -> Step:
    """I2F, I2FP: from S32 to F32 where nothing is said."""
    parts = Parts(form)
    is_double = parts.choose(_IS_DOUBLE, False)
    dtype = parts.choose(_INTEGERS, np.int32)
    rounding = parts.choose(ROUNDINGS, NEAREST)
    results = parts.results(2 if is_double else 1)
    number = _integer(parts, dtype)
    parts.finish()
    if not is_double:
        return make_step(
            quiet(lambda x: (single_bits(narrow(_as_odd_double(x), rounding)),)), [number], results
        )
    if np.dtype(dtype).itemsize == 8 and rounding != NEAREST:
        raise NotUnderstoodError
    return make_step(lambda x: split_pair(x.astype(np.float64).view(np.uint64)), [number], results)


def _integer(parts: Parts, dtype: type[np.integer]) -> Source:
    size = np.dtype(dtype).itemsize
    if size == 8:
        return parts.plain_pair().mapped(lambda x: x.view(dtype))
    if size > 1:
        return parts.plain_word().mapped(lambda x: x.astype(dtype))
    word, byte = parts.suffixed_word(_BYTES, 0)
    amount = np.uint32(8 * byte)
    return word.mapped(lambda x: (x >> amount).astype(dtype))


def _as_odd_double(number: Value) -> Value:
    """An integer as a float64 that rounds to single as the integer itself would."""
    if number.dtype.itemsize < 8:
        return number.astype(np.float64)
    shift = number.dtype.type(32)
    upper = (number >> shift).astype(np.float64) * np.float64(1 << 32)
    lower = (number & number.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return exact_sum(upper, lower)


def compile_float_to_int(form: InstructionForm) -> Step:
    """F2I: nearest unless told otherwise, kept within the integer's range.

    NaN becomes zero, or the sign bit where either side has 64 bits and no .NTZ is there (PTX, cvt).
    """
    parts = Parts(form)
    is_double = parts.choose(_IS_DOUBLE, False)
    dtype = parts.choose(_INTEGERS, np.int32)
    to_integer = parts.choose(_TO_INTEGER, np.rint)
    flushes, nan_is_zero = parts.flag("FTZ"), parts.flag("NTZ")
    bits = 8 * np.dtype(dtype).itemsize
    results = parts.results(2 if bits == _WIDE_BITS else 1)
    number = double(parts) if is_double else single(parts, flushes=flushes)
    parts.finish()
    if not is_double:
        number = number.mapped(lambda x: x.astype(np.float64))
    nan = 0 if nan_is_zero or not (is_double or bits == _WIDE_BITS) else 1 << bits - 1
    convert = _saturating(dtype, nan)

    def apply(x: Value) -> tuple[Value, ...]:
        whole = convert(to_integer(x))
        return split_pair(whole) if bits == _WIDE_BITS else (whole.astype(np.uint32),)

    return make_step(quiet(apply), [number], results)


def _saturating(dtype: type[np.integer], nan: int) -> Callable[[Value], Value]:
    """Whole float64 numbers as uint64 words of an integer type."""
    lowest, highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    word = (1 << _WIDE_BITS) - 1

    def convert(x: Value) -> Value:
        is_low, is_high = x <= np.float64(lowest), x >= np.float64(highest)
        inside = np.where(is_low | is_high | np.isnan(x), np.float64(0), x)
        whole = inside.astype(np.uint64 if dtype is np.uint64 else np.int64).view(np.uint64)
        whole = np.where(is_low, np.uint64(lowest & word), whole)
        whole = np.where(is_high, np.uint64(highest & word), whole)
        return np.where(np.isnan(x), np.uint64(nan), whole)

    return convert


def compile_float_to_float(form: InstructionForm) -> Step:
    """F2F between single and double, to nearest."""
    parts = Parts(form)
    match form.opcode.modifiers:
        case ("F64", "F32"):
            to_double = True
        case ("F32", "F64"):
            to_double = False
        case _:
            raise NotUnderstoodError
    parts.flag("F64"), parts.flag("F32")
    results = parts.results(2 if to_double else 1)
    number = single(parts) if to_double else double(parts)
    parts.finish()
    if to_double:
        return make_step(quiet(lambda x: split_pair(x.astype(np.float64).view(np.uint64))), [number], results)
    return make_step(quiet(lambda x: (single_bits(x.astype(np.float32)),)), [number], results)


def compile_float_round(form: InstructionForm) -> Step:
    """FRND: single to a whole number."""
    parts = Parts(form)
    to_integer = parts.choose(_TO_INTEGER, np.rint)
    flushes = parts.flag("FTZ")
    result, number = parts.result(), single(parts, flushes=flushes)
    parts.finish()

    def apply(x: Value) -> tuple[Value, ...]:
        rounded = to_integer(x)
        return (single_bits(flush(rounded) if flushes else rounded),)

    return make_step(quiet(apply), [number], [result])
