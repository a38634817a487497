"""Arguments as the user writes them: `WHICH=VALUE`."""

import re
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

from analyzer.execution.tensor_text import TENSOR, parse_tensor
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Filled, Null, Pointer, TensorMap
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]{1,32}|[0-9]{1,40})")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?|inf|nan)", re.I
)
_WORDS: dict[str, ArgumentValue] = {"ptr": Pointer(), "null": Null(), "tensormap": TensorMap()}
_ZEROS = "zeros"
_FILL = "fill:"
_SIZED = "ptr:"
_LARGEST_BYTES = 1 << 36  # allocations lie so far apart
_SIZE_HINT = f"ptr:4096 has 4,096 bytes; at most {_LARGEST_BYTES:,}"
_HINT = (
    "a value is a number (1024, 0x400, -1, 1e-5), ptr, ptr:BYTES, zeros, fill:NUMBER, null, tensormap, "
    "tensormap:TYPE:EXTENTS:BOX or @data.npy"
)
_FILL_HINT = "fill:7 is an int32 and fill:7.5 a float of 32 bits, in every place of the memory"
_NPY = b"\x93NUMPY"
_NPY_ERRORS = (OSError, ValueError, EOFError, TypeError, KeyError, OverflowError, MemoryError, SyntaxError)


def parse_argument(text: str, folder: Path | None = None) -> Argument:
    """`3=1024`, `n=1024`, `x=@x.npy`; see `parse_value`. Raises UsageError."""
    which, equals, value = text.partition("=")
    which = which.strip()
    if not equals or not which:
        raise UsageError(f"--arg {text}: not WHICH=VALUE", hint="write --arg 3=1024 or --arg n=1024")
    try:
        return make_argument(which, parse_value(value, folder))
    except UsageError as error:
        raise UsageError(f"--arg {text}: {error}", hint=error.diagnostic.hint) from None


def make_argument(which: str, value: ArgumentValue) -> Argument:
    """The argument, its place as an integer where it is one."""
    is_place = which.isascii() and which.isdigit() and len(which) <= 6
    return Argument(int(which) if is_place else which, value)


def parse_value(text: str, folder: Path | None = None) -> ArgumentValue:
    """A number, `ptr`, `ptr:BYTES`, `zeros`, `fill:NUMBER`, `null`, `tensormap` or `@data.npy` (`folder`'s).

    Of a tensor map what it stands for may be said: see `parse_tensor`. Raises UsageError.
    """
    text = text.strip()
    if text.lower().startswith(_FILL):
        return Filled(_number_to_fill(text))
    if text.lower().startswith(_SIZED):
        return Pointer(_size(text))
    if text.lower().startswith(TENSOR):
        return TensorMap(parse_tensor(text[len(TENSOR) :]))
    if text.lower() == _ZEROS:
        return Filled(0)  # closed forms are found where an array would be walked through
    if text.startswith("@"):
        return read_buffer(text[1:], folder)
    if (word := _WORDS.get(text.lower())) is not None:
        return word
    if (number := _number(text)) is not None:
        return number
    raise UsageError(f"{text!r} is no value", hint=_HINT)


def _number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return int(text, 16) if "x" in text.lower() else int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def _number_to_fill(text: str) -> int | float:
    number = _number(text[len(_FILL) :].strip())
    if number is None:
        raise UsageError(f"{text!r} fills memory with no number", hint=_FILL_HINT)
    if isinstance(number, int) and not -(1 << 31) <= number < 1 << 32:
        raise UsageError(f"{text!r} needs more than 32 bits", hint=_FILL_HINT)
    return number


def _size(text: str) -> int:
    size = _number(text[len(_SIZED) :].strip())
    if not isinstance(size, int) or not 0 < size <= _LARGEST_BYTES:
        raise UsageError(f"{text!r} is no size of an allocation", hint=_SIZE_HINT)
    return size


def read_buffer(name: str, folder: Path | None = None) -> Buffer:
    """The bytes of the array in an .npy file, in the order in which the file has them. Raises UsageError."""
    path = Path(name) if folder is None else folder / name
    hint = "make one with numpy.save"
    try:
        with path.open("rb") as file:
            is_npy = file.read(len(_NPY)) == _NPY
        if not is_npy:
            raise UsageError(f"{path}: this is no .npy file", hint=hint)
        contents = _bytes_of(path)
    except UsageError:
        raise
    except (*_NPY_ERRORS, TokenError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"{name or '@'}: {reason}", hint=hint) from None
    if not len(contents):
        raise UsageError(
            f"{path}: the array is empty, and no memory has 0 bytes", hint="give null, or some data"
        )
    return Buffer(contents, name)


def _bytes_of(path: Path) -> "NDArray[np.uint8]":
    import numpy as np

    array = np.load(path, mmap_mode="r", allow_pickle=False) if _has_data(path) else None
    if array is None:
        return np.zeros(0, dtype=np.uint8)
    if array.dtype.hasobject:
        raise ValueError("an array of Python objects")
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel(order="K")
    return flat.view(np.uint8) if flat.size else np.zeros(0, dtype=np.uint8)


def _has_data(path: Path) -> bool:
    """Whether anything stands behind the header: an empty file cannot be mapped."""
    import numpy as np
    from numpy.lib import format as npy

    with path.open("rb") as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        return bool(np.prod(shape, dtype=np.float64)) and dtype.itemsize > 0
