"""Integer comparisons, and predicates as the bits of a word: ISETP, P2R, R2P."""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from analyzer.execution.semantics.operands import (
    NotUnderstoodError,
    Parts,
    Source,
    full,
    make_step,
)
from analyzer.execution.step import AffineRule, Step, Value
from analyzer.ir.operand import Predicate, PredicateFile, PredicateSet
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import predicate_storage

_DISCARDED = -1
_N_PREDICATES = 7
_TYPES: dict[str, type[np.generic]] = {
    "U32": np.uint32,
    "S32": np.int32,
    "U64": np.uint64,
    "S64": np.int64,
}
_PAIRS = frozenset({np.uint64, np.int64})
_EQUALITIES = frozenset({"EQ", "NE"})
_COMPARES: dict[str, np.ufunc] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
# Upper words: decided by the first comparison, or where they are equal by the lower words.
_EXTENDED: dict[str, np.ufunc] = {
    "LT": np.less,
    "LE": np.less,
    "GT": np.greater,
    "GE": np.greater,
    "EQ": np.not_equal,
    "NE": np.not_equal,
}
JOINS: dict[str, np.ufunc] = {
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
}
NEUTRAL = {"AND": 1, "OR": 0, "XOR": 0}


def compile_compare(form: InstructionForm) -> Step:
    """ISETP: a compared with b, joined with a predicate; the second result joins the opposite."""
    parts = Parts(form)
    name = parts.choose({word: word for word in _COMPARES})
    dtype = parts.choose(_TYPES, np.int32)
    join = parts.choose({word: word for word in JOINS})
    is_extended = parts.flag("EX")
    writes = parts.result_bit(), parts.result_bit()
    if dtype in _PAIRS:
        numbers = [parts.plain_pair(), parts.plain_pair()]
    else:
        numbers = [parts.plain_word(), parts.plain_word()]
    joined = parts.bit()
    lower = [parts.bit()] if is_extended else []
    parts.finish()
    if is_extended and dtype in _PAIRS:
        raise NotUnderstoodError
    compare = _comparison(name, dtype, is_extended)
    sources = [*numbers, *lower]
    is_equality = name in _EQUALITIES
    watch = _order(dtype) if is_equality else None
    step = join_step(compare, sources, joined, join, writes, AffineRule.MONOTONE, watch)
    return replace(step, is_equality=is_equality and not is_extended and dtype not in _PAIRS)


def _comparison(name: str, dtype: type[np.generic], is_extended: bool) -> Callable[..., Value]:
    compare = _COMPARES[name]
    if not is_extended:
        if dtype is np.uint32 or dtype is np.uint64 or (name in _EQUALITIES and dtype is np.int32):
            return compare
        return lambda a, b: compare(a.view(dtype), b.view(dtype))
    decide = _EXTENDED[name]
    if name == "EQ":
        return lambda a, b, lower: (a == b) & lower
    return lambda a, b, lower: decide(a.view(dtype), b.view(dtype)) | ((a == b) & lower)


def _order(dtype: type[np.generic]) -> Callable[..., tuple[Value, ...]]:
    """Equality comes and goes; the two orders that make it change once each."""

    def watch(a: Value, b: Value, *others: Value) -> tuple[Value, ...]:
        left, right = a.view(dtype), b.view(dtype)
        return left >= right, left > right

    return watch


def join_step(
    compare: Callable[..., Value],
    sources: list[Source],
    joined: Source,
    join: str,
    writes: tuple[int, int],
    rule: AffineRule,
    watch: Callable[..., tuple[Value, ...]] | None = None,
) -> Step:
    """Step of a comparison joined with a predicate, and of its opposite joined with the same."""
    if joined.literal == NEUTRAL[join]:
        if writes[1] == _DISCARDED:
            return make_step(lambda *v: (compare(*v),), sources, writes[:1], rule, watch=watch)

        def both(*values: Value) -> tuple[Value, ...]:
            bit = compare(*values)
            return bit, ~bit

        return make_step(both, sources, writes, rule, watch=watch)
    combine = JOINS[join]

    def apply(*values: Value) -> tuple[Value, ...]:
        bit = compare(*values[:-1])
        return combine(bit, values[-1]), combine(~bit, values[-1])

    def first(*values: Value) -> tuple[Value, ...]:
        return (combine(compare(*values[:-1]), values[-1]),)

    sources = [*sources, joined]
    if writes[1] == _DISCARDED:
        return make_step(first, sources, writes[:1], rule, watch=watch)
    return make_step(apply, sources, writes, rule, watch=watch)


# Predicates as words


def compile_predicates_to_word(form: InstructionForm) -> Step:
    """P2R: predicates that the mask names, each at its own bit."""
    parts = Parts(form)
    result, file = parts.result(), _predicate_file(parts)
    rest, mask = parts.plain_word(), parts.immediate((1 << _N_PREDICATES) - 1)
    parts.finish()
    if not rest.is_zero:  # how unnamed bits are merged is not known
        raise NotUnderstoodError
    numbers = _named(file, mask)

    def apply(*bits: Value) -> tuple[Value, ...]:
        total = full(0)
        for (place, _), bit in zip(numbers, bits, strict=True):
            total = total | bit.astype(np.uint32) << np.uint32(place)
        return (total,)

    return make_step(apply, [Source((number,)) for _, number in numbers], [result])


def compile_word_to_predicates(form: InstructionForm) -> Step:
    """R2P: predicates that the mask names, from the bits of one byte."""
    parts = Parts(form)
    file = _predicate_file(parts)
    word, byte = parts.suffixed_word({"B0": 0, "B1": 1, "B2": 2, "B3": 3}, 0)
    mask = parts.immediate((1 << _N_PREDICATES) - 1)
    parts.finish()
    numbers = _named(file, mask)
    masks = [np.uint32(1 << place + 8 * byte) for place, _ in numbers]
    return make_step(
        lambda x: tuple((x & bit) != 0 for bit in masks), [word], [number for _, number in numbers]
    )


def _predicate_file(parts: Parts) -> PredicateFile:
    operand = parts.operand()
    if not isinstance(operand, PredicateSet):
        raise NotUnderstoodError
    return operand.file


def _named(file: PredicateFile, mask: int) -> list[tuple[int, int]]:
    """(bit, storage number) of the predicates in a mask."""
    return [
        (place, predicate_storage(Predicate(file, place)))
        for place in range(_N_PREDICATES)
        if mask >> place & 1
    ]
