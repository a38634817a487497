"""Reads types and attributes of Triton IR, from text in which aliases are already replaced.

Few distinct ones occur, so the results are kept by text.
"""

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from analyzer.frontend.grammar import load_parser
from analyzer.frontend.triton.formatting import DYNAMIC_SIZE, UNIT, decode_float, format_type
from analyzer.frontend.triton.syntax_errors import TritonSyntaxError, check_nesting
from analyzer.ir.tile_operations import (
    Attribute,
    DenseAttribute,
    DescriptorType,
    DictionaryAttribute,
    FloatAttribute,
    IntegerAttribute,
    IrType,
    Layout,
    MemoryType,
    OpaqueType,
    PointerType,
    ScalarType,
    StringAttribute,
    TensorType,
    TypeAttribute,
)

if TYPE_CHECKING:
    from lark import Token, Tree

_MAX_KEPT = 1 << 14
_LONG_TEXT = 4096  # longer ones are not kept
_MAX_DIGITS = 80
_MAX_ELEMENTS = 1 << 40  # of a tensor; those of a program have at most a million
_MAX_CHARS = 1 << 19  # outside of strings
_MAX_DENSE_VALUES = 1 << 20
_SPACED = {",": ", ", "->": " -> ", "=": " = ", ":": ": ", "*": " * "}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_WIDTH = re.compile(r"[0-9]{1,4}")
_SPECIAL_SCALARS = {"index", "bf16", "tf32"}
_DIALECTS = (  # names until Triton 3.1
    ("triton_nvidia_gpu.dot_async", "ttng.warp_group_dot"),
    ("triton_nvidia_gpu.dot_wait", "ttng.warp_group_dot_wait"),
    ("triton_nvidia_gpu.", "ttng."),
    ("triton_gpu.", "ttg."),
)
_LAYOUT_KINDS = {
    "shared": "swizzled_shared",
    "tensor_memory_encoding": "tensor_memory",
    "tensor_memory_scales_encoding": "tensor_memory_scales",
    "nvidia_mma_encoding": "nvidia_mma",
}


def normalize_name(name: str) -> str:
    """Return a name with the dialect's present name: `triton_gpu.local_alloc` is `ttg.local_alloc`."""
    if not name.startswith("triton_"):
        return name
    for old, new in _DIALECTS:
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def parse_type(text: str) -> IrType:
    """Parse a type without aliases.

    Raises TritonSyntaxError if it is none.
    """
    return _keep_type(text) if len(text) < _LONG_TEXT else _parse_type(text)


def _parse_type(text: str) -> IrType:
    if is_scalar_name(text):
        return ScalarType(text)
    if text.startswith("!") and not text.startswith(
        ("!tt.", "!ttg.memdesc", "!ttng.tensordesc", "!triton_gpu.")
    ):
        return OpaqueType(text)
    return _build_type(_parse(text, "type"))


def parse_attribute(text: str) -> Attribute:
    """Parse an attribute without aliases, a dictionary among others.

    Raises TritonSyntaxError if it is none.
    """
    return _keep_attribute(text) if len(text) < _LONG_TEXT else _parse_attribute(text)


def _parse_attribute(text: str) -> Attribute:
    return _build_attribute(_parse(text, "attribute"))


_keep_type = lru_cache(maxsize=_MAX_KEPT)(_parse_type)
_keep_attribute = lru_cache(maxsize=_MAX_KEPT)(_parse_attribute)


def is_scalar_name(text: str) -> bool:
    """Return whether a word names a scalar type: `i32`, `bf16`, `f8E4M3FN`, `index`."""
    if text in _SPECIAL_SCALARS:
        return True
    digits = text.removeprefix("s").removeprefix("u")
    return len(digits) > 1 and digits[0] in "if" and digits[1].isdecimal()


def _parse(text: str, start: str) -> "Tree[Token]":
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    if len(text) > _MAX_CHARS and len(_STRING.sub("", text)) > _MAX_CHARS:
        raise TritonSyntaxError(f"this {start} is longer than {_MAX_CHARS} characters", piece=text)
    check_nesting(text)
    try:
        tree = load_parser("triton").parse(text, start=start)
    except UnexpectedInput as error:
        at = error.column - 1 if isinstance(error, UnexpectedCharacters | UnexpectedToken) else len(text)
        raise TritonSyntaxError(f"this is no {start} that the grammar knows", piece=text, column=at) from None
    return tree if hasattr(tree, "data") else _wrap(tree)


def _wrap(token: Any) -> "Tree[Token]":
    from lark import Tree

    return Tree("word", [token])


def _build_type(tree: Any) -> IrType:
    match tree.data:
        case "named_type":
            return ScalarType(str(tree.children[0]))
        case "pointer":
            pointee, space = tree.children[1], tree.children[2]
            return PointerType(_build_type(pointee), _read_integer(str(space)) if space is not None else 1)
        case "shaped":
            return _build_shaped(str(tree.children[0]), tree.children[1:])
        case _:
            return OpaqueType(_format_tokens(tree))


def _build_shaped(name: str, children: list[Any]) -> IrType:
    dimensions, element = children[0], children[1]
    parameters = [each.children[0] for each in children[2:]]
    shape = tuple(
        DYNAMIC_SIZE if size[0] == "?" else _read_integer(size[:-1]) for size in dimensions.children
    )
    if math.prod(size for size in shape if size != DYNAMIC_SIZE) > _MAX_ELEMENTS:
        raise TritonSyntaxError("a tensor that no memory holds", piece="x".join(map(str, shape)))
    attributes = [_build_attribute(each) for each in parameters if each.data != "alloc_shape"]
    layouts = [each for each in attributes if isinstance(each, Layout)]
    if "tensordesc" in name:
        block = _build_type(element)
        if not isinstance(block, TensorType):
            block = TensorType(shape, block, layouts[0] if layouts else None)
        return DescriptorType(block)
    if "memdesc" not in name:
        return TensorType(shape, _build_type(element), layouts[0] if layouts else None)
    spaces = [each.kind for each in layouts if each.kind in _MEMORY_SPACES]
    own = [each for each in layouts if each.kind not in _MEMORY_SPACES or each.fields]
    return MemoryType(
        shape,
        _build_type(element),
        own[0] if own else None,
        spaces[-1] if spaces else "shared_memory",
        any(isinstance(each, StringAttribute) and each.text == "mutable" for each in attributes),
    )


_MEMORY_SPACES = ("shared_memory", "tensor_memory")


def _build_attribute(tree: Any, type_name: str = "") -> Attribute:
    """Return the attribute of a tree; numbers without a type of their own get `type_name`."""
    match tree.data:
        case "number":
            own = tree.children[1]
            return _build_number(str(tree.children[0]), type_name if own is None else _format_tokens(own))
        case "string":
            return StringAttribute(unquote(str(tree.children[0])))
        case "symbol":
            return StringAttribute("@" + "::@".join(_read_symbol(str(each)) for each in tree.children))
        case "word":
            return _build_word(str(tree.children[0]), type_name)
        case "dialect":
            return _build_dialect(
                str(tree.children[0]), [each for each in tree.children[1:] if each is not None]
            )
        case "named_parameters":
            return StringAttribute(_format_tokens(tree))
        case _:
            return _build_collection(tree, type_name)


def _build_collection(tree: Any, type_name: str) -> Attribute:
    match tree.data:
        case "list":
            return DenseAttribute(_build_all(tree.children, type_name))
        case "array":
            return DenseAttribute(_build_all(tree.children[2:], str(tree.children[1])))
        case "dense":
            return _build_dense(tree.children[1], tree.children[2])
        case "dictionary":
            return DictionaryAttribute(_build_entries(tree))
        case _:
            return TypeAttribute(_build_type(tree))


def _build_all(children: list[Any], type_name: str = "") -> tuple[Attribute, ...]:
    return tuple(_build_attribute(each, type_name) for each in children if each is not None)


def _build_entries(tree: Any) -> tuple[tuple[str, Attribute], ...]:
    return tuple(_build_entry(each) for each in tree.children if each is not None)


def _build_entry(tree: Any) -> tuple[str, Attribute]:
    name, value = tree.children
    text = str(name)
    key = unquote(text) if text.startswith('"') else text
    return normalize_name(key), UNIT if value is None else _build_attribute(value)


def _build_word(text: str, type_name: str) -> Attribute:
    if text in ("true", "false"):
        return IntegerAttribute(int(text == "true"), "i1")
    if is_scalar_name(text):
        return TypeAttribute(ScalarType(text))
    return StringAttribute(text)


def _build_number(text: str, type_name: str) -> Attribute:
    is_hex = text.lstrip("-").startswith("0x")
    if type_name[:1] == "f" or type_name in ("bf16", "tf32"):
        return FloatAttribute(decode_float(int(text, 16), type_name) if is_hex else float(text), type_name)
    if not is_hex and not text.lstrip("-").isdecimal():
        return FloatAttribute(float(text), type_name)
    return IntegerAttribute(_read_integer(text), type_name)


def _read_integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise TritonSyntaxError("this number has too many digits", piece=text)
    return int(text, 16) if "x" in text else int(text)


def _build_dense(content: Any, type_tree: Any) -> DenseAttribute:
    type_ = _build_type(type_tree)
    element = (
        type_.element.name if isinstance(type_, TensorType) and isinstance(type_.element, ScalarType) else ""
    )
    if content is None:
        return DenseAttribute((), type_)
    if content.data == "string":
        return DenseAttribute(_decode_blob(unquote(str(content.children[0])), element), type_)
    return DenseAttribute(_flatten(content, element), type_)


def _flatten(tree: Any, element: str) -> tuple[Attribute, ...]:
    if tree.data != "list":
        return (_build_attribute(tree, element),)
    values: list[Attribute] = []
    for each in tree.children:
        if each is not None:
            values.extend(_flatten(each, element))
    return tuple(values)


def _decode_blob(text: str, element: str) -> tuple[Attribute, ...]:
    """Return the values of `dense<"0x…">`: raw little-endian values, one of them for a splat."""
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return (StringAttribute(text),)
    width = _WIDTH.search(element)
    bits = 64 if element == "index" else int(width[0]) if width is not None else 8
    size = max(1, (bits + 7) // 8)
    if len(data) // size > _MAX_DENSE_VALUES:
        raise TritonSyntaxError("a constant of more than a million values", piece=text)
    numbers = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    if element[:1] == "f" or element == "bf16":
        return tuple(FloatAttribute(decode_float(number, element), element) for number in numbers)
    half = 1 << (8 * size - 1)
    is_signed = element not in ("i1", "") and not element.startswith("u")
    return tuple(
        IntegerAttribute(number - 2 * half if is_signed and number >= half else number, element)
        for number in numbers
    )


def _build_dialect(name: str, parameters: list[Any]) -> Attribute:
    """Return a layout; an enumeration such as `#arith.fastmath<none>` is a string."""
    kind = normalize_name(name[1:]).rpartition(".")[2]
    if parameters and all(each.data in ("word", "words") for each in parameters):
        return StringAttribute(", ".join(str(each.children[-1]) for each in parameters))
    fields: list[tuple[str, Attribute]] = []
    for each in parameters:
        match each.data:
            case "dictionary":
                fields.extend(_build_entries(each))
            case "entry":
                fields.append(_build_entry(each))
            case "padding":
                fields.extend(_build_padding(each))
            case _:
                fields.append(("", _build_attribute(each)))
    return Layout(_LAYOUT_KINDS.get(kind, kind), tuple(fields))


def _build_padding(tree: Any) -> list[tuple[str, Attribute]]:
    """Return the fields of `[512:+16] {…}`: after every 512 elements 16 are left free."""
    pairs = [each for each in tree.children if each.data == "padded"]
    intervals = tuple(IntegerAttribute(_read_integer(str(each.children[0]))) for each in pairs)
    paddings = tuple(IntegerAttribute(_read_integer(str(each.children[1]))) for each in pairs)
    return [
        ("intervals", DenseAttribute(intervals)),
        ("paddings", DenseAttribute(paddings)),
        *_build_entries(tree.children[-1]),
    ]


def unquote(text: str) -> str:
    """Return what a string literal says: `\\0A` is a line break.

    >>> unquote('"a\\\\22b"')
    'a"b'
    """
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    out = bytearray()
    data = inner.encode("utf-8", "surrogatepass")
    at = 0
    while at < len(data):
        if data[at] != 0x5C:
            out.append(data[at])
            at += 1
            continue
        pair = data[at + 1 : at + 3]
        named = {b"n": 10, b"t": 9, b"\\": 92, b'"': 34}.get(pair[:1])
        if named is not None:
            out.append(named)
            at += 2
        else:
            try:
                out.append(int(pair, 16))
            except ValueError:
                out.append(0x5C)
                at += 1
                continue
            at += 3
    return out.decode("utf-8", "replace")


def _read_symbol(text: str) -> str:
    name = text[1:]
    return unquote(name) if name.startswith('"') else name


def _format_tokens(tree: Any) -> str:
    """Return the text of a tree that is not read further."""
    if not hasattr(tree, "data"):
        return str(tree)
    if tree.data == "function_type":
        *operands, results = [each for each in tree.children if each is not None]
        written = [format_type(_build_type(each)) for each in operands]
        return f"({', '.join(written)}) -> {_format_tokens(results)}"
    if tree.data == "type_list":
        return f"({', '.join(format_type(_build_type(each)) for each in tree.children if each is not None)})"
    if tree.data in ("shaped", "pointer", "named_type"):
        return format_type(_build_type(tree))
    text = ""
    for token in tree.scan_values(lambda token: token is not None):
        word = _SPACED.get(str(token), str(token))
        if text and (text[-1].isalnum() or text[-1] == "_") and (word[0].isalnum() or word[0] in '!#"_'):
            text += " "
        text += word
    return text
