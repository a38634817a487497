"""Moves: registers, selects, special registers, constant banks, and constants in the form of HFMA2."""

import math
import struct

import numpy as np

from analyzer.execution.lowering.semantics.operand_parser import (
    OperandParser,
    SourceOperand,
    UnsupportedInstructionError,
    make_constant,
    make_constant_reads,
    make_constant_step,
    make_step,
    select_by_predicate,
    split_pair,
)
from analyzer.execution.lowering.step import AffineRule, ConstantRead, SpecialRead, Step, Value
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import ConstantBankOperand, Immediate, Register, SpecialOperand
from analyzer.isa.register_operands import BARRIER_RESULT_PREDICATE, BARRIER_RESULT_WORD

_ALL_BYTES_MASK = 0xF  # older tools print the byte mask of a move
_ZERO_REGISTER = "SRZ"
_DISCARDED = -1


def compile_move(form: InstructionForm) -> Step:
    """Compile MOV, MOV32I, UMOV and their 64-bit forms; .SPILL changes nothing."""
    parser = OperandParser(form)
    is_wide = parser.take_modifier("64")
    parser.take_modifier("SPILL")
    results = parser.take_results(2 if is_wide else 1)
    source = parser.take_word_or_pair(wide=is_wide)
    if parser.is_next(Immediate) and parser.take_immediate(_ALL_BYTES_MASK) != _ALL_BYTES_MASK:
        raise UnsupportedInstructionError
    parser.expect_end()
    if not is_wide:
        return make_step(lambda x: (x,), [source], results, AffineRule.LINEAR)
    if source.constant is not None:
        return make_constant_step(results, *split_pair(source.constant), rule=AffineRule.PAIR_LINEAR)
    if len(source.reads) == 2 and _is_unmodified(form):  # two words that are copied one by one
        halves = [SourceOperand((read,)) for read in source.reads]
        return make_step(lambda x, y: (x, y), halves, results, AffineRule.PAIR_LINEAR)
    return make_step(split_pair, [source], results, AffineRule.PAIR_LINEAR)


def _is_unmodified(form: InstructionForm) -> bool:
    operand = form.operands[1]
    return isinstance(operand, Register | ConstantBankOperand) and not (
        operand.is_negated or operand.is_inverted
    )


def compile_select(form: InstructionForm) -> Step:
    """Compile SEL: a where the predicate is true, else b."""
    parser = OperandParser(form)
    is_wide = parser.take_modifier("64")
    results = parser.take_results(2 if is_wide else 1)
    a, b = (parser.take_plain_pair() if is_wide else parser.take_plain_word() for _ in range(2))
    bit = parser.take_predicate()
    parser.expect_end()
    if bit.convert is np.logical_not:  # swapping the inputs is cheaper than the negation
        a, b, bit = b, a, SourceOperand(bit.reads)
    if is_wide:
        return make_step(
            lambda x, y, p: split_pair(select_by_predicate(p, x, y)),
            [a, b, bit],
            results,
            AffineRule.PAIR_LINEAR,
        )
    if a.is_zero and b.literal == 1:  # SEL R4, RZ, 0x1, P0: a predicate as a number
        return make_step(lambda p: ((~p).astype(np.uint32),), [bit], results, AffineRule.LINEAR)
    if a.literal == 1 and b.is_zero:
        return make_step(lambda p: (p.astype(np.uint32),), [bit], results, AffineRule.LINEAR)
    return make_step(lambda x, y, p: (select_by_predicate(p, x, y),), [a, b, bit], results, AffineRule.LINEAR)


def compile_half_constant(form: InstructionForm) -> Step:
    """Compile HFMA2 with a zero product, which loads two half-precision constants; refuse other forms."""
    parser = OperandParser(form)
    parser.take_modifier("MMA")
    is_bfloat = parser.take_modifier("BF16_V2")
    result = parser.take_result()
    for _ in range(2):
        zero = parser.take_operand()
        if not isinstance(zero, Register) or zero.index is not None or zero.suffixes:
            raise UnsupportedInstructionError
    high, low = (_take_half_bits(parser, is_bfloat) for _ in range(2))
    parser.expect_end()
    return make_constant_step([result], make_constant(high << 16 | low))


def _take_half_bits(parser: OperandParser, is_bfloat: bool) -> int:
    """Take a floating-point literal and return its 16 bits as fp16 or bf16."""
    operand = parser.take_operand()
    if not isinstance(operand, Immediate) or operand.suffixes or not isinstance(operand.value, float):
        raise UnsupportedInstructionError
    value = operand.value
    if math.isnan(value):  # its payload is not printed
        raise UnsupportedInstructionError
    try:
        if not is_bfloat:
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
        bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError as error:
        raise UnsupportedInstructionError from error
    if bits & 0xFFFF:
        raise UnsupportedInstructionError
    return bits >> 16


def compile_special_register(form: InstructionForm) -> Step:
    """Compile S2R, S2UR and CS2R; CS2R reads a pair unless .32, and of pairs only SRZ is supported."""
    parser = OperandParser(form)
    is_single = parser.take_modifier("32") or form.opcode.operand_registers == 1
    results = parser.take_results(1 if is_single else 2)
    special = parser.take_operand()
    parser.expect_end()
    if not isinstance(special, SpecialOperand):
        raise UnsupportedInstructionError
    if special.name == _ZERO_REGISTER:
        return make_constant_step(results, *(make_constant(0) for _ in results))
    if not is_single:
        raise UnsupportedInstructionError
    return make_step(lambda x: (x,), [SourceOperand((SpecialRead(special.name),))], results)


def compile_barrier_result(form: InstructionForm) -> Step:
    """Compile B2R.RESULT: the count of the last barrier that reduced a predicate, or its truth value."""
    parser = OperandParser(form)
    parser.take_modifier("RESULT")
    word = parser.take_result()
    (predicate,) = parser.take_result_predicates(1) or (_DISCARDED,)
    parser.expect_end()
    moves = [(word, BARRIER_RESULT_WORD), (predicate, BARRIER_RESULT_PREDICATE)]
    moves = [(result, source) for result, source in moves if result != _DISCARDED]
    sources = [SourceOperand((source,)) for _, source in moves]
    return make_step(lambda *values: values, sources, [result for result, _ in moves], AffineRule.LINEAR)


_SUB_WORD_TYPES: dict[str, type[np.generic]] = {
    "U8": np.uint8,
    "S8": np.int8,
    "U16": np.uint16,
    "S16": np.int16,
}
_N_WORDS = {"32": 1, "64": 2, "128": 4}


def compile_constant_load(form: InstructionForm) -> Step:
    """Compile LDC, LDCU, ULDC: words of a constant bank, or a byte or half word."""
    parser = OperandParser(form)
    n_words = parser.take_choice(_N_WORDS, 0)
    small = parser.take_choice(_SUB_WORD_TYPES, np.uint32)
    if n_words and small is not np.uint32:
        raise UnsupportedInstructionError
    results = parser.take_results(n_words or 1)
    operand = parser.take_operand()
    parser.expect_end()
    if (
        not isinstance(operand, ConstantBankOperand)
        or operand.is_negated
        or operand.is_inverted
        or operand.is_absolute
    ):
        raise UnsupportedInstructionError
    if operand.suffixes:
        raise UnsupportedInstructionError
    words = make_constant_reads(operand, n_words or 1)
    if small is np.uint32:
        rule = AffineRule.LINEAR if operand.base is None else AffineRule.UNKNOWN
        sources = [SourceOperand((word,)) for word in words]
        return make_step(lambda *values: values, sources, results, rule)
    return _compile_sub_word_load(words[0], small, results)


def _compile_sub_word_load(word: ConstantRead, small: type[np.generic], results: tuple[int, ...]) -> Step:
    """Compile a load of a byte or half word.

    With a base register it is the lower part of the word at the address, else a part of the aligned word.
    """
    shift = 0
    if word.base is None:
        shift = word.offset % 4
        word = ConstantRead(word.bank, word.offset - shift)
        if shift + np.dtype(small).itemsize > 4:
            raise UnsupportedInstructionError
    amount = np.uint32(8 * shift)

    def apply(x: Value) -> tuple[Value, ...]:
        return ((x >> amount).astype(small).astype(np.int32).view(np.uint32),)

    return make_step(apply, [SourceOperand((word,))], results)
