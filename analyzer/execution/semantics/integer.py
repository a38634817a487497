"""Integer sums and products: IADD3, VIADD, IMAD, LEA, ISCADD, IDP and their uniform twins."""

from collections.abc import Sequence

import numpy as np

from analyzer.execution.semantics.operands import (
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
    total = _Sum(addends, carries_in)
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
    sources = [
        addend.source.mapped(np.negative) if addend.negated else addend.source
        for addend in addends
        if not addend.source.is_zero
    ] or [pair_literal(0)]

    def apply(first: Value, *others: Value) -> tuple[Value, ...]:
        for other in others:
            first = first + other
        return split_pair(first)

    return make_step(apply, sources, results, AffineRule.PAIR)


class _Sum:
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
_NEVER = full(0, np.bool_)
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
    return total, total < a, _NEVER


_SUMS_WITH_CARRY: dict[tuple[int, int], Apply] = {
    (2, 0): _carry_of_two,
    (1, 1): lambda a, b: (a - b, a >= b, _NEVER),  # 2^32 - b + a passes 2^32 where a >= b
}


def _as_word(bit: Value) -> Value:
    return bit.astype(np.uint32)


# Products


def compile_multiply_add(form: InstructionForm) -> Step:
    """IMAD: low word, `.WIDE` or `.HI` of a 64-bit sum; MOV, IADD, SHL say only what it is used for."""
    parts = Parts(form)
    for word in ("MOV", "IADD", "SHL"):
        parts.flag(word)
    is_unsigned, is_extended = parts.flag("U32"), parts.flag("X")
    is_wide, is_high = parts.flag("WIDE"), parts.flag("HI")
    results = parts.results(2 if is_wide else 1)
    carry_out = (*parts.result_bits(1), _DISCARDED)[0]
    if is_wide or is_high:
        a, b, c = parts.plain_word(), parts.plain_word(), parts.addend(wide=True)
    else:
        a, b, c = parts.word(), parts.word(), parts.addend()
    carry_in = parts.bit() if is_extended else None
    parts.finish()
    if not is_wide and not is_high:
        if carry_out != _DISCARDED or (is_extended and c.negated):
            raise NotUnderstoodError
        return _low_product(a, b, c, carry_in, results)
    if c.negated and (carry_out != _DISCARDED or carry_in is not None):
        raise NotUnderstoodError
    if carry_out != _DISCARDED and (carry_in is not None or not is_unsigned):
        raise NotUnderstoodError
    if is_high and carry_in is not None:
        raise NotUnderstoodError
    return _wide_product(a, b, c, carry_in, (*results, carry_out), is_unsigned=is_unsigned)


def _low_product(a: Source, b: Source, c: Addend, carry: Source | None, results: tuple[int, ...]) -> Step:
    carries = [] if carry is None else [carry]
    if a.literal is not None:
        a, b = b, a
    if a.is_zero or b.is_zero:
        total = _Sum([c], carries)
        return make_step(total.low(), total.sources, results, AffineRule.LINEAR)
    if b.literal == 1:
        total = _Sum([Addend(a, False), c], carries)
        return make_step(total.low(), total.sources, results, AffineRule.LINEAR)
    rest = _Sum([c], carries)
    rule, factors = (AffineRule.PRODUCT, ([a], [b])) if b.literal is None else (AffineRule.LINEAR, ([], []))
    if rest.sources[0].is_zero:
        return make_step(lambda x, y: (x * y,), [a, b], results, rule, factors=factors)
    add = rest.low()

    def apply(x: Value, y: Value, *others: Value) -> tuple[Value, ...]:
        return (x * y + add(*others)[0],)

    function = apply if len(rest.sources) > 1 or c.negated else _multiply_add
    return make_step(function, [a, b, *rest.sources], results, rule, factors=factors)


def _multiply_add(x: Value, y: Value, z: Value) -> tuple[Value, ...]:
    return (x * y + z,)


def _wide_product(
    a: Source, b: Source, c: Addend, carry: Source | None, writes: tuple[int, ...], *, is_unsigned: bool
) -> Step:
    """A 64-bit product and sum; three writes are those of .WIDE, two those of .HI."""
    extend = _unsigned_wide if is_unsigned else _signed_wide
    wide_a, wide_b = a.mapped(extend), b.mapped(extend)
    has_sum = not c.source.is_zero
    sources = [wide_a, wide_b] + ([c.source] if has_sum else [])
    if carry is not None:
        sources.append(carry)
    is_wide = len(writes) == 3

    def total(x: Value, y: Value, *others: Value) -> Value:
        product = x * y
        if has_sum:
            product = product - others[0] if c.negated else product + others[0]
        return product if carry is None else product + others[-1]

    def with_carry(x: Value, y: Value, *others: Value) -> tuple[Value, ...]:
        number = total(x, y, *others)
        halves = split_pair(number) if is_wide else (_upper(number),)
        return (*halves, number < others[0] if has_sum else _NEVER)

    if writes[-1] != _DISCARDED:
        return make_step(with_carry, sources, writes)
    if not is_wide:
        # With one factor and no sum the upper half only grows or only shrinks.
        is_monotone = not has_sum and b.literal is not None
        rule = AffineRule.MONOTONE if is_monotone else AffineRule.FIXED
        return make_step(lambda *values: (_upper(total(*values)),), sources, writes[:1], rule)
    factors: tuple[list[Source], list[Source]] = (
        ([wide_a], [wide_b]) if a.literal is None and b.literal is None else ([], [])
    )
    return make_step(
        lambda *values: split_pair(total(*values)), sources, writes[:2], AffineRule.PAIR, factors=factors
    )


def _upper(number: Value) -> Value:
    return (number >> np.uint64(WORD_BITS)).astype(np.uint32)


def _unsigned_wide(word: Value) -> Value:
    return word.astype(np.uint64)


def _signed_wide(word: Value) -> Value:
    return word.view(np.int32).astype(np.int64).view(np.uint64)


_PRODUCT_PARTS = {"S8": np.int8, "U8": np.uint8}


def compile_dot(form: InstructionForm) -> Step:
    """IDP.4A: four byte products added to a word."""
    match form.opcode.modifiers:
        case ("4A", left, right) if left in _PRODUCT_PARTS and right in _PRODUCT_PARTS:
            a_type, b_type = _PRODUCT_PARTS[left], _PRODUCT_PARTS[right]
        case _:
            raise NotUnderstoodError
    parts = Parts(form)
    for word in form.opcode.modifiers:
        parts.flag(word)
    result, a, b, c = parts.result(), parts.plain_word(), parts.plain_word(), parts.word()
    parts.finish()

    def apply(x: Value, y: Value, z: Value) -> tuple[Value, ...]:
        total = z
        for shift in range(0, WORD_BITS, 8):
            left = (x >> np.uint32(shift)).astype(a_type).astype(np.int32)
            right = (y >> np.uint32(shift)).astype(b_type).astype(np.int32)
            total = total + (left * right).view(np.uint32)
        return (total,)

    return make_step(apply, [a, b, c], [result])
