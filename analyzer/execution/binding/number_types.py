"""Types of parameters by name, and the conversion of numbers to them: the one place for every command.

Types are named as their source names them: by Triton (`fp32`, `i64`), PTX (`f32`, `s64`) or C++ (`float`,
`unsigned int`, `__half`). A type that is none of these is a struct or an enumeration: its bytes may be given
as an integer, or field by field.
"""

import struct
from enum import StrEnum

from msgspec import Struct

from analyzer.text.errors import UsageError

POINTER_BYTES = 8
_FLOAT_FORMATS = {2: "<e", 4: "<f", 8: "<d"}
_MAX_BFLOAT16 = 3.3895313892515355e38
_FIELDS_HINT = "it is passed by value: give its fields, as in --arg WHICH+OFFSET=VALUE"


class _NumberKind(StrEnum):
    """What the bits of a number mean."""

    FLOAT = "a float"
    BFLOAT = "a bfloat16"
    SIGNED = "a signed integer"
    UNSIGNED = "an unsigned integer"
    INTEGER = "an integer"  # signed or unsigned: nothing says which
    BOOL = "a bool"


class NumberType(Struct, frozen=True):
    """Type of a number, with its size and alignment in bytes."""

    kind: _NumberKind
    size_bytes: int

    @property
    def is_float(self) -> bool:
        """True for floating-point numbers."""
        return self.kind in (_NumberKind.FLOAT, _NumberKind.BFLOAT)

    @property
    def integer_range(self) -> range:
        """The integers that it holds."""
        bits = 8 * self.size_bytes
        match self.kind:
            case _NumberKind.BOOL:
                return range(2)
            case _NumberKind.SIGNED:
                return range(-(1 << bits - 1), 1 << bits - 1)
            case _NumberKind.UNSIGNED:
                return range(1 << bits)
            case _:
                return range(-(1 << bits - 1), 1 << bits)


def _list_types() -> dict[str, NumberType]:
    signed, unsigned, either = _NumberKind.SIGNED, _NumberKind.UNSIGNED, _NumberKind.INTEGER
    names = {
        _NumberKind.FLOAT: {
            2: "fp16 f16 __half half _Float16 c10::Half at::Half cutlass::half_t",
            4: "fp32 f32 float Float32",
            8: "fp64 f64 double Float64",
        },
        _NumberKind.BFLOAT: {
            2: "bf16 __nv_bfloat16 __bf16 std::bfloat16_t c10::BFloat16 at::BFloat16 cutlass::bfloat16_t"
        },
        _NumberKind.BOOL: {1: "bool i1 u1"},
        signed: {
            1: "s8 signed~char",
            2: "s16 short",
            4: "s32 int Int32",
            8: "s64 long long~long Int64",
            16: "__int128",
        },
        unsigned: {
            1: "u8 unsigned~char",
            2: "u16 unsigned~short char16_t",
            4: "u32 unsigned~int char32_t",
            8: "u64 unsigned~long unsigned~long~long",
            16: "unsigned~__int128",
        },
        either: {1: "i8 char", 2: "i16", 4: "i32 wchar_t", 8: "i64"},
    }
    return {
        name.replace("~", " "): NumberType(kind, size)
        for kind, by_size in names.items()
        for size, listed in by_size.items()
        for name in listed.split()
    }


_TYPES = _list_types()


def find_number_type(name: str) -> NumberType | None:
    """Return the type of numbers of that name; None for pointers, structs and what is not known."""
    return _TYPES.get(name)


def convert_number(value: int | float, type_name: str, what: str) -> int | float:
    """Return a number as its parameter's type takes it: an int for integers, a float for floats.

    what: label of the parameter in messages; type_name: "" if not known, then a number is what it looks like.
    Raises UsageError for a fraction, NaN or infinity where an integer is needed, and for what does not fit.
    """
    kind = find_number_type(type_name)
    if kind is None:
        return value
    if kind.is_float:
        try:
            return float(value)
        except OverflowError:
            raise UsageError(f"{what} is a float, which cannot hold so large a number") from None
    if isinstance(value, float):
        if not value.is_integer():
            raise UsageError(f"{what} is an integer ({type_name}), {value} is not")
        value = int(value)
    held = kind.integer_range
    if value in held:
        return value
    if kind.kind is _NumberKind.BOOL:
        raise UsageError(f"{what} is a bool, {value} is neither 0 nor 1")
    raise UsageError(
        f"{what} is {kind.kind} of {8 * kind.size_bytes} bits ({type_name}), which holds {held[0]:,} to "
        f"{held[-1]:,}: {value} is beyond"
    )


def encode_number(value: int | float, size: int, what: str, type_name: str = "") -> bytes:
    """Encode a number as the bytes of a parameter, converted to its type.

    size: of the parameter, bytes; what: its label in messages; type_name: its type, if known
    Raises UsageError if it does not fit.
    """
    value = convert_number(value, type_name, what)
    if isinstance(value, float):
        return _encode_float(value, size, what, type_name)
    if size > POINTER_BYTES:
        raise UsageError(f"{what} has {size} bytes, which one number does not fill", hint=_FIELDS_HINT)
    needed = _count_needed_bytes(value)
    if needed > size:
        raise UsageError(f"{what} has {size} byte{'s' if size > 1 else ''}, {value} needs {needed}")
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _count_needed_bytes(value: int) -> int:
    bits = value.bit_length() if value >= 0 else (value + 1).bit_length() + 1
    return next((size for size in (1, 2, 4, 8) if bits <= 8 * size), -(-bits // 8))


def _encode_float(value: float, size: int, what: str, type_name: str) -> bytes:
    kind, layout = find_number_type(type_name), _FLOAT_FORMATS.get(size)
    if layout is None:
        raise UsageError(
            f"{what} has {size} byte{'s' if size > 1 else ''}, which hold no float",
            hint=_FIELDS_HINT if size > POINTER_BYTES else "",
        )
    if kind is None and type_name:
        raise UsageError(
            f"{what} is a {type_name}, no number: {value} has no place in it",
            hint=f"{_FIELDS_HINT}, or its bits as an integer",
        )
    try:
        if kind is not None and kind.kind is _NumberKind.BFLOAT:
            return _encode_bfloat16(value)
        return struct.pack(layout, value)
    except OverflowError:
        raise UsageError(f"{what} has {size} bytes, in which {value} does not fit") from None


def _encode_bfloat16(value: float) -> bytes:
    """Encode as bf16, rounded to nearest even. Raises OverflowError."""
    if abs(value) > _MAX_BFLOAT16 and abs(value) != float("inf"):
        raise OverflowError
    bits = int.from_bytes(struct.pack("<f", value), "little")
    if value != value:
        return (bits >> 16 | 0x40).to_bytes(2, "little")
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).to_bytes(2, "little")
