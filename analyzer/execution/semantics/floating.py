"""Single-precision arithmetic: FADD, FMUL, FFMA, FMNMX, FSETP, FSET, FSEL, FCHK, MUFU."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from analyzer.execution.semantics.operands import (
    NotUnderstoodError,
    Parts,
    Source,
    full,
    make_step,
    select,
)
from analyzer.execution.semantics.predicate import JOINS, join_step
from analyzer.execution.semantics.rounding import (
    NEAREST,
    ROUNDINGS,
    exact_sum,
    narrow,
    quiet,
    single,
    single_bits,
)
from analyzer.execution.step import AffineRule, Step, Value
from analyzer.ir.operand import Constant, Immediate, Register
from analyzer.ir.program import InstructionForm

_DISCARDED = -1
_SIGN = np.uint32(0x80000000)
_ONE = 0x3F800000


def _add(a: Value, b: Value, rounding: str) -> Value:
    if rounding == NEAREST:
        return a + b
    return narrow(exact_sum(a.astype(np.float64), b.astype(np.float64)), rounding)


def _multiply(a: Value, b: Value, rounding: str) -> Value:
    if rounding == NEAREST:
        return a * b
    return narrow(a.astype(np.float64) * b, rounding)


def _fused(a: Value, b: Value, c: Value, rounding: str) -> Value:
    return narrow(exact_sum(a.astype(np.float64) * b, c.astype(np.float64)), rounding)


def _arithmetic(
    form: InstructionForm, n_inputs: int, function: Callable[..., Value], *, multiplies: bool = False
) -> Step:
    parts = Parts(form)
    rounding = parts.choose(ROUNDINGS, NEAREST)
    flushes, saturates = parts.flag("FTZ"), parts.flag("SAT")
    result = parts.result()
    numbers = [single(parts, flushes=flushes) for _ in range(n_inputs)]
    parts.finish()

    def apply(*values: Value) -> tuple[Value, ...]:
        number = function(*values, rounding)
        if saturates:
            number = np.fmin(np.fmax(number, np.float32(0)), np.float32(1))
        return (single_bits(number, flushes=flushes),)

    factors = ([numbers[0]], [numbers[1]]) if multiplies else ([], [])
    return make_step(quiet(apply), numbers, [result], factors=factors)


def compile_float_add(form: InstructionForm) -> Step:
    """FADD."""
    return _arithmetic(form, 2, _add)


def compile_float_multiply(form: InstructionForm) -> Step:
    """FMUL."""
    return _arithmetic(form, 2, _multiply, multiplies=True)


def compile_float_fma(form: InstructionForm) -> Step:
    """FFMA: rounded once."""
    return _arithmetic(form, 3, _fused, multiplies=True)


def compile_float_min_max(form: InstructionForm) -> Step:
    """FMNMX, FMNMX3: the smaller where the predicate holds, else the larger; NaN gives way."""
    parts = Parts(form)
    flushes = parts.flag("FTZ")
    result = parts.result()
    parts.discarded_bits()
    numbers: list[Source] = []
    while parts.is_next(Register, Constant, Immediate):
        numbers.append(single(parts, flushes=flushes))
    takes_smaller = parts.bit()
    parts.finish()
    if not 2 <= len(numbers) <= 3:
        raise NotUnderstoodError

    def apply(bit: Value, *values: Value) -> tuple[Value, ...]:
        smaller, larger = reduce(np.fmin, values), reduce(np.fmax, values)
        return (single_bits(select(bit, smaller, larger)),)

    return make_step(quiet(apply), [takes_smaller, *numbers], [result])


COMPARES: dict[str, Callable[[Value, Value], Value]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": lambda a, b: (a < b) | (a > b),
    "NUM": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "NAN": lambda a, b: np.isnan(a) | np.isnan(b),
    "LTU": lambda a, b: ~(a >= b),
    "LEU": lambda a, b: ~(a > b),
    "GTU": lambda a, b: ~(a <= b),
    "GEU": lambda a, b: ~(a < b),
    "EQU": lambda a, b: ~((a < b) | (a > b)),
    "NEU": np.not_equal,
}


def compile_float_compare(form: InstructionForm) -> Step:
    """FSETP."""
    parts = Parts(form)
    compare = parts.choose(COMPARES)
    join = parts.choose({word: word for word in JOINS})
    flushes = parts.flag("FTZ")
    writes = parts.result_bit(), parts.result_bit()
    numbers = [single(parts, flushes=flushes) for _ in range(2)]
    joined = parts.bit()
    parts.finish()
    return join_step(quiet(compare), numbers, joined, join, writes, AffineRule.FIXED)


def compile_float_set(form: InstructionForm) -> Step:
    """FSET: all ones, or with .BF the number one, where the comparison holds."""
    parts = Parts(form)
    compare = parts.choose(COMPARES)
    combine = JOINS[parts.choose({word: word for word in JOINS})]
    flushes, is_number = parts.flag("FTZ"), parts.flag("BF")
    result = parts.result()
    numbers = [single(parts, flushes=flushes) for _ in range(2)]
    joined = parts.bit()
    parts.finish()
    yes, no = full(_ONE if is_number else 0xFFFFFFFF), full(0)

    def apply(a: Value, b: Value, bit: Value) -> tuple[Value, ...]:
        return (select(combine(compare(a, b), bit), yes, no),)

    return make_step(quiet(apply), [*numbers, joined], [result])


def compile_float_select(form: InstructionForm) -> Step:
    """FSEL: bits of a where the predicate holds, else of b."""
    parts = Parts(form)
    result, a, b = parts.result(), _bits(parts), _bits(parts)
    bit = parts.bit()
    parts.finish()
    return make_step(lambda x, y, p: (select(p, x, y),), [a, b, bit], [result])


def _bits(parts: Parts) -> Source:
    """A float operand whose bits are only passed on."""
    source, operand = parts.raw(1)
    match operand:
        case Immediate(value=float(value), suffixes=()) if value == value:  # which NaN is not printed
            return Source(constant=np.full((1, 1), value, dtype=np.float32).view(np.uint32))
        case Register(inverted=False) | Constant(inverted=False):
            bits = source.mapped(lambda x: x & ~_SIGN) if operand.absolute else source
            return bits.mapped(lambda x: x ^ _SIGN) if operand.negated else bits
        case _:
            raise NotUnderstoodError


_EXPONENT_BIAS = 127
_LARGEST_SPAN = 125  # a wider span of exponents may leave the range of the quotient
_LARGEST_DIVISOR = 125  # of which the reciprocal is still normal
_SMALLEST_DIVIDEND = -100  # of which the remainder is still normal


def compile_division_check(form: InstructionForm) -> Step:
    """FCHK: whether a / b needs the slow path: zero, subnormal, not finite, or exponents far out.

    Where exactly the hardware draws the line is not documented; these limits are on the safe side.
    """
    parts = Parts(form)
    result = parts.result_bit()
    a, b = single(parts), single(parts)
    parts.finish()

    def apply(x: Value, y: Value) -> tuple[Value, ...]:
        first, second = (
            (number.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32) for number in (x, y)
        )
        is_special = (first == 0) | (first == 0xFF) | (second == 0) | (second == 0xFF)
        is_far = np.abs(first - second) > _LARGEST_SPAN
        is_far |= (second > _EXPONENT_BIAS + _LARGEST_DIVISOR) | (first < _EXPONENT_BIAS + _SMALLEST_DIVIDEND)
        return (is_special | is_far,)

    return make_step(apply, [a, b], [result])


_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "RCP": lambda x: np.float32(1) / x,
    "RSQ": lambda x: np.float32(1) / np.sqrt(x),
    "SQRT": np.sqrt,
    "EX2": np.exp2,
    "LG2": np.log2,
}


_UPPER_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "RCP64H": lambda x: 1 / x,
    "RSQ64H": lambda x: 1 / np.sqrt(x),
}


def compile_float_function(form: InstructionForm) -> Step:
    """MUFU: the hardware's tables are off by an ulp or so, which rounding code must bear anyway."""
    if _UPPER_FUNCTIONS.keys() & set(form.opcode.modifiers):
        return _compile_upper_function(form)
    parts = Parts(form)
    function = parts.choose(_FUNCTIONS)
    flushes = parts.flag("FTZ")
    result, number = parts.result(), single(parts, flushes=flushes)
    parts.finish()
    return make_step(quiet(lambda x: (single_bits(function(x), flushes=flushes),)), [number], [result])


def _compile_upper_function(form: InstructionForm) -> Step:
    """MUFU.RCP64H: upper word to upper word of a double, a start for code that refines it."""
    parts = Parts(form)
    function = parts.choose(_UPPER_FUNCTIONS)
    result, upper = parts.result(), parts.plain_word()
    parts.finish()

    def apply(x: Value) -> tuple[Value, ...]:
        number = function((x.astype(np.uint64) << np.uint64(32)).view(np.float64))
        return ((number.view(np.uint64) >> np.uint64(32)).astype(np.uint32),)

    return make_step(quiet(apply), [upper], [result])
