"""Conversions between integers and floating point: I2F, F2I, F2F, FRND."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    make_step,
    split_pair,
)
from analyzer.execution.lowering.semantics.rounding import (
    ROUND_NEAREST,
    ROUNDING_MODES,
    add_round_to_odd,
    flush_subnormals,
    ignore_float_errors,
    round_to_single,
    take_double,
    take_single,
    to_single_bits,
)
from analyzer.execution.lowering.step import Step, Value
from analyzer.ir.module import InstructionForm

_INTEGER_TYPES: dict[str, type[np.integer]] = {
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
_BYTE_SUFFIXES = {"B0": 0, "B1": 1, "B2": 2, "B3": 3}
_INTEGER_ROUNDINGS: dict[str, np.ufunc] = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil}
_WIDE_BITS = 64


def compile_int_to_float(form: InstructionForm) -> Step:
    """Compile I2F and I2FP; the default is S32 to F32."""
    parser = OperandParser(form)
    is_double = parser.take_choice(_IS_DOUBLE, False)
    dtype = parser.take_choice(_INTEGER_TYPES, np.int32)
    rounding = parser.take_choice(ROUNDING_MODES, ROUND_NEAREST)
    results = parser.take_results(2 if is_double else 1)
    number = _take_integer(parser, dtype)
    parser.expect_end()
    if not is_double:
        return make_step(
            ignore_float_errors(
                lambda x: (to_single_bits(round_to_single(_to_double_round_odd(x), rounding)),)
            ),
            [number],
            results,
        )
    if np.dtype(dtype).itemsize == 8 and rounding != ROUND_NEAREST:
        raise UnsupportedInstructionError
    return make_step(lambda x: split_pair(x.astype(np.float64).view(np.uint64)), [number], results)


def _take_integer(parser: OperandParser, dtype: type[np.integer]) -> SourceOperand:
    """Take an operand of an integer type; a byte may be selected by a suffix (`R4.B1`)."""
    size = np.dtype(dtype).itemsize
    if size == 8:
        return parser.take_plain_pair().map_value(lambda x: x.view(dtype))
    if size > 1:
        return parser.take_plain_word().map_value(lambda x: x.astype(dtype))
    word, byte = parser.take_suffixed_word(_BYTE_SUFFIXES, 0)
    amount = np.uint32(8 * byte)
    return word.map_value(lambda x: (x >> amount).astype(dtype))


def _to_double_round_odd(number: Value) -> Value:
    """Convert to float64 so that rounding it to single gives the rounded integer (round to odd)."""
    if number.dtype.itemsize < 8:
        return number.astype(np.float64)
    shift = number.dtype.type(32)
    upper = (number >> shift).astype(np.float64) * np.float64(1 << 32)
    lower = (number & number.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return add_round_to_odd(upper, lower)


def compile_float_to_int(form: InstructionForm) -> Step:
    """Compile F2I: round to nearest by default, and saturate to the range of the integer type.

    NaN becomes 0; if either type has 64 bits and .NTZ is absent, it becomes the sign bit (PTX, cvt).
    """
    parser = OperandParser(form)
    is_double = parser.take_choice(_IS_DOUBLE, False)
    dtype = parser.take_choice(_INTEGER_TYPES, np.int32)
    to_integer = parser.take_choice(_INTEGER_ROUNDINGS, np.rint)
    flushes, nan_is_zero = parser.take_modifier("FTZ"), parser.take_modifier("NTZ")
    bits = 8 * np.dtype(dtype).itemsize
    results = parser.take_results(2 if bits == _WIDE_BITS else 1)
    number = take_double(parser) if is_double else take_single(parser, flushes=flushes)
    parser.expect_end()
    if not is_double:
        number = number.map_value(lambda x: x.astype(np.float64))
    nan = 0 if nan_is_zero or not (is_double or bits == _WIDE_BITS) else 1 << bits - 1
    convert = _make_saturating_convert(dtype, nan)

    def apply(x: Value) -> tuple[Value, ...]:
        whole = convert(to_integer(x))
        return split_pair(whole) if bits == _WIDE_BITS else (whole.astype(np.uint32),)

    return make_step(ignore_float_errors(apply), [number], results)


def _make_saturating_convert(dtype: type[np.integer], nan: int) -> Callable[[Value], Value]:
    """Make the saturating conversion of integral float64 values to an integer type, as uint64 words.

    nan: result for NaN
    """
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
    """Compile F2F between single and double precision, rounded to nearest."""
    parser = OperandParser(form)
    match form.opcode.modifiers:
        case ("F64", "F32"):
            to_double = True
        case ("F32", "F64"):
            to_double = False
        case _:
            raise UnsupportedInstructionError
    parser.take_modifier("F64"), parser.take_modifier("F32")
    results = parser.take_results(2 if to_double else 1)
    number = take_single(parser) if to_double else take_double(parser)
    parser.expect_end()
    if to_double:
        return make_step(
            ignore_float_errors(lambda x: split_pair(x.astype(np.float64).view(np.uint64))), [number], results
        )
    return make_step(
        ignore_float_errors(lambda x: (to_single_bits(x.astype(np.float32)),)), [number], results
    )


def compile_float_round(form: InstructionForm) -> Step:
    """Compile FRND: a single rounded to an integral value."""
    parser = OperandParser(form)
    to_integer = parser.take_choice(_INTEGER_ROUNDINGS, np.rint)
    flushes = parser.take_modifier("FTZ")
    result, number = parser.take_result(), take_single(parser, flushes=flushes)
    parser.expect_end()

    def apply(x: Value) -> tuple[Value, ...]:
        rounded = to_integer(x)
        return (to_single_bits(flush_subnormals(rounded) if flushes else rounded),)

    return make_step(ignore_float_errors(apply), [number], [result])
