"""A launch as Python code writes it: numbers, names and arrays, checked when it is used."""

import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from analyzer.execution.binding.argument_parser import make_argument, parse_value
from analyzer.ir.launch import (
    MAX_GRID_DIMS,
    Argument,
    ArgumentValue,
    Buffer,
    Dim3,
    FilledBuffer,
    NullPointer,
    Pointer,
    TensorMap,
    Timing,
    check_launch,
)
from analyzer.ir.launch import Launch as CheckedLaunch
from analyzer.report.notebook import make_html_table
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Dims = int | Sequence[int]

_READY_VALUES = (Pointer, NullPointer, TensorMap, Buffer, FilledBuffer)
_MAX_EXTENT = max(MAX_GRID_DIMS)
_VALUE_HINT = (
    "a value is a number, an array, None for the null pointer, or a text as --arg takes it, such as 'ptr'"
)


class Launch(Struct, frozen=True):
    """The launch of a kernel; what is left out is not known.

    >>> Launch(grid=1024, block=128, arguments={"x": "ptr", "n": 1 << 20})
    Launch(grid=(1024,), block=(128,), arguments={'x': 'ptr', 'n': 1048576})
    """

    grid: Dims | None = None  # CTAs along x, y and z
    block: Dims | None = None  # threads along x, y and z
    # By name or position, or a sequence by position: numbers, arrays (contents of the memory at a pointer),
    # None (the null pointer), or texts as `--arg` takes them: "ptr", "zeros", "fill:7", "@x.npy".
    arguments: Mapping[str | int, object] | Sequence[object] = ()
    cluster: Dims | None = None  # CTAs along x, y and z
    dynamic_shared_bytes: int | None = None  # per CTA
    clock_mhz: float | None = None  # SM clock while it runs, None for the GPU's own
    l2_is_cold: bool = False  # as after a flush; else the L2 holds what fits of the launch before
    timing: str | None = None  # which time is asked for: interval (where None), kernel or ncu

    def check(self) -> CheckedLaunch:
        """Return the launch as the analysis takes it. Raises UsageError for a value that is none."""
        pairs = _list_arguments(self.arguments)
        launch = CheckedLaunch(
            grid=_make_dims("grid", self.grid),
            block=_make_dims("block", self.block),
            cluster=_make_dims("cluster", self.cluster),
            dynamic_shared_bytes=self.dynamic_shared_bytes,
            arguments=tuple(_make_argument(which, value) for which, value in pairs),
            clock_mhz=self.clock_mhz,
            l2_is_cold=self.l2_is_cold,
            timing=parse_timing(self.timing),
        )
        check_launch(launch)
        return launch

    def __repr__(self) -> str:
        return f"Launch({', '.join(f'{name}={text}' for name, text in _list_fields(self))})"

    def _repr_html_(self) -> str:
        """Return the launch as a table for notebooks."""
        return make_html_table(("launch", ""), [(name, text) for name, text in _list_fields(self)])


def parse_timing(name: str | None) -> Timing:
    """Return the timing of a name, the launch interval where it is None. Raises UsageError."""
    try:
        return Timing.INTERVAL if name is None else Timing(name)
    except ValueError:
        raise UsageError(f"timing {name!r}: no such timing", hint=f"one of: {', '.join(Timing)}") from None


def _list_fields(launch: Launch) -> list[tuple[str, str]]:
    """Return the names of the fields that are given, and their values as text."""
    found = []
    for name in launch.__struct_fields__:
        value = getattr(launch, name)
        if value is None or value is False or (name == "arguments" and not len(value)):
            continue
        found.append((name, _format_field(name, value)))
    return found


def _format_field(name: str, value: Any) -> str:
    if name in ("grid", "block", "cluster"):
        return repr((value,) if isinstance(value, int) else tuple(value))
    if name != "arguments":
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_format_value(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(_format_value, value)) + "]"


def _format_value(value: object) -> str:
    """Return a value as text; of an array type and shape, for it may have millions of elements."""
    if _is_array(value):
        array: Any = value
        return f"<{array.dtype} array of shape {tuple(array.shape)}>"
    return repr(value)


def _is_array(value: object) -> bool:
    return hasattr(value, "dtype") and bool(getattr(value, "shape", ()))


def _make_dims(what: str, value: Dims | None) -> Dim3 | None:
    if value is None:
        return None
    sizes: object = (value,) if isinstance(value, numbers.Integral) else value
    if (
        not isinstance(sizes, Sequence)
        or not 1 <= len(sizes) <= 3
        or not all(isinstance(size, numbers.Integral) for size in sizes)
    ):
        raise UsageError(f"{what} {value!r}: not one to three numbers", hint=f"write {what}=(128, 1, 1)")
    extents = [int(size) for size in sizes]
    if not 1 <= min(extents) <= max(extents) <= _MAX_EXTENT:
        raise UsageError(f"{what} {value!r}: each number must be 1 to {_MAX_EXTENT}")
    return Dim3(*extents)


def _list_arguments(arguments: object) -> list[tuple[str, object]]:
    if isinstance(arguments, Mapping):
        return [(str(which), value) for which, value in arguments.items()]
    if isinstance(arguments, Sequence) and not isinstance(arguments, str | bytes):
        return [(str(position), value) for position, value in enumerate(arguments)]
    raise UsageError(
        f"arguments {arguments!r:.80}: neither a mapping nor a sequence",
        hint='write {"n": 1024} or [x, 1024]',
    )


def _make_argument(which: str, value: object) -> Argument:
    try:
        return make_argument(which, _make_value(value))
    except UsageError as error:
        raise UsageError(f"argument {which}: {error}", hint=error.diagnostic.hint) from None


def _make_value(value: object) -> ArgumentValue:
    if isinstance(value, _READY_VALUES):
        return value
    if value is None:
        return NullPointer()
    if isinstance(value, str):
        return parse_value(value)
    if _is_array(value):
        return _make_buffer(value)
    if hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise UsageError(f"{value!r:.80} is no value", hint=_VALUE_HINT)


def _make_buffer(value: Any) -> ArgumentValue:
    """Return memory with the contents of an array, element by element; of one on a GPU only its size."""
    import numpy as np

    if hasattr(value, "__cuda_array_interface__"):
        return Pointer(int(value.nbytes))
    try:
        array: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"not an array that numpy reads: {error}", hint=_VALUE_HINT) from None
    if array.dtype.hasobject or not array.size:
        raise UsageError(
            f"an array of {array.dtype} of shape {array.shape} has no bytes to copy",
            hint="give null, or some data",
        )
    contents: NDArray[np.uint8] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Buffer(contents, f"{array.dtype}{list(array.shape)}")
