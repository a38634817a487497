"""Operands as values: what an instruction reads, taken apart from the left and refused when strange."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.step import AffineRule, Apply, ConstantRead, Read, Step, Value
from analyzer.ir.operand import Constant, Immediate, Operand, Predicate, Register
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import predicate_storage, register_storage

WORD_MASK = 0xFFFFFFFF
WORD_BITS = 32
_DISCARDED = -1
_HARMLESS_SUFFIXES = frozenset({"reuse"})  # says where a value is kept, not what it is

T = TypeVar("T")
Convert = Callable[..., Value]


class NotUnderstoodError(Exception):
    """An operand or modifier whose meaning is not known: the instruction gets no step."""


class Source(Struct, frozen=True, eq=False):
    """One input value: raw words and how to read them, or a constant.

    convert is None where the value is the raw word itself. literal is the unsigned number of an
    integer or predicate constant.
    """

    reads: tuple[Read, ...] = ()
    convert: Convert | None = None
    constant: Value | None = None
    literal: int | None = None

    @property
    def is_zero(self) -> bool:
        return self.literal == 0

    @property
    def halves(self) -> "tuple[Source, Source] | None":
        """The two words of an undecorated pair, which need no joining."""
        if self.literal is not None:
            return word_literal(self.literal), word_literal(self.literal >> WORD_BITS)
        if self.convert is not join_pair:
            return None
        low, high = self.reads
        return Source((low,)), Source((high,))

    def mapped(self, change: Callable[[Value], Value]) -> "Source":
        """The same input seen through `change`; its literal is lost."""
        if self.constant is not None:
            return Source(constant=change(self.constant))
        before = self.convert
        if before is None:
            return replace(self, convert=change)
        return replace(self, convert=lambda *words: change(before(*words)))


class Addend(Struct, frozen=True):
    """A source without its minus, and whether the instruction takes it with one."""

    source: Source
    negated: bool


def word_literal(number: int) -> Source:
    number &= WORD_MASK
    return Source(constant=np.full((1, 1), number, dtype=np.uint32), literal=number)


def pair_literal(number: int) -> Source:
    number &= (1 << 2 * WORD_BITS) - 1
    return Source(constant=np.full((1, 1), number, dtype=np.uint64), literal=number)


def bit_literal(bit: bool) -> Source:
    return Source(constant=np.full((1, 1), bit, dtype=np.bool_), literal=int(bit))


def join_pair(low: Value, high: Value) -> Value:
    """uint64 of two words."""
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(WORD_BITS)


def split_pair(number: Value) -> tuple[Value, Value]:
    """Low and high word of a uint64."""
    return number.astype(np.uint32), (number >> np.uint64(WORD_BITS)).astype(np.uint32)


def select(bit: Value, yes: Value, no: Value) -> Value:
    """`yes` where the predicate holds, else `no`."""
    chosen: Value = np.where(bit, yes, no)
    return chosen


class Parts:
    """An instruction taken apart piece by piece; `finish` refuses what nobody asked for."""

    __slots__ = ("_modifiers", "_operands")

    def __init__(self, form: InstructionForm) -> None:
        self._modifiers = list(form.opcode.modifiers)
        self._operands = list(form.operands)

    def flag(self, word: str) -> bool:
        """Whether a modifier is there; it counts as understood."""
        if word not in self._modifiers:
            return False
        self._modifiers.remove(word)
        return True

    def choose(self, meanings: Mapping[str, T], default: T | None = None) -> T:
        """Meaning of the one modifier that is in the table."""
        found = [word for word in self._modifiers if word in meanings]
        if len(found) > 1 or (not found and default is None):
            raise NotUnderstoodError
        if not found:
            assert default is not None
            return default
        self._modifiers.remove(found[0])
        return meanings[found[0]]

    def finish(self) -> None:
        if self._modifiers or self._operands:
            raise NotUnderstoodError

    # Results

    def result(self) -> int:
        """Storage number of a written register, -1 for RZ."""
        return self.results(1)[0]

    def results(self, n_words: int) -> tuple[int, ...]:
        """Storage numbers of a written register and those after it."""
        operand = self._take(Register)
        if operand.negated or operand.inverted or operand.absolute or operand.suffixes:
            raise NotUnderstoodError
        return _storage(operand, n_words)

    def result_bit(self) -> int:
        """Storage number of a written predicate, -1 for PT."""
        operand = self._take(Predicate)
        if operand.negated:
            raise NotUnderstoodError
        return _bit_storage(operand)

    def result_bits(self, most: int) -> tuple[int, ...]:
        """Written predicates, as many as are printed here."""
        bits: list[int] = []
        while len(bits) < most and self.is_next(Predicate):
            bits.append(self.result_bit())
        return tuple(bits)

    def discarded_bits(self) -> None:
        """Written predicates that must be PT."""
        if any(bit != _DISCARDED for bit in self.result_bits(2)):
            raise NotUnderstoodError

    # Sources

    def is_next(self, *kinds: type) -> bool:
        return bool(self._operands) and isinstance(self._operands[0], kinds)

    def is_word_next(self) -> bool:
        return self.is_next(Register, Constant, Immediate)

    def word(self) -> Source:
        """32-bit integer, with minus or complement where printed."""
        return _decorated(self._next(), 1, word_literal)

    def pair(self) -> Source:
        """64-bit integer; an immediate is sign-extended as it is printed."""
        return _decorated(self._next(), 2, pair_literal)

    def words(self, *, wide: bool) -> Source:
        return self.pair() if wide else self.word()

    def plain_word(self) -> Source:
        """32-bit integer that must come without minus."""
        return self._plain(self.word)

    def plain_pair(self) -> Source:
        return self._plain(self.pair)

    def addend(self, *, wide: bool = False) -> Addend:
        """Integer with its minus left to the caller."""
        operand = self._next()
        negated = isinstance(operand, Register | Constant) and operand.negated
        if negated:
            assert isinstance(operand, Register | Constant)
            operand = replace(operand, negated=False)
        read = _decorated(operand, 2 if wide else 1, pair_literal if wide else word_literal)
        return Addend(read, negated)

    def suffixed_word(self, meanings: Mapping[str, T], default: T) -> tuple[Source, T]:
        """A word with one suffix that selects a part of it (`R4.B1`), and the suffix's meaning."""
        operand = self._next()
        if not isinstance(operand, Register | Constant):
            return _decorated(operand, 1, word_literal), default
        found = [word for word in operand.suffixes if word in meanings]
        if len(found) > 1 or operand.negated or operand.inverted:
            raise NotUnderstoodError
        suffixes = tuple(word for word in operand.suffixes if word not in found)
        plain = replace(operand, suffixes=suffixes)
        return _decorated(plain, 1, word_literal), meanings[found[0]] if found else default

    def raw(self, n_words: int) -> tuple[Source, Operand]:
        """Source of undecorated words, and the operand as printed (float operands)."""
        operand = self._next()
        if not isinstance(operand, Register | Constant):
            return Source(), operand
        plain = replace(operand, negated=False, absolute=False, inverted=False)
        maker = word_literal if n_words == 1 else pair_literal
        return _decorated(plain, n_words, maker), operand

    def bit(self) -> Source:
        """A predicate, with its `!`."""
        operand = self._take(Predicate)
        if operand.index is None:
            return bit_literal(not operand.negated)
        return Source((_bit_storage(operand),), np.logical_not if operand.negated else None)

    def immediate(self, limit: int) -> int:
        """An integer in the text, 0 up to `limit`."""
        operand = self._take(Immediate)
        if not isinstance(operand.value, int) or operand.suffixes or not 0 <= operand.value <= limit:
            raise NotUnderstoodError
        return operand.value

    def operand(self) -> Operand:
        """The next operand as it is."""
        return self._next()

    def _plain(self, read: Callable[[], Source]) -> Source:
        operand = self._operands[0] if self._operands else None
        if isinstance(operand, Register | Constant) and operand.negated:
            raise NotUnderstoodError
        return read()

    def _next(self) -> Operand:
        if not self._operands:
            raise NotUnderstoodError
        return self._operands.pop(0)

    def _take(self, kind: type[T]) -> T:
        operand = self._next()
        if not isinstance(operand, kind):
            raise NotUnderstoodError
        return operand


def _storage(register: Register, n_words: int) -> tuple[int, ...]:
    if register.index is None:
        return (_DISCARDED,) * n_words
    numbers = tuple(register_storage(replace(register, index=register.index + i)) for i in range(n_words))
    if _DISCARDED in numbers:  # beyond the register file of the storage numbers
        raise NotUnderstoodError
    return numbers


def _bit_storage(predicate: Predicate) -> int:
    number = predicate_storage(predicate)
    if number == _DISCARDED and predicate.index is not None:
        raise NotUnderstoodError
    return number


def _decorated(operand: Operand, n_words: int, literal: Callable[[int], Source]) -> Source:
    match operand:
        case Immediate(value=int(value), suffixes=()) if abs(value) < 1 << n_words * WORD_BITS:
            return literal(value)
        case Register(index=None) if _is_known(operand):
            return literal((-1 if operand.inverted else 0) * (-1 if operand.negated else 1))
        case Register() if _is_known(operand):
            return _signed(_raw(_storage(operand, n_words)), operand)
        case Constant() if _is_known(operand):
            return _signed(_raw(constant_words(operand, n_words)), operand)
        case _:
            raise NotUnderstoodError


def _is_known(operand: Register | Constant) -> bool:
    twice = operand.inverted and operand.negated
    return not operand.absolute and not twice and _HARMLESS_SUFFIXES.issuperset(operand.suffixes)


def constant_words(operand: Constant, n_words: int) -> tuple[ConstantRead, ...]:
    """The constant-bank words that an operand names."""
    if operand.bank < 0 or (operand.base is not None and operand.base.suffixes):
        raise NotUnderstoodError
    base = None if operand.base is None or operand.base.index is None else _storage(operand.base, 1)[0]
    return tuple(ConstantRead(operand.bank, operand.offset + 4 * i, base) for i in range(n_words))


def _raw(reads: Sequence[Read]) -> Source:
    return Source(tuple(reads), None if len(reads) == 1 else join_pair)


def _signed(source: Source, operand: Register | Constant) -> Source:
    if operand.negated:
        return source.mapped(np.negative)
    return source.mapped(np.invert) if operand.inverted else source


# Steps


def bind(function: Apply, sources: Sequence[Source], *, uses_mask: bool = False) -> Apply:
    """`function` of values as a function of raw words."""
    place = int(uses_mask)
    getters: list[Callable[[tuple[Value, ...]], Value]] = [itemgetter(0)] if uses_mask else []
    for source in sources:
        getters.append(_getter(source, place))
        place += len(source.reads)
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


def _getter(source: Source, place: int) -> Callable[[tuple[Value, ...]], Value]:
    constant, convert = source.constant, source.convert
    if constant is not None:
        return lambda words: constant
    if convert is None:
        return itemgetter(place)
    if len(source.reads) == 1:
        return lambda words: convert(words[place])
    stop = place + len(source.reads)
    return lambda words: convert(*words[place:stop])


def make_step(
    function: Apply,
    sources: Sequence[Source],
    writes: Sequence[int],
    rule: AffineRule = AffineRule.FIXED,
    *,
    watch: Apply | None = None,
    is_upper: bool = False,
    quotient: int | None = None,
    factors: tuple[Sequence[Source], Sequence[Source]] = ((), ()),
    uses_mask: bool = False,
    alike: Apply | None = None,
) -> Step:
    """Step of a function of the sources' values; `watch` and `alike` take the same values."""
    places: dict[int, tuple[int, ...]] = {}
    n_reads = 0
    for source in sources:
        places[id(source)] = tuple(range(n_reads, n_reads + len(source.reads)))
        n_reads += len(source.reads)
    left, right = (tuple(place for source in group for place in places[id(source)]) for group in factors)
    return Step(
        reads=tuple(read for source in sources for read in source.reads),
        writes=tuple(writes),
        apply=bind(function, sources, uses_mask=uses_mask),
        rule=rule,
        uses_mask=uses_mask,
        factors=(left, right),
        watch=None if watch is None else bind(watch, sources),
        is_upper=is_upper,
        quotient=quotient,
        alike=None if alike is None else make_step(alike, sources, writes, AffineRule.LINEAR),
    )


def literal_step(writes: Sequence[int], *values: Value, rule: AffineRule = AffineRule.LINEAR) -> Step:
    """Step whose results are constants."""
    return Step(reads=(), writes=tuple(writes), apply=lambda: values, rule=rule)


def full(number: int, dtype: Any = np.uint32) -> Value:
    """A constant of shape [1, 1]."""
    return np.full((1, 1), number, dtype=dtype)


NEVER = full(0, np.bool_)


def wraps(total: Value, a: Value, b: Value) -> Value:
    """Whether the sum of two words passed 2^32, held once where the addends are smaller and none did."""
    if total.size > max(a.size, b.size) and int(a.max()) + int(b.max()) <= WORD_MASK:
        return NEVER
    return total < a
