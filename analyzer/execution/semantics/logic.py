"""Bitwise logic by truth table: LOP3, LOP32I, LOP, and PLOP3 for predicates."""

from collections.abc import Callable

import numpy as np

from analyzer.execution.semantics.operands import (
    WORD_MASK,
    NotUnderstoodError,
    Parts,
    Source,
    bit_literal,
    full,
    make_step,
    word_literal,
)
from analyzer.execution.step import AffineRule, Step, Value
from analyzer.ir.program import InstructionForm

_DISCARDED = -1
_BINARY_TABLES = {"AND": 0xC0, "OR": 0xFC, "XOR": 0x3C, "PASS_B": 0xCC}
_INPUT_MASKS = (0xF0, 0xCC, 0xAA)  # table entries where the first, second, third input is set

Combine = Callable[..., Value]


def compile_logic(form: InstructionForm) -> Step:
    """LOP3.LUT: each bit of the result is the table's bit at 4a + 2b + c."""
    parts = Parts(form)
    parts.flag("LUT")
    needs_both = parts.flag("PAND")
    is_set = (*parts.result_bits(1), _DISCARDED)[0]
    result = parts.result()
    inputs = [parts.plain_word() for _ in range(3)]
    table = parts.immediate(0xFF)
    bit = parts.bit()
    parts.finish()
    function, sources = _words_by_table(table, inputs)
    if is_set == _DISCARDED:
        return make_step(lambda *words: (function(*words),), sources, [result], AffineRule.BITWISE)
    n_words = len(sources)

    def apply(*values: Value) -> tuple[Value, ...]:
        word = function(*values[:n_words])
        return word, _join(word != 0, bit, values[n_words:], needs_both)

    return make_step(apply, [*sources, *([] if bit.literal is not None else [bit])], [result, is_set])


def _join(is_set: Value, bit: Source, values: tuple[Value, ...], needs_both: bool) -> Value:
    if bit.literal is None:
        return is_set & values[0] if needs_both else is_set | values[0]
    if bool(bit.literal) == needs_both:
        return is_set
    return full(not needs_both, np.bool_)


def compile_binary_logic(form: InstructionForm) -> Step:
    """LOP.AND, LOP32I.OR ...: two inputs."""
    parts = Parts(form)
    table = parts.choose(_BINARY_TABLES)
    result, a, b = parts.result(), parts.plain_word(), parts.plain_word()
    parts.finish()
    function, sources = _words_by_table(table, [a, b, word_literal(0)])
    return make_step(lambda *words: (function(*words),), sources, [result], AffineRule.BITWISE)


def compile_predicate_logic(form: InstructionForm) -> Step:
    """PLOP3.LUT: two results, each by a table of its own."""
    parts = Parts(form)
    parts.flag("LUT")
    writes = parts.result_bit(), parts.result_bit()
    inputs = [parts.bit() for _ in range(3)]
    tables = parts.immediate(0xFF), parts.immediate(0xFF)
    parts.finish()
    (first, first_sources), (second, second_sources) = (_bits_by_table(t, inputs) for t in tables)
    if writes[1] == _DISCARDED:
        return make_step(lambda *bits: (first(*bits),), first_sources, writes[:1])
    if writes[0] == _DISCARDED:
        return make_step(lambda *bits: (second(*bits),), second_sources, writes[1:])
    n_first = len(first_sources)

    def apply(*bits: Value) -> tuple[Value, ...]:
        return first(*bits[:n_first]), second(*bits[n_first:])

    return make_step(apply, [*first_sources, *second_sources], writes)


def compile_predicate_compare(form: InstructionForm) -> Step:
    """PSETP.AND.OR: (a op b) op c, and (not (a op b)) op c."""
    modifiers = form.opcode.modifiers
    if len(modifiers) != 2 or not _BIT_OPERATIONS.keys() >= set(modifiers):
        raise NotUnderstoodError
    parts = Parts(form)
    for word in modifiers:
        parts.flag(word)
    writes = parts.result_bit(), parts.result_bit()
    inputs = [parts.bit() for _ in range(3)]
    parts.finish()
    inner, outer = (_BIT_OPERATIONS[word] for word in modifiers)

    def apply(a: Value, b: Value, c: Value) -> tuple[Value, ...]:
        both = inner(a, b)
        return outer(both, c), outer(~both, c)

    return make_step(apply, inputs, writes)


_BIT_OPERATIONS: dict[str, np.ufunc] = {
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
}


# Truth tables


def _words_by_table(table: int, inputs: list[Source]) -> tuple[Combine, list[Source]]:
    return _by_table(table, inputs, {0: 0, WORD_MASK: 1}, word_literal(0), word_literal(WORD_MASK))


def _bits_by_table(table: int, inputs: list[Source]) -> tuple[Combine, list[Source]]:
    return _by_table(table, inputs, {0: 0, 1: 1}, bit_literal(False), bit_literal(True))


def _by_table(
    table: int, inputs: list[Source], fixed: dict[int, int], none: Source, every: Source
) -> tuple[Combine, list[Source]]:
    """A function of the inputs that matter: constant ones and those without influence drop out."""
    for mask, source in zip(_INPUT_MASKS, inputs, strict=True):
        if source.literal in fixed:
            table = _restricted(table, mask, fixed[source.literal])
    places = [place for place, mask in enumerate(_INPUT_MASKS) if _depends(table, mask)]
    if not places:
        return _same, [every if table & 1 else none]
    return _combine(table, places), [inputs[place] for place in places]


def _restricted(table: int, mask: int, value: int) -> int:
    """The table with one input fixed, whatever that input then says."""
    shift = mask & -mask
    half = table & mask if value else (table << shift.bit_length() - 1) & mask
    return half | half >> (shift.bit_length() - 1)


def _depends(table: int, mask: int) -> bool:
    return _restricted(table, mask, 0) != _restricted(table, mask, 1)


def _combine(table: int, places: list[int]) -> Combine:
    """The function of the inputs at `places`, in order."""
    if len(places) == 1:
        return np.invert if _restricted(table, _INPUT_MASKS[places[0]], 1) == 0 else _same
    if len(places) == 2:
        a, b = (_INPUT_MASKS[place] for place in places)
        key = 0
        for bits in range(4):
            key |= (_restricted(_restricted(table, a, bits >> 1), b, bits & 1) & 1) << bits
        return _OF_TWO[key]
    return _of_three(table)


def _same(a: Value) -> Value:
    return a


_OF_TWO: dict[int, Combine] = {  # bit 2a + b of the key
    0b1000: lambda a, b: a & b,
    0b0100: lambda a, b: a & ~b,
    0b0010: lambda a, b: ~a & b,
    0b0001: lambda a, b: ~(a | b),
    0b1110: lambda a, b: a | b,
    0b1101: lambda a, b: a | ~b,
    0b1011: lambda a, b: ~a | b,
    0b0111: lambda a, b: ~(a & b),
    0b0110: lambda a, b: a ^ b,
    0b1001: lambda a, b: ~(a ^ b),
}


def _of_three(table: int) -> Combine:
    """By the third input: the two tables of the first two that it selects between."""
    without, within = (_restricted(table, _INPUT_MASKS[2], bit) for bit in (0, 1))
    if within == 0xFF:
        low = _first_two(without)
        return lambda a, b, c: low(a, b) | c
    if without == 0:
        high = _first_two(within)
        return lambda a, b, c: high(a, b) & c
    if within == 0:
        low = _first_two(without)
        return lambda a, b, c: low(a, b) & ~c
    if without == 0xFF:
        high = _first_two(within)
        return lambda a, b, c: high(a, b) | ~c
    low = _first_two(without)
    if within == 0xFF ^ without:
        return lambda a, b, c: low(a, b) ^ c
    change = _first_two(without ^ within)
    return lambda a, b, c: low(a, b) ^ (change(a, b) & c)


def _first_two(table: int) -> Combine:
    """A function of a and b that may look at one of them only."""
    places = [place for place in (0, 1) if _depends(table, _INPUT_MASKS[place])]
    if len(places) == 2:
        return _combine(table, places)
    one = _combine(table, places)
    return (lambda a, b: one(a)) if places == [0] else (lambda a, b: one(b))
