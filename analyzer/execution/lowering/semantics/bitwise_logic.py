"""Bitwise logic by truth table: LOP3, LOP32I, LOP, and PLOP3 for predicates.

A truth table has eight bits; bit 4a + 2b + c is the result for the inputs a, b and c (PTX, lop3). Constant
inputs and inputs without influence are removed first; the rest becomes a numpy expression of one, two or
three inputs.

    LOP3.LUT R4, R2, R3, RZ, 0xc0, !PT     the table of a & b: compiled as np.bitwise_and of two words
"""

from collections.abc import Callable

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    WORD_MASK,
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    make_constant,
    make_predicate_literal,
    make_step,
    make_word_literal,
)
from analyzer.execution.lowering.step import AffineRule, Step, Value
from analyzer.ir.module import InstructionForm

_DISCARDED = -1
_BINARY_TRUTH_TABLES = {"AND": 0xC0, "OR": 0xFC, "XOR": 0x3C, "PASS_B": 0xCC}
_INPUT_MASKS = (0xF0, 0xCC, 0xAA)  # table bits at which the first, second, third input is set

LogicFunction = Callable[..., Value]


def compile_logic(form: InstructionForm) -> Step:
    """Compile LOP3.LUT; the predicate result is `word != 0`, joined with the predicate input."""
    parser = OperandParser(form)
    parser.take_modifier("LUT")
    needs_both = parser.take_modifier("PAND")
    nonzero_bit = (*parser.take_result_predicates(1), _DISCARDED)[0]
    result = parser.take_result()
    inputs = [parser.take_plain_word() for _ in range(3)]
    table = parser.take_immediate(0xFF)
    bit = parser.take_predicate()
    parser.expect_end()
    function, sources = _make_word_function(table, inputs)
    if nonzero_bit == _DISCARDED:
        return make_step(lambda *words: (function(*words),), sources, [result], AffineRule.BITWISE)
    n_words = len(sources)

    def apply(*values: Value) -> tuple[Value, ...]:
        word = function(*values[:n_words])
        return word, _join_predicate(word != 0, bit, values[n_words:], needs_both)

    return make_step(apply, [*sources, *([] if bit.literal is not None else [bit])], [result, nonzero_bit])


def _join_predicate(is_set: Value, bit: SourceOperand, values: tuple[Value, ...], needs_both: bool) -> Value:
    if bit.literal is None:
        return is_set & values[0] if needs_both else is_set | values[0]
    if bool(bit.literal) == needs_both:
        return is_set
    return make_constant(not needs_both, np.bool_)


def compile_binary_logic(form: InstructionForm) -> Step:
    """Compile LOP and LOP32I, which have two inputs."""
    parser = OperandParser(form)
    table = parser.take_choice(_BINARY_TRUTH_TABLES)
    result, a, b = parser.take_result(), parser.take_plain_word(), parser.take_plain_word()
    parser.expect_end()
    function, sources = _make_word_function(table, [a, b, make_word_literal(0)])
    return make_step(lambda *words: (function(*words),), sources, [result], AffineRule.BITWISE)


def compile_predicate_logic(form: InstructionForm) -> Step:
    """Compile PLOP3.LUT: two results, each with its own truth table."""
    parser = OperandParser(form)
    parser.take_modifier("LUT")
    writes = parser.take_result_predicate(), parser.take_result_predicate()
    inputs = [parser.take_predicate() for _ in range(3)]
    tables = parser.take_immediate(0xFF), parser.take_immediate(0xFF)
    parser.expect_end()
    (first, first_sources), (second, second_sources) = (_make_predicate_function(t, inputs) for t in tables)
    if writes[1] == _DISCARDED:
        return make_step(lambda *bits: (first(*bits),), first_sources, writes[:1])
    if writes[0] == _DISCARDED:
        return make_step(lambda *bits: (second(*bits),), second_sources, writes[1:])
    n_first = len(first_sources)

    def apply(*bits: Value) -> tuple[Value, ...]:
        return first(*bits[:n_first]), second(*bits[n_first:])

    return make_step(apply, [*first_sources, *second_sources], writes)


def compile_predicate_compare(form: InstructionForm) -> Step:
    """Compile PSETP: (a op1 b) op2 c, and (not (a op1 b)) op2 c."""
    modifiers = form.opcode.modifiers
    if len(modifiers) != 2 or not _PREDICATE_OPERATIONS.keys() >= set(modifiers):
        raise UnsupportedInstructionError
    parser = OperandParser(form)
    for word in modifiers:
        parser.take_modifier(word)
    writes = parser.take_result_predicate(), parser.take_result_predicate()
    inputs = [parser.take_predicate() for _ in range(3)]
    parser.expect_end()
    inner, outer = (_PREDICATE_OPERATIONS[word] for word in modifiers)

    def apply(a: Value, b: Value, c: Value) -> tuple[Value, ...]:
        both = inner(a, b)
        return outer(both, c), outer(~both, c)

    return make_step(apply, inputs, writes)


_PREDICATE_OPERATIONS: dict[str, np.ufunc] = {
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
}


# Truth tables


def _make_word_function(table: int, inputs: list[SourceOperand]) -> tuple[LogicFunction, list[SourceOperand]]:
    return _make_truth_table_function(
        table, inputs, {0: 0, WORD_MASK: 1}, make_word_literal(0), make_word_literal(WORD_MASK)
    )


def _make_predicate_function(
    table: int, inputs: list[SourceOperand]
) -> tuple[LogicFunction, list[SourceOperand]]:
    return _make_truth_table_function(
        table, inputs, {0: 0, 1: 1}, make_predicate_literal(False), make_predicate_literal(True)
    )


def _make_truth_table_function(
    table: int,
    inputs: list[SourceOperand],
    fixed: dict[int, int],
    zeros: SourceOperand,
    ones: SourceOperand,
) -> tuple[LogicFunction, list[SourceOperand]]:
    """Return the function of a truth table, and the inputs that it takes.

    Constant inputs and inputs without influence are removed.

    fixed: truth value of a literal
    zeros, ones: the results of a constant table
    """
    for mask, source in zip(_INPUT_MASKS, inputs, strict=True):
        if source.literal in fixed:
            table = _fix_table_input(table, mask, fixed[source.literal])
    positions = [position for position, mask in enumerate(_INPUT_MASKS) if _depends_on_input(table, mask)]
    if not positions:
        return _identity, [ones if table & 1 else zeros]
    return _make_input_function(table, positions), [inputs[position] for position in positions]


def _fix_table_input(table: int, mask: int, value: int) -> int:
    """Return the table with one input fixed to a value; it no longer depends on that input."""
    shift = mask & -mask
    half = table & mask if value else (table << shift.bit_length() - 1) & mask
    return half | half >> (shift.bit_length() - 1)


def _depends_on_input(table: int, mask: int) -> bool:
    return _fix_table_input(table, mask, 0) != _fix_table_input(table, mask, 1)


def _make_input_function(table: int, positions: list[int]) -> LogicFunction:
    """Make the function of the inputs at `places`, in this order."""
    if len(positions) == 1:
        return np.invert if _fix_table_input(table, _INPUT_MASKS[positions[0]], 1) == 0 else _identity
    if len(positions) == 2:
        a, b = (_INPUT_MASKS[position] for position in positions)
        key = 0
        for bits in range(4):
            key |= (_fix_table_input(_fix_table_input(table, a, bits >> 1), b, bits & 1) & 1) << bits
        return _TWO_INPUT_FUNCTIONS[key]
    return _make_three_input_function(table)


def _identity(a: Value) -> Value:
    return a


_TWO_INPUT_FUNCTIONS: dict[int, LogicFunction] = {  # the key is a truth table: bit 2a + b
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


def _make_three_input_function(table: int) -> LogicFunction:
    """Make the function of three inputs: c selects between two tables of a and b (Shannon expansion)."""
    without, within = (_fix_table_input(table, _INPUT_MASKS[2], bit) for bit in (0, 1))
    if within == 0xFF:
        low = _make_first_two_function(without)
        return lambda a, b, c: low(a, b) | c
    if without == 0:
        high = _make_first_two_function(within)
        return lambda a, b, c: high(a, b) & c
    if within == 0:
        low = _make_first_two_function(without)
        return lambda a, b, c: low(a, b) & ~c
    if without == 0xFF:
        high = _make_first_two_function(within)
        return lambda a, b, c: high(a, b) | ~c
    low = _make_first_two_function(without)
    if within == 0xFF ^ without:
        return lambda a, b, c: low(a, b) ^ c
    change = _make_first_two_function(without ^ within)
    return lambda a, b, c: low(a, b) ^ (change(a, b) & c)


def _make_first_two_function(table: int) -> LogicFunction:
    """Make a function of a and b, which may depend on one of them only."""
    positions = [position for position in (0, 1) if _depends_on_input(table, _INPUT_MASKS[position])]
    if len(positions) == 2:
        return _make_input_function(table, positions)
    one = _make_input_function(table, positions)
    return (lambda a, b: one(a)) if positions == [0] else (lambda a, b: one(b))
