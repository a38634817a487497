"""Folders as inputs: the cubins in Triton's cache, which has a folder for each compiled kernel."""

import os
from collections.abc import Iterator
from pathlib import Path

from analyzer.text.errors import InputError

_CUBIN_SUFFIX = ".cubin"
_MAX_FILES = 20_000  # that are looked at, of any kind


def is_folder(path: str) -> bool:
    """Return whether an input is a folder."""
    return os.path.isdir(path) if "\0" not in path else False


def list_cubins(folder: str) -> list[str]:
    """Return the cubins in a folder and those below it, by name; links to folders are not followed.

    Raises InputError if there is none, or if the folder holds more than a cache of kernels would.
    """
    found, others = [], set()
    for number, file in enumerate(_list_files(folder)):
        if number >= _MAX_FILES:
            raise InputError(
                f"{folder}: this folder holds more than {_MAX_FILES:,} files", hint="name a folder in it"
            )
        if file.suffix == _CUBIN_SUFFIX:
            found.append(str(file))
        else:
            others.add(file.suffix)
    if found:
        return sorted(found, key=lambda path: (Path(path).name, path))
    if ".hsaco" in others:
        raise InputError(
            f"{folder}: this folder holds code for AMD GPUs alone", hint="compile for an NVIDIA GPU"
        )
    raise InputError(
        f"{folder}: this is a folder without a cubin",
        hint="name a file in it, or Triton's cache (~/.triton/cache)",
    )


def _list_files(folder: str) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in names)
