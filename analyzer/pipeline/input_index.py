"""Inputs as facts, read only where nobody has kept them: the first half of an analysis with a cache.

Each file is an `IndexedFile`: its facts, and its program once something needs the code. Its key covers the
bytes of the file, of the files beside it that are read with it, and what decides how they are read.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.input_folder import KernelFiles, is_folder
from analyzer.frontend.input_format import HEAD_BYTES
from analyzer.frontend.module_reader import STANDARD_INPUT, list_possible_siblings, read_modules
from analyzer.frontend.ptx_reader import PtxOptions, list_wanted_archs
from analyzer.ir.module import Module, SourceFormat
from analyzer.pipeline.content_digests import (
    digest_file,
    digest_input,
    digest_kernel,
    read_program_state,
    read_tool_states,
)
from analyzer.pipeline.kernel_cache import KernelCache
from analyzer.pipeline.loaded_program import Program, list_folder_kernels, load, make_folder_notes
from analyzer.report.input_entries import InputFacts, collect_input_facts, make_warning_entry
from analyzer.text.errors import InputError, ToolError, WarplensError

_FORMAT_VERSION = 1  # of facts


class ReadingOptions(Struct, frozen=True, kw_only=True):
    """How inputs are read; see `load_all`."""

    usage_path: str | None = None
    arch: str = ""
    ptx: PtxOptions = PtxOptions()
    jobs: int = 1  # tools that run at a time
    digests: bool = False  # digest the content of kernels, even where no cache needs it


class _FileState(NamedTuple):
    """What changes with a file."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int


class IndexedFile:
    """One file of the inputs: its facts, and its program where it was read."""

    def __init__(self, path: str, levels: dict[str, str] | None = None, *, is_named: bool = False) -> None:
        self.path = path
        self.is_named = is_named  # by the user; else found in a folder
        self.levels = levels or {}
        self.key = ""  # of its facts, "" where they are not kept
        self.states: tuple[_FileState | None, ...] = ()  # of all files that the key covers
        self.facts: InputFacts | None = None
        self.program: Program | None = None
        self.error: WarplensError | None = None

    def find_key(self, reading: ReadingOptions) -> None:
        """Digest what decides the facts; a file that cannot be read has no key, and reading it says why."""
        if self.path == STANDARD_INPUT:
            return
        with suppress(OSError, ValueError):
            siblings = self.note_state()
            with open(self.path, "rb") as file:
                head = file.read(HEAD_BYTES)
            self.key = digest_input(
                self.path,
                siblings,
                ["input", _FORMAT_VERSION, self.path, *_list_reading_facts(reading, head)],
            )

    def note_state(self) -> list[Path]:
        """Note size and time of the file and of those beside it, which are returned."""
        siblings = list_possible_siblings(self.path)
        self.states = _read_states([self.path, *siblings])
        return siblings

    def take_module(self, module: Module, *, digests: bool) -> None:
        """Take what was read: the program, and its facts.

        digests: digest the content of the kernels.
        Raises InputError where the file is another one than the one whose facts were found.
        """
        found: list[str] = []
        # Instructions lowered from PTX are more than their texts say, so that the file stands for them.
        is_virtual = module.source_format is SourceFormat.VIRTUAL_PTX
        if digests and not module.traces and not (is_virtual and self.path == STANDARD_INPUT):
            salt = digest_file(self.path) if is_virtual else ""
            found = [digest_kernel(kernel, module.source_format, salt) for kernel in module.kernels]
        if (
            module.traces
        ):  # a list of traces is read with the files that it names, which have no part in the key
            self.key = ""
        facts = collect_input_facts(module, digests=found)
        if self.facts is not None and self.facts != facts:
            raise InputError(
                f"{self.path}: the file changes while it is read", hint="run again once it is complete"
            )
        self.facts, self.program = facts, Program(module)

    @property
    def is_unchanged(self) -> bool:
        """True if the files are as they were when they were digested."""
        return self.states == _read_states([self.path, *list_possible_siblings(self.path)])


class IndexedInput(Struct, frozen=True):
    """A file at its place among the inputs."""

    file: IndexedFile
    facts: InputFacts
    first_ordinal: int = 1  # of its first kernel

    def make_program(self) -> Program:
        """Return the program of a file that was read."""
        assert self.file.program is not None
        module = replace(self.file.program.module, levels=self.file.levels)
        return Program(module, first_ordinal=self.first_ordinal)


ReadFiles = Callable[[Sequence[IndexedFile]], None]  # gives each file its facts, or the error of reading it


class _Group(Struct, frozen=True):
    """The files of one input: one, or those of a folder."""

    files: tuple[IndexedFile, ...]
    is_folder: bool
    without: tuple[KernelFiles, ...] = ()  # kernels of a folder of which there is no code


def index_inputs(
    paths: Sequence[str],
    patterns: Sequence[str],
    reading: ReadingOptions,
    cache: KernelCache,
    read_files: ReadFiles | None = None,
) -> list[IndexedInput]:
    """Return the facts of all inputs, from the cache where they are there.

    patterns: of the kernels that are wanted, as for `load_all`, which this is the same as.
    read_files: reads those that are not in the cache; here if None.
    Raises InputError, ToolError, HardwareError.
    """
    groups = [_list_files(path, patterns) for path in paths]
    files = [file for group in groups for file in group.files]
    find_facts(files, reading, cache)
    missing = [file for file in files if file.facts is None]
    if read_files is None:
        read_missing_files(missing, reading, cache)
    else:
        read_files(missing)
    return [placed for group in groups for placed in _place_group(group)]


def read_programs(files: Sequence[IndexedFile], reading: ReadingOptions, cache: KernelCache) -> None:
    """Read the files that have no program yet. Raises what reading them does."""
    missing = [file for file in files if file.program is None]
    read_missing_files(missing, reading, cache)
    for file in missing:
        if file.error is not None:
            raise file.error


def find_facts(files: Sequence[IndexedFile], reading: ReadingOptions, cache: KernelCache) -> None:
    """Give each file its key, and the facts that are kept under it."""
    for file in files:
        if cache.store.is_enabled:
            file.find_key(reading)
            file.facts = cache.find_input(file.key)
        elif file.path != STANDARD_INPUT:
            file.note_state()


def _list_files(path: str, patterns: Sequence[str]) -> _Group:
    if not is_folder(path):
        return _Group((IndexedFile(path, is_named=True),), is_folder=False)
    kernels, without = list_folder_kernels(path, patterns)
    files = tuple(IndexedFile(one.code_path, one.levels) for one in kernels)
    return _Group(files, is_folder=True, without=tuple(without))


def _place_group(group: _Group) -> list[IndexedInput]:
    """Return the files of an input that could be read, with the warnings of a folder."""
    errors = [file.error for file in group.files if file.error is not None]
    if errors and (not group.is_folder or len(errors) == len(group.files)):
        raise errors[0]
    if not group.is_folder:
        (file,) = group.files
        assert file.facts is not None
        return [IndexedInput(file, file.facts)]
    found: list[IndexedInput] = []
    ordinal = 1
    for file in group.files:
        if file.facts is not None:
            found.append(IndexedInput(file, _place_facts(file.facts, ordinal, file.levels), ordinal))
            ordinal += len(file.facts.kernels)
    if notes := make_folder_notes(errors, group.without):
        first = found[0]
        warnings = tuple(make_warning_entry(first.facts.path, note) for note in notes)
        facts = replace(first.facts, warnings=(*first.facts.warnings, *warnings))
        found[0] = replace(first, facts=facts)
    return found


def _place_facts(facts: InputFacts, first_ordinal: int, levels: dict[str, str]) -> InputFacts:
    kernels = tuple(
        replace(kernel, ordinal=first_ordinal + index) for index, kernel in enumerate(facts.kernels)
    )
    return replace(facts, kernels=kernels, levels=levels)


def read_missing_files(files: Sequence[IndexedFile], reading: ReadingOptions, cache: KernelCache) -> None:
    """Read files, and keep the facts of those that did not change meanwhile.

    Raises the error of a file that the user named; that of a file in a folder is kept with it.
    """
    if not files:
        return
    if len(files) == 1:
        _take(files[0], _read_alone(files[0].path, reading), reading, cache)
        return
    by_path: dict[str, list[IndexedFile]] = {}  # a user may name a file twice
    for file in files:
        by_path.setdefault(file.path, []).append(file)
    for path, module in read_modules(
        list(by_path), usage_path=reading.usage_path, arch=reading.arch, ptx=reading.ptx, jobs=reading.jobs
    ):
        for file in by_path[path]:
            _take(file, module, reading, cache)


def _read_alone(path: str, reading: ReadingOptions) -> Module | WarplensError:
    try:
        return load(path, usage_path=reading.usage_path, arch=reading.arch, ptx=reading.ptx).module
    except (InputError, ToolError) as error:
        return error


def _take(
    file: IndexedFile, module: Module | WarplensError, reading: ReadingOptions, cache: KernelCache
) -> None:
    if isinstance(module, WarplensError):
        if file.is_named:
            raise module
        file.error = module
        return
    is_new = file.facts is None
    file.take_module(module, digests=reading.digests or cache.store.is_enabled)
    if is_new and file.key and file.facts is not None and file.is_unchanged:
        cache.store_input(file.key, file.facts)


def _list_reading_facts(reading: ReadingOptions, head: bytes) -> list[object]:
    """Return what decides, beside the files, what is read."""
    usage = None if reading.usage_path is None else digest_file(reading.usage_path)
    facts: list[object] = [usage, reading.arch]
    if (
        b".version" in head and b".target" in head
    ):  # it may be PTX; to detect the format takes ten times as long
        ptx = reading.ptx
        program = read_tool_states() if ptx.ptxas is None else read_program_state(ptx.ptxas)
        facts += [ptx.optimization_level, ptx.is_virtual, program, list_wanted_archs(ptx)]
    return facts


def _read_states(paths: Sequence[str | Path]) -> tuple[_FileState | None, ...]:
    return tuple(map(_read_state, paths))


def _read_state(path: str | Path) -> _FileState | None:
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    return _FileState(state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
