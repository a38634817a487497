"""Single-precision arithmetic: FADD, FMUL, FFMA, FMNMX, FSETP, FSET, FSEL, FCHK, MUFU."""

from collections.abc import Callable
from functools import reduce

import numpy as np
from msgspec.structs import replace

from analyzer.execution.lowering.semantics.integer_compare import JOIN_FUNCTIONS, make_compare_step
from analyzer.execution.lowering.semantics.operand_parser import (
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    make_constant,
    make_step,
    select_by_predicate,
)
from analyzer.execution.lowering.semantics.rounding import (
    ROUND_NEAREST,
    ROUNDING_MODES,
    add_round_to_odd,
    ignore_float_errors,
    round_to_single,
    take_single,
    to_single_bits,
)
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import ConstantBankOperand, Immediate, Register

_DISCARDED = -1
_SIGN_BIT = np.uint32(0x80000000)
_FLOAT_ONE_BITS = 0x3F800000


def _add(a: Value, b: Value, rounding: str) -> Value:
    if rounding == ROUND_NEAREST:
        return a + b
    return round_to_single(add_round_to_odd(a.astype(np.float64), b.astype(np.float64)), rounding)


def _multiply(a: Value, b: Value, rounding: str) -> Value:
    if rounding == ROUND_NEAREST:
        return a * b
    return round_to_single(a.astype(np.float64) * b, rounding)


def _fused_multiply_add(a: Value, b: Value, c: Value, rounding: str) -> Value:
    return round_to_single(add_round_to_odd(a.astype(np.float64) * b, c.astype(np.float64)), rounding)


def _compile_arithmetic(
    form: InstructionForm, n_inputs: int, function: Callable[..., Value], *, multiplies: bool = False
) -> Step:
    """Compile an operation with rounding mode, .FTZ and .SAT; `function` takes the inputs and the mode."""
    parser = OperandParser(form)
    rounding = parser.take_choice(ROUNDING_MODES, ROUND_NEAREST)
    flushes, saturates = parser.take_modifier("FTZ"), parser.take_modifier("SAT")
    result = parser.take_result()
    numbers = [take_single(parser, flushes=flushes) for _ in range(n_inputs)]
    parser.expect_end()

    def apply(*values: Value) -> tuple[Value, ...]:
        number = function(*values, rounding)
        if saturates:
            number = np.fmin(np.fmax(number, np.float32(0)), np.float32(1))
        return (to_single_bits(number, flushes=flushes),)

    factors = ([numbers[0]], [numbers[1]]) if multiplies else ([], [])
    return make_step(ignore_float_errors(apply), numbers, [result], factors=factors)


def compile_float_add(form: InstructionForm) -> Step:
    """Compile FADD."""
    return _compile_arithmetic(form, 2, _add)


def compile_float_multiply(form: InstructionForm) -> Step:
    """Compile FMUL."""
    return _compile_arithmetic(form, 2, _multiply, multiplies=True)


def compile_float_fma(form: InstructionForm) -> Step:
    """Compile FFMA, rounded once."""
    return _compile_arithmetic(form, 3, _fused_multiply_add, multiplies=True)


def compile_float_min_max(form: InstructionForm) -> Step:
    """Compile FMNMX, FMNMX3: the minimum where the predicate is true, else the maximum; ignore NaNs."""
    parser = OperandParser(form)
    flushes = parser.take_modifier("FTZ")
    result = parser.take_result()
    parser.skip_discarded_predicates()
    numbers: list[SourceOperand] = []
    while parser.is_next(Register, ConstantBankOperand, Immediate):
        numbers.append(take_single(parser, flushes=flushes))
    takes_smaller = parser.take_predicate()
    parser.expect_end()
    if not 2 <= len(numbers) <= 3:
        raise UnsupportedInstructionError

    def apply(bit: Value, *values: Value) -> tuple[Value, ...]:
        smaller, larger = reduce(np.fmin, values), reduce(np.fmax, values)
        return (to_single_bits(select_by_predicate(bit, smaller, larger)),)

    return make_step(ignore_float_errors(apply), [takes_smaller, *numbers], [result])


FLOAT_COMPARE_FUNCTIONS: dict[str, Callable[[Value, Value], Value]] = {
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
    """Compile FSETP."""
    parser = OperandParser(form)
    compare = parser.take_choice(FLOAT_COMPARE_FUNCTIONS)
    join = parser.take_choice({word: word for word in JOIN_FUNCTIONS})
    flushes = parser.take_modifier("FTZ")
    writes = parser.take_result_predicate(), parser.take_result_predicate()
    numbers = [take_single(parser, flushes=flushes) for _ in range(2)]
    joined = parser.take_predicate()
    parser.expect_end()
    return make_compare_step(ignore_float_errors(compare), numbers, joined, join, writes, AffineRule.UNKNOWN)


def compile_float_set(form: InstructionForm) -> Step:
    """Compile FSET: all ones (with .BF the number 1.0) where the compare is true, else 0."""
    parser = OperandParser(form)
    compare = parser.take_choice(FLOAT_COMPARE_FUNCTIONS)
    combine = JOIN_FUNCTIONS[parser.take_choice({word: word for word in JOIN_FUNCTIONS})]
    flushes, is_number = parser.take_modifier("FTZ"), parser.take_modifier("BF")
    result = parser.take_result()
    numbers = [take_single(parser, flushes=flushes) for _ in range(2)]
    joined = parser.take_predicate()
    parser.expect_end()
    yes, no = make_constant(_FLOAT_ONE_BITS if is_number else 0xFFFFFFFF), make_constant(0)

    def apply(a: Value, b: Value, bit: Value) -> tuple[Value, ...]:
        return (select_by_predicate(combine(compare(a, b), bit), yes, no),)

    return make_step(ignore_float_errors(apply), [*numbers, joined], [result])


def compile_float_select(form: InstructionForm) -> Step:
    """Compile FSEL: the bits of a where the predicate is true, else of b."""
    parser = OperandParser(form)
    result, a, b = parser.take_result(), _take_float_bits(parser), _take_float_bits(parser)
    bit = parser.take_predicate()
    parser.expect_end()
    return make_step(lambda x, y, p: (select_by_predicate(p, x, y),), [a, b, bit], [result])


def _take_float_bits(parser: OperandParser) -> SourceOperand:
    """Take a floating-point operand as bits."""
    source, operand = parser.take_raw(1)
    match operand:
        case Immediate(value=float(value), suffixes=()) if (
            value == value
        ):  # the payload of a NaN is not printed
            return SourceOperand(constant=np.full((1, 1), value, dtype=np.float32).view(np.uint32))
        case Register(is_inverted=False) | ConstantBankOperand(is_inverted=False):
            bits = source.map_value(lambda x: x & ~_SIGN_BIT) if operand.is_absolute else source
            return bits.map_value(lambda x: x ^ _SIGN_BIT) if operand.is_negated else bits
        case _:
            raise UnsupportedInstructionError


_EXPONENT_BIAS = 127
_MAX_EXPONENT_SPAN = 125  # with a larger difference the quotient may overflow or underflow
_MAX_DIVISOR_EXPONENT = 125  # largest with a normal reciprocal
_MIN_DIVIDEND_EXPONENT = -100  # smallest with a normal remainder


def compile_division_check(form: InstructionForm) -> Step:
    """Compile FCHK: true if a / b needs the slow path.

    It does for operands that are zero, subnormal or not finite, and for extreme exponents.

    The exact limits of the hardware are not documented; the ones here are conservative.
    """
    parser = OperandParser(form)
    result = parser.take_result_predicate()
    a, b = take_single(parser), take_single(parser)
    parser.expect_end()

    def apply(x: Value, y: Value) -> tuple[Value, ...]:
        first, second = (
            (number.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32) for number in (x, y)
        )
        is_special = (first == 0) | (first == 0xFF) | (second == 0) | (second == 0xFF)
        is_extreme = np.abs(first - second) > _MAX_EXPONENT_SPAN
        is_extreme |= (second > _EXPONENT_BIAS + _MAX_DIVISOR_EXPONENT) | (
            first < _EXPONENT_BIAS + _MIN_DIVIDEND_EXPONENT
        )
        return (is_special | is_extreme,)

    return make_step(apply, [a, b], [result])


_MUFU_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "RCP": lambda x: np.float32(1) / x,
    "RSQ": lambda x: np.float32(1) / np.sqrt(x),
    "SQRT": np.sqrt,
    "EX2": np.exp2,
    "LG2": np.log2,
}


# Errors of the approximations ("Mathematical functions", CUDA C++ programming guide), rounded up.
_MUFU_ERROR_ULPS = {"RCP": 1}
_DEFAULT_ERROR_ULPS = 2
_MUFU_64H_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "RCP64H": lambda x: 1 / x,
    "RSQ64H": lambda x: 1 / np.sqrt(x),
}


def compile_float_function(form: InstructionForm) -> Step:
    """Compile MUFU: the nearest number, from which hardware may differ by some units in the last place."""
    if _MUFU_64H_FUNCTIONS.keys() & set(form.opcode.modifiers):
        return _compile_mufu_64h(form)
    parser = OperandParser(form)
    function = parser.take_choice(_MUFU_FUNCTIONS)
    flushes = parser.take_modifier("FTZ")
    result, number = parser.take_result(), take_single(parser, flushes=flushes)
    parser.expect_end()
    step = make_step(
        ignore_float_errors(lambda x: (to_single_bits(function(x), flushes=flushes),)), [number], [result]
    )
    errors = (ulps for name, ulps in _MUFU_ERROR_ULPS.items() if name in form.opcode.modifiers)
    return replace(step, error_ulps=next(errors, _DEFAULT_ERROR_ULPS))


def _compile_mufu_64h(form: InstructionForm) -> Step:
    """Compile MUFU.RCP64H, RSQ64H: the upper word of a double from an upper word, a seed for Newton steps."""
    parser = OperandParser(form)
    function = parser.take_choice(_MUFU_64H_FUNCTIONS)
    result, upper = parser.take_result(), parser.take_plain_word()
    parser.expect_end()

    def apply(x: Value) -> tuple[Value, ...]:
        number = function((x.astype(np.uint64) << np.uint64(32)).view(np.float64))
        return ((number.view(np.uint64) >> np.uint64(32)).astype(np.uint32),)

    return replace(make_step(ignore_float_errors(apply), [upper], [result]), error_ulps=1)
