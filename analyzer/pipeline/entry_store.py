"""Results on disk by the digest of all that they depend on, in a folder that machines may share.

    FOLDER/v2-3f9a0c41d2b87e65/ab/0123...   an entry: magic, SHA-256 of key and payload, payload (msgpack)
           ^ format and version of the code

Invariant: what `find` returns was kept under the same key by the same version of the code, or it returns
None. An entry is written beside its place and renamed, so that a reader sees all of it or nothing, however
many processes and machines write; two that write the same key write the same payload. Whatever else lies
there (a truncated file, one of another key, a folder, a pipe, a link) is a miss, and counted as damage where
it looks like an entry; the next `keep` puts it right. The checksum guards against accidents, not against
someone who may write to the folder: he could as well replace the code.

Entries of versions of the code that nobody has used for long are removed, then the oldest ones until the
folder is within its limit.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from analyzer.files import find_home_folder, read_file, write_file
from analyzer.text.errors import UsageError

FOLDER_VARIABLE = "WARPLENS_CACHE"
MAX_FOLDER_BYTES = 2 << 30
_FORMAT_VERSION = 2  # of folders and entries
_MAGIC = b"WLENS\x02\r\n"
_DIGEST_BYTES = 32
_HEAD_BYTES = len(_MAGIC) + _DIGEST_BYTES
_MAX_ENTRY_BYTES = 64 << 20
_MAX_KEPT_VERSIONS = 4
_KEPT_SHARE = 0.8  # of the limit, once it is exceeded
_TOUCH_AGE_S = 24 * 3600.0  # an entry's time is that of its last use, to within a day
_STALE_PART_AGE_S = 24 * 3600.0  # of an unfinished file, whose writer must have died
_CODE_CHECK_INTERVAL_S = 0.5
_VERSION_PATTERN = f"v[0-9]*-{'[0-9a-f]' * 16}"


Value = TypeVar("Value")


class FolderUse(Struct, frozen=True):
    """What lies in a folder of entries."""

    n_entries: int
    size_bytes: int


class _Entry(Struct, frozen=True):
    used_s: float
    size_bytes: int
    path: str


class EntryStore:
    """Entries of one version of the code in a folder; without a folder or a version nothing is kept."""

    def __init__(self, folder: Path | None, digest_code: Callable[[], str | None]) -> None:
        """Prepare for a folder.

        digest_code: returns the version of the code, None if it is not the one that runs. It is asked again
            while entries are stored, lest the results of edited code go by the name of the old one.
        """
        self.root = folder
        self.n_damaged = 0  # entries that were found and could not be used
        self.n_unwritten = 0  # entries that could not be written
        self._digest_code = digest_code
        self._code = code = None if folder is None else digest_code()
        self._checked_s = time.monotonic()
        self._folder = None if folder is None or not code else folder / f"v{_FORMAT_VERSION}-{code[:16]}"

    @property
    def is_enabled(self) -> bool:
        """True if entries are kept."""
        return self._folder is not None

    def prepare(self) -> None:
        """Make the folder, and remove those of old versions of the code. Raises UsageError."""
        if self.root is None or self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--cache {self.root}: {reason}", hint="or --no-cache") from None
        with suppress(OSError):  # another run may do the same, or the folder is read-only
            os.utime(self._folder)
            kept = sorted(self.root.glob(_VERSION_PATTERN), key=lambda p: p.stat().st_mtime_ns)
            for old in kept[:-_MAX_KEPT_VERSIONS]:
                if not old.is_symlink():
                    shutil.rmtree(old, ignore_errors=True)

    def find(self, key: str, value_type: type[Value]) -> Value | None:
        """Return the value of a key; None where there is none that can be used, or no key."""
        if self._folder is None or not key:
            return None
        path = self._make_entry_path(key)
        try:
            state = os.lstat(path)
        except (OSError, ValueError):
            return None
        try:
            # `read_file` opens what `lstat` calls a plain file: a FIFO would keep us waiting.
            data = read_file(path, _MAX_ENTRY_BYTES) if os.path.isfile(path) else b""
        except OSError:
            data = b""
        payload = data[_HEAD_BYTES:]
        try:
            if data[:_HEAD_BYTES] != _make_head(key, payload):
                raise ValueError
            value = msgspec.msgpack.decode(payload, type=value_type)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self.n_damaged += 1
            return None
        if time.time() - state.st_mtime > _TOUCH_AGE_S:
            with suppress(OSError):
                os.utime(path)
        return value

    def keep(self, key: str, value: object) -> None:
        """Keep a value, completely or not at all, nowhere if the key is ""; a full disk is not an error."""
        if self._folder is None or not key:
            return
        payload = msgspec.msgpack.encode(value)
        if len(payload) > _MAX_ENTRY_BYTES - _HEAD_BYTES or not self._is_current():
            return
        path = self._make_entry_path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():  # writing would replace what it leads to
                path.unlink()
            elif path.exists() and not path.is_file():  # someone put a folder or a FIFO there
                return
            write_file(path, [_make_head(key, payload), payload])
        except OSError:
            self.n_unwritten += 1

    def prune(self, max_bytes: int = MAX_FOLDER_BYTES) -> None:
        """Remove the entries used longest ago where all versions together are larger than `max_bytes`."""
        if self.root is None:
            return
        entries = []
        for entry in _list_entries(self.root):
            is_part = os.path.basename(entry.path).startswith(".")
            if is_part and time.time() - entry.used_s > _STALE_PART_AGE_S:
                _remove(entry.path)
            else:
                entries.append(entry)
        size_bytes = sum(entry.size_bytes for entry in entries)
        if size_bytes <= max_bytes:
            return
        for entry in sorted(entries, key=lambda entry: (entry.used_s, entry.path)):
            _remove(entry.path)
            size_bytes -= entry.size_bytes
            if size_bytes <= max_bytes * _KEPT_SHARE:
                return

    def _is_current(self) -> bool:
        """Return whether the code is still the one that was started."""
        now = time.monotonic()
        if now - self._checked_s >= _CODE_CHECK_INTERVAL_S:
            self._checked_s = now
            if self._digest_code() != self._code:
                self._folder = None
        return self._folder is not None

    def _make_entry_path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / key[2:]


def find_default_folder(purpose: str) -> Path | None:
    """Return `~/.cache/warplens/PURPOSE`, or the folder below XDG_CACHE_HOME; None without a home."""
    root = find_home_folder("XDG_CACHE_HOME", ".cache")
    return None if root is None else root / "warplens" / purpose


def find_kernel_folder(*, by_default: bool) -> Path | None:
    """Return the folder of `FOLDER_VARIABLE`; where there is none, the user's own if `by_default`.

    None where the latter cannot be made: nobody asked for it by name.
    """
    folder = locate_kernel_folder()
    if os.environ.get(FOLDER_VARIABLE):
        return folder
    if folder is not None and by_default:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            return folder
    return None


def locate_kernel_folder() -> Path | None:
    """Return where reports of kernels are kept unless an option says so; None without a home."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else find_default_folder("kernels")


def measure_folder(folder: Path) -> FolderUse:
    """Return how many entries of all versions a folder holds, and their size."""
    sizes = [entry.size_bytes for entry in _list_entries(folder)]
    return FolderUse(len(sizes), sum(sizes))


def list_entry_paths(folder: Path) -> list[str]:
    """Return the files of a folder's entries."""
    return [entry.path for entry in _list_entries(folder)]


def _make_head(key: str, payload: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(key.encode() + b"\n" + payload).digest()


def _list_entries(root: Path) -> Iterator[_Entry]:
    """Yield the files of all versions; what disappears meanwhile is left out, and links are not followed."""
    with suppress(OSError, ValueError):
        for version in root.glob(_VERSION_PATTERN):
            for shelf in _scan(version):
                if shelf.is_dir(follow_symlinks=False):
                    yield from _list_files(shelf.path)


def _list_files(folder: str) -> Iterator[_Entry]:
    for entry in _scan(folder):
        with suppress(OSError):
            if entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                yield _Entry(state.st_mtime, state.st_size, entry.path)


def _scan(folder: str | Path) -> "list[os.DirEntry[str]]":
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
