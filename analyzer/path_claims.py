"""Outputs held apart from all that a command reads, so that no report replaces an input.

A command claims its outputs, and the inputs that its command line and configuration name, in any order and
before any work: the types of its parameters do that (`cli/path_types.py`). Each output is held against each
input at once. What only the work finds, such as a dump that a table names or the parent of a GPU file, is
caught where it is opened: as long as an output is claimed, the interpreter refuses to open that file for
reading. So no file is both read and replaced, whatever a command reads and whoever opens it.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from analyzer.text.errors import UsageError

FileKey = tuple[int, int] | str
FindPaths = Callable[[], Iterable[str | Path]]
CLASH_HINT = "choose another place for the output"
STANDARD_STREAM = "-"
_STANDARD_INPUT_FILE = "/dev/stdin"  # leads to the file that a shell has put there

# Outputs, by their files, that must not be opened for reading; of all commands that run in this process.
_guarded: dict[FileKey, str] = {}


class OutputRead(BaseException):
    """A file is opened for reading that the command is about to replace.

    It is no `Exception`, so that what tries one row of a table after the other does not take it for a fault
    of the row.
    """


class PathClaims:
    """What one command writes and what it reads."""

    def __init__(self) -> None:
        self._outputs: dict[FileKey, Path] = {}
        self._folders: list[Path] = []
        self._finders: list[FindPaths] = []

    def add_output(self, path: Path, *, is_updated: bool = False) -> None:
        """Claim a file that is written. Raises UsageError where it is another output, or is read.

        is_updated: the command reads the file, too, to write it anew.
        """
        key = _identify_file(path)
        if str(path) == STANDARD_STREAM or (isinstance(key, tuple) and not path.is_file()):
            return  # a device or a FIFO is not replaced
        if key in self._outputs:
            raise UsageError(_describe_clash(path, self._outputs[key]), hint=CLASH_HINT)
        self._outputs[key] = path
        if isinstance(key, tuple) and not is_updated:
            _guard({key: str(path)})
        for find in self._finders:
            self._check(find)

    def add_output_folder(self, path: Path) -> None:
        """Claim a folder that is filled with files. Raises UsageError where something in it is read."""
        self._folders.append(Path(os.path.realpath(path)))
        for find in self._finders:
            self._check(find)

    def add_inputs(self, find: FindPaths) -> None:
        """Claim files that are read. Raises UsageError where one is an output.

        find: lists them; called only where an output exists already.
        """
        self._finders.append(find)
        self._check(find)

    def release(self) -> None:
        """Let the files of ended commands be read again."""
        for key in self._outputs:
            _guarded.pop(key, None)

    def _check(self, find: FindPaths) -> None:
        """Raise UsageError where one of the files is an output, or lies in a folder of outputs."""
        if not self._folders and not any(isinstance(key, tuple) for key in self._outputs):
            return
        for path in find():
            file = _STANDARD_INPUT_FILE if str(path) == STANDARD_STREAM else path
            if output := self._outputs.get(_identify_file(file)):
                raise UsageError(_describe_clash(output, path), hint=CLASH_HINT)
            for folder in self._folders:
                if Path(os.path.realpath(file)).is_relative_to(folder):
                    raise UsageError(
                        f"{path} lies in {folder}, which this command fills with files of its own",
                        hint=CLASH_HINT,
                    )


def list_guarded() -> Mapping[FileKey, str]:
    """Return the outputs that must not be read, for `guard_in_worker`."""
    return dict(_guarded)


def guard_in_worker(guarded: Mapping[FileKey, str]) -> None:
    """Hold a process that works for this one to the outputs of its command."""
    _guarded.clear()
    if guarded:
        _guard(guarded)


def _guard(outputs: Mapping[FileKey, str]) -> None:
    _guarded.update(outputs)
    _watch_reading()


@cache
def _watch_reading() -> None:
    """Have the interpreter ask before it opens a file; it cannot be told to stop asking."""
    sys.addaudithook(_refuse_reading)


def _refuse_reading(event: str, arguments: tuple[object, ...]) -> None:
    """Raise OutputRead where a file is opened for reading that is a claimed output."""
    if event != "open" or not _guarded:
        return
    path, _, flags = arguments
    if not isinstance(path, str | bytes) or not isinstance(flags, int):
        return
    if flags & os.O_ACCMODE == os.O_WRONLY:
        return
    if output := _guarded.get(_identify_file(path)):
        raise OutputRead(_describe_clash(output, os.fsdecode(path)))


def _identify_file(path: str | bytes | Path) -> FileKey:
    """Return what is equal for two paths of one file: its device and inode, for no file its full path."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(os.fsdecode(path).replace("\0", ""))
    return state.st_dev, state.st_ino


def _describe_clash(output: str | Path, path: str | Path) -> str:
    return f"{output} would replace {path}, which this command reads or writes"
