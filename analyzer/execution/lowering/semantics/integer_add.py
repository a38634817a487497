"""Integer addition: IADD3, IADD, VIADD and their uniform variants, with carries in and out.

A sum is split into terms that are added, terms that are subtracted, and a constant (`IntegerSum`). -b is
2^32 - b, so it is 2^32 for b = 0 and produces a carry then, as on the hardware.

    IADD3 R4, P0, R2, -R3, RZ      low word a - b, carry P0 = a >= b
"""

from collections.abc import Sequence

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    FALSE_PREDICATE,
    WORD_BITS,
    WORD_MASK,
    Addend,
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    compute_carry,
    make_constant,
    make_pair_literal,
    make_step,
    make_word_literal,
    split_pair,
)
from analyzer.execution.lowering.step import AffineRule, LaneFunction, Step, Value
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import Predicate

_CARRY = 1 << WORD_BITS
_DISCARDED = -1


def compile_integer_add(form: InstructionForm) -> Step:
    """Compile IADD3, IADD, VIADD: up to three addends and two carries out; `.X` adds two carries in."""
    parser = OperandParser(form)
    is_wide, is_extended = parser.take_modifier("64"), parser.take_modifier("X")
    results = parser.take_results(2 if is_wide else 1)
    carries_out = parser.take_result_predicates(2)
    addends: list[Addend] = []
    while parser.is_word_next():
        addends.append(parser.take_addend(wide=is_wide))
    carries_in: list[SourceOperand] = []
    while parser.is_next(Predicate):
        carries_in.append(parser.take_predicate())
    parser.expect_end()
    if not addends or len(carries_in) != (2 if is_extended else 0):
        raise UnsupportedInstructionError
    if is_extended and (len(addends) != 3 or any(addend.is_negated for addend in addends)):
        raise UnsupportedInstructionError
    if is_wide:
        return _compile_wide_sum(addends, results, carries_out)
    total = IntegerSum(addends, carries_in)
    kept = [bit for bit in carries_out if bit != _DISCARDED]
    if not kept:
        return make_step(total.make_low_word(), total.sources, results, AffineRule.LINEAR)
    if total.max_value >> WORD_BITS > 1 and len(kept) < 2:
        raise UnsupportedInstructionError  # which of the two carries the predicate receives is unknown
    return make_step(
        total.make_sum_with_carries(), total.sources, (*results, *_pad_to_two(carries_out)), AffineRule.LINEAR
    )


def _pad_to_two(bits: Sequence[int]) -> tuple[int, int]:
    """Return two carry predicates, -1 for those that are discarded."""
    first, second = (*bits, _DISCARDED)[:2]
    return first, second


def _compile_wide_sum(addends: list[Addend], results: tuple[int, ...], carries_out: tuple[int, ...]) -> Step:
    """Compile a 64-bit sum; a sum or difference of two pairs is computed by words, which is cheaper."""
    if any(bit != _DISCARDED for bit in carries_out):
        raise UnsupportedInstructionError
    addends = sorted((a for a in addends if not a.source.is_zero), key=lambda addend: addend.is_negated)
    words = [half for addend in addends for half in addend.source.halves or ()]
    if len(addends) == 2 and len(words) == 4 and not addends[0].is_negated:
        function = _subtract_pairs if addends[1].is_negated else _add_pairs
        return make_step(function, words, results, AffineRule.PAIR_LINEAR)
    sources = [
        addend.source.map_value(np.negative) if addend.is_negated else addend.source for addend in addends
    ] or [make_pair_literal(0)]

    def apply(first: Value, *others: Value) -> tuple[Value, ...]:
        for other in others:
            first = first + other
        return split_pair(first)

    return make_step(apply, sources, results, AffineRule.PAIR_LINEAR)


def _add_pairs(a_low: Value, a_high: Value, b_low: Value, b_high: Value) -> tuple[Value, ...]:
    low = a_low + b_low
    return low, a_high + b_high + compute_carry(low, a_low, b_low)


def _subtract_pairs(a_low: Value, a_high: Value, b_low: Value, b_high: Value) -> tuple[Value, ...]:
    return a_low - b_low, a_high - b_high - (a_low < b_low)


class IntegerSum:
    """A sum of words: added terms, subtracted terms, and a constant.

    max_value: largest value of the sum
    """

    __slots__ = ("_bias", "_n_minus", "_n_plus", "max_value", "sources")

    def __init__(self, addends: list[Addend], carries_in: list[SourceOperand]) -> None:
        plus = [a.source for a in addends if a.source.literal is None and not a.is_negated]
        plus += [c.map_value(_to_word) for c in carries_in if c.literal is None]
        minus = [a.source for a in addends if a.source.literal is None and a.is_negated]
        self._n_plus, self._n_minus = len(plus), len(minus)
        self._bias = sum(c.literal for c in carries_in if c.literal is not None)
        # -b is 2^32 - b, so the negation of zero produces a carry.
        for addend in addends:
            if addend.source.literal is not None:
                number = addend.source.literal
                self._bias += _CARRY - number if addend.is_negated else number
        n_bits = sum(c.literal is None for c in carries_in)
        self.max_value = (len(plus) - n_bits) * WORD_MASK + n_bits + self._n_minus * _CARRY + self._bias
        if self._bias & WORD_MASK or not plus + minus:
            plus.append(make_word_literal(self._bias))
            self._n_plus += 1
        self.sources = plus + minus

    def make_low_word(self) -> LaneFunction:
        """Make the function of the sum modulo 2^32."""
        if (self._n_plus, self._n_minus) in _SUM_FUNCTIONS:
            return _SUM_FUNCTIONS[self._n_plus, self._n_minus]
        n_plus = self._n_plus

        def apply(*values: Value) -> tuple[Value, ...]:
            total = values[0] if n_plus else np.negative(values[0])
            for position, value in enumerate(values[1:], start=1):
                total = total + value if position < n_plus else total - value
            return (total,)

        return apply

    def make_sum_with_carries(self) -> LaneFunction:
        """Make the function of the sum modulo 2^32, and of its carries: sum >= 2^32, sum >= 2^33."""
        if self._bias <= WORD_MASK and (self._n_plus, self._n_minus) in _SUM_WITH_CARRY_FUNCTIONS:
            return _SUM_WITH_CARRY_FUNCTIONS[self._n_plus, self._n_minus]
        n_plus = self._n_plus
        # The low word of the constant is among the sources.
        bias = make_constant((self._bias >> WORD_BITS << WORD_BITS) + self._n_minus * _CARRY, np.uint64)

        def apply(*values: Value) -> tuple[Value, ...]:
            total = bias
            for position, value in enumerate(values):
                total = total + value if position < n_plus else total - value
            return total.astype(np.uint32), total >= _ONE_CARRY, total >= _TWO_CARRIES

        return apply


_ONE_CARRY, _TWO_CARRIES = make_constant(_CARRY, np.uint64), make_constant(2 * _CARRY, np.uint64)
_SUM_FUNCTIONS: dict[tuple[int, int], LaneFunction] = {
    (1, 0): lambda a: (a,),
    (2, 0): lambda a, b: (a + b,),
    (3, 0): lambda a, b, c: (a + b + c,),
    (0, 1): lambda a: (np.negative(a),),
    (1, 1): lambda a, b: (a - b,),
    (2, 1): lambda a, b, c: (a + b - c,),
    (1, 2): lambda a, b, c: (a - b - c,),
}


def _add_two_with_carry(a: Value, b: Value) -> tuple[Value, ...]:
    total = a + b
    return total, compute_carry(total, a, b), FALSE_PREDICATE


_SUM_WITH_CARRY_FUNCTIONS: dict[tuple[int, int], LaneFunction] = {
    (2, 0): _add_two_with_carry,
    (1, 1): lambda a, b: (a - b, a >= b, FALSE_PREDICATE),  # a + 2^32 - b >= 2^32 if a >= b
}


def _to_word(bit: Value) -> Value:
    return bit.astype(np.uint32)
