"""Parser of launch arguments in the form `WHICH=VALUE`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.archives import NPY_ERRORS
from analyzer.execution.binding.fill_patterns import make_filled_buffer
from analyzer.execution.binding.tensor_map_parser import TENSOR_MAP_PREFIX, parse_tensor_layout
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, FilledBuffer, NullPointer, Pointer, TensorMap
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]{1,32}|[0-9]{1,40})")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?|inf|nan)", re.I
)
_KEYWORD_VALUES: dict[str, ArgumentValue] = {
    "ptr": Pointer(),
    "null": NullPointer(),
    "tensormap": TensorMap(),
}
_ZEROS_KEYWORD = "zeros"
_FILL_PREFIX = "fill:"
_SIZED_POINTER_PREFIX = "ptr:"
_MAX_ALLOCATION_BYTES = 1 << 36  # allocations are placed at this distance
_SIZE_HINT = f"ptr:4096 has 4,096 bytes; at most {_MAX_ALLOCATION_BYTES:,}"
_VALUE_HINT = (
    "a value is a number (1024, 0x400, -1, 1e-5), ptr, ptr:BYTES, zeros, fill:NUMBER, fill:TYPE:NUMBER, "
    "null, tensormap, tensormap:TYPE:EXTENTS:BOX or @data.npy"
)
_NPY_MAGIC = b"\x93NUMPY"


def parse_argument(text: str, folder: Path | None = None) -> Argument:
    """Parse `3=1024`, `n=1024`, `x=@x.npy`; see `parse_value`. Raises UsageError.

    folder: directory of relative file names
    """
    which, equals, value = text.partition("=")
    which = which.strip()
    if not equals or not which:
        raise UsageError(f"--arg {text}: not WHICH=VALUE", hint="write --arg 3=1024 or --arg n=1024")
    try:
        return make_argument(which, parse_value(value, folder))
    except UsageError as error:
        raise UsageError(f"--arg {text}: {error}", hint=error.diagnostic.hint) from None


def make_argument(which: str, value: ArgumentValue) -> Argument:
    """Make an argument; a selector of digits becomes an ordinal."""
    is_ordinal = which.isascii() and which.isdigit() and len(which) <= 6
    return Argument(int(which) if is_ordinal else which, value)


def parse_value(text: str, folder: Path | None = None) -> ArgumentValue:
    """Parse a number, `ptr`, `ptr:BYTES`, `zeros`, `fill:7`, `fill:i64:7`, `null`, `tensormap`, `@data.npy`.

    `tensormap:...` gives the layout of the tensor, see `parse_tensor_layout`. Raises UsageError.
    """
    text = text.strip()
    if text.lower().startswith(_FILL_PREFIX):
        return _parse_filled_buffer(text)
    if text.lower().startswith(_SIZED_POINTER_PREFIX):
        return Pointer(_parse_size_bytes(text))
    if text.lower().startswith(TENSOR_MAP_PREFIX):
        return TensorMap(parse_tensor_layout(text[len(TENSOR_MAP_PREFIX) :]))
    if text.lower() == _ZEROS_KEYWORD:
        return FilledBuffer(0)  # unlike an array of zeros it permits closed forms
    if text.startswith("@"):
        return read_npy_buffer(text[1:], folder)
    if (word := _KEYWORD_VALUES.get(text.lower())) is not None:
        return word
    if (number := _parse_number(text)) is not None:
        return number
    raise UsageError(f"{text!r} is no value", hint=_VALUE_HINT)


def _parse_number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return int(text, 16) if "x" in text.lower() else int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def _parse_filled_buffer(text: str) -> FilledBuffer:
    element, _, number = text[len(_FILL_PREFIX) :].rpartition(":")
    return make_filled_buffer(_parse_number(number.strip()), element.strip().lower(), text)


def _parse_size_bytes(text: str) -> int:
    size = _parse_number(text[len(_SIZED_POINTER_PREFIX) :].strip())
    if not isinstance(size, int) or not 0 < size <= _MAX_ALLOCATION_BYTES:
        raise UsageError(f"{text!r} is no size of an allocation", hint=_SIZE_HINT)
    return size


def read_npy_buffer(name: str, folder: Path | None = None) -> Buffer:
    """Read the array in an .npy file as bytes in file order. Raises UsageError."""
    path = Path(name) if folder is None else folder / name
    hint = "make one with numpy.save"
    try:
        with path.open("rb") as file:
            is_npy = file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
        if not is_npy:
            raise UsageError(f"{path}: this is no .npy file", hint=hint)
        contents = _read_npy_bytes(path)
    except UsageError:
        raise
    except NPY_ERRORS as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"{name or '@'}: {reason}", hint=hint) from None
    if not len(contents):
        raise UsageError(
            f"{path}: the array is empty, and no memory has 0 bytes", hint="give null, or some data"
        )
    return Buffer(contents, name)


def _read_npy_bytes(path: Path) -> "NDArray[np.uint8]":
    import numpy as np

    array = np.load(path, mmap_mode="r", allow_pickle=False) if _has_npy_data(path) else None
    if array is None:
        return np.zeros(0, dtype=np.uint8)
    if array.dtype.hasobject:
        raise ValueError("an array of Python objects")
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel(order="K")
    return flat.view(np.uint8) if flat.size else np.zeros(0, dtype=np.uint8)


def _has_npy_data(path: Path) -> bool:
    """Return whether an .npy file holds data after its header; an empty file cannot be mapped."""
    import numpy as np
    from numpy.lib import format as npy

    with path.open("rb") as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        return bool(np.prod(shape, dtype=np.float64)) and dtype.itemsize > 0
