"""An exported program as plain values: calls of ATen operators on named tensors of known shapes.

`archive` reads it from a `.pt2` file, `analyzer/live/torch_module` from a program in memory; `aten_graph`
makes the tensor graph of it.
"""

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from analyzer.operators.names import DataType

MOST_CALLS = 200_000
MOST_ELEMENTS = 1 << 50


class ExportedTensor(Struct, frozen=True):
    """Shape and type of a named tensor."""

    shape: tuple[int, ...]
    dtype: str  # torch's name without its prefix: "float32", "int64", "bool"
    is_contiguous: bool = True

    @property
    def elements(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def element_bytes(self) -> float:
        """Bytes of one element; of a type that is not known, four."""
        return ELEMENT_BYTES.get(self.dtype, 4.0)


class ExportedCall(Struct, frozen=True):
    """One operator: tensors by name in the order of its schema, and its flags."""

    target: str  # "aten.linear"; the overload is cut off
    operands: tuple[str, ...]
    outputs: tuple[str, ...]
    flags: Mapping[str, bool | int] = {}  # arguments by name: is_causal, train, dim


class ExportedProgram(Struct, frozen=True):
    """A whole program."""

    name: str
    tensors: Mapping[str, ExportedTensor]
    parameters: frozenset[str]  # weights
    inputs: tuple[str, ...]  # what the caller gives, and buffers
    calls: tuple[ExportedCall, ...]
    is_dynamic: bool = False  # sizes vary; those of the example stand


ELEMENT_BYTES: Mapping[str, float] = {
    "uint8": 1.0,
    "int8": 1.0,
    "int16": 2.0,
    "uint16": 2.0,
    "int32": 4.0,
    "uint32": 4.0,
    "int64": 8.0,
    "uint64": 8.0,
    "bool": 1.0,
    "float16": 2.0,
    "bfloat16": 2.0,
    "float32": 4.0,
    "float64": 8.0,
    "complex64": 8.0,
    "complex128": 16.0,
    "float8_e4m3fn": 1.0,
    "float8_e5m2": 1.0,
}
DATA_TYPES: Mapping[str, DataType] = {
    "float32": DataType.FP32,
    "float16": DataType.FP16,
    "bfloat16": DataType.BF16,
    "float8_e4m3fn": DataType.FP8,
}


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a tensor's elements lie one after the other; dimensions of one element do not count."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
