"""Replaces the aliases of a file, `#blocked`, `!type` and `#loc12`, by what they stand for.

Types and attributes without aliases are kept by text for all files; here they are kept by the text with
aliases for one file, which saves the replacement.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct

from analyzer.frontend.grammar import load_parser
from analyzer.frontend.triton.attributes import parse_attribute, parse_type, unquote
from analyzer.frontend.triton.syntax_errors import TritonSyntaxError, check_nesting
from analyzer.ir.module import SourceLine
from analyzer.ir.tile_operations import Attribute, IrType

_ALIAS = re.compile(r'"(?:[^"\\]|\\.)*+"|[#!][A-Za-z_][\w$]*+(?![\w$.<])')
_MAX_EXPANDED = 1 << 16
_MAX_ALL_EXPANDED = 1 << 26
_MAX_DEPTH = 32  # of aliases in aliases, of calls that were inlined into each other
_MAX_SHAPES = 1 << 12


_Read = TypeVar("_Read")


class Place(Struct, frozen=True):
    """A location: where the source is, and the name that a value has there."""

    source_line: SourceLine | None
    name: str = ""


_NOWHERE = Place(None)


class AliasTable:
    """The aliases of one file, and the types, attributes and places that its texts mean."""

    def __init__(self, aliases: dict[str, tuple[str, int]]) -> None:
        self._aliases = aliases
        self._expanded: dict[str, str] = {}
        self._n_expanded = 0  # characters
        self._types: dict[str, IrType] = {}
        self._attributes: dict[str, Attribute] = {}
        self._places: dict[str, Place] = {}

    def read_type(self, text: str) -> IrType:
        """Return the type that a text means. Raises TritonSyntaxError if it means none."""
        found = self._types.get(text)
        if found is None:
            name = _find_elided_name(text) if text.startswith("<") else ""
            found = self._types[text] = self._read(parse_type, name + text, text)
        return found

    def read_attribute(self, text: str) -> Attribute:
        """Return the attribute that a text means. Raises TritonSyntaxError if it means none."""
        found = self._attributes.get(text)
        if found is None:
            found = self._attributes[text] = self._read(parse_attribute, text, text)
        return found

    def read_place(self, text: str) -> Place:
        """Return the place that a location means: `loc(#loc4)`, `loc("x"(#loc3))`."""
        found = self._places.get(text)
        if found is None:
            try:
                found = self._places[text] = self._read_place(text, 0)
            except TritonSyntaxError as error:
                error.piece = text
                raise
        return found

    def _read(self, parse: Callable[[str], _Read], text: str, shown: str) -> _Read:
        """Return what a text means with aliases replaced; errors point at what is in the file, `shown`."""
        expanded = self._expand(text)
        try:
            return parse(expanded)
        except TritonSyntaxError as error:
            if expanded != shown:
                error.piece, error.column = shown, 0
            raise

    def _expand(self, text: str, depth: int = 0) -> str:
        """Return a text with all aliases replaced, those in aliases too."""
        if "#" not in text and "!" not in text:
            return text
        if depth > _MAX_DEPTH:
            raise TritonSyntaxError("aliases stand for each other", piece=text)
        expanded = _ALIAS.sub(lambda match: self._expand_alias(match[0], depth), text)
        self._n_expanded += len(expanded)
        if len(expanded) > _MAX_EXPANDED > len(text) or self._n_expanded > _MAX_ALL_EXPANDED:
            raise TritonSyntaxError("aliases make this too long", piece=text)
        return expanded

    def _expand_alias(self, name: str, depth: int) -> str:
        if name[0] == '"':
            return name
        if name not in self._aliases:
            raise TritonSyntaxError(f"{name} is not defined", piece=name, hint="the file seems cut off")
        found = self._expanded.get(name)
        if found is None:
            found = self._expanded[name] = self._expand(self._aliases[name][0], depth + 1)
        return found

    def _read_place(self, text: str, depth: int) -> Place:
        if depth > _MAX_DEPTH:
            return _NOWHERE
        if text.startswith("loc(#"):
            return self._read_alias(text[4:-1], depth)
        if simple := _SIMPLE_LOCATION.fullmatch(text):
            name, alias, file, line = simple.groups()
            if alias:
                return Place(self._read_alias(alias, depth).source_line, name)
            return Place(SourceLine(file, int(line)))
        pieces = _LOCATION_SLOT.split(text)
        slots = pieces[1::2]
        kinds = "".join([slot[0] for slot in slots])
        return self._build_place(_compile_location("\0".join(pieces[::2]), kinds), slots, depth)

    def _read_alias(self, name: str, depth: int) -> Place:
        text = f"loc({name})"
        found = self._places.get(text)
        if found is None:
            definition = self._aliases.get(name)
            found = _NOWHERE if definition is None else self._read_place(definition[0], depth + 1)
            self._places[text] = found
        return found

    def _build_place(self, node: "_Node", slots: list[str], depth: int) -> Place:
        match node.kind:
            case "at":
                file, line = slots[node.slots[0]], slots[node.slots[1]]
                return Place(SourceLine(unquote(file), int(line[:_MAX_LINE_DIGITS])))
            case "alias":
                return self._read_alias(slots[node.slots[0]], depth)
            case "named":
                inner = [self._build_place(child, slots, depth) for child in node.children]
                return Place(inner[0].source_line if inner else None, unquote(slots[node.slots[0]]))
            case "callsite":
                callee, caller = (self._build_place(child, slots, depth) for child in node.children)
                return Place(_inline(callee.source_line, caller.source_line), callee.name)
            case "fused":
                places = [self._build_place(child, slots, depth) for child in node.children]
                return next((place for place in places if place.source_line is not None), _NOWHERE)
            case _:
                return _NOWHERE


def _find_elided_name(text: str) -> str:
    """Return the name that a type lacks: `<128xf16, #shared, #smem>`, `<bf16>`, `<tensor<8xf32>>`."""
    if text[1].isdigit() or text[1] == "?":
        return "!ttg.memdesc"
    return "!tt.tensordesc" if text.startswith("<tensor") else "!tt.ptr"


class _Node(Struct, frozen=True):
    """A part of a location's shape; `slots` are indices of strings, numbers and aliases."""

    kind: str
    slots: tuple[int, ...] = ()
    children: "tuple[_Node, ...]" = ()


_SLOT_TOKENS = {"STRING_MARK", "NUMBER_MARK", "ATTRIBUTE"}
_MAX_LINE_DIGITS = 9
_NO_LOCATION = "this is no location that the grammar knows"
_SIMPLE_LOCATION = re.compile(
    r'loc\("(?:([^"\\]*+)"\((#\w+)\)|([^"\\]*+)":(\d{1,9}):\d+)\)'
)  # the two forms that most locations have, without the detour
_LOCATION_SLOT = re.compile(r'("(?:[^"\\]|\\.)*+"|#[A-Za-z_][\w$.]*+|(?<!\w)\d++)')
_LOCATION_MARKS = {'"': '""', "#": "#"}


def _inline(callee: SourceLine | None, caller: SourceLine | None) -> SourceLine | None:
    """Return the callee's place with the place of the call at the end of its chain of calls."""
    if callee is None or caller is None:
        return callee or caller
    chain = [callee]
    while chain[-1].inlined_at is not None and len(chain) < _MAX_DEPTH:
        chain.append(chain[-1].inlined_at)
    found = caller
    for each in reversed(chain):
        found = SourceLine(each.file, each.line, found)
    return found


@lru_cache(maxsize=_MAX_SHAPES)
def _compile_location(skeleton: str, kinds: str) -> _Node:
    from lark.exceptions import UnexpectedInput

    check_nesting(skeleton)
    literals = skeleton.split("\0")
    marks = [_LOCATION_MARKS.get(kind, "0") for kind in kinds]
    text = "".join(literal + mark for literal, mark in zip(literals, [*marks, ""], strict=True))
    try:
        tree = load_parser("triton").parse(text, start="location")
    except UnexpectedInput:
        raise TritonSyntaxError(_NO_LOCATION) from None
    numbers = count()
    nodes = _build_nodes(tree.children, numbers)
    if next(numbers) != len(kinds):  # a mark stands in the text itself
        raise TritonSyntaxError(_NO_LOCATION)
    return nodes[0] if nodes else _Node("unknown")


def _build_nodes(children: list[Any], numbers: Iterator[int]) -> tuple[_Node, ...]:
    """Return the nodes of trees; `numbers` gives the index of the next slot."""
    nodes = []
    for child in children:
        if not hasattr(child, "data"):
            continue
        slots = []
        below: tuple[_Node, ...] = ()
        for each in child.children:
            if hasattr(each, "data"):
                below += _build_nodes([each], numbers)
            elif each is not None and each.type in _SLOT_TOKENS:
                slots.append(next(numbers))
        if child.data != "angle":  # metadata of a fused location
            nodes.append(_Node(child.data, tuple(slots), below))
    return tuple(nodes)
