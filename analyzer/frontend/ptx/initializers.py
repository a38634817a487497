"""Initializers of variables: `{{1, 0x10}, {3}}`, `generic(table)+8`, `{0xFF(f), 0xFF00(f)}`.

Values fill a variable in order, whatever braces stand between them: so does ptxas, though a row of C would be
filled up before the next one begins.
"""

import re
import struct

from msgspec import Struct

from analyzer.frontend.ptx.constants import PtxSyntaxError, parse_number
from analyzer.frontend.ptx.shapes import OperandReader
from analyzer.frontend.ptx.statements import PtxImmediate, PtxOperand, PtxReference, PtxSymbol

TYPE_BYTES = {
    **dict.fromkeys(("b8", "u8", "s8", "e4m3", "e5m2", "pred"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64", "texref", "surfref", "samplerref"), 8),
    "b128": 16,
}
_FLOAT_CODES = {"f16": "<e", "f32": "<f", "f64": "<d"}
# What compilers print: a list of numbers in decimal.
_PLAIN_NUMBERS = re.compile(r"\{\s*(?:[1-9]\d{0,18}|0)(?:\s*,\s*(?:[1-9]\d{0,18}|0))*\s*\}", re.A)
_ITEM = re.compile(r"\s*(?:([{},])|([^{},]+))")
_MASKED = re.compile(r"(0[xX][0-9a-fA-F]+)U?\s*\((.*)\)", re.S)


class Initializer(Struct, frozen=True):
    """What an initializer says: bytes, addresses, and the number of values."""

    data: bytes | None = None
    references: tuple[PtxReference, ...] = ()
    n_values: int = 0


class _Words(dict[str, PtxOperand]):
    """What words of initializers stand for; nothing is kept."""

    def __missing__(self, word: str) -> PtxOperand:
        return PtxImmediate(parse_number(word)) if word[0].isdecimal() else PtxSymbol(word)


_WORDS = _Words()


def read_initializer(text: str | None, type_name: str, reader: OperandReader, offset: int) -> Initializer:
    """Return the values that a text gives to a variable of a type; None gives none.

    offset: of the text in its declaration, for errors.
    Raises PtxSyntaxError.
    """
    if text is None:
        return Initializer()
    size = TYPE_BYTES[type_name]
    if type_name not in _FLOAT_CODES and _PLAIN_NUMBERS.fullmatch(text):
        numbers = [int(digits) & ((1 << 8 * size) - 1) for digits in text[1:-1].split(",")]
        return Initializer(
            b"".join([number.to_bytes(size, "little") for number in numbers]), (), len(numbers)
        )
    data: list[bytes] = []
    references: list[PtxReference] = []
    depth = 0
    for match in _ITEM.finditer(text):
        if match[1]:
            depth += {"{": 1, "}": -1}.get(match[1], 0)
        elif item := match[2].strip():
            try:
                value = _read_item(item, len(data) * size, reader)
                data.append(
                    bytes(size) if isinstance(value, PtxReference) else encode_value(value, type_name)
                )
            except PtxSyntaxError as error:
                error.offset += offset + match.start(2)
                raise
            if isinstance(value, PtxReference):
                references.append(value)
        if depth < 0:
            break
    if depth:
        raise PtxSyntaxError("braces that do not match", offset=offset)
    return Initializer(b"".join(data), tuple(references), len(data))


def _read_item(text: str, position_bytes: int, reader: OperandReader) -> int | float | PtxReference:
    mask = None
    if match := _MASKED.fullmatch(text):
        number = parse_number(match[1])
        mask, text = int(number), match[2]
    operands = reader.read(text, _WORDS)
    if len(operands) == 1 and isinstance(operands[0], PtxSymbol):
        return PtxReference(position_bytes, operands[0], mask)
    if len(operands) == 1 and isinstance(operands[0], PtxImmediate) and mask is None:
        return operands[0].value
    raise PtxSyntaxError("an initializer holds constants and addresses")


def encode_value(value: int | float, type_name: str) -> bytes:
    """Return a constant as the bytes of a variable of a type. Raises PtxSyntaxError if it does not fit."""
    size = TYPE_BYTES[type_name]
    if isinstance(value, int) and type_name not in _FLOAT_CODES:
        return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    code = _FLOAT_CODES.get(type_name) or {4: "<f", 8: "<d"}.get(size)
    if code is None:
        raise PtxSyntaxError(f"a float does not fit in .{type_name}")
    try:
        return struct.pack(code, float(value))
    except OverflowError:
        return struct.pack(code, float("inf") if value > 0 else float("-inf"))
