"""Reads the operands of instructions; the grammar sees each distinct shape once.

A text is split into words (names and constants) and what stands between them, which with the kinds of the
words is its shape. The grammar parses one text of each shape, and the syntax tree becomes a function that
makes the operands of any text of this shape from its words.

    {%r1, %r2}, [%rd1+16]      words %r1, %r2, %rd1, 16; shape `{#, #}, [#+#]` of three registers and a number
                               words -> (PtxVector(words[:2]), PtxAddress(words[2], words[3].value))
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lark import Token, Tree
from lark.exceptions import UnexpectedInput

from analyzer.frontend.grammar import load_parser
from analyzer.frontend.ptx.constants import (
    PtxElementError,
    PtxSyntaxError,
    apply_binary,
    apply_cast,
    apply_unary,
)
from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxImmediate,
    PtxOperand,
    PtxRegister,
    PtxSum,
    PtxSymbol,
    PtxVector,
)

_MAX_SHAPES = 1 << 14  # that are kept
_MAX_NESTING = 32
_MAX_OPERATORS = 64  # of one operand; the tree of an expression is walked by recursion
# A name, perhaps with a component, or a constant, as NAME and NUMBER of the grammar.
_WORD = re.compile(
    r"(%?[A-Za-z_$][\w$]*(?:\.\w+)?"
    r"|0[xX][0-9a-fA-F]+U?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]\d+|\d\w*)",
    re.A,
)
_OPERATOR = re.compile(r"[-+*/%!~?|&^<>=(]")

_RULE_NAMES = {
    "operands": "an operand",
    "call_operands": "an operand of a call",
    "declaration": "a declaration",
    "attributes": "an attribute",
}

Words = Sequence[Any]  # operands that single words stand for
Maker = Callable[[Words], Any]
Node = Tree[Token]


class OperandReader:
    """Makes operands from texts; `rule` is the start rule of the grammar."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._makers: dict[tuple[object, ...], Callable[[Words], tuple[PtxOperand, ...]]] = {}

    def read(self, text: str, words: Mapping[str, PtxOperand]) -> tuple[PtxOperand, ...]:
        """Return the operands of a text; `words` gives what each word stands for.

        Raises PtxSyntaxError.
        """
        parts = _WORD.split(text)
        values = [*map(words.__getitem__, parts[1::2])]
        shape = ("#".join(parts[::2]), *map(type, values))
        make = self._makers.get(shape)
        if make is None:
            make = _build_maker(self._rule, text, parts)
            if len(self._makers) > _MAX_SHAPES:
                self._makers.clear()
            self._makers[shape] = make
        return make(values)


def _build_maker(rule: str, text: str, parts: list[str]) -> Callable[[Words], tuple[PtxOperand, ...]]:
    """Return the function that makes operands of texts of the shape of `text`."""
    check_nesting(text)
    tree = parse_by_grammar(rule, text)
    slots: dict[int, int] = {}
    position = 0
    for number, part in enumerate(parts):
        if number % 2:
            slots[position] = number // 2
        position += len(part)
    makers = [_build_operand(child, slots) for child in tree.children if isinstance(child, Tree)]
    if all(isinstance(child, Tree) and child.data in ("name", "number") for child in tree.children):
        return tuple  # one operand for each word
    return lambda words: tuple([make(words) for make in makers])


def parse_by_grammar(rule: str, text: str) -> Node:
    """Return the syntax tree of a text. Raises PtxSyntaxError with the offset of the error."""
    try:
        return load_parser("ptx").parse(text, start=rule)
    except UnexpectedInput as error:
        token = getattr(error, "token", None)
        offset = getattr(error, "pos_in_stream", None)
        if offset is None or offset < 0 or getattr(token, "type", "") == "$END":
            offset = len(text.rstrip())
        raise PtxSyntaxError(f"this is not {_RULE_NAMES[rule]} of PTX", offset=offset) from None


def check_nesting(text: str) -> None:
    """Raise PtxSyntaxError if brackets are nested too deep, or an expression has too many operators."""
    depth = 0
    for match in re.finditer(r"[(\[{]|[)\]}]", text):
        depth += 1 if match[0] in "([{" else -1
        if depth > _MAX_NESTING:
            raise PtxSyntaxError(f"brackets nested deeper than {_MAX_NESTING}", offset=match.start())
    if any(len(_OPERATOR.findall(part)) > _MAX_OPERATORS for part in text.split(",")):
        raise PtxSyntaxError(f"an expression of more than {_MAX_OPERATORS} operators")


def _build_operand(node: Node, slots: dict[int, int]) -> Maker:
    make = _build(node, slots)
    if node.data == "address":
        return make

    def make_operand(words: Words) -> PtxOperand:
        operand: PtxOperand = make(words)
        if isinstance(operand, PtxAddress) and isinstance(operand.base, PtxRegister):
            return PtxSum(operand.base, operand.offset)
        return operand

    return make_operand if node.data == "binary" else make


def _build(node: Node, slots: dict[int, int]) -> Maker:
    return _BUILDERS[str(node.data)](node, slots)


def build_children(node: Node, slots: dict[int, int]) -> list[Maker]:
    """Return the functions that make what the children of a node stand for.

    slots: number of each word by its position in the text.
    """
    return [_build(child, slots) for child in node.children if isinstance(child, Tree)]


def _find_slot(node: Node, slots: dict[int, int]) -> int:
    """Return the number of the word with which a node begins."""
    token = next(child for child in node.children if isinstance(child, Token))
    try:
        return slots[token.start_pos or 0]
    except KeyError:
        raise PtxSyntaxError("this is not a word of PTX", offset=token.start_pos or 0) from None


def _build_word(node: Node, slots: dict[int, int]) -> Maker:
    slot = _find_slot(node, slots)
    return lambda words: words[slot]


def _build_vector(node: Node, slots: dict[int, int]) -> Maker:
    leaves = [child for child in node.children if isinstance(child, Tree)]
    if leaves and all(child.data in ("name", "number") for child in leaves):
        first = _find_slot(leaves[0], slots)
        span = slice(first, first + len(leaves))  # the words follow each other
        return lambda words: PtxVector(tuple(words[span]))
    makers = build_children(node, slots)
    return lambda words: PtxVector(tuple([make(words) for make in makers]))


def _build_address(node: Node, slots: dict[int, int]) -> Maker:
    base, *rest = build_children(node, slots)
    if rest:
        return lambda words: _make_address(base(words), [make(words) for make in rest])
    inner = node.children[0]
    if isinstance(inner, Tree) and inner.data == "name":
        slot = _find_slot(inner, slots)
        return lambda words: _make_plain_address(words[slot], 0)
    if offset := _find_plain_offset(inner, slots):
        first, second, sign = offset
        return lambda words: _make_plain_address(words[first], sign * words[second].value)
    return lambda words: _make_address(base(words))


def _find_plain_offset(node: Node | Token, slots: dict[int, int]) -> tuple[int, int, int] | None:
    """Return the words of `%rd1+16`, `%rd1-16` or `%rd1+-16`, and the sign of the second; None for others."""
    if not isinstance(node, Tree) or node.data != "binary" or len(node.children) != 3:
        return None
    base, operator, offset = node.children
    sign = {"+": 1, "-": -1}.get(str(operator), 0) if isinstance(operator, Token) else 0
    if isinstance(offset, Tree) and offset.data == "unary" and offset.children[0] == "-":
        sign, offset = -sign, offset.children[1]
    if not isinstance(base, Tree) or not isinstance(offset, Tree):
        return None
    if not sign or base.data != "name" or offset.data != "number":
        return None
    return _find_slot(base, slots), _find_slot(offset, slots), sign


def _make_plain_address(base: PtxOperand, offset: int | float) -> PtxAddress:
    kind = type(base)
    if type(offset) is int and (kind is PtxRegister or kind is PtxSymbol):
        return PtxAddress(base, offset)  # type: ignore[arg-type]
    return _make_address(apply_binary("+", base, PtxImmediate(offset)))


def _make_address(base: PtxOperand, rest: Sequence[PtxOperand] = ()) -> PtxAddress:
    """Return the address `[base, sampler, {coordinates}]`; the last two may be missing."""
    sampler = None
    coordinates: tuple[PtxOperand, ...] = ()
    if len(rest) == 2 and isinstance(rest[0], PtxRegister | PtxSymbol):
        sampler, rest = rest[0], rest[1:]
    if rest:
        if len(rest) > 1:
            raise PtxSyntaxError("an address has a base, a sampler and coordinates")
        coordinates = rest[0].elements if isinstance(rest[0], PtxVector) else (rest[0],)
    offset = 0
    if isinstance(base, PtxAddress):
        base, offset = base.base, base.offset  # type: ignore[assignment]
    elif isinstance(base, PtxSymbol) and base.offset:
        base, offset = PtxSymbol(base.name, 0, base.is_generic), base.offset
    if isinstance(base, PtxImmediate) and isinstance(base.value, int):
        return PtxAddress(None, base.value, coordinates, sampler)
    if not isinstance(base, PtxRegister | PtxSymbol):
        raise PtxSyntaxError("this is no base of an address")
    return PtxAddress(base, offset, coordinates, sampler)


def _build_operation(node: Node, slots: dict[int, int]) -> Maker:
    first, second = build_children(node, slots)
    operator = next(str(child) for child in node.children if isinstance(child, Token))
    return lambda words: apply_binary(operator, first(words), second(words))


def _build_unary(node: Node, slots: dict[int, int]) -> Maker:
    (operand,) = build_children(node, slots)
    operator = str(node.children[0])
    return lambda words: apply_unary(operator, operand(words))


def _build_cast(node: Node, slots: dict[int, int]) -> Maker:
    (operand,) = build_children(node, slots)
    type_name = str(node.children[0])
    return lambda words: apply_cast(type_name, operand(words))


def _build_choice(node: Node, slots: dict[int, int]) -> Maker:
    condition, first, second = build_children(node, slots)

    def choose(words: Words) -> PtxOperand:
        value = condition(words)
        if not isinstance(value, PtxImmediate):
            raise PtxSyntaxError("`?` needs a constant")
        chosen: PtxOperand = first(words) if value.value else second(words)
        return chosen

    return choose


def _build_function(node: Node, slots: dict[int, int]) -> Maker:
    token = node.children[0]
    if token != "generic":
        raise PtxSyntaxError(
            "only `generic` may be called here",
            offset=token.start_pos or 0 if isinstance(token, Token) else 0,
        )
    (operand,) = build_children(node, slots)

    def make_generic(words: Words) -> PtxSymbol:
        symbol = operand(words)
        if not isinstance(symbol, PtxSymbol):
            raise PtxSyntaxError("`generic` needs a variable")
        return PtxSymbol(symbol.name, symbol.offset, True)

    return make_generic


def _build_mask(node: Node, slots: dict[int, int]) -> Maker:
    raise PtxSyntaxError("a mask before an address stands in initializers only")


def _build_element(node: Node, slots: dict[int, int]) -> Maker:
    token = node.children[0]
    offset = token.start_pos or 0 if isinstance(token, Token) else 0
    raise PtxElementError("only elements of declared arrays have an address", offset=offset)


_BUILDERS: dict[str, Callable[[Node, dict[int, int]], Maker]] = {
    "name": _build_word,
    "number": _build_word,
    "vector": _build_vector,
    "list": _build_vector,
    "address": _build_address,
    "binary": _build_operation,
    "unary": _build_unary,
    "cast": _build_cast,
    "choice": _build_choice,
    "function": _build_function,
    "mask": _build_mask,
    "element": _build_element,
}
