"""Arguments of a Triton kernel as Python code passes them, by the names that the compiled kernel has.

Nothing of Triton or torch is imported: a tensor is what has `data_ptr()` and `element_size()`, a kernel's
source what has `fn` and `signature`. Triton calls a compiled kernel with all arguments of the Python
function. Those that were constant when it was compiled are no parameters of it (`tl.constexpr`, an integer of
1, None); a tuple is as many parameters as it has elements; a tensor descriptor is a descriptor, a shape and
strides:

    matmul(a, b, desc, n=1, BLOCK=128)      a, b, desc, desc.shape.0, desc.shape.1, desc.stride.0, ...
"""

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from analyzer.text.errors import UsageError

Description = int | float | str | None

_CONSTANT_TYPE = "constexpr"
_MAX_ALIGNMENT_BYTES = 256
_MAX_ALLOCATION_BYTES = 1 << 36  # the most that a launch file says of an allocation
_MAX_BOX_SIDE = 256
_MAX_DEPTH = 4  # of tuples in tuples
_DESCRIPTOR_TYPES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "int8": "s8", "uint8": "u8", "int16": "s16", "uint16": "u16", "int32": "s32", "uint32": "u32",
    "int64": "s64", "uint64": "u64", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip


class KernelArguments(Struct, frozen=True):
    """Arguments of the Python function of a compiled kernel, in order."""

    names: tuple[str, ...]
    constants: Mapping[str, object]  # those that were folded into the code, with their values
    declared_constants: frozenset[str]  # those that the function declares as `tl.constexpr`

    def bind(self, values: Sequence[object] | Mapping[str, object]) -> dict[str, object]:
        """Return the values of the arguments that are parameters of the compiled code, by name.

        values: by name, or of all arguments in order, or of all but the constants.
        Raises UsageError where the numbers differ, or a value is not what the code was compiled for.
        """
        if isinstance(values, Mapping):
            given = {str(name): value for name, value in values.items()}
        else:
            given = dict(zip(self._choose_names(len(values)), values, strict=True))
        unknown = [name for name in given if self.names and name not in self.names]
        if unknown:
            raise UsageError(
                f"the kernel has no argument {unknown[0]}", hint=f"it has: {', '.join(self.names)}"
            )
        for name, value in given.items():
            if name in self.constants and not _is_same(value, self.constants[name]):
                raise UsageError(
                    f"argument {name}={value!r:.40}: this code was compiled for {self.constants[name]!r:.40}",
                    hint="Triton compiles other code for another constant; give the kernel of that",
                )
        return {name: value for name, value in given.items() if name not in self.constants}

    def _choose_names(self, count: int) -> list[str]:
        """Return the names that so many values stand for."""
        if not self.names:
            return [str(place) for place in range(count)]
        undeclared = [name for name in self.names if name not in self.declared_constants]
        parameters = [name for name in self.names if name not in self.constants]
        found = next((one for one in (self.names, undeclared, parameters) if len(one) == count), None)
        if found is None:
            raise UsageError(
                f"{count} arguments for a kernel of {len(self.names)}, "
                f"{len(parameters)} without the constants",
                hint=f"give them by name: {', '.join(self.names)}",
            )
        return list(found)


def read_kernel_arguments(source: object) -> KernelArguments:
    """Return the arguments of `CompiledKernel.src`; without names where it was compiled from a file of IR."""
    function = getattr(source, "fn", None)
    names = tuple(str(name) for name in getattr(function, "arg_names", None) or ())
    signature = getattr(source, "signature", None)
    types = signature if isinstance(signature, Mapping) else {}
    constants = {name: None for name, kind in types.items() if kind == _CONSTANT_TYPE and name in names}
    raw = getattr(source, "constants", None) or getattr(source, "constexprs", None)
    for key, value in (raw if isinstance(raw, Mapping) else {}).items():
        if (name := _find_name(key, names)) is not None:
            constants[name] = value
    declared = (
        name
        for name, parameter in zip(names, getattr(function, "params", None) or (), strict=False)
        if getattr(parameter, "is_constexpr", False)
    )
    return KernelArguments(names, constants, frozenset(declared))


def _find_name(key: object, names: Sequence[str]) -> str | None:
    """Return the argument that a key of the constants names: by name, place, or path of places."""
    if isinstance(key, str):
        return key if key in names else None
    path = key if isinstance(key, tuple) else (key,)
    place = path[0] if len(path) == 1 else None  # of a longer one a part of an argument is constant
    return names[place] if isinstance(place, int) and 0 <= place < len(names) else None


def _is_same(value: object, constant: object) -> bool:
    """Return whether a value is the constant; True where that cannot be told, as for functions and types."""
    inner = getattr(constant, "value", constant)
    own = getattr(value, "value", value)
    simple = (bool, int, float, str)
    return not (isinstance(own, simple) and isinstance(inner, simple)) or own == inner


def flatten_arguments(values: Mapping[str, object], depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield the parameters that arguments are compiled to: elements of tuples, parts of descriptors."""
    for name, value in values.items():
        if isinstance(value, tuple | list) and depth < _MAX_DEPTH:
            yield from flatten_arguments(
                {f"{name}.{place}": one for place, one in enumerate(value)}, depth + 1
            )
        elif is_tensor_descriptor(value):
            yield name, value
            shape, strides = list(getattr(value, "shape", ())), list(getattr(value, "strides", ()))
            yield from ((f"{name}.shape.{axis}", int(size)) for axis, size in enumerate(shape))
            yield from ((f"{name}.stride.{axis}", int(stride)) for axis, stride in enumerate(strides))
        else:
            yield name, value


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor, of torch or of anything that Triton takes as one."""
    return callable(getattr(value, "data_ptr", None))


def is_tensor_descriptor(value: object) -> bool:
    """Return whether a value is a `TensorDescriptor`."""
    return all(hasattr(value, name) for name in ("base", "shape", "strides", "block_shape"))


def describe_value(value: object) -> Description:
    """Return an argument as a launch file has it: a number, `ptr:4096`, `null`, `tensormap:...`.

    None stands for a value that no parameter can have, such as a function.
    """
    if value is None:
        return "null"
    if is_tensor_descriptor(value):
        return describe_descriptor(value)
    if is_tensor(value):
        return describe_pointer(find_tensor_bytes(value))
    if hasattr(value, "item") and not isinstance(value, numbers.Number):
        return describe_value(value.item()) if getattr(value, "shape", None) == () else None
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    return None


def describe_pointer(n_bytes: int | None) -> str:
    """Return `ptr:4096`, or `ptr` where the size is not known or no allocation has it."""
    return f"ptr:{n_bytes}" if n_bytes is not None and 0 < n_bytes <= _MAX_ALLOCATION_BYTES else "ptr"


def find_tensor_bytes(tensor: Any) -> int | None:
    """Return how many bytes follow the pointer of a tensor: to the end of its storage, else its elements."""
    try:
        element_bytes = int(tensor.element_size())
        n_bytes = int(tensor.numel()) * element_bytes
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    try:
        storage_bytes = int(tensor.untyped_storage().nbytes())
        return max(n_bytes, storage_bytes - int(tensor.storage_offset()) * element_bytes)
    except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError):
        return n_bytes


def find_alignment_bytes(tensor: Any) -> int | None:
    """Return the power of two that divides a tensor's address, 256 at most; None where it has no address."""
    try:
        address = int(tensor.data_ptr())
    except (TypeError, ValueError, RuntimeError):
        return None
    return min(address & -address, _MAX_ALIGNMENT_BYTES) if address else _MAX_ALIGNMENT_BYTES


def describe_descriptor(value: Any) -> str:
    """Return a tensor descriptor as `tensormap:f16:EXTENTS:BOX:STRIDES`, innermost axis first."""
    base = value.base
    type_name = _DESCRIPTOR_TYPES.get(str(getattr(base, "dtype", "")).rsplit(".", 1)[-1])
    try:
        element_bytes = int(base.element_size())
        extents, box = ([int(size) for size in reversed(one)] for one in (value.shape, value.block_shape))
        strides = [int(stride) * element_bytes for stride in reversed(value.strides)]
    except (AttributeError, TypeError, ValueError):
        return "tensormap"
    # A box that is wider than the hardware's is loaded as several.
    sides = [min(side, _MAX_BOX_SIDE) for side in box]
    is_whole = type_name is not None and len(extents) == len(box) == len(strides) and all(extents)
    if not is_whole or sides[0] * element_bytes % 16 or any(stride % 16 for stride in strides[1:]):
        return "tensormap"
    parts = ["x".join(map(str, one)) for one in (extents, sides, strides[1:]) if one]
    return ":".join(("tensormap", str(type_name), *parts))
