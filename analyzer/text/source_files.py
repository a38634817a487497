"""Lines of source files that an input names, where the files are at hand.

The names come from the input, which may be anyone's, so reading is bounded: only regular files with a name of
source code, of a limited size and number. A file is looked for under the name as written, then by its last
parts in the working directory, the most first, since what was built elsewhere is often looked at in a
checkout of its sources, and by its last part in the folder of the input.

Example: `/build/app/src/kernels.cu` is found as `src/kernels.cu` in the folder of the checkout.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

_MAX_FILES = 64
_MAX_FILE_BYTES = 4 << 20
_MAX_LINE_CHARS = 200
_MAX_PARTS = 8  # of a name, that are looked for in the working directory
_SOURCE_SUFFIXES = frozenset(
    {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".ptx", ".py"}
)


class SourceFiles:
    """Source files that were read so far; `folder`: of the input that names them."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._lines_by_name: dict[str, Sequence[str]] = {}

    def find_line(self, name: str, number: int) -> str:
        """Return a line, from 1, without indent and control characters; "" where it cannot be read."""
        lines = self._lines_by_name.get(name)
        if lines is None:
            lines = self._read_lines(name) if len(self._lines_by_name) < _MAX_FILES else ()
            self._lines_by_name[name] = lines
        if not 1 <= number <= len(lines):
            return ""
        text = lines[number - 1][: 4 * _MAX_LINE_CHARS]
        shown = "".join(letter if letter.isprintable() else " " for letter in text)
        return " ".join(shown.split())[:_MAX_LINE_CHARS]

    def _read_lines(self, name: str) -> Sequence[str]:
        path = Path(name)
        if path.suffix.lower() not in _SOURCE_SUFFIXES:
            return ()
        parts = [part for part in path.parts if part not in (path.anchor, "..")][-_MAX_PARTS:]
        below = [Path(*parts[first:]) for first in range(len(parts))] if path.is_absolute() else []
        beside = [] if self.folder is None else [self.folder / path.name]
        for candidate in (path, *below, *beside):
            data = _read_regular_file(candidate)
            if data is not None:
                return data.decode("utf-8", "replace").splitlines()
        return ()


def _read_regular_file(path: Path) -> bytes | None:
    """Return a file's bytes; None where it is missing, too large, or no regular file (a pipe, a device)."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_FILE_BYTES:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
