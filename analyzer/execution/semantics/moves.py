"""Moves: registers, selects, special registers, constant banks and constants packed as half floats."""

import math
import struct

import numpy as np

from analyzer.execution.semantics.operands import (
    NotUnderstoodError,
    Parts,
    Source,
    constant_words,
    full,
    literal_step,
    make_step,
    select,
    split_pair,
)
from analyzer.execution.step import AffineRule, ConstantRead, SpecialRead, Step, Value
from analyzer.ir.operand import Constant, Immediate, Register, Special
from analyzer.ir.program import InstructionForm

_WHOLE_LANES = 0xF  # older tools print the byte mask of a move
_ZERO = "SRZ"


def compile_move(form: InstructionForm) -> Step:
    """MOV, MOV32I, UMOV, and their 64-bit forms; .SPILL says only where to."""
    parts = Parts(form)
    is_wide = parts.flag("64")
    parts.flag("SPILL")
    results = parts.results(2 if is_wide else 1)
    source = parts.words(wide=is_wide)
    if parts.is_next(Immediate) and parts.immediate(_WHOLE_LANES) != _WHOLE_LANES:
        raise NotUnderstoodError
    parts.finish()
    if not is_wide:
        return make_step(lambda x: (x,), [source], results, AffineRule.LINEAR)
    if source.constant is not None:
        return literal_step(results, *split_pair(source.constant), rule=AffineRule.PAIR)
    if len(source.reads) == 2 and _is_plain(form):  # two words that need no joining
        halves = [Source((read,)) for read in source.reads]
        return make_step(lambda x, y: (x, y), halves, results, AffineRule.PAIR)
    return make_step(split_pair, [source], results, AffineRule.PAIR)


def _is_plain(form: InstructionForm) -> bool:
    operand = form.operands[1]
    return isinstance(operand, Register | Constant) and not (operand.negated or operand.inverted)


def compile_select(form: InstructionForm) -> Step:
    """SEL: a where the predicate holds, else b."""
    parts = Parts(form)
    is_wide = parts.flag("64")
    results = parts.results(2 if is_wide else 1)
    a, b = (parts.plain_pair() if is_wide else parts.plain_word() for _ in range(2))
    bit = parts.bit()
    parts.finish()
    if bit.convert is np.logical_not:  # cheaper the other way round
        a, b, bit = b, a, Source(bit.reads)
    if is_wide:
        return make_step(lambda x, y, p: split_pair(select(p, x, y)), [a, b, bit], results, AffineRule.PAIR)
    if a.is_zero and b.literal == 1:  # the way a predicate becomes a number
        return make_step(lambda p: ((~p).astype(np.uint32),), [bit], results, AffineRule.LINEAR)
    if a.literal == 1 and b.is_zero:
        return make_step(lambda p: (p.astype(np.uint32),), [bit], results, AffineRule.LINEAR)
    return make_step(lambda x, y, p: (select(p, x, y),), [a, b, bit], results, AffineRule.LINEAR)


def compile_half_constant(form: InstructionForm) -> Step:
    """HFMA2 with a zero product: two half floats as one word. Any other HFMA2 is not followed."""
    parts = Parts(form)
    parts.flag("MMA")
    is_bfloat = parts.flag("BF16_V2")
    result = parts.result()
    for _ in range(2):
        zero = parts.operand()
        if not isinstance(zero, Register) or zero.index is not None or zero.suffixes:
            raise NotUnderstoodError
    high, low = (_half_bits(parts, is_bfloat) for _ in range(2))
    parts.finish()
    return literal_step([result], full(high << 16 | low))


def _half_bits(parts: Parts, is_bfloat: bool) -> int:
    operand = parts.operand()
    if not isinstance(operand, Immediate) or operand.suffixes or not isinstance(operand.value, float):
        raise NotUnderstoodError
    value = operand.value
    if math.isnan(value):  # which one is not printed
        raise NotUnderstoodError
    try:
        if not is_bfloat:
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
        bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError as error:
        raise NotUnderstoodError from error
    if bits & 0xFFFF:
        raise NotUnderstoodError
    return bits >> 16


def compile_special(form: InstructionForm) -> Step:
    """S2R, S2UR, and CS2R, which takes a pair unless .32; of pairs only the zero one is known."""
    parts = Parts(form)
    is_single = parts.flag("32") or form.opcode.width == 1
    results = parts.results(1 if is_single else 2)
    special = parts.operand()
    parts.finish()
    if not isinstance(special, Special):
        raise NotUnderstoodError
    if special.name == _ZERO:
        return literal_step(results, *(full(0) for _ in results))
    if not is_single:
        raise NotUnderstoodError
    return make_step(lambda x: (x,), [Source((SpecialRead(special.name),))], results)


_SUB_WORDS: dict[str, type[np.generic]] = {
    "U8": np.uint8,
    "S8": np.int8,
    "U16": np.uint16,
    "S16": np.int16,
}
_N_WORDS = {"32": 1, "64": 2, "128": 4}


def compile_constant_load(form: InstructionForm) -> Step:
    """LDC, LDCU, ULDC: words of a constant bank, or a part of one."""
    parts = Parts(form)
    n_words = parts.choose(_N_WORDS, 0)
    small = parts.choose(_SUB_WORDS, np.uint32)
    if n_words and small is not np.uint32:
        raise NotUnderstoodError
    results = parts.results(n_words or 1)
    operand = parts.operand()
    parts.finish()
    if not isinstance(operand, Constant) or operand.negated or operand.inverted or operand.absolute:
        raise NotUnderstoodError
    if operand.suffixes:
        raise NotUnderstoodError
    words = constant_words(operand, n_words or 1)
    if small is np.uint32:
        rule = AffineRule.LINEAR if operand.base is None else AffineRule.FIXED
        sources = [Source((word,)) for word in words]
        return make_step(lambda *values: values, sources, results, rule)
    return _sub_word(words[0], small, results)


def _sub_word(word: ConstantRead, small: type[np.generic], results: tuple[int, ...]) -> Step:
    """The lower part of the word that begins there; without a register, of the aligned word around it."""
    shift = 0
    if word.base is None:
        shift = word.offset % 4
        word = ConstantRead(word.bank, word.offset - shift)
        if shift + np.dtype(small).itemsize > 4:
            raise NotUnderstoodError
    amount = np.uint32(8 * shift)

    def apply(x: Value) -> tuple[Value, ...]:
        return ((x >> amount).astype(small).astype(np.int32).view(np.uint32),)

    return make_step(apply, [Source((word,))], results)
