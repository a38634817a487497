"""Inputs of a check: paths and globs of the command line or the configuration, and names in a baseline.

A baseline names inputs from its own folder, so that it holds on any machine. A folder, such as Triton's
cache, is one input however its files are called: their names are hashes that change with the code.
"""

import glob
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from analyzer.text.errors import UsageError

STANDARD_INPUT = "-"
_SHOWN_STANDARD_INPUT = "<stdin>"
_GLOB_MARKS = frozenset("*?[")
_ANY_FOLDERS = "**"


class CheckInput(Struct, frozen=True):
    """A file or folder to check."""

    path: str  # as it is opened
    name: str  # from the folder of the baseline


class CheckInputs(Struct, frozen=True):
    """All inputs, and the patterns that they were asked for by, from the folder of the baseline."""

    inputs: tuple[CheckInput, ...]
    folder: Path  # of the baseline
    patterns: tuple[str, ...]
    unused: tuple[str, ...]  # globs that fit nothing

    def find_name(self, path: str) -> str:
        """Return the name of the input that a file belongs to."""
        if len(self.inputs) == 1:
            return self.inputs[0].name
        own = STANDARD_INPUT if path == _SHOWN_STANDARD_INPUT else os.path.normpath(path)
        best = ""
        for each in self.inputs:
            start = os.path.normpath(each.path)
            if own == start:
                return each.name
            if own.startswith(start.rstrip(os.sep) + os.sep) and len(each.name) > len(best):
                best = each.name
        return best or own

    def is_covered(self, name: str) -> bool:
        """Return whether a name of a baseline is of these inputs, or was once and is gone."""
        if any(each.name == name for each in self.inputs):
            return True
        return any(_fits(name.split("/"), pattern.split("/")) for pattern in self.patterns)

    def may_have_moved(self, name: str) -> bool:
        """Return whether an input of a baseline is gone, so that its kernels may be elsewhere."""
        return not os.path.lexists(self.folder / name)


def find_inputs(patterns: Sequence[str], folder: Path, baseline_folder: Path) -> CheckInputs:
    """Return the files and folders that paths and globs name, each once.

    folder: of the patterns; baseline_folder: that names start from.
    Raises UsageError where nothing is named, a path is missing, or all globs fit nothing.
    """
    if not patterns:
        raise UsageError(
            "no input to check",
            hint='name files, or write inputs = ["build/*.cubin"] in [tool.warplens.check] of pyproject.toml',
        )
    found: dict[str, CheckInput] = {}
    unused = []
    for pattern in patterns:
        paths = _expand(pattern, folder)
        if not paths:
            unused.append(pattern)
        for path in paths:
            name = path if path == STANDARD_INPUT else make_name(path, baseline_folder)
            found.setdefault(name, CheckInput(path, name))
    if not found:
        shown = ", ".join(patterns)
        raise UsageError(f"no file fits {shown:.200}", hint="build the kernels first, or correct the inputs")
    names = (make_name(os.path.join(folder, pattern), baseline_folder) for pattern in patterns)
    return CheckInputs(tuple(found.values()), baseline_folder, tuple(names), tuple(unused))


def _expand(pattern: str, folder: Path) -> list[str]:
    """Return the paths that a pattern names, as short as they can be written from here."""
    if pattern == STANDARD_INPUT:
        return [pattern]
    full = os.path.join(folder, pattern)
    if os.path.lexists(full):
        return [_shorten(full)]
    if not _GLOB_MARKS & set(pattern):
        raise UsageError(f"{pattern}: no such file", hint="build the kernels first, or correct the inputs")
    try:
        return sorted(_shorten(path) for path in glob.glob(full, recursive=True))
    except (OSError, ValueError) as error:
        raise UsageError(f"{pattern}: {error}") from None


def _shorten(path: str) -> str:
    relative = os.path.relpath(path)
    return path if os.path.isabs(path) and relative.startswith(os.pardir) else relative


def make_name(path: str, baseline_folder: Path) -> str:
    """Return the name of an input in a baseline."""
    return os.path.relpath(path, baseline_folder).replace(os.sep, "/")


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path fits a glob, part by part; `**` stands for any number of folders."""
    reachable = {0}  # numbers of parts that the pattern so far can have taken
    for piece in pattern:
        if piece == _ANY_FOLDERS:
            reachable = set(range(min(reachable, default=len(parts) + 1), len(parts) + 1))
        else:
            reachable = {at + 1 for at in reachable if at < len(parts) and fnmatchcase(parts[at], piece)}
    return len(parts) in reachable
