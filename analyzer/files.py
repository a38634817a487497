"""Reading with a limit, and writing that never harms what is there.

A file may be larger than memory, or endless (`/dev/zero`, a pipe), so whatever is read whole is read by
`read_file`, with a limit that the error names.

A file is written under another name in the same folder and then renamed, which is atomic: whoever reads it
sees the old file or the new one, and a full disk, an error or Ctrl-C halfway leaves the old one. Devices,
FIFOs and `/dev/stdout` are no files to be replaced; they are written to as they are.

All errors are `OSError`s, whose `strerror` says what is wrong.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_PIECE_BYTES = 1 << 20
_MAX_PIECE_LINES = 200_000
_MAX_CREATION_TRIES = 100
_DEFAULT_MODE = 0o666  # less the umask


def read_file(path: str | Path, max_bytes: int) -> bytes:
    """Return the contents of a file. Raises OSError, also for more than `max_bytes`."""
    with open(path, "rb") as file:
        return b"".join(limit_bytes(iter(lambda: file.read(_PIECE_BYTES), b""), max_bytes))


def read_lines(file: BinaryIO, max_line_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a file with their ends; what a line has beyond `max_line_bytes` is left out."""
    while line := file.readline(max_line_bytes):
        yield line
        while not line.endswith(b"\n") and (line := file.readline(max_line_bytes)):
            pass


def split_dense_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces of a text, those of very many lines cut into smaller ones.

    A parser that takes a piece as a list of lines needs memory for each line: 8 MiB of line feeds would take
    more than a gigabyte.
    """
    for piece in pieces:
        n_parts = piece.count(b"\n") // _MAX_PIECE_LINES + 1
        step = len(piece) // n_parts + 1
        if n_parts == 1:
            yield piece
        else:
            yield from (piece[at : at + step] for at in range(0, len(piece), step))


def limit_bytes(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield pieces of a file as they come. Raises OSError once they are more than `max_bytes` in all."""
    n_bytes = 0
    for piece in pieces:
        n_bytes += len(piece)
        if n_bytes > max_bytes:
            reason = f"larger than {_format_size(max_bytes)}, which is the most that is read"
            raise OSError(errno.EFBIG, reason)
        yield piece


def _format_size(n_bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= size:
            return f"{n_bytes / size:g} {unit}"
    return f"{n_bytes} bytes"


def find_home_folder(variable: str, *parts: str) -> Path | None:
    """Return the folder that an XDG variable names, else `~/parts...`; None where there is no home."""
    named = os.environ.get(variable, "")
    if os.path.isabs(named):
        return Path(named)
    home = os.path.expanduser("~")  # stays as it is for a user without a home
    return Path(home, *parts) if os.path.isabs(home) else None


def list_files(folder: Path, suffix: str) -> list[Path]:
    """Return the regular files in a folder by name; none for a folder that cannot be read or is none."""
    found = []
    with suppress(OSError, ValueError):
        for entry in os.scandir(folder):
            if entry.name.endswith(suffix) and _is_regular(entry):
                found.append(folder / entry.name)
    return sorted(found)


def _is_regular(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a file, or a link to one; a link to itself is not."""
    try:
        return entry.is_file()
    except OSError:
        return False


def write_file(path: str | Path, pieces: Iterable[bytes]) -> None:
    """Write a file completely or not at all. Raises OSError, and what `pieces` raises.

    The new file has the permissions of the old one; where `path` is a link, the file that it names is
    replaced.
    """
    target = Path(path)
    if not _is_replaceable(target):
        with open(target, "wb") as file:
            file.writelines(pieces)
        return
    target = Path(os.path.realpath(target))
    handle, part = _create_part_file(target)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes that lock it, too; it is made if need be. Raises OSError.

    The lock ends with the process, leaves nothing behind and hinders nobody else. Nothing is locked where the
    system or the file system has no such locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def check_writable(path: Path, *, makes_folders: bool = False) -> None:
    """Raise OSError where `write_file` would, as far as that can be known before there is anything to write.

    makes_folders: the folders that it lies in are made where they are not there.
    """
    if not _is_replaceable(path) or path.exists():
        return
    folder = Path(os.path.realpath(path)).parent
    if makes_folders and not folder.exists():
        missing = [each for each in (folder, *folder.parents) if not each.exists()][-1]
        missing.mkdir()
        missing.rmdir()
        return
    if not folder.is_dir():
        number = errno.ENOTDIR if folder.exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), str(path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _is_replaceable(target: Path) -> bool:
    """Return whether a path is a regular file that may be written, or nothing yet. Raises OSError."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    # A file that is open already may have no name of its own: /dev/stdout, /proc/self/fd/1.
    if not stat.S_ISREG(mode) or os.path.realpath(target).startswith(("/dev/", "/proc/")):
        return False
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return True


def _create_part_file(target: Path) -> tuple[int, Path]:
    """Create an empty file beside the target, with its permissions; return its descriptor and its path."""
    for number in range(_MAX_CREATION_TRIES):
        part = target.with_name(f".{target.name[:100]}.{os.getpid()}-{number}.part")
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _DEFAULT_MODE)
        except FileExistsError:
            continue
        with suppress(OSError):
            os.chmod(part, stat.S_IMODE(target.stat().st_mode))
        return handle, part
    raise FileExistsError(errno.EEXIST, "too many unfinished files beside it", str(target))
