"""Decodes instruction texts to `InstructionForm`s.

The grammar is slow and a dump repeats itself, so each distinct syntax is parsed only once. A text is split
into guard, mnemonic and operand pieces. A piece without its numbers is a template. The grammar parses one
piece of each template, and the tree becomes operand factories: functions that make the operands of any piece
of this template from its numbers.

    @P0 LDG.E R4, [R2.64+0x8]      guard @P0, mnemonic LDG.E, pieces `R4` and `[R2.64+0x8]`
    [R2.64+0x8]                    template `[R#.64+#x]`, numbers ("2", "0x8")

A comma inside the parentheses of a symbol does not split a text. A text whose pieces are rejected is parsed
as a whole, once for each distinct combination of mnemonic and templates (a shape).
"""

import re
from collections.abc import Callable
from functools import cache

from lark import Token, Tree
from lark.exceptions import UnexpectedInput
from msgspec import Struct

from analyzer.frontend.grammar import load_parser
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import Opcode
from analyzer.ir.operand import (
    Address,
    BarrierRegister,
    ConstantBankOperand,
    DescriptorOperand,
    Immediate,
    Label,
    Operand,
    Predicate,
    PredicateFile,
    PredicateFileOperand,
    Register,
    RegisterFile,
    ScoreboardList,
    SpecialOperand,
    UnparsedOperand,
)
from analyzer.isa.opcode_table import resolve_opcode
from analyzer.isa.register_operands import find_defs_and_uses

MAX_TEXT_CHARACTERS = 4096
_MNEMONIC = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_GUARD = re.compile(r"@(!?)(U?P)([0-9]{1,4}|T)")
# No longer than the grammar has them: what is longer stays in the template, and the grammar refuses it.
_OPERAND_NUMBER = re.compile(
    r"(?<![\w.])(?:(?:U?R(?=[\dZ])|U?P(?=[\dT])|(?:S?B|gsb)(?=\d))([0-9]{1,4}|[ZT])|(0x[0-9a-f]{1,16})"
    r"|([0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,4})?))(?!\w)"
)
_MAX_COUNT_DIGITS = 18
_MAX_NESTED_PARENTHESES = 8


def _make_parentheses_pattern(depth: int) -> str:
    inner = f"|{_make_parentheses_pattern(depth - 1)}" if depth > 1 else ""
    return rf"\((?:[^()`]{inner})*\)"


# As BACKQUOTED and RELOCATION of the grammar.
SYMBOL_OPERAND = re.compile(rf"(?:`|\d+@\w+){_make_parentheses_pattern(_MAX_NESTED_PARENTHESES)}")
_DECIMAL_GROUP = 3
_NUMBER_PLACEHOLDERS = ("", "#", "#x", "#.")  # by group of _OPERAND_NUMBER: register, hexadecimal, decimal

NumberTexts = tuple[str, ...]
OperandFactory = Callable[[NumberTexts], Operand]


class SassSyntaxError(Exception):
    """An instruction text that the grammar rejects."""

    def __init__(self, column: int, expected: str) -> None:
        super().__init__(expected)
        self.column = column  # in characters of the text, from 0


class _OperandPiece(Struct, frozen=True):
    """One operand text, split into template and numbers."""

    template: str
    numbers: NumberTexts
    positions: tuple[int, ...]  # of the numbers, in characters of the text


class FormDecoder:
    """Decodes the instruction texts of one module; caches shapes, templates and pieces."""

    def __init__(self) -> None:
        self._pieces: dict[str, _OperandPiece] = {}
        self._factories: dict[str, tuple[OperandFactory, ...]] = {}
        self._operands: dict[str, tuple[Operand, ...]] = {}
        self._shapes: set[tuple[str, ...]] = set()
        self.syntax_errors: dict[str, SassSyntaxError] = {}

    def check_syntax(self, text: str) -> Opcode:
        """Check a text's shape against the grammar, once for each shape, and return its opcode.

        Raises SassSyntaxError if the shape is not SASS.
        """
        guard, mnemonic, pieces = _split_text(text)
        key = ("@" if guard else "", mnemonic, *[self._find_piece(piece).template for piece in pieces])
        if key not in self._shapes:
            if not self._has_valid_parts(guard, mnemonic, pieces):
                self._parse_shape(text)
            self._shapes.add(key)
        return resolve_opcode(mnemonic)

    def accept_unparsed(self, text: str, error: SassSyntaxError) -> Opcode:
        """Accept a text whose operands the grammar rejects, and return its opcode.

        Its operands will be `UnparsedOperand`s. Raises `error` if even the mnemonic is none.
        """
        _, mnemonic, _ = _split_text(text)
        if not _MNEMONIC.fullmatch(mnemonic):
            raise error
        self.syntax_errors[text] = error
        return resolve_opcode(mnemonic)

    def decode(self, text: str) -> InstructionForm:
        """Return the form of a text that has been checked or accepted."""
        guard_text, mnemonic, pieces = _split_text(text)
        guard = _parse_guard(guard_text)
        opcode = resolve_opcode(mnemonic)
        if text in self.syntax_errors:
            operands: tuple[Operand, ...] = tuple(UnparsedOperand(piece) for piece in pieces)
        else:
            operands = self._decode_pieces(pieces)
        written, read = find_defs_and_uses(opcode, guard, operands)
        return InstructionForm(
            text=text, guard=guard, opcode=opcode, operands=operands, defs=written, uses=read
        )

    def decode_printed(self, text: str) -> InstructionForm:
        """Return the form of a text that a disassembler printed, whose shape may not have been checked."""
        try:
            return self.decode(text)
        except UnexpectedInput as error:
            self.accept_unparsed(text, SassSyntaxError(0, str(error)))
            return self.decode(text)

    def _find_piece(self, text: str) -> _OperandPiece:
        piece = self._pieces.get(text)
        if piece is None:
            piece = self._pieces[text] = _make_piece(text)
        return piece

    def _has_valid_parts(self, guard: str, mnemonic: str, pieces: list[str]) -> bool:
        """Return whether the grammar accepts every part; then it accepts their sequence."""
        if (guard and _parse_guard(guard) is None) or not _MNEMONIC.fullmatch(mnemonic):
            return False
        try:
            for piece in pieces:
                self._find_factories(piece)
        except UnexpectedInput:
            return False
        return True

    def _find_factories(self, text: str) -> tuple[OperandFactory, ...]:
        """Return the factories of a piece's template. Raises UnexpectedInput if it is no list of operands."""
        piece = self._find_piece(text)
        factories = self._factories.get(piece.template)
        if factories is None:
            factories = self._factories[piece.template] = _build_factories(text, piece.positions)
        return factories

    def _parse_shape(self, text: str) -> None:
        """Parse a whole text. Raises SassSyntaxError."""
        try:
            load_parser("sass").parse(text, start="instruction")
        except UnexpectedInput as error:
            column = getattr(error, "pos_in_stream", None)
            raise SassSyntaxError(len(text) if column is None or column < 0 else column, "") from error

    def _decode_pieces(self, pieces: list[str]) -> tuple[Operand, ...]:
        """Decode piece by piece; all pieces at once if a comma inside an operand has split it."""
        operands: tuple[Operand, ...] = ()
        try:
            for piece in pieces:
                operands += self._decode_piece(piece)
            return operands
        except UnexpectedInput:
            return self._decode_piece(", ".join(pieces))

    def _decode_piece(self, text: str) -> tuple[Operand, ...]:
        operands = self._operands.get(text)
        if operands is None:
            factories, numbers = self._find_factories(text), self._find_piece(text).numbers
            operands = self._operands[text] = tuple(make(numbers) for make in factories)
        return operands


def _split_text(text: str) -> tuple[str, str, list[str]]:
    """Return (guard, mnemonic, pieces); a piece can hold two operands that no comma separates."""
    guard = ""
    if text.startswith("@"):
        guard, _, text = text.partition(" ")
        text = text.lstrip()
    mnemonic, _, rest = text.partition(" ")
    rest = rest.strip()
    pieces = rest.split(", ") if rest else []
    if "(" in rest and len(pieces) > 1:
        pieces = _join_parentheses(pieces)
    # Only two blanks in a row can leave one at the end of a piece.
    return guard, mnemonic, [piece.strip() for piece in pieces] if "  " in rest else pieces


def _join_parentheses(pieces: list[str]) -> list[str]:
    """Join the pieces that a comma inside parentheses has split, as in the name `f(float*, int)`."""
    joined: list[str] = []
    depth = 0
    for piece in pieces:
        if depth > 0:
            joined[-1] += f", {piece}"
        else:
            joined.append(piece)
        depth += piece.count("(") - piece.count(")")
    return joined


def _make_piece(text: str) -> _OperandPiece:
    """Split a piece into template and numbers; a symbol is one number as a whole."""
    if "`" in text or "@" in text:  # a symbol's name is not a number, whatever digits it has
        return (
            _OperandPiece(text[0] + "@", (text,), (0,))
            if SYMBOL_OPERAND.fullmatch(text)
            else _OperandPiece(text, (), ())
        )
    numbers, positions, parts, last = [], [], [], 0
    for match in _OPERAND_NUMBER.finditer(text):
        group = match.lastindex or 0
        start, end = match.span(group)
        numbers.append(match[group])
        positions.append(start)
        # A fraction stands where no count may: `c[0x0][1e-3]` is not of the shape of `c[0x0][8]`.
        is_count = match[group].isdigit() and len(match[group]) <= _MAX_COUNT_DIGITS
        is_fraction = group == _DECIMAL_GROUP and not is_count
        parts += [text[last:start], "#e" if is_fraction else _NUMBER_PLACEHOLDERS[group]]
        last = end
    parts.append(text[last:])
    return _OperandPiece("".join(parts), tuple(numbers), tuple(positions))


@cache
def _parse_guard(text: str) -> Predicate | None:
    match = _GUARD.fullmatch(text)
    if match is None:
        return None
    index = None if match[3] == "T" else int(match[3])
    return Predicate(PredicateFile(match[2]), index, is_negated=bool(match[1]))


def _build_factories(text: str, positions: tuple[int, ...]) -> tuple[OperandFactory, ...]:
    """Build one factory for each operand of a piece, from the syntax tree of this example."""
    tree = load_parser("sass").parse(text, start="operands")
    slots = {position: slot for slot, position in enumerate(positions)}
    return tuple(
        _FACTORY_BUILDERS[str(child.data)](child, slots) for child in tree.children if isinstance(child, Tree)
    )


NumberSlots = dict[int, int]  # position of a number in the piece -> its index among the numbers
Node = Tree[Token]
NumberReader = Callable[[NumberTexts], str]


def _make_number_reader(token: Token, prefix: int, slots: NumberSlots) -> NumberReader:
    """Return a function that selects a token's number from the numbers of a piece.

    It returns a constant if the token's number is part of the template.
    prefix: characters of the token before its number, such as 2 in `UR4`.
    """
    slot = slots.get((token.start_pos or 0) + prefix)
    if slot is None:
        literal = str(token)[prefix:]
        return lambda numbers: literal
    return lambda numbers: numbers[slot]


def _find_tokens(node: Node, kind: str) -> list[Token]:
    return [child for child in node.children if isinstance(child, Token) and child.type == kind]


def _read_suffixes(node: Node) -> tuple[str, ...]:
    return tuple(str(token)[1:] for token in _find_tokens(node, "SUFFIX"))


def _read_sign(node: Node) -> str:
    signs = _find_tokens(node, "SIGN")
    return str(signs[0]) if signs else ""


def _build_register(node: Node, slots: NumberSlots) -> Callable[[NumberTexts], Register]:
    token = _find_tokens(node, "REGISTER")[0]
    file = RegisterFile.UNIFORM if token.startswith("U") else RegisterFile.GENERAL
    read = _make_number_reader(token, len(file.value), slots)
    sign, suffixes = _read_sign(node), _read_suffixes(node)
    absolute = node.data == "absolute_register"

    def make_register(numbers: NumberTexts) -> Register:
        digits = read(numbers)
        return Register(
            file=file,
            index=None if digits == "Z" else int(digits),
            is_negated=sign == "-",
            is_absolute=absolute,
            is_inverted=sign == "~",
            suffixes=suffixes,
        )

    return make_register


def _build_predicate(node: Node, slots: NumberSlots) -> OperandFactory:
    token = _find_tokens(node, "PREDICATE")[0]
    file = PredicateFile.UNIFORM if token.startswith("U") else PredicateFile.GENERAL
    read = _make_number_reader(token, len(file.value), slots)
    negated = bool(_find_tokens(node, "NOT"))

    def make_predicate(numbers: NumberTexts) -> Operand:
        digits = read(numbers)
        return Predicate(file, None if digits == "T" else int(digits), negated)

    return make_predicate


def _build_predicate_file(node: Node, slots: NumberSlots) -> OperandFactory:
    token = _find_tokens(node, "PREDICATE_SET")[0]
    value = PredicateFileOperand(PredicateFile.UNIFORM if token.startswith("U") else PredicateFile.GENERAL)
    return lambda numbers: value


def _build_integer(node: Node, slots: NumberSlots) -> OperandFactory:
    read = _make_number_reader(_find_tokens(node, "HEX")[0], 0, slots)
    factor, suffixes = -1 if _read_sign(node) == "-" else 1, _read_suffixes(node)
    return lambda numbers: Immediate(factor * int(read(numbers), 16), suffixes)


def _build_decimal(node: Node, slots: NumberSlots) -> OperandFactory:
    read = _make_number_reader((_find_tokens(node, "DECIMAL") or _find_tokens(node, "COUNT"))[0], 0, slots)
    factor, suffixes = -1.0 if _read_sign(node) == "-" else 1.0, _read_suffixes(node)
    return lambda numbers: Immediate(factor * float(read(numbers)), suffixes)


def _build_named_float(node: Node, slots: NumberSlots) -> OperandFactory:
    text = str(_find_tokens(node, "NAMED_FLOAT")[0])
    value = Immediate(float(text.replace("Q", "").replace("S", "")), _read_suffixes(node))
    return lambda numbers: value


def _build_offset(node: Node, slots: NumberSlots) -> Callable[[NumberTexts], int]:
    hexes = _find_tokens(node, "HEX")
    read = _make_number_reader((hexes or _find_tokens(node, "COUNT"))[0], 0, slots)
    factor, radix = -1 if _read_sign(node) == "-" else 1, 16 if hexes else 10
    return lambda numbers: factor * int(read(numbers), radix)


def _find_children(node: Node, name: str) -> list[Node]:
    return [child for child in node.children if isinstance(child, Tree) and child.data == name]


def _build_sum(node: Node, slots: NumberSlots) -> Callable[[NumberTexts], tuple[tuple[Register, ...], int]]:
    bases = [_build_register(child, slots) for child in _find_children(node, "register")]
    offsets = [_build_offset(child, slots) for child in _find_children(node, "offset")]

    def make_address(numbers: NumberTexts) -> tuple[tuple[Register, ...], int]:
        return tuple(base(numbers) for base in bases), sum(offset(numbers) for offset in offsets)

    return make_address


def _build_constant(node: Node, slots: NumberSlots) -> OperandFactory:
    bank_node = _find_children(node, "bank")[0]
    hexes = _find_tokens(bank_node, "HEX")
    read_bank = _make_number_reader(hexes[0], 0, slots) if hexes else None
    inner = _build_sum(node, slots)
    sign, suffixes = _read_sign(node), _read_suffixes(node)
    absolute = node.data == "absolute_constant"
    bindless = [_build_register(child, slots) for child in _find_children(bank_node, "register")]

    def make_constant(numbers: NumberTexts) -> Operand:
        bases, offset = inner(numbers)
        bases += tuple(base(numbers) for base in bindless)
        return ConstantBankOperand(
            bank=-1 if read_bank is None else int(read_bank(numbers), 16),
            offset=offset,
            base=bases[0] if bases else None,
            is_negated=sign == "-",
            is_absolute=absolute,
            is_inverted=sign == "~",
            suffixes=suffixes,
        )

    return make_constant


def _build_address(node: Node, slots: NumberSlots) -> Callable[[NumberTexts], Address]:
    inner = _build_sum(node, slots)
    return lambda numbers: Address(*inner(numbers))


def _build_descriptor(node: Node, slots: NumberSlots) -> OperandFactory:
    kind, nodes = str(_find_tokens(node, "DESCRIPTOR")[0]), _find_children(node, "address")
    suffixes = _read_suffixes(nodes[-1])  # printed after the last bracket
    addresses = [_build_address(child, slots) for child in nodes]

    def make_descriptor(numbers: NumberTexts) -> Operand:
        first, *rest = (address(numbers) for address in addresses)
        return DescriptorOperand(kind, first, rest[0] if rest else None, suffixes)

    return make_descriptor


def _build_barrier(node: Node, slots: NumberSlots) -> OperandFactory:
    token = _find_tokens(node, "BARRIER")[0]
    file = token.rstrip("0123456789")
    read = _make_number_reader(token, len(file), slots)
    return lambda numbers: BarrierRegister(file, int(read(numbers)))


def _build_scoreboard_list(node: Node, slots: NumberSlots) -> OperandFactory:
    readers = [_make_number_reader(token, 0, slots) for token in _find_tokens(node, "COUNT")]
    return lambda numbers: ScoreboardList(tuple(int(read(numbers)) for read in readers))


def _build_special(node: Node, slots: NumberSlots) -> OperandFactory:
    value = SpecialOperand(".".join((str(_find_tokens(node, "SPECIAL")[0]), *_read_suffixes(node))))
    return lambda numbers: value


def _build_label(node: Node, slots: NumberSlots) -> OperandFactory:
    token = (_find_tokens(node, "BACKQUOTED") or _find_tokens(node, "RELOCATION"))[0]
    read = _make_number_reader(token, 0, slots)
    return lambda numbers: Label(read(numbers))


_FACTORY_BUILDERS: dict[str, Callable[[Node, NumberSlots], OperandFactory]] = {
    "register": _build_register,
    "absolute_register": _build_register,
    "predicate": _build_predicate,
    "predicate_set": _build_predicate_file,
    "integer": _build_integer,
    "number": _build_decimal,
    "named_float": _build_named_float,
    "constant": _build_constant,
    "absolute_constant": _build_constant,
    "address": _build_address,
    "described": _build_descriptor,
    "barrier": _build_barrier,
    "listed": _build_scoreboard_list,
    "special": _build_special,
    "label": _build_label,
}
