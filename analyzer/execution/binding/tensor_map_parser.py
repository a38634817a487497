"""Parser of the tensor layout of a tensor map (TMA descriptor): `tensormap:f16:8192x4096:64x128`."""

import re

from analyzer.ir.launch import TensorLayout, compute_packed_strides
from analyzer.text.errors import UsageError

TENSOR_MAP_PREFIX = "tensormap:"
_TENSOR_MAP_HINT = (
    "tensormap:f16:8192x4096:64x128 is a tensor of 4096 rows of 8192 elements in boxes of 128 rows of 64; "
    "a fourth part gives strides in bytes, as in :16384"
)
# CUtensorMapDataType (cuda.h), by PTX name; elements below 8 bits are packed and counted as bytes.
_ELEMENT_BYTES = {"u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1, "b8": 1}
_ELEMENT_BYTES |= {"u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b16": 2}
_ELEMENT_BYTES |= {"u32": 4, "s32": 4, "f32": 4, "tf32": 4, "b32": 4}
_ELEMENT_BYTES |= {"u64": 8, "s64": 8, "f64": 8, "b64": 8}
_NUMBER_LIST_PATTERN = re.compile(r"[0-9]{1,12}(?:x[0-9]{1,12}){0,4}")
_MAX_AXES, _MAX_BOX_ELEMENTS, _STRIDE_ALIGN_BYTES = 5, 256, 16


def parse_tensor_layout(text: str) -> TensorLayout:
    """Parse `TYPE:EXTENTS:BOX` or `TYPE:EXTENTS:BOX:STRIDES`, numbers joined by `x`, innermost axis first.

    Extents and box are in elements; strides are in bytes, without that of the first axis, as
    `cuTensorMapEncodeTiled` takes them. Raises UsageError.
    """
    name, *parts = text.strip().lower().split(":")
    if name not in _ELEMENT_BYTES or len(parts) not in (2, 3):
        raise UsageError(f"{text!r} describes no tensor", hint=_TENSOR_MAP_HINT)
    size = _ELEMENT_BYTES[name]
    extents, box, *more = (_parse_numbers(part) for part in parts)
    if len(box) != len(extents) or any(len(strides) != len(extents) - 1 for strides in more):
        raise UsageError(f"{text!r}: extents, box and strides are of unlike many axes", hint=_TENSOR_MAP_HINT)
    strides = (size, *more[0]) if more else compute_packed_strides(size, extents)
    if any(side > _MAX_BOX_ELEMENTS for side in box):
        raise UsageError(
            f"{text!r}: a box has at most {_MAX_BOX_ELEMENTS} elements along an axis", hint=_TENSOR_MAP_HINT
        )
    if box[0] * size % _STRIDE_ALIGN_BYTES or any(stride % _STRIDE_ALIGN_BYTES for stride in strides[1:]):
        raise UsageError(
            f"{text!r}: rows of a box and strides are multiples of 16 bytes", hint=_TENSOR_MAP_HINT
        )
    return TensorLayout(name, size, extents, box, strides)


def _parse_numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(map(int, text.split("x"))) if _NUMBER_LIST_PATTERN.fullmatch(text) else ()
    if not numbers or 0 in numbers:
        raise UsageError(f"{text!r} is no list of 1 to {_MAX_AXES} numbers", hint=_TENSOR_MAP_HINT)
    return numbers
