"""Integer minimum, maximum, absolute value and distance."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    WORD_BITS,
    Addend,
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    make_step,
    split_pair,
)
from analyzer.execution.lowering.step import AffineRule, LaneFunction, Step, Value
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import Predicate

_TYPES = {"S32": (True, 1), "U32": (False, 1), "S64": (True, 2), "U64": (False, 2)}
_DEFAULT_TYPE = (True, 1)
_DISCARDED = -1


def compile_min_max(form: InstructionForm) -> Step:
    """Compile IMNMX, VIMNMX, VIMNMX3: the minimum where the predicate is true, else the maximum."""
    parser = OperandParser(form)
    is_signed, n_words = parser.take_choice(_TYPES, _DEFAULT_TYPE)
    parser.skip_discarded_predicates()
    results = parser.take_results(n_words)
    parser.skip_discarded_predicates()
    numbers: list[SourceOperand] = []
    while parser.is_word_next():
        numbers.append(parser.take_plain_pair() if n_words == 2 else parser.take_plain_word())
    takes_smaller = parser.take_predicate()
    if n_words == 2 and parser.is_next(Predicate) and parser.take_predicate().literal != 0:
        raise UnsupportedInstructionError
    parser.expect_end()
    if not 2 <= len(numbers) <= (3 if n_words == 1 else 2):
        raise UnsupportedInstructionError
    dtype, choose, n_numbers = _DTYPES[is_signed, n_words], _make_min_or_max(takes_smaller), len(numbers)

    def apply(*values: Value) -> tuple[Value, ...]:
        chosen = choose([value.view(dtype) for value in values[:n_numbers]], *values[n_numbers:])
        return split_pair(chosen.view(np.uint64)) if n_words == 2 else (chosen.view(np.uint32),)

    def compute_invariants(*values: Value) -> tuple[Value, ...]:
        views = [value.view(dtype) for value in values[:n_numbers]]
        return tuple(a < b for position, a in enumerate(views) for b in views[:position])

    # Choosing a pair chooses both of its words, so each word is piecewise linear.
    sources = [*numbers, *_list_if_variable(takes_smaller)]
    return make_step(
        apply, sources, results, AffineRule.PIECEWISE_LINEAR, compute_invariants=compute_invariants
    )


_DTYPES: dict[tuple[bool, int], type[np.generic]] = {
    (True, 1): np.int32,
    (False, 1): np.uint32,
    (True, 2): np.int64,
    (False, 2): np.uint64,
}


def _list_if_variable(bit: SourceOperand) -> list[SourceOperand]:
    """Return the predicate as a list, empty if it is constant."""
    return [bit] if bit.literal is None else []


def _make_min_or_max(takes_smaller: SourceOperand) -> Callable[..., Value]:
    """Make the minimum or maximum of a list of values; if the predicate varies, it is a second argument."""
    if takes_smaller.literal is not None:
        combine = np.minimum if takes_smaller.literal else np.maximum
        return lambda numbers: reduce(combine, numbers)
    return lambda numbers, bit: np.where(bit, reduce(np.minimum, numbers), reduce(np.maximum, numbers))


def compile_add_min_max(form: InstructionForm) -> Step:
    """Compile VIADDMNMX: minimum or maximum of c and a + b modulo 2^32."""
    parser = OperandParser(form)
    is_signed, n_words = parser.take_choice(_TYPES, _DEFAULT_TYPE)
    result = parser.take_result()
    parser.skip_discarded_predicates()
    a, b, c = parser.take_plain_word(), parser.take_addend(), parser.take_plain_word()
    takes_smaller = parser.take_predicate()
    parser.expect_end()
    if n_words != 1:
        raise UnsupportedInstructionError
    dtype, choose = _DTYPES[is_signed, 1], _make_min_or_max(takes_smaller)

    def apply(x: Value, y: Value, z: Value, *bit: Value) -> tuple[Value, ...]:
        total = x - y if b.is_negated else x + y
        return (choose([total.view(dtype), z.view(dtype)], *bit).view(np.uint32),)

    sources = [a, b.source, c, *_list_if_variable(takes_smaller)]
    compute_invariants = _make_wrapped_sum_invariants(dtype, is_signed, b)
    return make_step(
        apply, sources, [result], AffineRule.PIECEWISE_LINEAR, compute_invariants=compute_invariants
    )


def _make_wrapped_sum_invariants(dtype: type[np.generic], is_signed: bool, b: Addend) -> LaneFunction:
    """Make the invariants of VIADDMNMX: how often the sum wraps, and how it compares with c then.

    Each is a monotone function of the sum without wrapping.
    """
    lowest = -(1 << WORD_BITS - 1) if is_signed else 0

    def compute_invariants(x: Value, y: Value, z: Value, *bit: Value) -> tuple[Value, ...]:
        first, second, bound = (value.view(dtype).astype(np.int64) for value in (x, y, z))
        total = first - second if b.is_negated else first + second
        n_wraps = (total - lowest) >> WORD_BITS
        return n_wraps, *(total < bound + (n << WORD_BITS) for n in (-1, 0, 1))

    return compute_invariants


def compile_absolute(form: InstructionForm) -> Step:
    """Compile IABS; the most negative number is unchanged."""
    parser = OperandParser(form)
    result, number = parser.take_result(), parser.take_word()
    parser.expect_end()

    def compute_invariants(x: Value) -> tuple[Value, ...]:
        return (x.view(np.int32) < 0,)

    return make_step(
        lambda x: (np.abs(x.view(np.int32)).view(np.uint32),),
        [number],
        [result],
        AffineRule.PIECEWISE_LINEAR,
        compute_invariants=compute_invariants,
    )


def compile_distance(form: InstructionForm) -> Step:
    """Compile VABSDIFF: |a - b| + c."""
    parser = OperandParser(form)
    is_signed, n_words = parser.take_choice(_TYPES, _DEFAULT_TYPE)
    result, a, b, c = parser.take_result(), *(parser.take_plain_word() for _ in range(3))
    parser.expect_end()
    if n_words != 1:
        raise UnsupportedInstructionError
    dtype = _DTYPES[is_signed, 1]

    def apply(x: Value, y: Value, z: Value) -> tuple[Value, ...]:
        return (np.where(x.view(dtype) < y.view(dtype), y - x, x - y) + z,)

    return make_step(apply, [a, b, c], [result])
