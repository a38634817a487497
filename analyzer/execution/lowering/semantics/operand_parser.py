"""Parser of operands and modifiers, and construction of steps from the parsed values.

A compiler function consumes the modifiers and operands of an instruction one by one. Whatever it does not
expect, or does not consume, raises UnsupportedInstructionError: then the instruction gets no step and its
results are unknown. So a misread instruction is never executed.

    parser = OperandParser(form)                      # POPC R4, ~R2
    result, number = parser.take_result(), parser.take_word()
    parser.expect_end()
    step = make_step(lambda x: (count_bits(x),), [number], [result])    # reads raw R2; complements it first
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.binding.constant_image import make_symbol_address
from analyzer.execution.lowering.step import AffineRule, ConstantRead, LaneFunction, Step, StepInput, Value
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import (
    ConstantBankOperand,
    Immediate,
    Label,
    Operand,
    Predicate,
    Register,
    SymbolWord,
)
from analyzer.isa.register_operands import find_predicate_unit, find_register_unit

WORD_MASK = 0xFFFFFFFF
WORD_BITS = 32
_DISCARDED = -1
_IGNORED_SUFFIXES = frozenset({"reuse"})  # operand cache: no effect on the value

T = TypeVar("T")
Convert = Callable[..., Value]


class UnsupportedInstructionError(Exception):
    """An operand or modifier is not supported, so the instruction gets no step."""


class SourceOperand(Struct, frozen=True, eq=False):
    """One input value: raw words and their conversion, or a constant."""

    reads: tuple[StepInput, ...] = ()
    convert: Convert | None = None  # from raw words to the value; None if the value is the raw word
    constant: Value | None = None
    literal: int | None = None  # unsigned number of an integer or predicate constant

    @property
    def is_zero(self) -> bool:
        """True if the source is the constant 0."""
        return self.literal == 0

    @property
    def halves(self) -> "tuple[SourceOperand, SourceOperand] | None":
        """The two words of a 64-bit literal or an unmodified pair, None for other sources."""
        if self.literal is not None:
            return make_word_literal(self.literal), make_word_literal(self.literal >> WORD_BITS)
        if self.convert is not join_pair:
            return None
        low, high = self.reads
        return SourceOperand((low,)), SourceOperand((high,))

    def map_value(self, change: Callable[[Value], Value]) -> "SourceOperand":
        """Return the source with `change` applied to its value; its literal is lost."""
        if self.constant is not None:
            return SourceOperand(constant=change(self.constant))
        before = self.convert
        if before is None:
            return replace(self, convert=change)
        return replace(self, convert=lambda *words: change(before(*words)))


class Addend(Struct, frozen=True):
    """A term of a sum: the source without its sign, and whether it is subtracted."""

    source: SourceOperand
    is_negated: bool


def make_word_literal(number: int) -> SourceOperand:
    """Make the constant `number` modulo 2^32."""
    number &= WORD_MASK
    return SourceOperand(constant=np.full((1, 1), number, dtype=np.uint32), literal=number)


def make_pair_literal(number: int) -> SourceOperand:
    """Make the constant `number` modulo 2^64."""
    number &= (1 << 2 * WORD_BITS) - 1
    return SourceOperand(constant=np.full((1, 1), number, dtype=np.uint64), literal=number)


def make_predicate_literal(bit: bool) -> SourceOperand:
    """Make a constant predicate."""
    return SourceOperand(constant=np.full((1, 1), bit, dtype=np.bool_), literal=int(bit))


def join_pair(low: Value, high: Value) -> Value:
    """Join two words to a uint64."""
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(WORD_BITS)


def split_pair(number: Value) -> tuple[Value, Value]:
    """Split a uint64 into low and high word."""
    return number.astype(np.uint32), (number >> np.uint64(WORD_BITS)).astype(np.uint32)


def select_by_predicate(bit: Value, yes: Value, no: Value) -> Value:
    """Return `yes` where the predicate is true, else `no`."""
    chosen: Value = np.where(bit, yes, no)
    return chosen


class OperandParser:
    """Consumer of the modifiers and operands of an instruction, from left to right.

    Methods that take an operand raise UnsupportedInstructionError if it is not of the expected form.
    """

    __slots__ = ("_modifiers", "_operands")

    def __init__(self, form: InstructionForm) -> None:
        self._modifiers = list(form.opcode.modifiers)
        self._operands = list(form.operands)

    def take_modifier(self, word: str) -> bool:
        """Remove a modifier; return whether it was present."""
        if word not in self._modifiers:
            return False
        self._modifiers.remove(word)
        return True

    def take_choice(self, meanings: Mapping[str, T], default: T | None = None) -> T:
        """Remove the one modifier that is in the table and return its meaning, or the default if none is."""
        found = [word for word in self._modifiers if word in meanings]
        if len(found) > 1 or (not found and default is None):
            raise UnsupportedInstructionError
        if not found:
            assert default is not None
            return default
        self._modifiers.remove(found[0])
        return meanings[found[0]]

    def expect_end(self) -> None:
        """Raise UnsupportedInstructionError if modifiers or operands are left."""
        if self._modifiers or self._operands:
            raise UnsupportedInstructionError

    # Results

    def take_result(self) -> int:
        """Take a result register; return its storage number, -1 for RZ."""
        return self.take_results(1)[0]

    def take_results(self, n_words: int) -> tuple[int, ...]:
        """Take the first of `n_words` result registers; return their storage numbers."""
        operand = self._take_kind(Register)
        if operand.is_negated or operand.is_inverted or operand.is_absolute or operand.suffixes:
            raise UnsupportedInstructionError
        return _find_register_storage(operand, n_words)

    def take_result_predicate(self) -> int:
        """Take a result predicate; return its storage number, -1 for PT."""
        operand = self._take_kind(Predicate)
        if operand.is_negated:
            raise UnsupportedInstructionError
        return _find_predicate_storage(operand)

    def take_result_predicates(self, most: int) -> tuple[int, ...]:
        """Take the result predicates at this point, at most `most`."""
        bits: list[int] = []
        while len(bits) < most and self.is_next(Predicate):
            bits.append(self.take_result_predicate())
        return tuple(bits)

    def skip_discarded_predicates(self) -> None:
        """Take result predicates that must be PT."""
        if any(bit != _DISCARDED for bit in self.take_result_predicates(2)):
            raise UnsupportedInstructionError

    # Sources

    def is_next(self, *kinds: type) -> bool:
        """Return whether the next operand has one of these types."""
        return bool(self._operands) and isinstance(self._operands[0], kinds)

    def is_word_next(self) -> bool:
        """Return whether the next operand is a register, constant or immediate."""
        return self.is_next(Register, ConstantBankOperand, Immediate, Label)

    def take_word(self) -> SourceOperand:
        """Take a 32-bit integer, negated or complemented if so printed."""
        return _parse_operand(self._take_next(), 1, make_word_literal)

    def take_pair(self) -> SourceOperand:
        """Take a 64-bit integer; an immediate is sign-extended."""
        return _parse_operand(self._take_next(), 2, make_pair_literal)

    def take_word_or_pair(self, *, wide: bool) -> SourceOperand:
        """Take a 64-bit integer if `wide`, else a 32-bit one."""
        return self.take_pair() if wide else self.take_word()

    def take_plain_word(self) -> SourceOperand:
        """Take a 32-bit integer without a sign."""
        return self._take_plain(self.take_word)

    def take_plain_pair(self) -> SourceOperand:
        """Take a 64-bit integer without a sign."""
        return self._take_plain(self.take_pair)

    def take_addend(self, *, wide: bool = False) -> Addend:
        """Take an integer and its sign, separately."""
        operand = self._take_next()
        negated = isinstance(operand, Register | ConstantBankOperand) and operand.is_negated
        if negated:
            assert isinstance(operand, Register | ConstantBankOperand)
            operand = replace(operand, is_negated=False)
        read = _parse_operand(operand, 2 if wide else 1, make_pair_literal if wide else make_word_literal)
        return Addend(read, negated)

    def take_suffixed_word(self, meanings: Mapping[str, T], default: T) -> tuple[SourceOperand, T]:
        """Take a word with at most one suffix that selects a part of it (`R4.B1`); return the meaning too."""
        operand = self._take_next()
        if not isinstance(operand, Register | ConstantBankOperand):
            return _parse_operand(operand, 1, make_word_literal), default
        found = [word for word in operand.suffixes if word in meanings]
        if len(found) > 1 or operand.is_negated or operand.is_inverted:
            raise UnsupportedInstructionError
        suffixes = tuple(word for word in operand.suffixes if word not in found)
        plain = replace(operand, suffixes=suffixes)
        return _parse_operand(plain, 1, make_word_literal), meanings[found[0]] if found else default

    def take_raw(self, n_words: int) -> tuple[SourceOperand, Operand]:
        """Take raw words, and return the operand as printed too (floating-point operands)."""
        operand = self._take_next()
        if not isinstance(operand, Register | ConstantBankOperand):
            return SourceOperand(), operand
        plain = replace(operand, is_negated=False, is_absolute=False, is_inverted=False)
        make_literal = make_word_literal if n_words == 1 else make_pair_literal
        return _parse_operand(plain, n_words, make_literal), operand

    def take_predicate(self) -> SourceOperand:
        """Take a predicate, negated if so printed."""
        operand = self._take_kind(Predicate)
        if operand.index is None:
            return make_predicate_literal(not operand.is_negated)
        return SourceOperand(
            (_find_predicate_storage(operand),), np.logical_not if operand.is_negated else None
        )

    def take_immediate(self, limit: int) -> int:
        """Take an integer literal from 0 to `limit`."""
        operand = self._take_kind(Immediate)
        if not isinstance(operand.value, int) or operand.suffixes or not 0 <= operand.value <= limit:
            raise UnsupportedInstructionError
        return operand.value

    def take_operand(self) -> Operand:
        """Take the next operand as printed."""
        return self._take_next()

    def _take_plain(self, read: Callable[[], SourceOperand]) -> SourceOperand:
        operand = self._operands[0] if self._operands else None
        if isinstance(operand, Register | ConstantBankOperand) and operand.is_negated:
            raise UnsupportedInstructionError
        return read()

    def _take_next(self) -> Operand:
        if not self._operands:
            raise UnsupportedInstructionError
        return self._operands.pop(0)

    def _take_kind(self, kind: type[T]) -> T:
        operand = self._take_next()
        if not isinstance(operand, kind):
            raise UnsupportedInstructionError
        return operand


def _find_register_storage(register: Register, n_words: int) -> tuple[int, ...]:
    if register.index is None:
        return (_DISCARDED,) * n_words
    numbers = tuple(find_register_unit(replace(register, index=register.index + i)) for i in range(n_words))
    if _DISCARDED in numbers:  # beyond the end of the register file
        raise UnsupportedInstructionError
    return numbers


def _find_predicate_storage(predicate: Predicate) -> int:
    number = find_predicate_unit(predicate)
    if number == _DISCARDED and predicate.index is not None:
        raise UnsupportedInstructionError
    return number


def _parse_operand(operand: Operand, n_words: int, literal: Callable[[int], SourceOperand]) -> SourceOperand:
    match operand:
        case Immediate(value=int(value), suffixes=()) if abs(value) < 1 << n_words * WORD_BITS:
            return literal(value)
        case Label(data_address=SymbolWord() as word) if n_words == 1:
            address = make_symbol_address(word.symbol) + word.addend
            return literal(address >> WORD_BITS if word.is_high else address & WORD_MASK)
        case Register(index=None) if _is_supported(operand):
            return literal((-1 if operand.is_inverted else 0) * (-1 if operand.is_negated else 1))
        case Register() if _is_supported(operand):
            return _apply_sign(_make_raw_source(_find_register_storage(operand, n_words)), operand)
        case ConstantBankOperand() if _is_supported(operand):
            return _apply_sign(_make_raw_source(make_constant_reads(operand, n_words)), operand)
        case _:
            raise UnsupportedInstructionError


def _is_supported(operand: Register | ConstantBankOperand) -> bool:
    has_both_signs = operand.is_inverted and operand.is_negated
    return not operand.is_absolute and not has_both_signs and _IGNORED_SUFFIXES.issuperset(operand.suffixes)


def make_constant_reads(operand: ConstantBankOperand, n_words: int) -> tuple[ConstantRead, ...]:
    """Return the reads of `n_words` constant-bank words from the operand on."""
    if operand.bank < 0 or (operand.base is not None and operand.base.suffixes):
        raise UnsupportedInstructionError
    base = (
        None
        if operand.base is None or operand.base.index is None
        else _find_register_storage(operand.base, 1)[0]
    )
    return tuple(ConstantRead(operand.bank, operand.offset + 4 * i, base) for i in range(n_words))


def _make_raw_source(reads: Sequence[StepInput]) -> SourceOperand:
    return SourceOperand(tuple(reads), None if len(reads) == 1 else join_pair)


def _apply_sign(source: SourceOperand, operand: Register | ConstantBankOperand) -> SourceOperand:
    if operand.is_negated:
        return source.map_value(np.negative)
    return source.map_value(np.invert) if operand.is_inverted else source


# Steps


def bind_sources(
    function: LaneFunction, sources: Sequence[SourceOperand], *, uses_active_mask: bool = False
) -> LaneFunction:
    """Convert a function of source values to a function of raw words."""
    position = int(uses_active_mask)
    getters: list[Callable[[tuple[Value, ...]], Value]] = [itemgetter(0)] if uses_active_mask else []
    for source in sources:
        getters.append(_make_getter(source, position))
        position += len(source.reads)
    if all(source.reads and source.convert is None for source in sources):
        return function
    match getters:
        case [a]:
            return lambda *words: function(a(words))
        case [a, b]:
            return lambda *words: function(a(words), b(words))
        case [a, b, c]:
            return lambda *words: function(a(words), b(words), c(words))
        case _:
            return lambda *words: function(*[get(words) for get in getters])


def _make_getter(source: SourceOperand, position: int) -> Callable[[tuple[Value, ...]], Value]:
    """Make the function that computes a source value; its raw words start at index `place`."""
    constant, convert = source.constant, source.convert
    if constant is not None:
        return lambda words: constant
    if convert is None:
        return itemgetter(position)
    if len(source.reads) == 1:
        return lambda words: convert(words[position])
    stop = position + len(source.reads)
    return lambda words: convert(*words[position:stop])


def make_step(
    function: LaneFunction,
    sources: Sequence[SourceOperand],
    writes: Sequence[int],
    rule: AffineRule = AffineRule.UNKNOWN,
    *,
    compute_invariants: LaneFunction | None = None,
    is_upper_word: bool = False,
    quotient_index: int | None = None,
    factors: tuple[Sequence[SourceOperand], Sequence[SourceOperand]] = ((), ()),
    uses_active_mask: bool = False,
    uniform_variant: LaneFunction | None = None,
) -> Step:
    """Make the step of a function of the source values.

    rule, factors and the other options: see `Step`; here `factors` names sources. `compute_invariants` and
    `uniform_variant` take the same values as `function`.
    """
    positions: dict[int, tuple[int, ...]] = {}
    n_reads = 0
    for source in sources:
        positions[id(source)] = tuple(range(n_reads, n_reads + len(source.reads)))
        n_reads += len(source.reads)
    left, right = (
        tuple(position for source in group for position in positions[id(source)]) for group in factors
    )
    return Step(
        reads=tuple(read for source in sources for read in source.reads),
        writes=tuple(writes),
        apply=bind_sources(function, sources, uses_active_mask=uses_active_mask),
        affine_rule=rule,
        uses_active_mask=uses_active_mask,
        factors=(left, right),
        compute_invariants=None if compute_invariants is None else bind_sources(compute_invariants, sources),
        is_upper_word=is_upper_word,
        quotient_index=quotient_index,
        uniform_variant=None
        if uniform_variant is None
        else make_step(uniform_variant, sources, writes, AffineRule.LINEAR),
    )


def make_constant_step(writes: Sequence[int], *values: Value, rule: AffineRule = AffineRule.LINEAR) -> Step:
    """Make a step with constant results."""
    return Step(reads=(), writes=tuple(writes), apply=lambda: values, affine_rule=rule)


def make_constant(number: int, dtype: Any = np.uint32) -> Value:
    """Make a constant of shape [1, 1]."""
    return np.full((1, 1), number, dtype=dtype)


FALSE_PREDICATE = make_constant(0, np.bool_)


def compute_carry(total: Value, a: Value, b: Value) -> Value:
    """Return the carry of total = a + b modulo 2^32.

    If the addends are smaller arrays and no sum can overflow, it is one constant.
    """
    if total.size > max(a.size, b.size) and int(a.max()) + int(b.max()) <= WORD_MASK:
        return FALSE_PREDICATE
    return total < a
