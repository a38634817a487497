"""Writes types and attributes as text that reads to the same values; aliases are written out."""

import math
import re
import struct

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

DYNAMIC_SIZE = -1  # of `tensor<?xf32>`
UNIT = StringAttribute("unit")
TENSOR_MEMORY_KINDS = {
    "tensor_memory": "#ttng.tensor_memory_encoding",
    "tensor_memory_scales": "#ttng.tensor_memory_scales_encoding",
}
_SPACES = {"shared_memory": "#ttg.shared_memory", "tensor_memory": "#ttng.tensor_memory"}
_BARE_NAME = re.compile(r"[A-Za-z_][\w$.]*")
_WIDE_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_NARROW_FLOAT = re.compile(r"f\d+E(\d+)M(\d+)(\w*)")


def format_type(type_: IrType) -> str:
    """Return the text of a type.

    >>> format_type(TensorType((4, 8), PointerType(ScalarType("f32"))))
    'tensor<4x8x!tt.ptr<f32>>'
    """
    match type_:
        case ScalarType():
            return type_.name
        case PointerType():
            space = "" if type_.address_space == 1 else f", {type_.address_space}"
            return f"!tt.ptr<{format_type(type_.pointee)}{space}>"
        case TensorType():
            layout = "" if type_.layout is None else f", {format_layout(type_.layout)}"
            return f"tensor<{_format_shape(type_.shape)}{format_type(type_.element)}{layout}>"
        case MemoryType():
            return _format_memory_type(type_)
        case DescriptorType():
            return f"!tt.tensordesc<{format_type(type_.block)}>"
        case OpaqueType():
            return type_.text or "none"


def _format_shape(shape: tuple[int, ...]) -> str:
    return "".join("?x" if size == DYNAMIC_SIZE else f"{size}x" for size in shape)


def _format_memory_type(type_: MemoryType) -> str:
    parts = [f"{_format_shape(type_.shape)}{format_type(type_.element)}"]
    if type_.layout is not None:
        parts.append(format_layout(type_.layout))
    parts.append(_SPACES.get(type_.memory_space, type_.memory_space))
    if type_.is_mutable:
        parts.append("mutable")
    return f"!ttg.memdesc<{', '.join(parts)}>"


def format_layout(layout: Layout) -> str:
    """Return the text of a layout."""
    name = TENSOR_MEMORY_KINDS.get(layout.kind, f"#ttg.{layout.kind}")
    fields = list(layout.fields)
    padding = ""
    if layout.kind == "padded_shared" and [key for key, _ in fields[:2]] == ["intervals", "paddings"]:
        padding = f"[{', '.join(_pair_paddings(fields[0][1], fields[1][1]))}] "
        fields = fields[2:]
    positional = [format_attribute(value) for key, value in fields if not key]
    named = [(key, value) for key, value in fields if key]
    if named or padding:
        positional.append(f"{padding}{{{_format_entries(named)}}}")
    return f"{name}<{', '.join(positional)}>" if positional or layout.kind in TENSOR_MEMORY_KINDS else name


def _pair_paddings(intervals: Attribute, paddings: Attribute) -> list[str]:
    if not isinstance(intervals, DenseAttribute) or not isinstance(paddings, DenseAttribute):
        return []
    pairs = zip(intervals.values, paddings.values, strict=True)
    return [f"{format_attribute(interval)}:+{format_attribute(padding)}" for interval, padding in pairs]


def format_attribute(attribute: Attribute) -> str:
    """Return the text of an attribute."""
    match attribute:
        case IntegerAttribute():
            return _format_integer(attribute)
        case FloatAttribute():
            return (
                f"{_format_float(attribute)} : {attribute.type_name}"
                if attribute.type_name
                else repr(attribute.value)
            )
        case StringAttribute():
            return quote(attribute.text)
        case DenseAttribute(type=None):
            return f"[{', '.join(map(format_attribute, attribute.values))}]"
        case DenseAttribute():
            return _format_dense(attribute)
        case DictionaryAttribute():
            return f"{{{_format_entries(attribute.entries)}}}"
        case TypeAttribute():
            return format_type(attribute.type)
        case Layout():
            return format_layout(attribute)


def format_dictionary(entries: tuple[tuple[str, Attribute], ...]) -> str:
    """Return the text of named attributes in braces."""
    return f"{{{_format_entries(entries)}}}"


def _format_entries(entries: "tuple[tuple[str, Attribute], ...] | list[tuple[str, Attribute]]") -> str:
    return ", ".join(
        _format_key(key) if value == UNIT else f"{_format_key(key)} = {format_attribute(value)}"
        for key, value in entries
    )


def _format_key(key: str) -> str:
    return key if _BARE_NAME.fullmatch(key) else quote(key)


def _format_integer(attribute: IntegerAttribute) -> str:
    if attribute.type_name == "i1" and attribute.value in (0, 1):
        return "true" if attribute.value else "false"
    return f"{attribute.value} : {attribute.type_name}" if attribute.type_name else str(attribute.value)


def _format_float(attribute: FloatAttribute) -> str:
    """Return a number; one that is not finite as the bits that it has in its type."""
    if math.isfinite(attribute.value):
        return repr(attribute.value)
    return f"0x{encode_special_float(attribute.value, attribute.type_name):X}"


def _format_dense(attribute: DenseAttribute) -> str:
    assert attribute.type is not None
    values = [format_attribute(value).partition(" : ")[0] for value in attribute.values]
    inner = values[0] if len(values) == 1 else f"[{', '.join(values)}]" if values else ""
    return f"dense<{inner}> : {format_type(attribute.type)}"


def quote(text: str) -> str:
    """Return a string literal."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in (0x22, 0x5C) else f"\\{byte:02X}"
        for byte in text.encode("utf-8", "surrogatepass")
    )
    return f'"{escaped}"'


def decode_float(bits: int, type_name: str) -> float:
    """Return the value that the bits of a floating-point number mean.

    >>> decode_float(0xFF800000, "f32"), decode_float(0x7E, "f8E4M3FN")
    (-inf, 448.0)
    """
    if type_name == "bf16":
        bits, type_name = bits << 16, "f32"
    code = _WIDE_FLOATS.get(type_name)
    if code is not None:
        size = struct.calcsize(code)
        return float(struct.unpack(code, (bits & ((1 << 8 * size) - 1)).to_bytes(size, "little"))[0])
    narrow = _NARROW_FLOAT.fullmatch(type_name)
    if narrow is None:
        return float(bits)
    return _decode_narrow(bits, int(narrow[1]), int(narrow[2]), narrow[3])


def _decode_narrow(bits: int, n_exponent: int, n_mantissa: int, variant: str) -> float:
    """Return the value of a number of 8 bits or fewer; `FN` has no infinity, `FNUZ` no negative zero."""
    mantissa = bits & ((1 << n_mantissa) - 1)
    exponent = (bits >> n_mantissa) & ((1 << n_exponent) - 1)
    sign = -1.0 if bits >> (n_mantissa + n_exponent) & 1 else 1.0
    bias = (1 << (n_exponent - 1)) - (0 if "UZ" in variant else 1)
    is_last = exponent == (1 << n_exponent) - 1
    if "UZ" in variant and sign < 0 and not exponent and not mantissa:
        return math.nan
    if is_last and not variant and n_exponent + n_mantissa == 7:
        return math.nan if mantissa else sign * math.inf
    if is_last and variant == "FN" and n_exponent + n_mantissa == 7 and mantissa == (1 << n_mantissa) - 1:
        return math.nan
    fraction = mantissa / (1 << n_mantissa)
    return sign * (
        fraction * 2.0 ** (1 - bias) if not exponent else (1 + fraction) * 2.0 ** (exponent - bias)
    )


def encode_special_float(value: float, type_name: str) -> int:
    """Return the bits of an infinity or of what is not a number."""
    if type_name == "bf16":
        return encode_special_float(value, "f32") >> 16
    code = _WIDE_FLOATS.get(type_name)
    if code is not None:
        return int.from_bytes(struct.pack(code, value), "little")
    narrow = _NARROW_FLOAT.fullmatch(type_name)
    if narrow is None:
        return 0
    n_mantissa, n_bits = int(narrow[2]), int(narrow[1]) + int(narrow[2])
    sign = (1 << n_bits) if value < 0 else 0
    if "UZ" in narrow[3]:
        return 1 << n_bits
    exponent = ((1 << n_bits) - 1) >> n_mantissa << n_mantissa
    return sign | exponent | (0 if math.isinf(value) else (1 << n_mantissa) - 1)
