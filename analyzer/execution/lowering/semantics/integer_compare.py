"""Integer compares (ISETP), and moves between predicates and the bits of a word (P2R, R2P)."""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from analyzer.execution.lowering.semantics.operand_parser import (
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    make_constant,
    make_step,
)
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import Predicate, PredicateFile, PredicateFileOperand
from analyzer.isa.register_operands import find_predicate_unit

_DISCARDED = -1
_N_PREDICATES = 7
_TYPES: dict[str, type[np.generic]] = {
    "U32": np.uint32,
    "S32": np.int32,
    "U64": np.uint64,
    "S64": np.int64,
}
_PAIR_TYPES = frozenset({np.uint64, np.int64})
_EQUALITY_MODIFIERS = frozenset({"EQ", "NE"})
_COMPARE_FUNCTIONS: dict[str, np.ufunc] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
# ISETP.EX compares upper words; if they are equal, the compare of the lower words decides.
_UPPER_WORD_COMPARE_FUNCTIONS: dict[str, np.ufunc] = {
    "LT": np.less,
    "LE": np.less,
    "GT": np.greater,
    "GE": np.greater,
    "EQ": np.not_equal,
    "NE": np.not_equal,
}
JOIN_FUNCTIONS: dict[str, np.ufunc] = {
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
}
# Predicate input for which the join returns the compare itself.
JOIN_IDENTITIES = {"AND": 1, "OR": 0, "XOR": 0}


def compile_integer_compare(form: InstructionForm) -> Step:
    """Compile ISETP: a compare joined with a predicate; the second result joins the negated compare."""
    parser = OperandParser(form)
    name = parser.take_choice({word: word for word in _COMPARE_FUNCTIONS})
    dtype = parser.take_choice(_TYPES, np.int32)
    join = parser.take_choice({word: word for word in JOIN_FUNCTIONS})
    is_extended = parser.take_modifier("EX")
    writes = parser.take_result_predicate(), parser.take_result_predicate()
    if dtype in _PAIR_TYPES:
        numbers = [parser.take_plain_pair(), parser.take_plain_pair()]
    else:
        numbers = [parser.take_plain_word(), parser.take_plain_word()]
    joined = parser.take_predicate()
    lower = [parser.take_predicate()] if is_extended else []
    parser.expect_end()
    if is_extended and dtype in _PAIR_TYPES:
        raise UnsupportedInstructionError
    compare = _make_comparison(name, dtype, is_extended)
    sources = [*numbers, *lower]
    is_equality = name in _EQUALITY_MODIFIERS
    compute_invariants = _make_order_invariants(dtype) if is_equality else None
    step = make_compare_step(compare, sources, joined, join, writes, AffineRule.MONOTONE, compute_invariants)
    return replace(step, is_equality_compare=is_equality and not is_extended and dtype not in _PAIR_TYPES)


def _make_comparison(name: str, dtype: type[np.generic], is_extended: bool) -> Callable[..., Value]:
    """Make the compare function; an extended one takes the result of the lower words too."""
    compare = _COMPARE_FUNCTIONS[name]
    if not is_extended:
        if dtype is np.uint32 or dtype is np.uint64 or (name in _EQUALITY_MODIFIERS and dtype is np.int32):
            return compare
        return lambda a, b: compare(a.view(dtype), b.view(dtype))
    decide = _UPPER_WORD_COMPARE_FUNCTIONS[name]
    if name == "EQ":
        return lambda a, b, lower: (a == b) & lower
    return lambda a, b, lower: decide(a.view(dtype), b.view(dtype)) | ((a == b) & lower)


def _make_order_invariants(dtype: type[np.generic]) -> Callable[..., tuple[Value, ...]]:
    """Make the invariants of an equality compare: a >= b and a > b, each monotone unlike a == b itself."""

    def compute_invariants(a: Value, b: Value, *others: Value) -> tuple[Value, ...]:
        left, right = a.view(dtype), b.view(dtype)
        return left >= right, left > right

    return compute_invariants


def make_compare_step(
    compare: Callable[..., Value],
    sources: list[SourceOperand],
    joined: SourceOperand,
    join: str,
    writes: tuple[int, int],
    rule: AffineRule,
    compute_invariants: Callable[..., tuple[Value, ...]] | None = None,
) -> Step:
    """Make the step of a compare joined with a predicate, and of the negated compare joined with it.

    sources: values that `compare` takes; joined: predicate input; join: AND, OR or XOR
    writes: storage numbers of the two results, -1 if discarded
    """
    if joined.literal == JOIN_IDENTITIES[join]:
        if writes[1] == _DISCARDED:
            return make_step(
                lambda *v: (compare(*v),), sources, writes[:1], rule, compute_invariants=compute_invariants
            )

        def both(*values: Value) -> tuple[Value, ...]:
            bit = compare(*values)
            return bit, ~bit

        return make_step(both, sources, writes, rule, compute_invariants=compute_invariants)
    combine = JOIN_FUNCTIONS[join]

    def apply(*values: Value) -> tuple[Value, ...]:
        bit = compare(*values[:-1])
        return combine(bit, values[-1]), combine(~bit, values[-1])

    def first(*values: Value) -> tuple[Value, ...]:
        return (combine(compare(*values[:-1]), values[-1]),)

    sources = [*sources, joined]
    if writes[1] == _DISCARDED:
        return make_step(first, sources, writes[:1], rule, compute_invariants=compute_invariants)
    return make_step(apply, sources, writes, rule, compute_invariants=compute_invariants)


# Predicates as words


def compile_predicates_to_word(form: InstructionForm) -> Step:
    """Compile P2R: the predicates in the mask, each at its own bit of the word."""
    parser = OperandParser(form)
    result, file = parser.take_result(), _take_predicate_file(parser)
    rest, mask = parser.take_plain_word(), parser.take_immediate((1 << _N_PREDICATES) - 1)
    parser.expect_end()
    if not rest.is_zero:  # how bits outside the mask are merged is not known
        raise UnsupportedInstructionError
    numbers = _list_masked_predicates(file, mask)

    def apply(*bits: Value) -> tuple[Value, ...]:
        total = make_constant(0)
        for (position, _), bit in zip(numbers, bits, strict=True):
            total = total | bit.astype(np.uint32) << np.uint32(position)
        return (total,)

    return make_step(apply, [SourceOperand((number,)) for _, number in numbers], [result])


def compile_word_to_predicates(form: InstructionForm) -> Step:
    """Compile R2P: the predicates in the mask, from the bits of one byte."""
    parser = OperandParser(form)
    file = _take_predicate_file(parser)
    word, byte = parser.take_suffixed_word({"B0": 0, "B1": 1, "B2": 2, "B3": 3}, 0)
    mask = parser.take_immediate((1 << _N_PREDICATES) - 1)
    parser.expect_end()
    numbers = _list_masked_predicates(file, mask)
    masks = [np.uint32(1 << position + 8 * byte) for position, _ in numbers]
    return make_step(
        lambda x: tuple((x & bit) != 0 for bit in masks), [word], [number for _, number in numbers]
    )


def _take_predicate_file(parser: OperandParser) -> PredicateFile:
    operand = parser.take_operand()
    if not isinstance(operand, PredicateFileOperand):
        raise UnsupportedInstructionError
    return operand.file


def _list_masked_predicates(file: PredicateFile, mask: int) -> list[tuple[int, int]]:
    """Return (bit, storage number) of each predicate in the mask."""
    return [
        (position, find_predicate_unit(Predicate(file, position)))
        for position in range(_N_PREDICATES)
        if mask >> position & 1
    ]
