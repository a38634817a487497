"""Fingerprint of all that decides a predicted time: the sources of this package, its hardware and opcodes.

Two reports with the same fingerprint come from the same model, whatever their versions say. It hashes
contents and not dates or places, so that a checkout and a wheel of it have the same one.

To read some 500 files takes longer than to list them, so the fingerprint is kept in `~/.cache/warplens`
beside a hash of the names, sizes and times of the files. It is computed again once one of these differs.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from analyzer.files import find_home_folder, read_file, write_file
from analyzer.resources import find_data_folder

_DIGITS = 16
_PACKAGE_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SUFFIXES = (".py", ".toml", ".lark", ".json")
_SKIPPED_FOLDERS = frozenset({"_shipped", "__pycache__"})  # the first has a wheel's hwdb/ and grammars/
_WEIGHTS = "hwdb/weights/"
_MAX_CACHE_BYTES = 256
_MIN_AGE_NS = 2_000_000_000  # a file that has just changed may change again in the same tick of its clock


class ModelFile(NamedTuple):
    """A file that is hashed."""

    name: str  # kind of its root, and path below that
    path: str
    size_bytes: int
    changed_ns: int


@cache
def compute_model_fingerprint() -> str:
    """Return 16 hexadecimal digits; "" if a file cannot be read. Takes some 5 ms, once in a process."""
    try:
        files = list_model_files()
        folder = find_home_folder("XDG_CACHE_HOME", ".cache")
        if folder is None:
            return _hash_contents(files)
        return _find_in_cache(folder / "warplens" / f"model-{_hash_text(_PACKAGE_FOLDER)}", files)
    except OSError:
        return ""


def compute_teaching_fingerprint() -> str:
    """Return the fingerprint without learned weights: of all that decides what learning makes of rows."""
    return _hash_contents([file for file in list_model_files() if not file.name.startswith(_WEIGHTS)])


def list_model_files() -> list[ModelFile]:
    """Return the sources of this package and its tables as they are now, by name. Raises OSError."""
    roots = {
        "analyzer": _PACKAGE_FOLDER,
        "hwdb": str(find_data_folder("hwdb")),
        "grammars": str(find_data_folder("grammars")),
    }
    return sorted(file for kind, root in roots.items() for file in _list_files(kind, root, root))


def _list_files(kind: str, root: str, folder: str) -> Iterator[ModelFile]:
    """Yield the sources and tables below a folder; pathlib would take four times as long."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED_FOLDERS:
                    yield from _list_files(kind, root, entry.path)
            elif entry.name.endswith(_SUFFIXES):
                state = entry.stat()
                name = f"{kind}/{entry.path[len(root) + 1 :].replace(os.sep, '/')}"
                changed_ns = max(state.st_mtime_ns, state.st_ctime_ns)
                yield ModelFile(name, entry.path, state.st_size, changed_ns)


def _find_in_cache(path: Path, files: list[ModelFile]) -> str:
    """Return the fingerprint that a file keeps for these states of the files, else compute and keep it."""
    key = _hash_text("\n".join(f"{file.name} {file.size_bytes} {file.changed_ns}" for file in files))
    with suppress(OSError, UnicodeDecodeError):
        known, _, found = read_file(path, _MAX_CACHE_BYTES).decode("ascii").partition(" ")
        if known == key and len(found) == _DIGITS:
            return found
    found = _hash_contents(files)
    if max(file.changed_ns for file in files) < time.time_ns() - _MIN_AGE_NS:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, [f"{key} {found}".encode()])
    return found


def _hash_contents(files: list[ModelFile]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with open(file.path, "rb", buffering=0) as opened:
            content = opened.read()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:_DIGITS]


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
