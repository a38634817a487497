"""Declarations: `.reg .b32 %r<237>`, `.shared .align 16 .b8 smem[64]`, `.global .u32 t[2] = {1, 2}`.

The grammar parses one declaration of each distinct shape, as it does with operands (see shapes.py);
initializers, which may be long, are cut out before (see initializers.py).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from math import prod

from lark import Token, Tree
from msgspec import Struct

from analyzer.frontend.ptx.constants import PtxSyntaxError, parse_number
from analyzer.frontend.ptx.initializers import TYPE_BYTES, read_initializer
from analyzer.frontend.ptx.shapes import OperandReader, build_children, check_nesting, parse_by_grammar
from analyzer.frontend.ptx.statements import (
    PtxImmediate,
    PtxOperand,
    PtxSymbol,
    PtxVariable,
)

STATE_SPACES = ("reg", "sreg", "param", "shared", "global", "const", "local", "tex")
LINKAGES = ("visible", "extern", "weak", "common")
_VECTOR_LANES = {"v2": 2, "v4": 4, "v8": 8}
_MAX_SHAPES = 1 << 12
_MAX_KEPT_CHARACTERS = 80
_MAX_BYTES = 1 << 62  # of a variable
# A name or number that is no part of a word such as `.b32`.
_WORD = re.compile(r"(?<![.\w$%:])(%?[A-Za-z_$][\w$]*|\d\w*)(?![\w$])", re.A)
_INITIALIZER = re.compile(r"=\s*(\{[^=;]*\}|[^,;{}=]+)(?=\s*(?:,|\Z))")


class Specifier(Struct, frozen=True):
    """A word of a declaration with its arguments: `.align 16`."""

    name: str
    arguments: tuple[int, ...] = ()


class Declarator(Struct, frozen=True):
    """A name that a declaration declares."""

    name: str
    count: int | None = None  # of a range: `%r<237>`
    dimensions: tuple[int, ...] = ()  # 0 for `[]`
    initializer: str | None = None
    initializer_offset: int = 0  # in the text of the declaration


class Declaration(Struct, frozen=True):
    """A declaration, parsed."""

    specifiers: tuple[Specifier, ...]
    declarators: tuple[Declarator, ...]

    def find_space(self) -> str:
        """Return the state space; empty if none is named."""
        return next((s.name for s in self.specifiers if s.name in STATE_SPACES), "")

    def find_type(self) -> str:
        """Return the type; empty if none is named."""
        return next((s.name for s in self.specifiers if s.name in TYPE_BYTES), "")

    def find_lanes(self) -> int:
        """Return the number of elements of a vector type, 1 for a scalar."""
        return next((_VECTOR_LANES[s.name] for s in self.specifiers if s.name in _VECTOR_LANES), 1)

    def find_linkage(self) -> str:
        """Return `visible`, `extern`, `weak`, `common` or nothing."""
        return next((s.name for s in self.specifiers if s.name in LINKAGES), "")


class _Words(Struct):
    """Words of a declaration by their position, for functions that the syntax tree becomes."""

    slots: dict[int, int]

    def find(self, token: Token) -> int:
        slot = self.slots.get(token.start_pos or 0)
        if slot is None:
            raise PtxSyntaxError("this is not a word of a declaration", offset=token.start_pos or 0)
        return slot


class DeclarationReader:
    """Parses declarations and attributes; caches shapes, and short texts, which inline assembly repeats."""

    def __init__(self) -> None:
        self._makers: dict[tuple[object, ...], Callable[[list[str]], Declaration]] = {}
        self._texts: dict[tuple[str, str], Declaration] = {}

    def read(self, text: str, *, rule: str = "declaration") -> Declaration:
        """Return the declaration, or for rule `attributes` the specifiers, of a text.

        Raises PtxSyntaxError.
        """
        if len(text) > _MAX_KEPT_CHARACTERS:
            return self._read(text, rule)
        declaration = self._texts.get((rule, text))
        if declaration is None:
            declaration = self._read(text, rule)
            if len(self._texts) > _MAX_SHAPES:
                self._texts.clear()
            self._texts[rule, text] = declaration
        return declaration

    def _read(self, text: str, rule: str) -> Declaration:
        initializers: list[tuple[str, int]] = []

        def cut(match: re.Match[str]) -> str:
            initializers.append((match[1], match.start(1)))
            return "=" + " " * (len(match[0]) - 1)

        if "=" in text:
            text = _INITIALIZER.sub(cut, text)
        declaration = self._read_shape(text, rule)
        if not initializers:
            return declaration
        return Declaration(
            declaration.specifiers, tuple(_give_initializers(declaration.declarators, initializers))
        )

    def _read_shape(self, text: str, rule: str) -> Declaration:
        parts = _WORD.split(text)
        words = parts[1::2]
        shape = (rule, "#".join(parts[::2]), *[word[0].isdecimal() for word in words])
        make = self._makers.get(shape)
        if make is None:
            make = _build_maker(rule, text, parts)
            if len(self._makers) > _MAX_SHAPES:
                self._makers.clear()
            self._makers[shape] = make
        return make(words)


def _give_initializers(
    declarators: Sequence[Declarator], initializers: list[tuple[str, int]]
) -> Iterator[Declarator]:
    rest = iter(initializers)
    for declarator in declarators:
        if declarator.initializer is None:
            yield declarator
            continue
        text, offset = next(rest)
        yield Declarator(declarator.name, declarator.count, declarator.dimensions, text, offset)


def _build_maker(rule: str, text: str, parts: list[str]) -> Callable[[list[str]], Declaration]:
    """Return the function that makes declarations of the shape of `text` from their words."""
    check_nesting(text)
    tree = parse_by_grammar(rule, text)
    slots: dict[int, int] = {}
    position = 0
    for number, part in enumerate(parts):
        if number % 2:
            slots[position] = number // 2
        position += len(part)
    words = _Words(slots)
    nodes = [child for child in tree.children if isinstance(child, Tree)]
    specifiers = [_build_specifier(node, words) for node in nodes if node.data == "specifier"]
    declarators = [_build_declarator(node, words, text) for node in nodes if node.data == "declarator"]
    return lambda texts: Declaration(
        tuple([make(texts) for make in specifiers]), tuple([make(texts) for make in declarators])
    )


def _build_specifier(node: Tree[Token], words: _Words) -> Callable[[list[str]], Specifier]:
    tokens = [child for child in node.children if isinstance(child, Token)]
    name = str(tokens[0])[1:]
    slots = [words.find(token) for token in tokens[1:] if token.type == "NUMBER"]
    if not slots:
        plain = Specifier(name)
        return lambda texts: plain
    return lambda texts: Specifier(name, tuple([_parse_integer(texts[slot]) for slot in slots]))


def _build_declarator(node: Tree[Token], words: _Words, text: str) -> Callable[[list[str]], Declarator]:
    name, *rest = node.children
    assert isinstance(name, Token)
    name_slot = words.find(name)
    count_slot: int | None = None
    dimensions: list[Callable[[list[str]], int]] = []
    initializer: str | None = None
    for child in rest:
        if isinstance(child, Token):
            initializer = ""
        elif child.data == "range":
            token = child.children[0]
            assert isinstance(token, Token)
            count_slot = words.find(token)
        else:
            dimensions.append(_build_dimension(child, words))

    def make(texts: list[str]) -> Declarator:
        count = None if count_slot is None else _parse_integer(texts[count_slot])
        sizes = tuple([dimension(texts) for dimension in dimensions])
        return Declarator(texts[name_slot], count, sizes, initializer)

    return make


def _build_dimension(node: Tree[Token], words: _Words) -> Callable[[list[str]], int]:
    """Return the function that gives the size of `[64]`, `[4*8]` or `[]`."""
    if not node.children:
        return lambda texts: 0
    (size,) = node.children
    if isinstance(size, Tree) and size.data == "number" and isinstance(size.children[0], Token):
        slot = words.find(size.children[0])
        return lambda texts: _parse_integer(texts[slot])
    (make,) = build_children(node, words.slots)

    def evaluate(texts: list[str]) -> int:
        operand = make([_read_word(text) for text in texts])
        if not isinstance(operand, PtxImmediate) or not isinstance(operand.value, int) or operand.value < 0:
            raise PtxSyntaxError("the size of an array is a constant")
        return operand.value

    return evaluate


def _read_word(text: str) -> PtxOperand:
    return PtxImmediate(parse_number(text)) if text[0].isdecimal() else PtxSymbol(text)


def _parse_integer(text: str) -> int:
    value = parse_number(text)
    if isinstance(value, float):
        raise PtxSyntaxError("an integer must stand here", text=text)
    return value


def make_variables(
    declaration: Declaration, reader: OperandReader, rename: Callable[[str], str]
) -> Iterator[PtxVariable]:
    """Yield the variables of a declaration; `rename` gives each its name.

    Raises PtxSyntaxError if it has no type, or an initializer is none.
    """
    type_name = declaration.find_type()
    if not type_name:
        raise PtxSyntaxError("a declaration without a type such as .b32")
    element_bytes = TYPE_BYTES[type_name]
    lanes = declaration.find_lanes()
    alignment, pointer_alignment, pointer_space, is_pointer = _read_properties(declaration)
    for declarator in declaration.declarators:
        values = read_initializer(declarator.initializer, type_name, reader, declarator.initializer_offset)
        sizes = declarator.dimensions
        if sizes and sizes[0] == 0:
            sizes = (-(-values.n_values // max(1, prod(sizes[1:]))), *sizes[1:])
        n_elements = prod(sizes) * lanes * (declarator.count or 1)
        if n_elements * element_bytes > _MAX_BYTES:
            raise PtxSyntaxError("a variable larger than memory", text=declarator.name)
        if values.n_values > n_elements:
            raise PtxSyntaxError("more values than the variable has elements", text=declarator.name)
        yield PtxVariable(
            name=rename(declarator.name),
            space=declaration.find_space() or "param",
            type_name=type_name,
            n_elements=n_elements,
            n_bytes=n_elements * element_bytes,
            alignment_bytes=alignment or element_bytes * lanes,
            is_pointer=is_pointer,
            pointer_space=pointer_space,
            pointer_alignment_bytes=pointer_alignment,
            is_extern=declaration.find_linkage() == "extern",
            initial=values.data,
            references=values.references,
        )


def find_element_bytes(variable: PtxVariable) -> int:
    """Return the size of the elements of a variable."""
    return TYPE_BYTES[variable.type_name]


def _read_properties(declaration: Declaration) -> tuple[int, int, str, bool]:
    """Return alignment of the variable, and alignment and space of what it points to, and whether it does."""
    alignment = pointer_alignment = 0
    pointer_space, is_pointer = "", False
    for specifier in declaration.specifiers:
        if specifier.name == "ptr":
            is_pointer = True
        elif specifier.name == "align" and specifier.arguments:
            if is_pointer:
                pointer_alignment = specifier.arguments[0]
            else:
                alignment = specifier.arguments[0]
        elif is_pointer and specifier.name in STATE_SPACES:
            pointer_space = specifier.name
    return alignment, pointer_alignment, pointer_space, is_pointer
