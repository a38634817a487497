"""Memory that holds one number everywhere: `fill:7`, `fill:7.5`, `fill:i64:7`, and its bytes.

Without a width an integer fills words of 32 bits, as does a float. What is loaded wider or narrower than the
elements reads them as memory holds them: 64 bits of `fill:7` are 0x700000007, of `fill:i64:7` they are 7.
"""

from msgspec import Struct

from analyzer.execution.binding.number_types import encode_number
from analyzer.ir.launch import FilledBuffer
from analyzer.text.errors import UsageError

FILL_PATTERN_BYTES = 8  # a whole number of elements of any width
_DEFAULT_INTEGER, _DEFAULT_FLOAT = "i32", "f32"
_HINT = (
    "fill:7 is an int32 and fill:7.5 a float of 32 bits in every place of the memory; other widths are "
    "fill:i64:7 and fill:bf16:1"
)


class _ElementType(Struct, frozen=True):
    """A type of elements."""

    size_bytes: int
    encoding: str  # as `encode_number` names it
    is_float: bool = False
    is_signed: bool = True


_ELEMENT_TYPES = {
    **{f"i{8 * size}": _ElementType(size, f"i{8 * size}") for size in (1, 2, 4, 8)},
    **{f"u{8 * size}": _ElementType(size, f"u{8 * size}", is_signed=False) for size in (1, 2, 4, 8)},
    "f16": _ElementType(2, "fp16", is_float=True),
    "bf16": _ElementType(2, "bf16", is_float=True),
    "f32": _ElementType(4, "fp32", is_float=True),
    "f64": _ElementType(8, "fp64", is_float=True),
}


def make_filled_buffer(number: int | float | None, element: str, text: str) -> FilledBuffer:
    """Return memory that holds a number everywhere.

    number: None if the text has none; element: `i64`, `bf16`, or "" for 32 bits; text: for messages.
    Raises UsageError if the type is none, or the number does not fit.
    """
    if element and element not in _ELEMENT_TYPES:
        raise UsageError(f"{text!r}: no type {element!r}; one of {', '.join(_ELEMENT_TYPES)}", hint=_HINT)
    if number is None:
        raise UsageError(f"{text!r} fills memory with no number", hint=_HINT)
    if not element and isinstance(number, int) and not -(1 << 31) <= number < 1 << 32:
        raise UsageError(f"{text!r} needs more than 32 bits", hint=_HINT)
    kind = _ELEMENT_TYPES.get(element)
    if kind is not None and not kind.is_float:
        if isinstance(number, float):
            raise UsageError(f"{text!r}: {element} is an integer", hint=_HINT)
        bits = 8 * kind.size_bytes
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.is_signed else (0, (1 << bits) - 1)
        if not low <= number <= high:
            raise UsageError(f"{text!r}: {element} holds {low:,} to {high:,}", hint=_HINT)
    found = FilledBuffer(number, element)
    encode_fill_pattern(found)
    return found


def encode_fill_pattern(filled: FilledBuffer) -> bytes:
    """Return the first `FILL_PATTERN_BYTES` bytes of filled memory. Raises UsageError for a large float."""
    default = _DEFAULT_FLOAT if isinstance(filled.value, float) else _DEFAULT_INTEGER
    kind = _ELEMENT_TYPES[filled.element or default]
    number = float(filled.value) if kind.is_float else filled.value
    element = encode_number(number, kind.size_bytes, str(filled), kind.encoding)
    return element * (FILL_PATTERN_BYTES // kind.size_bytes)


def find_pattern_period(pattern: bytes) -> int:
    """Return after how many bytes a pattern repeats: 1, 2, 4 or 8."""
    return next(size for size in (1, 2, 4, 8) if pattern == pattern[:size] * (FILL_PATTERN_BYTES // size))
