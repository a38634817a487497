"""Integer minimum, maximum, absolute value and distance."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from analyzer.execution.semantics.operands import (
    WORD_BITS,
    Addend,
    NotUnderstoodError,
    Parts,
    Source,
    make_step,
    split_pair,
)
from analyzer.execution.step import AffineRule, Apply, Step, Value
from analyzer.ir.operand import Predicate
from analyzer.ir.program import InstructionForm

_TYPES = {"S32": (True, 1), "U32": (False, 1), "S64": (True, 2), "U64": (False, 2)}
_DEFAULT_TYPE = (True, 1)
_DISCARDED = -1


def compile_min_max(form: InstructionForm) -> Step:
    """IMNMX, VIMNMX, VIMNMX3: the smaller where the predicate holds, else the larger."""
    parts = Parts(form)
    is_signed, n_words = parts.choose(_TYPES, _DEFAULT_TYPE)
    parts.discarded_bits()
    results = parts.results(n_words)
    parts.discarded_bits()
    numbers: list[Source] = []
    while parts.is_word_next():
        numbers.append(parts.plain_pair() if n_words == 2 else parts.plain_word())
    takes_smaller = parts.bit()
    if n_words == 2 and parts.is_next(Predicate) and parts.bit().literal != 0:
        raise NotUnderstoodError
    parts.finish()
    if not 2 <= len(numbers) <= (3 if n_words == 1 else 2):
        raise NotUnderstoodError
    dtype, choose, n_numbers = _DTYPES[is_signed, n_words], _choice(takes_smaller), len(numbers)

    def apply(*values: Value) -> tuple[Value, ...]:
        chosen = choose([value.view(dtype) for value in values[:n_numbers]], *values[n_numbers:])
        return split_pair(chosen.view(np.uint64)) if n_words == 2 else (chosen.view(np.uint32),)

    def watch(*values: Value) -> tuple[Value, ...]:
        views = [value.view(dtype) for value in values[:n_numbers]]
        return tuple(a < b for place, a in enumerate(views) for b in views[:place])

    # Of a pair that is chosen each word is chosen.
    sources = [*numbers, *_unless_fixed(takes_smaller)]
    return make_step(apply, sources, results, AffineRule.SELECT, watch=watch)


_DTYPES: dict[tuple[bool, int], type[np.generic]] = {
    (True, 1): np.int32,
    (False, 1): np.uint32,
    (True, 2): np.int64,
    (False, 2): np.uint64,
}


def _unless_fixed(bit: Source) -> list[Source]:
    return [bit] if bit.literal is None else []


def _choice(takes_smaller: Source) -> Callable[..., Value]:
    """Function of numbers, and of the predicate where it is no constant."""
    if takes_smaller.literal is not None:
        combine = np.minimum if takes_smaller.literal else np.maximum
        return lambda numbers: reduce(combine, numbers)
    return lambda numbers, bit: np.where(bit, reduce(np.minimum, numbers), reduce(np.maximum, numbers))


def compile_add_min_max(form: InstructionForm) -> Step:
    """VIADDMNMX: the sum of a and b, wrapped, then the smaller or larger of that and c."""
    parts = Parts(form)
    is_signed, n_words = parts.choose(_TYPES, _DEFAULT_TYPE)
    result = parts.result()
    parts.discarded_bits()
    a, b, c = parts.plain_word(), parts.addend(), parts.plain_word()
    takes_smaller = parts.bit()
    parts.finish()
    if n_words != 1:
        raise NotUnderstoodError
    dtype, choose = _DTYPES[is_signed, 1], _choice(takes_smaller)

    def apply(x: Value, y: Value, z: Value, *bit: Value) -> tuple[Value, ...]:
        total = x - y if b.negated else x + y
        return (choose([total.view(dtype), z.view(dtype)], *bit).view(np.uint32),)

    sources = [a, b.source, c, *_unless_fixed(takes_smaller)]
    watch = _wrapped_sum_watch(dtype, is_signed, b)
    return make_step(apply, sources, [result], AffineRule.SELECT, watch=watch)


def _wrapped_sum_watch(dtype: type[np.generic], is_signed: bool, b: Addend) -> Apply:
    """How often the sum wraps and how it compares with c then: each grows or shrinks with the true sum."""
    lowest = -(1 << WORD_BITS - 1) if is_signed else 0

    def watch(x: Value, y: Value, z: Value, *bit: Value) -> tuple[Value, ...]:
        first, second, bound = (value.view(dtype).astype(np.int64) for value in (x, y, z))
        total = first - second if b.negated else first + second
        turns = (total - lowest) >> WORD_BITS
        return turns, *(total < bound + (turn << WORD_BITS) for turn in (-1, 0, 1))

    return watch


def compile_absolute(form: InstructionForm) -> Step:
    """IABS; the most negative number stays itself."""
    parts = Parts(form)
    result, number = parts.result(), parts.word()
    parts.finish()

    def watch(x: Value) -> tuple[Value, ...]:
        return (x.view(np.int32) < 0,)

    return make_step(
        lambda x: (np.abs(x.view(np.int32)).view(np.uint32),),
        [number],
        [result],
        AffineRule.SELECT,
        watch=watch,
    )


def compile_distance(form: InstructionForm) -> Step:
    """VABSDIFF: the distance of a and b, plus c."""
    parts = Parts(form)
    is_signed, n_words = parts.choose(_TYPES, _DEFAULT_TYPE)
    result, a, b, c = parts.result(), *(parts.plain_word() for _ in range(3))
    parts.finish()
    if n_words != 1:
        raise NotUnderstoodError
    dtype = _DTYPES[is_signed, 1]

    def apply(x: Value, y: Value, z: Value) -> tuple[Value, ...]:
        return (np.where(x.view(dtype) < y.view(dtype), y - x, x - y) + z,)

    return make_step(apply, [a, b, c], [result])
