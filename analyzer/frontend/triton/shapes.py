"""Reads the shape of an operation: which slots are results, operands, types and attributes.

The grammar gives items: values, types, words, groups in brackets. In the pretty forms of all operations

- a value is an operand; `%a = %b` gives an argument of the next region and the operand that it starts as;
  `%a: !` in parentheses an argument of the next region;
- `word = item` is an attribute, a word that no value follows too;
- what follows the last colon are types, those after `->` or `to` of results;
- `^bb1(%, % : !, !)` is a block that follows, with operands for its arguments.

The generic form, `"tt.load"(%) <{.}> : (!) -> ! loc`, reads in the same way.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import Any

from msgspec import Struct

from analyzer.frontend.grammar import load_parser
from analyzer.frontend.triton.attributes import normalize_name
from analyzer.frontend.triton.operand_order import Operand, order_operands
from analyzer.frontend.triton.operation_table import RULES
from analyzer.frontend.triton.rules import DEFAULT_RULE, OperandOrder, OperationRule
from analyzer.frontend.triton.splitter import MARKS
from analyzer.frontend.triton.syntax_errors import TritonSyntaxError, check_nesting

NO_SLOT = -1
_MAX_SHAPES = 1 << 12
_MAX_SHAPE_CHARS = 1 << 17  # of one file; kernels have some 10,000
_SLOT_TOKENS = {
    "VALUE": "%",
    "TYPE": "t",
    "DICTIONARY": "{",
    "ATTRIBUTE": "#",
    "NUMBER_MARK": "0",
    "STRING_MARK": '"',
    "SYMBOL": "@",
    "BLOCK": "^",
    "LOCATION": "l",
}
# Words between operands, which say nothing that the order does not.
_SEPARATORS = frozenset(
    [
        "to",
        "step",
        "iter_args",
        "mask",
        "other",
        "token",
        "tokens",
        "deps",
        "scale",
        "do",
        "else",
        "default",
        "attributes",
        "from",
        "into",
        "in",
        "of",
        "at",
        "args",
        "init_args",
        "depend",
        "dependencies",
        "barrier",
        "barriers",
        "pred",
        "predicate",
        "stride",
        "indices",
        "outs",
        "ins",
        "for",
        "lower",
        "upper",
        "case",
    ]
)


class Item(Struct, frozen=True):
    """A token or a group of a shape."""

    kind: str
    text: str = ""
    slot: int = NO_SLOT
    items: "tuple[Item, ...]" = ()


class HeaderArgument(Struct, frozen=True):
    """An argument of a region that the text before the region gives; all are slots."""

    value: int
    type: int = NO_SLOT  # else that of the operand it starts as, or of the result
    attributes: int = NO_SLOT
    location: int = NO_SLOT


class AttributeSource(Struct, frozen=True):
    """An attribute: of a word, of a slot with a type perhaps, or a list of slots."""

    name: str
    word: str = ""
    slots: tuple[int, ...] = ()
    is_list: bool = False
    type_name: str = ""  # of numbers


class Successor(Struct, frozen=True):
    """A block that may follow: slots of its label and of the operands for its arguments."""

    label: int
    operands: tuple[int, ...]


class OperationShape(Struct, frozen=True, kw_only=True):
    """What the slots of a shape are; numbers are indices of slots."""

    name: str
    rule: OperationRule
    is_known: bool
    is_generic: bool
    results: tuple[int, ...]
    operands: tuple[int, ...]
    segment_sizes: tuple[int, ...]  # of groups of operands, where the rule says so
    attributes: tuple[AttributeSource, ...]
    dictionaries: tuple[int, ...]
    listed_types: tuple[int, ...]
    result_types: tuple[int, ...] | None  # None: no arrow
    region_arguments: tuple[tuple[HeaderArgument, ...], ...]
    successors: tuple[Successor, ...]
    location: int


class LabelShape(Struct, frozen=True):
    """What the slots of a block's label are."""

    arguments: tuple[HeaderArgument, ...]


class ShapeTable:
    """The shapes of the operations of one file. The compiler prints few; the grammar reads each once."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, str], OperationShape] = {}
        self._n_chars = 0

    def find(self, skeleton: str, kinds: str) -> OperationShape:
        """Return what the slots of an operation's shape are; see `compile_operation`."""
        key = (skeleton, kinds)
        found = self._shapes.get(key)
        if found is None:
            self._n_chars += len(skeleton)
            if self._n_chars > _MAX_SHAPE_CHARS:
                raise TritonSyntaxError("operations of more different shapes than any compiler prints")
            found = self._shapes[key] = compile_operation(skeleton, kinds)
        return found


@lru_cache(maxsize=_MAX_SHAPES)
def compile_operation(skeleton: str, kinds: str) -> OperationShape:
    """Return what the slots of an operation's shape are.

    Raises TritonSyntaxError if the grammar does not know the shape; its column counts in the shape's text.
    """
    tree = _parse_shape(skeleton, kinds, "operation")
    numbers = count()
    results, name_token, *rest = tree.children
    result_items = () if results is None else tuple(_build_items(results.children, numbers))
    items = tuple(_build_items(rest, numbers))
    _check_slots((*result_items, *items), kinds)
    is_generic = name_token.type == "QUOTED_OPERATION"
    name = normalize_name(str(name_token).strip('"')).removeprefix("builtin.")
    return _OperationReader(name, is_generic).read(tuple(item.slot for item in result_items), items)


@lru_cache(maxsize=_MAX_SHAPES)
def compile_label(skeleton: str, kinds: str) -> LabelShape:
    """Return what the slots of a block's label are; see `compile_operation`."""
    tree = _parse_shape(skeleton, kinds, "label")
    items = tuple(_build_items([each for each in tree.children if each is not None], count()))
    _check_slots(items, kinds)
    arguments = [argument for item in items[1:] for argument in _list_typed_arguments(item.items)]
    return LabelShape(tuple(arguments))


def _parse_shape(skeleton: str, kinds: str, start: str) -> Any:
    from lark.exceptions import UnexpectedInput

    check_nesting(skeleton)
    literals = skeleton.split("\0")
    marks = [MARKS.get(kind, "") for kind in kinds]
    text = "".join(literal + mark for literal, mark in zip(literals, [*marks, ""], strict=True))
    try:
        return load_parser("triton").parse(text, start=start)
    except UnexpectedInput as error:
        at = error.column - 1 if isinstance(error.column, int) and error.column > 0 else len(text)
        raise TritonSyntaxError(
            "this is no operation that the grammar knows", slots_before=_count_slots(literals, marks, at)
        ) from None


def _count_slots(literals: list[str], marks: list[str], column: int) -> tuple[int, int]:
    """Return how many slots lie before a column of a shape's text, and how far behind the last one it is."""
    at = 0
    for index, (literal, mark) in enumerate(zip(literals, [*marks, ""], strict=True)):
        if column < at + len(literal) + len(mark):
            return index, min(column - at, len(literal))
        at += len(literal) + len(mark)
    return len(marks), len(literals[-1])


def _build_items(children: list[Any], numbers: Iterator[int]) -> Iterator[Item]:
    for child in children:
        if hasattr(child, "data"):
            yield Item(str(child.data), items=tuple(_build_items(child.children, numbers)))
        elif child.type in _SLOT_TOKENS:
            yield Item(child.type, slot=next(numbers))
        else:
            yield Item(child.type, str(child))


def _check_slots(items: tuple[Item, ...], kinds: str) -> None:
    """Raise TritonSyntaxError if the marks that the grammar saw are not the slots, as with a lone `%`."""
    seen = "".join(_SLOT_TOKENS[item.kind] for item in _walk(items) if item.slot != NO_SLOT)
    if seen != kinds:
        raise TritonSyntaxError("this is no operation that the grammar knows")


def _walk(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield item
        yield from _walk(item.items)


def _get_kind(items: tuple[Item, ...], index: int) -> str:
    return items[index].kind if index < len(items) else ""


class _OperationReader:
    """State while the items of one operation are read."""

    def __init__(self, name: str, is_generic: bool) -> None:
        rule = RULES.get(name)
        self.name = name
        self.is_generic = is_generic
        self.is_known = rule is not None
        self.rule = rule or DEFAULT_RULE
        self.operands: list[Operand] = []
        self.keyword = ""  # before the operands that follow
        self.partition_warps: list[int] = []
        self.renamed = dict(self.rule.renamed)
        self.attributes: list[AttributeSource] = []
        self.dictionaries: list[int] = []
        self.listed_types: list[int] = []
        self.result_types: list[int] | None = None
        self.arguments: list[HeaderArgument] = []
        self.region_arguments: list[tuple[HeaderArgument, ...]] = []
        self.successors: list[Successor] = []
        self.location = NO_SLOT
        self.n_keywords = self.n_strings = 0

    def read(self, results: tuple[int, ...], items: tuple[Item, ...]) -> OperationShape:
        if items and items[-1].kind == "LOCATION":
            self.location, items = items[-1].slot, items[:-1]
        colon = _find_type_colon(items)
        if self.name == "arith.constant" and not self.is_generic:
            self._read_constant(items, colon)
        else:
            self._read_items(items[:colon], "")
            self._read_types(items[colon + 1 :])
        if self.arguments:  # a declaration has no region
            self.region_arguments.append(tuple(self.arguments))
        if self.partition_warps:
            slots = tuple(self.partition_warps)
            self.attributes.append(
                AttributeSource("partitionNumWarps", "", slots, is_list=True, type_name="i32")
            )
        order = OperandOrder.SAME if self.is_generic else self.rule.operand_order
        operands, sizes = order_operands(order, self.operands)
        return OperationShape(
            name=self.name,
            rule=self.rule,
            is_known=self.is_known,
            is_generic=self.is_generic,
            results=results,
            operands=operands,
            segment_sizes=sizes,
            attributes=tuple(self.attributes),
            dictionaries=tuple(self.dictionaries),
            listed_types=tuple(self.listed_types),
            result_types=None if self.result_types is None else tuple(self.result_types),
            region_arguments=tuple(self.region_arguments),
            successors=tuple(self.successors),
            location=self.location,
        )

    def _read_constant(self, items: tuple[Item, ...], colon: int) -> None:
        """Read `arith.constant {.} dense : !`: its value is an attribute with a type."""
        for item in items[:colon]:
            if item.kind == "DICTIONARY":
                self.dictionaries.append(item.slot)
            elif item.kind == "WORD":  # true, false
                self.attributes.append(AttributeSource("value", item.text))
            else:
                types = tuple(each.slot for each in items[colon + 1 :] if each.kind == "TYPE")
                self.attributes.append(AttributeSource("value", slots=(item.slot, *types[:1])))
        self._read_types(items[colon + 1 :])

    def _read_items(self, items: tuple[Item, ...], group: str) -> None:
        """Read items outside of groups, or those of a group; `group` is its kind."""
        at = 0
        while at < len(items):
            match items[at].kind:
                case "VALUE":
                    at = self._read_value(items, at, group)
                case "WORD":
                    at = self._read_word(items, at)
                case "BLOCK":
                    at = self._read_successor(items, at)
                case "ARROW":
                    at = self._read_result_types(items, at)
                case _:
                    self._read_other(items[at])
                    at += 1

    def _read_value(self, items: tuple[Item, ...], at: int, group: str) -> int:
        """Read an operand, or an argument of a region; return the index of the next item."""
        value = items[at].slot
        if _get_kind(items, at + 1) == "EQUALS" and _get_kind(items, at + 2) == "VALUE":
            self.arguments.append(HeaderArgument(value))
            self.operands.append(Operand(items[at + 2].slot))
            return at + 3
        if group == "paren" and _get_kind(items, at + 1) == "COLON" and _get_kind(items, at + 2) == "TYPE":
            argument, end = _read_typed_argument(items, at)
            self.arguments.append(argument)
            return end
        self.operands.append(Operand(value, "[" if group == "bracket" else self.keyword))
        return at + 1

    def _read_word(self, items: tuple[Item, ...], at: int) -> int:
        """Read a keyword, with what belongs to it; return the index of the next item."""
        word, following = items[at].text, _get_kind(items, at + 1)
        if following == "EQUALS" and at + 2 < len(items) and items[at + 2].kind != "VALUE":
            self.attributes.append(_make_attribute(self.renamed.get(word, word), items[at + 2]))
            return at + 3
        if following == "angle":
            words = ", ".join(each.text for each in items[at + 1].items if each.kind == "WORD")
            self.attributes.append(AttributeSource(self.renamed.get(word, word), words))
            return at + 2
        if word == "num_warps" and following == "paren":
            self.partition_warps.extend(
                each.slot for each in items[at + 1].items if each.kind == "NUMBER_MARK"
            )
            return at + 2
        if word in _SEPARATORS or word.startswith("partition"):
            self.keyword = word
            return at + 1
        if self.n_keywords < len(self.rule.keywords):
            self.attributes.append(AttributeSource(self.rule.keywords[self.n_keywords], word))
            self.n_keywords += 1
        else:
            self.attributes.append(AttributeSource(word, "unit"))
        return at + 1

    def _read_successor(self, items: tuple[Item, ...], at: int) -> int:
        operands: tuple[int, ...] = ()
        has_operands = _get_kind(items, at + 1) == "paren"
        if has_operands:
            operands = tuple(each.slot for each in items[at + 1].items if each.kind == "VALUE")
        self.successors.append(Successor(items[at].slot, operands))
        return at + 1 + has_operands

    def _read_result_types(self, items: tuple[Item, ...], at: int) -> int:
        types = [] if self.result_types is None else self.result_types
        if _get_kind(items, at + 1) in ("paren", "TYPE"):
            types.extend(each.slot for each in _walk(items[at + 1 : at + 2]) if each.kind == "TYPE")
            at += 1
        self.result_types = types
        return at + 1

    def _read_other(self, item: Item) -> None:
        match item.kind:
            case "DICTIONARY":
                self.dictionaries.append(item.slot)
            case "REGION":
                self.region_arguments.append(tuple(self.arguments))
                self.arguments = []
            case "STRING_MARK":
                names = self.rule.strings
                name = names[self.n_strings] if self.n_strings < len(names) else "text"
                self.n_strings += 1
                self.attributes.append(AttributeSource(name, slots=(item.slot,)))
            case "SYMBOL":
                self.attributes.append(AttributeSource(self.rule.symbol, slots=(item.slot,)))
            case "NUMBER_MARK" if self.rule.numbers:
                self.attributes.append(
                    AttributeSource(self.rule.numbers, slots=(item.slot,), type_name="i32")
                )
            case "COMMA":
                self.keyword = ""
            case "ATTRIBUTE":
                self.attributes.append(AttributeSource("attribute", slots=(item.slot,)))
            case "bracket" if any(each.kind == "NUMBER_MARK" for each in item.items):
                self.attributes.append(_make_attribute(self.rule.numbers or "static", item))
            case "paren" | "bracket" | "angle":
                self._read_items(item.items, item.kind)
            case _:
                pass

    def _read_types(self, items: tuple[Item, ...]) -> None:
        """Read what follows the last colon: types, and what may stand behind them."""
        is_result = False
        for item in items:
            if item.kind == "ARROW" or (item.kind == "WORD" and item.text == "to"):
                is_result = True
                self.result_types = [] if self.result_types is None else self.result_types
            elif item.kind in ("TYPE", "paren"):
                found = [each.slot for each in _walk((item,)) if each.kind == "TYPE"]
                target = (
                    self.result_types if is_result and self.result_types is not None else self.listed_types
                )
                target.extend(found)
            else:
                self._read_other(item)


def _find_type_colon(items: tuple[Item, ...]) -> int:
    """Return the index of the last colon outside of groups that no value follows, else the end."""
    for at in range(len(items) - 1, -1, -1):
        if items[at].kind == "COLON":
            return at
        if items[at].kind == "VALUE":
            break
    return len(items)


def _make_attribute(name: str, item: Item) -> AttributeSource:
    if item.kind in ("paren", "bracket"):
        numbers = [
            each.slot for each in item.items if each.kind in ("NUMBER_MARK", "STRING_MARK", "DICTIONARY")
        ]
        return AttributeSource(name, slots=tuple(numbers), is_list=True, type_name="i32")
    return AttributeSource(name, item.text, (item.slot,) if item.slot != NO_SLOT else ())


def _list_typed_arguments(items: tuple[Item, ...]) -> list[HeaderArgument]:
    found, at = [], 0
    while at < len(items):
        if items[at].kind == "VALUE":
            argument, at = _read_typed_argument(items, at)
            found.append(argument)
        else:
            at += 1
    return found


def _read_typed_argument(items: tuple[Item, ...], at: int) -> tuple[HeaderArgument, int]:
    """Read `%a: ! {.} loc`; return it and the index of the next item."""
    slots = {"TYPE": NO_SLOT, "DICTIONARY": NO_SLOT, "LOCATION": NO_SLOT}
    end = at + 1
    while end < len(items) and items[end].kind != "COMMA":
        if items[end].kind in slots:
            slots[items[end].kind] = items[end].slot
        end += 1
    return HeaderArgument(items[at].slot, slots["TYPE"], slots["DICTIONARY"], slots["LOCATION"]), end
