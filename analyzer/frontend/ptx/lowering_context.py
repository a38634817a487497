"""What the lowering of PTX instructions shares: registers, operands, constants, and emission of virtual code.

Operands. A register that is set once, to a number or to a parameter, is that number or a word of constant
bank 0 wherever SASS takes one in its second or third source (`emit_alu`); its own definition is dead code if
that is everywhere.
"""

import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.ptx.block_values import BlockValues
from analyzer.frontend.ptx.control_flow import (
    find_defined_names,
    list_register_names,
    writes_first_operand,
)
from analyzer.frontend.ptx.special_registers import find_dimension, find_special_register
from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxFunction,
    PtxImmediate,
    PtxInstruction,
    PtxOperand,
    PtxPair,
    PtxRegister,
    PtxSum,
    PtxSymbol,
    PtxVector,
)
from analyzer.frontend.ptx.virtual_code import (
    TRUE,
    ZERO,
    ConstantRef,
    MemoryRef,
    PredicateRef,
    VirtualCode,
    VirtualInstruction,
    VirtualOperand,
    WordRef,
)

Key = TypeVar("Key")
Value = TypeVar("Value")
WORD_MASK = 0xFFFFFFFF
TYPE_BITS: Mapping[str, int] = {
    **{f"{letter}{bits}": bits for letter in "sub" for bits in (8, 16, 32, 64)},
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "tf32": 32, "b128": 128,
    "pred": 1, "u16x2": 32, "s16x2": 32, "f32x2": 64, "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16,
    "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "b1": 1, "u4": 4, "s4": 4,
}  # fmt: skip


class UnsupportedPtxError(Exception):
    """An instruction, or a form of one, that has no lowering: its results are unknown."""


def take_operands(instruction: PtxInstruction, least: int) -> tuple[PtxOperand, ...]:
    """Return the operands. Raises UnsupportedPtxError where there are fewer than `least`."""
    if len(instruction.operands) < least:
        raise UnsupportedPtxError
    return instruction.operands


def choose_word(words: Iterable[str], known: Container[str]) -> str:
    """Return the first word that is known. Raises UnsupportedPtxError where none is."""
    for word in words:
        if word in known:
            return word
    raise UnsupportedPtxError


class FormTable(dict[Key, Value]):
    """What words of an instruction become; a word that is not there makes it an unsupported form."""

    def __missing__(self, key: Key) -> NoReturn:
        raise UnsupportedPtxError

    def choose(self, words: Iterable[Key]) -> Value:
        """Return what the first word that is there becomes. Raises UnsupportedPtxError where none is."""
        for word in words:
            if word in self:
                return self[word]
        raise UnsupportedPtxError


class Symbol(Struct, frozen=True):
    """The place of a variable: its state space, and its byte offset in it."""

    space: str  # `shared`, `const`, `global`, `local`, `param`
    offset: int


class Target(Struct, frozen=True):
    """What of the target architecture the lowering needs to know."""

    name: str  # `sm_90a`
    number: int  # 90
    parameter_base: int  # offset of the first parameter in constant bank 0
    block_dim: int  # offset of blockDim.x in constant bank 0
    grid_dim: int
    stack_pointer: int  # offset of the initial stack pointer
    argument_window: int  # offset of the generic address of constant bank 0 at `argument_window_start`
    argument_window_start: int

    @property
    def has_wide_add(self) -> bool:
        """True if IADD.64 and the like exist."""
        return self.number >= 100


class LoweringContext:
    """State of the lowering of one function."""

    def __init__(self, function: PtxFunction, target: Target, symbols: Mapping[str, Symbol]) -> None:
        self.function, self.target, self.symbols = function, target, dict(symbols)
        self.code = VirtualCode()
        self.out: list[VirtualInstruction] = []
        self.homes: dict[str, WordRef] = {}
        self.predicates: dict[str, int] = {}
        self.constants: dict[str, int | ConstantRef] = {}
        self.predicate_constants: dict[str, bool] = {}
        self.uses = count_uses(function)
        self.known = BlockValues()
        self.guard: PredicateRef | None = None
        self.carry: PredicateRef | None = None  # of add.cc and the like; None where there is none
        self.current: PtxInstruction | None = None
        self.unknown: dict[str, tuple[int, int]] = {}  # without a lowering: line of the first, how many
        self.external_calls: dict[str, tuple[int, int]] = {}  # by callee: line of the first, how many
        self.notes: set[str] = set()  # what the lowering assumes
        self._assign_registers()

    # Registers

    def _assign_registers(self) -> None:
        for name, type_name in self.function.register_types.items():
            if type_name == "pred":
                self.predicates[name] = self.code.add_predicate()
        for statement in self.function.statements:
            if isinstance(statement, PtxInstruction):
                for operand in statement.operands:
                    if isinstance(operand, PtxVector):
                        self._group_elements(operand)

    def _group_elements(self, vector: PtxVector) -> None:
        """Put the registers of a vector side by side, where none of them stands in another vector."""
        names = [e.name for e in vector.elements if isinstance(e, PtxRegister)]
        sizes = [self.count_words(name) for name in names]
        is_free = (
            1 < len(names) == len(vector.elements) == len(set(names))
            and not any(name in self.homes for name in names)
            and all(size > 0 for size in sizes)
        )
        bits = {TYPE_BITS.get(self.function.register_types.get(name, ""), 0) for name in names}
        if not is_free or min(bits) < 32 or len(bits) > 1:
            return
        group, word = self.code.add_group(sum(sizes)), 0
        for name, size in zip(names, sizes, strict=True):
            self.homes[name] = WordRef(group, word, size)
            word += size

    def count_words(self, name: str) -> int:
        """Return the words of a register, 0 for a predicate or an unknown name."""
        bits = TYPE_BITS.get(self.function.register_types.get(name, ""), 0)
        return 0 if bits <= 1 else max(1, bits // 32)

    def find_home(self, name: str) -> WordRef:
        """Return the words of a register. Raises UnsupportedPtxError for a name that is none."""
        home = self.homes.get(name)
        if home is None:
            size = self.count_words(name)
            if not size:
                raise UnsupportedPtxError
            home = self.homes[name] = WordRef(self.code.add_group(size), 0, size)
        return home

    def make_temporary(self, n_words: int = 1) -> WordRef:
        """Return fresh words."""
        return WordRef(self.code.add_group(n_words), 0, n_words)

    def make_predicate(self) -> PredicateRef:
        """Return a fresh predicate."""
        return PredicateRef(self.code.add_predicate())

    # Destinations

    def take_destination(self, operand: PtxOperand) -> WordRef:
        """Return the words that an instruction writes; fresh ones for `_`."""
        match operand:
            case PtxRegister(name="_"):
                return self.make_temporary()
            case PtxRegister(name=name):
                return self.find_home(name)
            case PtxPair(first=first):
                return self.take_destination(first)
            case _:
                raise UnsupportedPtxError

    def take_result_predicate(self, operand: PtxOperand) -> PredicateRef | str:
        """Return the predicate that an instruction writes, PT for `_`."""
        match operand:
            case PtxRegister(name="_"):
                return TRUE
            case PtxRegister(name=name) if name in self.predicates:
                return PredicateRef(self.predicates[name])
            case _:
                raise UnsupportedPtxError

    # Sources

    def read_predicate(self, operand: PtxOperand) -> PredicateRef | str:
        """Return a predicate that is read."""
        match operand:
            case PtxRegister(name=name, is_negated=negated) if name in self.predicates:
                if name in self.predicate_constants:
                    return TRUE if self.predicate_constants[name] != negated else "!PT"
                return PredicateRef(self.predicates[name], negated)
            case PtxImmediate(value=value):
                return TRUE if value else "!PT"
            case _:
                raise UnsupportedPtxError

    def find_constant(self, operand: PtxOperand) -> "int | ConstantRef | None":
        """Return the bits of a constant operand, or its place in constant bank 0; None for others."""
        match operand:
            case PtxImmediate(value=int(value)):
                return value
            case PtxRegister(name=name):
                return self.constants.get(name, self.known.constants.get(name))
            case PtxSymbol(name=name) if name in self.symbols:
                symbol = self.symbols[name]
                return None if symbol.space == "global" else symbol.offset + operand.offset
            case _:
                return None

    def read_word(self, operand: PtxOperand) -> VirtualOperand:
        """Return a 32-bit source: a register, an immediate or a word of a constant bank."""
        constant = self.find_constant(operand)
        if isinstance(constant, int):
            return format_integer(constant)
        if isinstance(constant, ConstantRef):
            return constant
        match operand:
            case PtxImmediate(value=float(value)):
                return format_integer(find_single_bits(value))
            case PtxRegister(name=name) if name in self.function.register_types:
                return replace(self.find_home(name), n_words=1)
            case PtxRegister(name=name):
                return self.read_special(name)
            case PtxSymbol() | PtxSum():
                return self.read_halves(operand)[0]
            case _:
                raise UnsupportedPtxError

    def read_special(self, name: str) -> VirtualOperand:
        """Return a word of constant bank 0, or the result of S2R. Raises UnsupportedPtxError."""
        dimension = find_dimension(name)
        if dimension is not None:
            base, axis = dimension
            start = self.target.block_dim if base == "%ntid" else self.target.grid_dim
            return ConstantRef(0, start + 4 * axis)
        special = find_special_register(name)
        if special is None:
            raise UnsupportedPtxError(name)
        word = self.make_temporary()
        with self.without_guard():
            self.emit("S2R", word, special)
        return word

    def read_float(self, operand: PtxOperand) -> VirtualOperand:
        """Return a single-precision source; a constant as a number."""
        match operand:
            case PtxImmediate(value=value):
                return format_float(float(value))
            case _:
                constant = self.find_constant(operand)
                if isinstance(constant, int):
                    return format_float(_to_single(constant))
                return self.read_word(operand)

    def read_halves(self, operand: PtxOperand) -> tuple[VirtualOperand, VirtualOperand]:
        """Return the two words of a 64-bit source; a 32-bit register is zero-extended."""
        constant = self.find_constant(operand)
        match operand:
            case PtxImmediate(value=float(value)):
                constant = int(struct.unpack("<Q", struct.pack("<d", value))[0])
            case PtxSymbol():
                constant = self._read_symbol(operand) if constant is None else constant
            case _:
                pass
        if isinstance(operand, PtxSum):
            return _add_offset(self, operand)
        if isinstance(constant, int):
            return format_integer(constant & WORD_MASK), format_integer(constant >> 32 & WORD_MASK)
        if isinstance(constant, ConstantRef):
            return constant, replace(constant, offset=constant.offset + 4)
        if not isinstance(operand, PtxRegister):
            raise UnsupportedPtxError
        if operand.name not in self.function.register_types:
            return self.read_special(operand.name), ZERO
        home = self.find_home(operand.name)
        if home.n_words < 2:
            return home, ZERO
        return replace(home, n_words=1), replace(home, word=home.word + 1, n_words=1)

    def _read_symbol(self, operand: PtxSymbol) -> "ConstantRef | int | None":
        symbol = self.symbols.get(operand.name)
        if symbol is None:
            return None
        if symbol.space == "global":  # the loader writes the address to bank 4
            return ConstantRef(4, symbol.offset)
        return symbol.offset

    def read_pair(self, operand: PtxOperand) -> WordRef:
        """Return a 64-bit source in registers."""
        if isinstance(operand, PtxRegister) and operand.name in self.function.register_types:
            home = self.find_home(operand.name)
            if home.n_words == 2:
                return home
        pair = self.make_temporary(2)
        self.copy_halves(pair, self.read_halves(operand))
        return pair

    def copy_halves(self, pair: WordRef, halves: tuple[VirtualOperand, VirtualOperand]) -> None:
        """Copy two words to a pair."""
        for position, half in enumerate(halves):
            self.move(find_word(pair, position), half)

    def begin_block(self, out: list[VirtualInstruction]) -> None:
        """Let what is emitted go to another block."""
        self.out = out
        self.known.clear()

    def finish(self, instruction: PtxInstruction) -> None:
        """Take note of what an instruction that has been lowered has written."""
        value = None
        if instruction.name == "mov" and len(instruction.operands) > 1:
            found = self.find_constant(instruction.operands[1])
            value = found if isinstance(found, int) else None
        self.known.note_writes(instruction, value)

    def is_unused(self, name: str) -> bool:
        """Return whether nothing reads a register."""
        return name == "_" or not self.uses.get(name, 0)

    def read_register(self, operand: PtxOperand) -> WordRef:
        """Return a 32-bit source in a register."""
        if isinstance(operand, PtxRegister) and operand.name in self.function.register_types:
            return replace(self.find_home(operand.name), n_words=1)
        return self.to_register(self.read_word(operand))

    def to_register(self, source: VirtualOperand) -> WordRef:
        """Return a source in a register; a constant is moved to one."""
        if isinstance(source, WordRef):
            return source
        temporary = self.make_temporary()
        with self.without_guard():
            self.move(temporary, source)
        return temporary

    def read_address(self, operand: PtxOperand, *, is_wide: bool) -> MemoryRef:
        """Return a memory operand. Raises UnsupportedPtxError for what is no address."""
        if not isinstance(operand, PtxAddress):
            raise UnsupportedPtxError
        if operand.base is None:
            return MemoryRef(None, operand.offset)
        constant = self.find_constant(operand.base)
        if isinstance(constant, int):
            return MemoryRef(None, constant + operand.offset)
        if is_wide:
            pair = self.read_pair(operand.base)
            return MemoryRef(replace(pair, suffix=".64"), operand.offset)
        return MemoryRef(self.read_register(operand.base), operand.offset)

    # Vectors

    def read_vector(self, elements: Sequence[PtxOperand], *, words_each: int = 1) -> WordRef:
        """Return elements side by side: where they stand, if they do so, else copied."""
        n_words = len(elements) * words_each
        found = self.find_contiguous(elements, words_each)
        if found is not None:
            return found
        group = self.make_temporary(n_words)
        for position, element in enumerate(elements):
            halves = self.read_halves(element) if words_each == 2 else (self.read_word(element),)
            for part, half in enumerate(halves):
                self.move(find_word(group, position * words_each + part), half)
        return group

    def find_contiguous(self, elements: Sequence[PtxOperand], words_each: int = 1) -> WordRef | None:
        """Return elements that lie side by side, at an aligned place; None for others."""
        if not all(isinstance(e, PtxRegister) and e.name in self.function.register_types for e in elements):
            return None
        names = [e.name for e in elements if isinstance(e, PtxRegister)]
        refs = [self.find_home(name) for name in names]
        first, n_words = refs[0], words_each * len(refs)
        expected = [
            WordRef(first.group, first.word + position * words_each, words_each)
            for position in range(len(refs))
        ]
        alignment = min(4, 1 << (n_words - 1).bit_length())
        is_usable = not first.word % alignment
        return WordRef(first.group, first.word, n_words) if refs == expected and is_usable else None

    @contextmanager
    def take_vector(self, elements: Sequence[PtxOperand], *, words_each: int = 1) -> Iterator[WordRef]:
        """Give the words that an instruction writes; elements that stand elsewhere are copied afterwards."""
        found = self.find_contiguous(elements, words_each)
        if found is not None:
            yield found
            return
        group = self.make_temporary(len(elements) * words_each)
        yield group
        for position, element in enumerate(elements):
            if isinstance(element, PtxRegister) and element.name == "_":
                continue
            home = self.take_destination(element)
            for part in range(words_each):
                self.move(find_word(home, part), find_word(group, position * words_each + part))

    # Emission

    def begin(self, instruction: PtxInstruction) -> None:
        """Begin to lower an instruction: its guard and its line hold for what is emitted."""
        self.current, self.guard = instruction, None
        if instruction.guard is not None and instruction.guard.register not in self.predicates:
            self.note_unknown(instruction)  # its guard is no predicate
            self.guard = self._make_guard(is_known=False)
        elif instruction.guard is not None:
            guard = self.read_predicate(PtxRegister(instruction.guard.register, instruction.guard.is_negated))
            if isinstance(guard, PredicateRef):
                self.guard = guard
            elif guard != TRUE:  # never executed
                self.guard = self._make_guard(is_known=True)

    @contextmanager
    def without_guard(self) -> Iterator[None]:
        """Emit what sets temporaries only, in all lanes."""
        before, self.guard = self.guard, None
        yield
        self.guard = before

    @contextmanager
    def under(self, guard: PredicateRef | str) -> Iterator[None]:
        """Emit under a guard of the expansion."""
        before = self.guard
        self.guard = guard if isinstance(guard, PredicateRef) else None
        yield
        self.guard = before

    @contextmanager
    def expansion(self, destination: WordRef) -> Iterator[WordRef]:
        """Give a place for an expansion with guards of its own; its result is moved under the PTX guard."""
        if self.guard is None:
            yield destination
            return
        temporary = self.make_temporary(destination.n_words)
        with self.without_guard():
            yield temporary
        for word in range(destination.n_words):
            self.move(find_word(destination, word), find_word(temporary, word))

    def emit(
        self,
        mnemonic: str,
        *operands: VirtualOperand,
        n_defs: int = 1,
        has_effect: bool = False,
        keeps_defs: bool = False,
    ) -> None:
        """Emit an instruction, under the guard that holds."""
        assert self.current is not None
        self.out.append(
            VirtualInstruction(
                mnemonic,
                operands,
                n_defs,
                self.guard,
                self.current.line,
                self.current.source_line,
                has_effect or not n_defs,
                keeps_defs,
            )
        )

    def emit_alu(self, mnemonic: str, destination: VirtualOperand, *sources: VirtualOperand) -> None:
        """Emit an arithmetic instruction: one of three sources may be a constant, and not the first."""
        self.emit(mnemonic, destination, *self.fit_sources(sources[:3]), *sources[3:])

    def fit_sources(self, sources: Sequence[VirtualOperand]) -> tuple[VirtualOperand, ...]:
        """Return sources of which at most one, and not the first, is no register."""
        fitted, n_constants = [], 0
        for position, source in enumerate(sources):
            if is_constant(source):
                if position == 0 or n_constants:
                    source = self.to_register(source)
                else:
                    n_constants += 1
            fitted.append(source)
        return tuple(fitted)

    def move(self, destination: WordRef, source: VirtualOperand) -> None:
        """Copy a word."""
        if isinstance(source, WordRef) and (source.group, source.word) == (
            destination.group,
            destination.word,
        ):
            return
        self.emit("MOV", replace(destination, n_words=1), source)

    def _make_guard(self, *, is_known: bool) -> PredicateRef:
        """Return a predicate that is false, or unknown."""
        bit = self.make_predicate()
        if is_known:
            self.emit("PLOP3.LUT", bit, TRUE, TRUE, TRUE, TRUE, "0x0", "0x0", n_defs=2)
            return bit
        word = self.make_temporary()
        self.emit("PTX_UNKNOWN", word, has_effect=True)
        self.emit("ISETP.NE.U32.AND", bit, TRUE, word, ZERO, TRUE, n_defs=2)
        return bit

    def note_unknown(self, instruction: PtxInstruction) -> None:
        """Count an instruction without a lowering."""
        name = ".".join((instruction.name, *instruction.modifiers))
        line, count = self.unknown.get(name, (instruction.line, 0))
        self.unknown[name] = (line, count + 1)


def _add_offset(ctx: LoweringContext, operand: PtxSum) -> tuple[VirtualOperand, VirtualOperand]:
    """Emit the sum of a register and a constant; return its words."""
    low, high = ctx.read_halves(operand.base)
    total, carry = ctx.make_temporary(2), ctx.make_predicate()
    first, second = (format_integer(operand.offset >> shift & WORD_MASK) for shift in (0, 32))
    with ctx.without_guard():
        ctx.emit("IADD3", find_word(total, 0), carry, ctx.to_register(low), first, ZERO, n_defs=2)
        if high == ZERO:
            return find_word(total, 0), ZERO
        ctx.emit("IADD3.X", find_word(total, 1), ctx.to_register(high), second, ZERO, carry, "!PT")
    return find_word(total, 0), find_word(total, 1)


def emit_group_wait(
    ctx: LoweringContext, mnemonic: str, scoreboard: str, operands: Sequence[PtxOperand]
) -> None:
    """Emit a wait for groups of copies or products, of which so many may be left as operands say."""
    count = ctx.read_word(operands[0]) if operands else ZERO
    ctx.emit(mnemonic, scoreboard, "0x0" if count == ZERO else count, n_defs=0)


def count_uses(function: PtxFunction) -> dict[str, int]:
    """Return how often each register is read."""
    counts: dict[str, int] = {}
    for statement in function.statements:
        if not isinstance(statement, PtxInstruction):
            continue
        names = list_register_names(statement.operands)
        if writes_first_operand(statement) and statement.name != "wgmma" and statement.operands:
            names = list_register_names(statement.operands[1:])
        if statement.guard is not None:
            names.append(statement.guard.register)
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    return counts


def count_definitions(function: PtxFunction) -> dict[str, int]:
    """Return how many instructions write each register."""
    counts: dict[str, int] = {}
    for statement in function.statements:
        if isinstance(statement, PtxInstruction):
            for name in find_defined_names(statement):
                counts[name] = counts.get(name, 0) + 1
    return counts


def find_word(ref: WordRef, position: int) -> WordRef:
    """Return one word of a group's part."""
    return WordRef(ref.group, ref.word + position)


def is_constant(source: VirtualOperand) -> bool:
    """Return whether a source is an immediate or in a constant bank."""
    if isinstance(source, ConstantRef):
        return True
    return (
        isinstance(source, str) and source not in (ZERO, TRUE, "!PT", "-RZ") and source[:1] in "-+0123456789"
    )


def format_integer(value: int) -> str:
    """Return an integer as SASS prints it; zero is RZ."""
    value = value if -(1 << 31) <= value < 0 else value & WORD_MASK
    if value == 0:
        return ZERO
    return f"-{-value:#x}" if value < 0 else f"{value:#x}"


def format_float(value: float) -> str:
    """Return a number as SASS prints it; zero is RZ."""
    if value != value:
        return "+QNAN"
    if value in (float("inf"), float("-inf")):
        return "+INF" if value > 0 else "-INF"
    text = repr(value)
    if value == 0:
        return "-RZ" if text.startswith("-") else ZERO
    return text.removesuffix(".0") if "e" not in text else text.replace("e+", "e+")


def find_single_bits(value: float) -> int:
    """Return the bits of a number as a single."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def _to_single(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & WORD_MASK))[0])
