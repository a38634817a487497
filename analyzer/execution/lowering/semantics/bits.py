"""Byte and bit operations: PRMT, BMSK, SGXT, FLO, POPC, BREV."""

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    WORD_BITS,
    WORD_MASK,
    OperandParser,
    SourceOperand,
    join_pair,
    make_constant,
    make_step,
)
from analyzer.execution.lowering.step import AffineRule, LaneFunction, Step, Value
from analyzer.ir.module import InstructionForm

_BYTE_INDICES = range(4)


def compile_permute(form: InstructionForm) -> Step:
    """Compile PRMT: each result byte is a byte of the pair (c, a), selected by a nibble of b.

    The top bit of a nibble replicates the sign bit of the selected byte instead (PTX, prmt).
    """
    parser = OperandParser(form)
    result, low, selector, high = parser.take_result(), *(parser.take_plain_word() for _ in range(3))
    parser.expect_end()
    if selector.literal is None:
        return make_step(_permute_bytes, [low, selector, high], [result])
    return _compile_constant_permute(selector.literal & 0xFFFF, low, high, result)


def _compile_constant_permute(selector: int, low: SourceOperand, high: SourceOperand, result: int) -> Step:
    """Compile PRMT with a constant selector as shifts and masks of whole words.

    Bytes that move by the same distance form one term, {(from high word, shift, is sign): byte mask}.
    """
    masks: dict[tuple[bool, int, bool], int] = {}
    for position in _BYTE_INDICES:
        nibble = selector >> 4 * position & 0xF
        takes_high, is_sign = bool(nibble & 4), bool(nibble & 8)
        # A replicated sign fills the whole word, which is masked later; so the target byte does not matter.
        shift = 24 - 8 * (nibble & 3) if is_sign else 8 * (position - (nibble & 3))
        key = (takes_high, shift, is_sign)
        masks[key] = masks.get(key, 0) | 0xFF << 8 * position
    terms = [(key, mask) for key, mask in masks.items() if not (high if key[0] else low).is_zero]
    sources = [source for takes_high, source in ((False, low), (True, high)) if _uses_word(terms, takes_high)]
    if not terms:
        return make_step(lambda x: (x & np.uint32(0),), [low], [result], AffineRule.BITWISE)
    if len(terms) == 1 and terms[0][0][1:] == (0, False) and terms[0][1] == WORD_MASK:
        return make_step(lambda x: (x,), sources, [result], AffineRule.LINEAR)
    pieces = [(len(sources) - 1 if key[0] else 0, _make_byte_move(*key[1:], mask)) for key, mask in terms]

    def apply(*words: Value) -> tuple[Value, ...]:
        position, piece = pieces[0]
        total = piece(words[position])[0]
        for position, piece in pieces[1:]:
            total = total | piece(words[position])[0]
        return (total,)

    stays = all(shift == 0 and not is_sign for (_, shift, is_sign), _ in terms)
    return make_step(apply, sources, [result], AffineRule.BITWISE if stays else AffineRule.UNKNOWN)


def _uses_word(terms: list[tuple[tuple[bool, int, bool], int]], takes_high: bool) -> bool:
    return any(key[0] == takes_high for key, _ in terms)


def _make_byte_move(shift: int, is_sign: bool, mask: int) -> LaneFunction:
    """Make the function of one term: shift left by `shift` bits (right if negative), then apply the mask.

    is_sign: the sign bit of the shifted word is replicated instead
    """
    keep = np.uint32(mask)
    if is_sign:
        amount = np.uint32(shift)
        return lambda x: (((x << amount).view(np.int32) >> np.int32(WORD_BITS - 1)).view(np.uint32) & keep,)
    if shift > 0:
        up = np.uint32(shift)
        if mask == WORD_MASK << shift & WORD_MASK:
            return lambda x: (x << up,)
        return lambda x: (x << up & keep,)
    if shift < 0:
        down = np.uint32(-shift)
        if mask == WORD_MASK >> -shift:
            return lambda x: (x >> down,)
        return lambda x: (x >> down & keep,)
    return lambda x: (x & keep,)


def _permute_bytes(x: Value, s: Value, y: Value) -> tuple[Value, ...]:
    """Return PRMT of the pair (y, x) with a selector that varies."""
    pair, total = join_pair(x, y), make_constant(0)
    for position in _BYTE_INDICES:
        nibble = s >> np.uint32(4 * position)
        byte = (pair >> (np.uint64(8) * (nibble & np.uint32(7)))).astype(np.uint32) & np.uint32(0xFF)
        sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        total = total | np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * position)
    return (total,)


def compile_bit_mask(form: InstructionForm) -> Step:
    """Compile BMSK: b set bits from bit a up. Both are clamped to 32, or taken modulo 32 by .W."""
    parser = OperandParser(form)
    wraps = parser.take_modifier("W")
    parser.take_modifier("C")
    result, start, count = parser.take_result(), parser.take_plain_word(), parser.take_plain_word()
    parser.expect_end()

    def apply(a: Value, b: Value) -> tuple[Value, ...]:
        if wraps:
            a, b = a & np.uint32(WORD_BITS - 1), b & np.uint32(WORD_BITS - 1)
        width = np.minimum(b, np.uint32(WORD_BITS)).astype(np.uint64)
        ones = (np.uint64(1) << width) - np.uint64(1)
        return ((ones << np.minimum(a, np.uint32(WORD_BITS)).astype(np.uint64)).astype(np.uint32),)

    return make_step(apply, [start, count], [result])


def compile_sign_extend(form: InstructionForm) -> Step:
    """Compile SGXT: the lower b bits, sign-extended unless .U32. b is clamped to 32, or modulo 32 by .W."""
    parser = OperandParser(form)
    wraps, is_unsigned = parser.take_modifier("W"), parser.take_modifier("U32")
    result, number, width = parser.take_result(), parser.take_plain_word(), parser.take_plain_word()
    parser.expect_end()

    def apply(x: Value, b: Value) -> tuple[Value, ...]:
        limited = b & np.uint32(WORD_BITS - 1) if wraps else np.minimum(b, np.uint32(WORD_BITS))
        amount = np.uint64(WORD_BITS) - limited  # in uint64 a shift by 32 is defined
        moved = (x.astype(np.uint64) << amount).astype(np.uint32)
        if is_unsigned:
            return ((moved.astype(np.uint64) >> amount).astype(np.uint32),)
        return ((moved.view(np.int32).astype(np.int64) >> amount.astype(np.int64)).astype(np.uint32),)

    is_mask = is_unsigned and width.literal is not None
    return make_step(apply, [number, width], [result], AffineRule.BITWISE if is_mask else AffineRule.UNKNOWN)


def compile_leading_bit(form: InstructionForm) -> Step:
    """Compile FLO: index of the highest set bit, all ones if there is none.

    Signed: of the highest bit that differs from the sign. `.SH` counts from the top. The index is the
    exponent of the word as a float64.
    """
    parser = OperandParser(form)
    is_unsigned, counts_down = parser.take_modifier("U32"), parser.take_modifier("SH")
    result = parser.take_result()
    parser.skip_discarded_predicates()
    number = parser.take_word()
    parser.expect_end()

    def apply(x: Value) -> tuple[Value, ...]:
        if not is_unsigned:
            x = x ^ (x.view(np.int32) >> np.int32(WORD_BITS - 1)).view(np.uint32)
        position = (np.frexp(x.astype(np.float64))[1] - 1).astype(np.int32)
        if counts_down:
            position = np.where(position < 0, position, WORD_BITS - 1 - position).astype(np.int32)
        return (position.view(np.uint32),)

    return make_step(apply, [number], [result])


def compile_bit_count(form: InstructionForm) -> Step:
    """Compile POPC."""
    parser = OperandParser(form)
    result, number = parser.take_result(), parser.take_word()
    parser.expect_end()
    return make_step(lambda x: (count_bits(x),), [number], [result])


def count_bits(x: Value) -> Value:
    """Count the set bits of each word, by adding fields of 1, 2, 4 and 8 bits (Warren, Hacker's Delight)."""
    x = x - (x >> np.uint32(1) & np.uint32(0x55555555))
    x = (x & np.uint32(0x33333333)) + (x >> np.uint32(2) & np.uint32(0x33333333))
    x = x + (x >> np.uint32(4)) & np.uint32(0x0F0F0F0F)
    return x * np.uint32(0x01010101) >> np.uint32(24)


# Distance and lower half of the fields that are swapped.
_BIT_SWAPS = ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF))


def compile_bit_reverse(form: InstructionForm) -> Step:
    """Compile BREV: swap neighbouring bits, then pairs, nibbles, bytes and halves."""
    parser = OperandParser(form)
    result, number = parser.take_result(), parser.take_word()
    parser.expect_end()

    def apply(x: Value) -> tuple[Value, ...]:
        for distance, mask in _BIT_SWAPS:
            amount, keep = np.uint32(distance), np.uint32(mask)
            x = (x & keep) << amount | x >> amount & keep
        return (x << np.uint32(16) | x >> np.uint32(16),)

    return make_step(apply, [number], [result])
