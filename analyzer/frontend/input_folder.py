"""Folders as inputs: the kernels in Triton's cache, in a dump of its levels, or in torch inductor's cache.

All have a folder for each compiled kernel, in which one name has a suffix for each level of the compiler:

    V7NLAKCT.../scale_rows.ttir  .ttgir  .llir  .ptx  .cubin  .json

A kernel is read once, from the lowest level of code that is there: the cubin, else the PTX.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from analyzer.text.errors import InputError, WarplensError
from analyzer.text.kernel_names import find_matching_names, list_names_for_people
from analyzer.text.source import Diagnostic, Severity

_CODE_LEVELS = ("cubin", "ptx")  # the preferred one first
_LEVELS = (*_CODE_LEVELS, "ttgir", "ttir", "llir", "source", "json")
_IR_LEVELS = ("ttgir", "ttir")
_MAX_FILES = 200_000  # that are looked at, of any kind


class KernelFiles(Struct, frozen=True):
    """The files of one compiled kernel."""

    stem: str  # path without suffix; the name is the kernel's, cut off where it is long
    levels: dict[str, str]  # path of each level, as `cubin`

    @property
    def name(self) -> str:
        """Name of the files."""
        return Path(self.stem).name

    @property
    def code_path(self) -> str:
        """The file that is read, "" where there is none."""
        return next((self.levels[level] for level in _CODE_LEVELS if level in self.levels), "")


def is_folder(path: str) -> bool:
    """Return whether an input is a folder."""
    return os.path.isdir(path) if "\0" not in path else False


def list_kernels(folder: str) -> tuple[list[KernelFiles], list[KernelFiles]]:
    """Return the kernels in a folder and those below it by name: those with code, and those without.

    Links to folders are not followed. Raises InputError if there is none with code, or if the folder holds
    more than a cache of kernels would.
    """
    found: dict[str, dict[str, str]] = {}
    others = set[str]()
    for number, file in enumerate(_list_files(folder)):
        if number >= _MAX_FILES:
            raise InputError(
                f"{folder}: this folder holds more than {_MAX_FILES:,} files", hint="name a folder in it"
            )
        stem, suffix = os.path.splitext(file)
        level = suffix[1:]
        if level in _LEVELS:
            found.setdefault(stem, {})[level] = file
        else:
            others.add(suffix)
    kernels = [
        KernelFiles(stem, {level: levels[level] for level in _LEVELS if level in levels})
        for stem, levels in found.items()
    ]
    kernels.sort(key=lambda one: (one.name, one.stem))
    with_code = [one for one in kernels if one.code_path]
    without = [
        one for one in kernels if not one.code_path and any(level in one.levels for level in _IR_LEVELS)
    ]
    if with_code:
        return with_code, without
    raise _make_no_code_error(folder, without, others)


def list_named_kernels(
    path: str, patterns: Sequence[str] = ()
) -> tuple[list[KernelFiles], list[KernelFiles]]:
    """Return the kernels in a folder that the patterns name, and those without code; see `list_kernels`.

    A file is called as its kernel, so that others of many are not read. All are returned if a pattern fits no
    name of a file.
    """
    kernels, without = list_kernels(path)
    names = [one.name for one in kernels]
    found = [find_matching_names(names, pattern) for pattern in patterns]
    if found and all(found):
        kernels = [kernels[index] for index in sorted({index for each in found for index in each})]
    return kernels, without


def make_folder_notes(
    errors: Sequence[WarplensError], without: Sequence[KernelFiles]
) -> tuple[Diagnostic, ...]:
    """Return the warnings of a folder: files that cannot be read, kernels without code."""
    return (*_make_file_warnings(errors), *_make_level_warnings(without))


def _make_file_warnings(errors: Sequence[WarplensError]) -> tuple[Diagnostic, ...]:
    return tuple(Diagnostic(Severity.WARNING, "unreadable-file", f"left out: {each}") for each in errors)


def _make_level_warnings(kernels: Sequence[KernelFiles]) -> tuple[Diagnostic, ...]:
    """Return one warning for the kernels that a folder has no code of."""
    if not kernels:
        return ()
    levels = ", ".join(sorted({level for one in kernels for level in one.levels if level != "json"}))
    names = list_names_for_people([one.name for one in kernels])
    message = f"left out, for there is neither a cubin nor PTX of them ({levels} alone): {names}"
    return (Diagnostic(Severity.WARNING, "no-code", message, count=len(kernels)),)


def _make_no_code_error(folder: str, without: list[KernelFiles], others: set[str]) -> InputError:
    if ".hsaco" in others:
        return InputError(
            f"{folder}: this folder holds code for AMD GPUs alone", hint="compile for an NVIDIA GPU"
        )
    if without:
        path = next(without[0].levels[level] for level in _IR_LEVELS if level in without[0].levels)
        return InputError(
            f"{folder}: this folder holds Triton's intermediate code, and neither cubins nor PTX",
            hint=f"decompose a launch of it: warplens tasks {path} --grid ...",
        )
    return InputError(
        f"{folder}: this is a folder without a cubin or PTX",
        hint="name a file in it, or Triton's cache (~/.triton/cache)",
    )


def _list_files(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(parent, name) for name in sorted(names))
