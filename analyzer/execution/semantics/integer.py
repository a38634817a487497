"""Integer sums: IADD3, IADD, VIADD and their uniform twins; carries in and out."""

from collections.abc import Sequence

import numpy as np

from analyzer.execution.semantics.operands import (
    NEVER,
    WORD_BITS,
    WORD_MASK,
    Addend,
    NotUnderstoodError,
    Parts,
    Source,
    full,
    make_step,
    pair_literal,
    split_pair,
    word_literal,
    wraps,
)
from analyzer.execution.step import AffineRule, Apply, Step, Value
from analyzer.ir.operand import Predicate
from analyzer.ir.program import InstructionForm

_CARRY = 1 << WORD_BITS
_DISCARDED = -1


def compile_add(form: InstructionForm) -> Step:
    """IADD3 and its kin: up to three addends, two carries out; `.X` adds two carries in."""
    parts = Parts(form)
    is_wide, is_extended = parts.flag("64"), parts.flag("X")
    results = parts.results(2 if is_wide else 1)
    carries_out = parts.result_bits(2)
    addends: list[Addend] = []
    while parts.is_word_next():
        addends.append(parts.addend(wide=is_wide))
    carries_in: list[Source] = []
    while parts.is_next(Predicate):
        carries_in.append(parts.bit())
    parts.finish()
    if not addends or len(carries_in) != (2 if is_extended else 0):
        raise NotUnderstoodError
    if is_extended and (len(addends) != 3 or any(addend.negated for addend in addends)):
        raise NotUnderstoodError
    if is_wide:
        return _wide_sum(addends, results, carries_out)
    total = Sum(addends, carries_in)
    kept = [bit for bit in carries_out if bit != _DISCARDED]
    if not kept:
        return make_step(total.low(), total.sources, results, AffineRule.LINEAR)
    if total.most >> WORD_BITS > 1 and len(kept) < 2:
        raise NotUnderstoodError  # which of the two carries the one predicate takes is not known
    return make_step(total.with_carries(), total.sources, (*results, *_two(carries_out)), AffineRule.LINEAR)


def _two(bits: Sequence[int]) -> tuple[int, int]:
    first, second = (*bits, _DISCARDED)[:2]
    return first, second


def _wide_sum(addends: list[Addend], results: tuple[int, ...], carries_out: tuple[int, ...]) -> Step:
    if any(bit != _DISCARDED for bit in carries_out):
        raise NotUnderstoodError
    addends = sorted((a for a in addends if not a.source.is_zero), key=lambda addend: addend.negated)
    words = [half for addend in addends for half in addend.source.halves or ()]
    if len(addends) == 2 and len(words) == 4 and not addends[0].negated:
        function = _subtract_pairs if addends[1].negated else _add_pairs
        return make_step(function, words, results, AffineRule.PAIR)
    sources = [
        addend.source.mapped(np.negative) if addend.negated else addend.source for addend in addends
    ] or [pair_literal(0)]

    def apply(first: Value, *others: Value) -> tuple[Value, ...]:
        for other in others:
            first = first + other
        return split_pair(first)

    return make_step(apply, sources, results, AffineRule.PAIR)


def _add_pairs(a_low: Value, a_high: Value, b_low: Value, b_high: Value) -> tuple[Value, ...]:
    low = a_low + b_low
    return low, a_high + b_high + wraps(low, a_low, b_low)


def _subtract_pairs(a_low: Value, a_high: Value, b_low: Value, b_high: Value) -> tuple[Value, ...]:
    return a_low - b_low, a_high - b_high - (a_low < b_low)


class Sum:
    """A sum of words: plain ones, ones with a minus, and a constant."""

    __slots__ = ("_bias", "_n_minus", "_n_plus", "most", "sources")

    def __init__(self, addends: list[Addend], carries_in: list[Source]) -> None:
        plus = [a.source for a in addends if a.source.literal is None and not a.negated]
        plus += [c.mapped(_as_word) for c in carries_in if c.literal is None]
        minus = [a.source for a in addends if a.source.literal is None and a.negated]
        self._n_plus, self._n_minus = len(plus), len(minus)
        self._bias = sum(c.literal for c in carries_in if c.literal is not None)
        # A minus stands for 2^32 - b, so that of zero carries.
        for addend in addends:
            if addend.source.literal is not None:
                number = addend.source.literal
                self._bias += _CARRY - number if addend.negated else number
        n_bits = sum(c.literal is None for c in carries_in)
        self.most = (len(plus) - n_bits) * WORD_MASK + n_bits + self._n_minus * _CARRY + self._bias
        if self._bias & WORD_MASK or not plus + minus:
            plus.append(word_literal(self._bias))
            self._n_plus += 1
        self.sources = plus + minus

    def low(self) -> Apply:
        """The sum modulo 2^32."""
        if (self._n_plus, self._n_minus) in _SUMS:
            return _SUMS[self._n_plus, self._n_minus]
        n_plus = self._n_plus

        def apply(*values: Value) -> tuple[Value, ...]:
            total = values[0] if n_plus else np.negative(values[0])
            for place, value in enumerate(values[1:], start=1):
                total = total + value if place < n_plus else total - value
            return (total,)

        return apply

    def with_carries(self) -> Apply:
        """The sum, whether it passes 2^32, and whether it passes 2^33."""
        if self._bias <= WORD_MASK and (self._n_plus, self._n_minus) in _SUMS_WITH_CARRY:
            return _SUMS_WITH_CARRY[self._n_plus, self._n_minus]
        n_plus = self._n_plus
        # The low half of the bias is among the sources.
        bias = full((self._bias >> WORD_BITS << WORD_BITS) + self._n_minus * _CARRY, np.uint64)

        def apply(*values: Value) -> tuple[Value, ...]:
            total = bias
            for place, value in enumerate(values):
                total = total + value if place < n_plus else total - value
            return total.astype(np.uint32), total >= _ONE_CARRY, total >= _TWO_CARRIES

        return apply


_ONE_CARRY, _TWO_CARRIES = full(_CARRY, np.uint64), full(2 * _CARRY, np.uint64)
_SUMS: dict[tuple[int, int], Apply] = {
    (1, 0): lambda a: (a,),
    (2, 0): lambda a, b: (a + b,),
    (3, 0): lambda a, b, c: (a + b + c,),
    (0, 1): lambda a: (np.negative(a),),
    (1, 1): lambda a, b: (a - b,),
    (2, 1): lambda a, b, c: (a + b - c,),
    (1, 2): lambda a, b, c: (a - b - c,),
}


def _carry_of_two(a: Value, b: Value) -> tuple[Value, ...]:
    total = a + b
    return total, wraps(total, a, b), NEVER


_SUMS_WITH_CARRY: dict[tuple[int, int], Apply] = {
    (2, 0): _carry_of_two,
    (1, 1): lambda a, b: (a - b, a >= b, NEVER),  # 2^32 - b + a passes 2^32 where a >= b
}


def _as_word(bit: Value) -> Value:
    return bit.astype(np.uint32)
