"""Integer products: IMAD in all its forms, UIMAD, IDP."""

import numpy as np

from analyzer.execution.semantics.integer import Sum
from analyzer.execution.semantics.operands import (
    NEVER,
    WORD_BITS,
    Addend,
    NotUnderstoodError,
    Parts,
    Source,
    make_step,
    split_pair,
    wraps,
)
from analyzer.execution.semantics.shift_add import moved_up
from analyzer.execution.step import AffineRule, Step, Value
from analyzer.ir.program import InstructionForm

_DISCARDED = -1
_LEAST_RECIPROCAL = 1 << 20


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
    shift = _power_of_two(b)
    halves = c.source.halves
    if is_wide and shift is not None and halves and len(form.operands) == 4 and not c.negated:
        return _scaled_pair(a, shift, halves, results, is_signed=not is_unsigned)
    return _wide_product(a, b, c, carry_in, (*results, carry_out), is_unsigned=is_unsigned)


def _low_product(a: Source, b: Source, c: Addend, carry: Source | None, results: tuple[int, ...]) -> Step:
    carries = [] if carry is None else [carry]
    if a.literal is not None:
        a, b = b, a
    if a.is_zero or b.is_zero:
        total = Sum([c], carries)
        return make_step(total.low(), total.sources, results, AffineRule.LINEAR)
    if b.literal == 1:
        total = Sum([Addend(a, False), c], carries)
        return make_step(total.low(), total.sources, results, AffineRule.LINEAR)
    rest = Sum([c], carries)
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
        return (*halves, number < others[0] if has_sum else NEVER)

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
    divides = not has_sum and carry is None and _is_reciprocal(b)
    return make_step(
        lambda *values: split_pair(total(*values)),
        sources,
        writes[:2],
        AffineRule.PAIR,
        factors=factors,
        quotient=1 if divides else None,
    )


def _is_reciprocal(factor: Source) -> bool:
    """A literal that no stride of an array is: with so many bits, of which the last one is set."""
    literal = factor.literal or 0
    return bool(literal & 1) and literal >= _LEAST_RECIPROCAL


def _upper(number: Value) -> Value:
    return (number >> np.uint64(WORD_BITS)).astype(np.uint32)


def _power_of_two(factor: Source) -> int | None:
    """Exponent of a literal below 2^31."""
    number = factor.literal or 0
    return number.bit_length() - 1 if number.bit_count() == 1 and number < 1 << WORD_BITS - 1 else None


def _scaled_pair(
    a: Source, shift: int, c: tuple[Source, Source], results: tuple[int, ...], *, is_signed: bool
) -> Step:
    """An index times a size, added to an address: the same sum by words, which costs half as much."""
    amount, move_up = np.uint32(shift), moved_up(shift, is_signed=is_signed)

    def apply(x: Value, low: Value, high: Value) -> tuple[Value, ...]:
        scaled = x << amount
        total = scaled + low
        return total, move_up(x) + high + wraps(total, scaled, low)

    return make_step(apply, [a, *c], results, AffineRule.PAIR)


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
