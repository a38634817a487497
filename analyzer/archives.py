"""The one place that opens ZIP archives, .npz files among them: nothing is unpickled, no size is believed."""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from analyzer.unpacking import PackedError

_MAX_DIRECTORY_BYTES = 64 << 20  # the list of entries, which is read whole
_END_RECORD, _WIDE_END_RECORD = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q")
_MAX_END_BYTES = 65_535 + _END_RECORD.size + _WIDE_END_RECORD.size + 20  # a comment, a locator
_PLAIN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others need memory as the data say
# What numpy raises for damaged files; a header is parsed as an expression of Python.
NPY_ERRORS = (
    OSError, ValueError, EOFError, TypeError, KeyError, OverflowError, MemoryError, SyntaxError, TokenError,
    RecursionError,
)  # fmt: skip


@contextmanager
def open_zip(source: Path | bytes) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP. Raises OSError, PackedError for none, and for one whose list of entries is too long."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        try:
            _check_directory(file)
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise PackedError(f"no archive that can be read: {error}") from None
        with archive:
            yield archive


def _check_directory(file: io.BufferedReader | io.BytesIO) -> None:
    """Raise PackedError where the list of entries, which is read whole, is larger than any should be."""
    size = file.seek(0, io.SEEK_END)
    start = max(0, size - _MAX_END_BYTES)
    file.seek(start)
    tail = file.read()
    for record, magic, field in ((_END_RECORD, b"PK\5\6", 5), (_WIDE_END_RECORD, b"PK\6\6", 8)):
        at = tail.rfind(magic)
        if 0 <= at <= len(tail) - record.size:
            n_bytes = record.unpack_from(tail, at)[field]
            if _MAX_DIRECTORY_BYTES < n_bytes != 0xFFFFFFFF:
                raise PackedError(f"its list of entries has {n_bytes:,} bytes")
    file.seek(0)


def read_zip_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Return an entry of a ZIP. Raises PackedError for one that is damaged, or larger than `max_bytes`."""
    too_large = PackedError(f"{entry.filename[:80]} is larger than {max_bytes:,} bytes, unpacked")
    if entry.file_size > max_bytes:
        raise too_large
    if entry.compress_type not in _PLAIN_METHODS:
        raise PackedError(f"{entry.filename[:80]} is packed by a method that is not read")
    try:
        with archive.open(entry) as file:
            content = file.read(max_bytes + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        raise PackedError(f"damaged: {error}") from None
    if len(content) > max_bytes:
        raise too_large
    return content


def read_npz(data: bytes, names: Sequence[str], max_entry_bytes: int) -> dict[str, NDArray[np.generic]]:
    """Return arrays of an .npz file by name, none of them empty.

    Raises ValueError where one is missing, damaged or larger than `max_entry_bytes`.
    """
    with open_zip(data) as archive:
        found = {}
        for name in names:
            entry = archive.NameToInfo.get(f"{name}.npy")
            if entry is None:
                raise ValueError(f"it has not {', '.join(names)}")
            found[name] = _parse_npy(read_zip_entry(archive, entry, max_entry_bytes))
        return found


def _parse_npy(data: bytes) -> NDArray[np.generic]:
    """Return the array of an .npy file. Raises ValueError; a header is held against the size of the data."""
    file = io.BytesIO(data)
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("an array of another version of .npy")
        shape, _, dtype = npy.read_array_header_1_0(file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
            raise ValueError("an array whose size is not what its header says")
        if min(shape, default=0) < 1:
            raise ValueError("an empty array")
        file.seek(0)
        array: NDArray[np.generic] = npy.read_array(file, allow_pickle=False)
    except NPY_ERRORS as error:
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from None
    return array
