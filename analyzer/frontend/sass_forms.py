"""Instruction texts to `InstructionForm`s.

A text is cut into guard, mnemonic and operand pieces; a piece with its numbers taken out is a template.
Each distinct template goes through the grammar once; every other piece like it is decoded by filling its
own numbers into the patterns kept from that parse. A text of which some part is refused is parsed as a
whole, once for each distinct combination of mnemonic and templates (a shape): a comma inside a symbol's name
cuts it wrongly.
"""

import re
from collections.abc import Callable
from functools import cache

from lark import Token, Tree
from lark.exceptions import UnexpectedInput
from msgspec import Struct

from analyzer.frontend.grammar import load_grammar
from analyzer.ir.opcode import Opcode
from analyzer.ir.operand import (
    Address,
    Barrier,
    Constant,
    Described,
    Immediate,
    Label,
    Listed,
    Operand,
    Predicate,
    PredicateFile,
    PredicateSet,
    Register,
    RegisterFile,
    Special,
    Unparsed,
)
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import operand_roles
from analyzer.isa.table import resolve

MAX_TEXT = 4096
_MNEMONIC = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_GUARD = re.compile(r"@(!?)(U?P)(\d+|T)")
_NUMBER = re.compile(
    r"(?<![\w.])(?:(?:U?R|U?P|S?B|gsb)(\d+|[ZT])|(0x[0-9a-f]+)|(\d+(?:\.\d+)?(?:e[+-]?\d+)?))(?!\w)"
)
_SYMBOL = re.compile(r"`\([^)`]*\)|\d+@\w+\(+[^()]*\)+")  # as the grammar's BACKQUOTED and RELOCATION
_MARKS = ("", "#", "#x", "#.")  # by the group of _NUMBER: register, hexadecimal, decimal

Numbers = tuple[str, ...]
Maker = Callable[[Numbers], Operand]


class ShapeError(Exception):
    """An instruction text that the grammar refuses; `column` counts characters of the text from 0."""

    def __init__(self, column: int, expected: str) -> None:
        super().__init__(expected)
        self.column = column


class _Piece(Struct, frozen=True):
    """One operand text: its template, its numbers, and where they stand."""

    template: str
    numbers: Numbers
    places: tuple[int, ...]


class FormDecoder:
    """Decodes the instruction texts of one module; remembers shapes, templates and pieces."""

    def __init__(self) -> None:
        self._pieces: dict[str, _Piece] = {}
        self._makers: dict[str, tuple[Maker, ...]] = {}
        self._operands: dict[str, tuple[Operand, ...]] = {}
        self._shapes: set[tuple[str, ...]] = set()
        self.unparsed: dict[str, ShapeError] = {}

    def admit(self, text: str) -> Opcode:
        """Check a text's shape against the grammar, once for each shape; returns its opcode.

        Raises ShapeError where the shape is not SASS.
        """
        guard, mnemonic, pieces = _cut(text)
        key = ("@" if guard else "", mnemonic, *[self._piece(piece).template for piece in pieces])
        if key not in self._shapes:
            if not self._takes_parts(guard, mnemonic, pieces):
                self._parse_shape(text)
            self._shapes.add(key)
        return resolve(mnemonic)

    def admit_unparsed(self, text: str, error: ShapeError) -> Opcode:
        """Take a text whose operands the grammar refuses but whose encoding proves it an instruction."""
        _, mnemonic, _ = _cut(text)
        if not _MNEMONIC.fullmatch(mnemonic):
            raise error
        self.unparsed[text] = error
        return resolve(mnemonic)

    def decode(self, text: str) -> InstructionForm:
        """The form of an admitted text."""
        guard_text, mnemonic, pieces = _cut(text)
        guard = _guard(guard_text)
        opcode = resolve(mnemonic)
        if text in self.unparsed:
            operands: tuple[Operand, ...] = tuple(Unparsed(piece) for piece in pieces)
        else:
            operands = self._decode_pieces(pieces)
        written, read = operand_roles(opcode, guard, operands)
        return InstructionForm(
            text=text, guard=guard, opcode=opcode, operands=operands, written=written, read=read
        )

    def _piece(self, text: str) -> _Piece:
        piece = self._pieces.get(text)
        if piece is None:
            piece = self._pieces[text] = _template(text)
        return piece

    def _takes_parts(self, guard: str, mnemonic: str, pieces: list[str]) -> bool:
        """The grammar takes every part, and then the whole, which is nothing but the parts in this order."""
        if (guard and _guard(guard) is None) or not _MNEMONIC.fullmatch(mnemonic):
            return False
        try:
            for piece in pieces:
                self._makers_of(piece)
        except UnexpectedInput:
            return False
        return True

    def _makers_of(self, text: str) -> tuple[Maker, ...]:
        """Raises UnexpectedInput where the piece is no list of operands."""
        piece = self._piece(text)
        makers = self._makers.get(piece.template)
        if makers is None:
            makers = self._makers[piece.template] = _makers(text, piece.places)
        return makers

    def _parse_shape(self, text: str) -> None:
        try:
            load_grammar("sass").parse(text, start="instruction")
        except UnexpectedInput as error:
            column = getattr(error, "pos_in_stream", None)
            raise ShapeError(len(text) if column is None or column < 0 else column, "") from error

    def _decode_pieces(self, pieces: list[str]) -> tuple[Operand, ...]:
        """Operands piece by piece; a comma that is part of an operand has cut it, so then all at once."""
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
            makers, numbers = self._makers_of(text), self._piece(text).numbers
            operands = self._operands[text] = tuple(make(numbers) for make in makers)
        return operands


def _cut(text: str) -> tuple[str, str, list[str]]:
    """(guard, mnemonic, operand pieces); a piece may hold two operands that no comma separates."""
    guard = ""
    if text.startswith("@"):
        guard, _, text = text.partition(" ")
        text = text.lstrip()
    mnemonic, _, rest = text.partition(" ")
    rest = rest.strip()
    pieces = rest.split(", ") if rest else []
    # Only where two blanks stand together can a piece have one at its ends.
    return guard, mnemonic, [piece.strip() for piece in pieces] if "  " in rest else pieces


def _template(text: str) -> _Piece:
    if "`" in text or "@" in text:  # a symbol's name is not a number, whatever digits it has
        return _Piece(text[0] + "@", (text,), (0,)) if _SYMBOL.fullmatch(text) else _Piece(text, (), ())
    numbers, places, parts, last = [], [], [], 0
    for match in _NUMBER.finditer(text):
        group = match.lastindex or 0
        start, end = match.span(group)
        numbers.append(match[group])
        places.append(start)
        parts += [text[last:start], _MARKS[group]]
        last = end
    parts.append(text[last:])
    return _Piece("".join(parts), tuple(numbers), tuple(places))


@cache
def _guard(text: str) -> Predicate | None:
    match = _GUARD.fullmatch(text)
    if match is None:
        return None
    index = None if match[3] == "T" else int(match[3])
    return Predicate(PredicateFile(match[2]), index, negated=bool(match[1]))


def _makers(text: str, places: tuple[int, ...]) -> tuple[Maker, ...]:
    """One maker for each operand of a piece, from the grammar's tree of one example."""
    tree = load_grammar("sass").parse(text, start="operands")
    slots = {place: slot for slot, place in enumerate(places)}
    return tuple(_MAKERS[str(child.data)](child, slots) for child in tree.children if isinstance(child, Tree))


Slots = dict[int, int]
Node = Tree[Token]
Reader = Callable[[Numbers], str]


def _reader(token: Token, prefix: int, slots: Slots) -> Reader:
    """How to get a token's number from an instruction's numbers; a literal where it is no slot."""
    slot = slots.get((token.start_pos or 0) + prefix)
    if slot is None:
        literal = str(token)[prefix:]
        return lambda numbers: literal
    return lambda numbers: numbers[slot]


def _tokens(node: Node, kind: str) -> list[Token]:
    return [child for child in node.children if isinstance(child, Token) and child.type == kind]


def _suffixes(node: Node) -> tuple[str, ...]:
    return tuple(str(token)[1:] for token in _tokens(node, "SUFFIX"))


def _sign(node: Node) -> str:
    signs = _tokens(node, "SIGN")
    return str(signs[0]) if signs else ""


def _register(node: Node, slots: Slots) -> Callable[[Numbers], Register]:
    token = _tokens(node, "REGISTER")[0]
    file = RegisterFile.UNIFORM if token.startswith("U") else RegisterFile.GENERAL
    read = _reader(token, len(file.value), slots)
    sign, suffixes = _sign(node), _suffixes(node)
    absolute = node.data == "absolute_register"

    def make(numbers: Numbers) -> Register:
        digits = read(numbers)
        return Register(
            file=file,
            index=None if digits == "Z" else int(digits),
            negated=sign == "-",
            absolute=absolute,
            inverted=sign == "~",
            suffixes=suffixes,
        )

    return make


def _predicate(node: Node, slots: Slots) -> Maker:
    token = _tokens(node, "PREDICATE")[0]
    file = PredicateFile.UNIFORM if token.startswith("U") else PredicateFile.GENERAL
    read = _reader(token, len(file.value), slots)
    negated = bool(_tokens(node, "NOT"))

    def make(numbers: Numbers) -> Operand:
        digits = read(numbers)
        return Predicate(file, None if digits == "T" else int(digits), negated)

    return make


def _predicate_set(node: Node, slots: Slots) -> Maker:
    token = _tokens(node, "PREDICATE_SET")[0]
    value = PredicateSet(PredicateFile.UNIFORM if token.startswith("U") else PredicateFile.GENERAL)
    return lambda numbers: value


def _integer(node: Node, slots: Slots) -> Maker:
    read = _reader(_tokens(node, "HEX")[0], 0, slots)
    factor, suffixes = -1 if _sign(node) == "-" else 1, _suffixes(node)
    return lambda numbers: Immediate(factor * int(read(numbers), 16), suffixes)


def _number(node: Node, slots: Slots) -> Maker:
    read = _reader((_tokens(node, "DECIMAL") or _tokens(node, "COUNT"))[0], 0, slots)
    factor, suffixes = -1.0 if _sign(node) == "-" else 1.0, _suffixes(node)
    return lambda numbers: Immediate(factor * float(read(numbers)), suffixes)


def _named_float(node: Node, slots: Slots) -> Maker:
    text = str(_tokens(node, "NAMED_FLOAT")[0])
    value = Immediate(float(text.replace("Q", "").replace("S", "")), _suffixes(node))
    return lambda numbers: value


def _offset(node: Node, slots: Slots) -> Callable[[Numbers], int]:
    hexes = _tokens(node, "HEX")
    read = _reader((hexes or _tokens(node, "COUNT"))[0], 0, slots)
    factor, radix = -1 if _sign(node) == "-" else 1, 16 if hexes else 10
    return lambda numbers: factor * int(read(numbers), radix)


def _children(node: Node, name: str) -> list[Node]:
    return [child for child in node.children if isinstance(child, Tree) and child.data == name]


def _sum(node: Node, slots: Slots) -> Callable[[Numbers], tuple[tuple[Register, ...], int]]:
    bases = [_register(child, slots) for child in _children(node, "register")]
    offsets = [_offset(child, slots) for child in _children(node, "offset")]

    def make(numbers: Numbers) -> tuple[tuple[Register, ...], int]:
        return tuple(base(numbers) for base in bases), sum(offset(numbers) for offset in offsets)

    return make


def _constant(node: Node, slots: Slots) -> Maker:
    bank_node = _children(node, "bank")[0]
    hexes = _tokens(bank_node, "HEX")
    read_bank = _reader(hexes[0], 0, slots) if hexes else None
    inner = _sum(node, slots)
    sign, suffixes = _sign(node), _suffixes(node)
    absolute = node.data == "absolute_constant"
    bindless = [_register(child, slots) for child in _children(bank_node, "register")]

    def make(numbers: Numbers) -> Operand:
        bases, offset = inner(numbers)
        bases += tuple(base(numbers) for base in bindless)
        return Constant(
            bank=-1 if read_bank is None else int(read_bank(numbers), 16),
            offset=offset,
            base=bases[0] if bases else None,
            negated=sign == "-",
            absolute=absolute,
            inverted=sign == "~",
            suffixes=suffixes,
        )

    return make


def _address(node: Node, slots: Slots) -> Callable[[Numbers], Address]:
    inner = _sum(node, slots)
    return lambda numbers: Address(*inner(numbers))


def _described(node: Node, slots: Slots) -> Maker:
    kind, nodes = str(_tokens(node, "DESCRIPTOR")[0]), _children(node, "address")
    suffixes = _suffixes(nodes[-1])  # printed after the last bracket
    addresses = [_address(child, slots) for child in nodes]

    def make(numbers: Numbers) -> Operand:
        first, *rest = (address(numbers) for address in addresses)
        return Described(kind, first, rest[0] if rest else None, suffixes)

    return make


def _barrier(node: Node, slots: Slots) -> Maker:
    token = _tokens(node, "BARRIER")[0]
    file = token.rstrip("0123456789")
    read = _reader(token, len(file), slots)
    return lambda numbers: Barrier(file, int(read(numbers)))


def _listed(node: Node, slots: Slots) -> Maker:
    readers = [_reader(token, 0, slots) for token in _tokens(node, "COUNT")]
    return lambda numbers: Listed(tuple(int(read(numbers)) for read in readers))


def _special(node: Node, slots: Slots) -> Maker:
    value = Special(".".join((str(_tokens(node, "SPECIAL")[0]), *_suffixes(node))))
    return lambda numbers: value


def _label(node: Node, slots: Slots) -> Maker:
    token = node.children[0]
    assert isinstance(token, Token)
    read = _reader(token, 0, slots)
    return lambda numbers: Label(read(numbers))


_MAKERS: dict[str, Callable[[Node, Slots], Maker]] = {
    "register": _register,
    "absolute_register": _register,
    "predicate": _predicate,
    "predicate_set": _predicate_set,
    "integer": _integer,
    "number": _number,
    "named_float": _named_float,
    "constant": _constant,
    "absolute_constant": _constant,
    "address": _address,
    "described": _described,
    "barrier": _barrier,
    "listed": _listed,
    "special": _special,
    "label": _label,
}
