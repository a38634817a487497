"""Inputs as facts, read only where nobody has kept them: the first half of an analysis with a cache.

Each file is an `IndexedFile`: its facts, and its program once something needs the code. An `InputReader`
finds the facts in the cache, or reads the file and keeps them. The key of the facts covers the bytes of the
file, of the files beside it that are read with it, and what decides how they are read.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.input_folder import KernelFiles, is_folder, list_named_kernels, make_folder_notes
from analyzer.frontend.input_format import HEAD_BYTES
from analyzer.frontend.module_reader import STANDARD_INPUT, list_possible_siblings, read_modules
from analyzer.frontend.ptx_reader import PtxOptions, list_wanted_archs
from analyzer.ir.module import Module, SourceFormat
from analyzer.pipeline.content_digests import (
    digest_code,
    digest_file,
    digest_input,
    digest_kernel,
    read_program_state,
    read_tool_states,
)
from analyzer.pipeline.entry_store import EntryStore
from analyzer.pipeline.kernel_cache import KernelResult
from analyzer.pipeline.loaded_program import Program
from analyzer.pipeline.options import Options
from analyzer.report.input_entries import InputFacts, KernelFacts, collect_input_facts, make_warning_entry
from analyzer.text.errors import InputError, WarplensError
from analyzer.text.source import Diagnostic

_FORMAT_VERSION = 1  # of facts


class ReadingOptions(Struct, frozen=True, kw_only=True):
    """How inputs are read; see `load_all`."""

    usage_path: str | None = None
    arch: str = ""
    ptx: PtxOptions = PtxOptions()
    jobs: int = 1  # tools that run at a time
    digests: bool = False  # digest the content of kernels, even where no cache needs it


# What changes with each of some files: device, inode, size and time; None where there is none.
FileStates = tuple[tuple[int, int, int, int] | None, ...]


class IndexedFile:
    """One file of the inputs: its facts, and its program where it was read."""

    def __init__(self, path: str, levels: dict[str, str] | None = None, *, is_named: bool = False) -> None:
        self.path = path
        self.is_named = is_named  # by the user; else found in a folder
        self.levels = levels or {}
        self.key = ""  # of its facts, "" where they are not kept
        self.states: FileStates = ()  # of all files that the key covers
        self.facts: InputFacts | None = None
        self.program: Program | None = None
        self.error: WarplensError | None = None
        # Of its kernels by their position from 1, where whoever read the file has analyzed them.
        self.results: Mapping[int, KernelResult] = {}

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
        if module.traces:  # a list of them is read with the files it names, which have no part in the key
            self.key = ""
        facts = collect_input_facts(module, digests=found)
        if self.facts is not None and self.facts != facts:
            raise InputError(
                f"{self.path}: the file changes while it is read", hint="run again once it is complete"
            )
        self.facts, self.program = facts, Program(module)

    def take_error(self, error: WarplensError) -> None:
        """Keep the error of reading a file in a folder; raise it where the user named the file.

        So it is where the facts are known already: the file was there before.
        """
        if self.is_named or self.facts is not None:
            raise error
        self.error = error

    @property
    def is_unread(self) -> bool:
        """True if there are neither facts nor an error."""
        return self.facts is None and self.error is None

    @property
    def is_unchanged(self) -> bool:
        """True if the files are as they were when they were digested."""
        return self.states == read_file_states(self.path)


class IndexedInput(Struct, frozen=True, eq=False, dict=True):
    """A file at its place among the inputs."""

    file: IndexedFile
    facts: InputFacts
    first_ordinal: int = 1  # of its first kernel
    notes: tuple[Diagnostic, ...] = ()  # of the folder of which it is the first file

    def find_result(self, kernel: KernelFacts) -> KernelResult | None:
        """Return the result of a kernel, None unless whoever read the file has analyzed it."""
        return self.file.results.get(kernel.ordinal - self.first_ordinal + 1)

    @cached_property
    def program(self) -> Program:
        """Program of a file that was read."""
        assert self.file.program is not None
        module = self.file.program.module
        diagnostics = (*module.diagnostics, *self.notes)
        return Program(
            replace(module, levels=self.file.levels, diagnostics=diagnostics),
            first_ordinal=self.first_ordinal,
        )


ReadFiles = Callable[[Sequence[IndexedFile]], None]  # gives each file its facts, or the error of reading it


class InputReader:
    """Finds the facts of files in the cache, or reads the files and keeps them there."""

    def __init__(self, reading: ReadingOptions, store: EntryStore) -> None:
        self.reading, self.store = reading, store

    def find_facts(self, files: Sequence[IndexedFile]) -> None:
        """Give each file its key, and the facts that are kept under it.

        A file that cannot be read has no key, and reading it says why.
        """
        for file in files:
            if file.path != STANDARD_INPUT:
                siblings = list_possible_siblings(file.path)
                file.states = _read_states([file.path, *siblings])
                if self.store.is_enabled:
                    with suppress(OSError, ValueError):
                        file.key = self._make_key(file.path, siblings)
                    file.facts = self.store.find(file.key, InputFacts)

    def _make_key(self, path: str, siblings: Sequence[Path]) -> str:
        """Digest what decides the facts of a file."""
        reading, ptx = self.reading, self.reading.ptx
        usage = None if reading.usage_path is None else digest_file(reading.usage_path)
        parts: list[object] = ["input", _FORMAT_VERSION, path, usage, reading.arch]
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
        if b".version" in head and b".target" in head:  # to detect the format of PTX takes ten times as long
            program = read_tool_states() if ptx.ptxas is None else read_program_state(ptx.ptxas)
            parts += [ptx.optimization_level, ptx.is_virtual, program, list_wanted_archs(ptx)]
        return digest_input(path, siblings, parts)

    def read_programs(self, files: Sequence[IndexedFile]) -> None:
        """Read the files that have no program yet. Raises what reading them does."""
        self.read([file for file in files if file.program is None])

    def read(self, files: Sequence[IndexedFile]) -> None:
        """Read files, and keep the facts of those that did not change meanwhile.

        Raises the error of a file that the user named; that of a file in a folder is kept with it.
        """
        by_path: dict[str, list[IndexedFile]] = {}  # a user may name a file twice
        for file in files:
            by_path.setdefault(file.path, []).append(file)
        how = self.reading
        for path, module in read_modules(
            list(by_path), usage_path=how.usage_path, arch=how.arch, ptx=how.ptx, jobs=how.jobs
        ):
            for file in by_path[path]:
                self._take(file, module)

    def _take(self, file: IndexedFile, module: Module | WarplensError) -> None:
        if isinstance(module, WarplensError):
            file.take_error(module)
            return
        is_new = file.facts is None
        file.take_module(module, digests=self.reading.digests or self.store.is_enabled)
        if is_new:
            self.keep_facts(file)

    def keep_facts(self, file: IndexedFile) -> None:
        """Keep the facts of a file unless it has changed since."""
        if file.key and file.is_unchanged:
            self.store.keep(file.key, file.facts)


def index_inputs(
    paths: Sequence[str],
    patterns: Sequence[str],
    reader: InputReader,
    read_files: ReadFiles | None = None,
) -> list[IndexedInput]:
    """Return the facts of all inputs, from the cache where they are there.

    patterns: of the kernels that are wanted, see `load_all`.
    read_files: reads those that are not in the cache; the reader if None.
    Raises InputError, ToolError, HardwareError.
    """
    groups = [_list_files(path, patterns) for path in paths]
    files = [file for group, _ in groups for file in group]
    reader.find_facts(files)
    (read_files or reader.read)([file for file in files if file.facts is None])
    return [placed for group, without in groups for placed in _place_files(group, without)]


def _list_files(path: str, patterns: Sequence[str]) -> tuple[list[IndexedFile], list[KernelFiles]]:
    """Return the files of an input: one, or those of a folder; then kernels of a folder without code."""
    if not is_folder(path):
        return [IndexedFile(path, is_named=True)], []
    kernels, without = list_named_kernels(path, patterns)
    return [IndexedFile(one.code_path, one.levels) for one in kernels], without


def _place_files(files: Sequence[IndexedFile], without: Sequence[KernelFiles]) -> list[IndexedInput]:
    """Return the files of an input that could be read, with the warnings of a folder."""
    errors = [file.error for file in files if file.error is not None]
    if errors and len(errors) == len(files):
        raise errors[0]
    notes = make_folder_notes(errors, without)
    found: list[IndexedInput] = []
    ordinal = 1
    for file in files:
        if file.facts is not None:
            found.append(_place_file(file, file.facts, ordinal, () if found else notes))
            ordinal += len(file.facts.kernels)
    return found


def _place_file(
    file: IndexedFile, facts: InputFacts, first_ordinal: int, notes: tuple[Diagnostic, ...]
) -> IndexedInput:
    placed = replace(
        facts,
        kernels=facts.kernels
        if first_ordinal == 1
        else tuple(replace(kernel, ordinal=first_ordinal + at) for at, kernel in enumerate(facts.kernels)),
        levels=file.levels,
        warnings=(*facts.warnings, *(make_warning_entry(facts.path, note) for note in notes)),
    )
    return IndexedInput(file, placed, first_ordinal, notes)


def load_all(
    path: str,
    *,
    usage_path: str | None = None,
    arch: str = "",
    patterns: Sequence[str] = (),
    ptx: PtxOptions | None = None,
    jobs: int = 1,
) -> list[Program]:
    """Read an input, or all kernels in a folder such as Triton's cache; see `load`.

    A file of a folder that cannot be read is left out with a warning, unless none can; so is a kernel without
    code.
    patterns: of the kernels that are wanted. A file in a folder is called as its kernel, so that others of
    many are not read. All are read if a pattern fits no name of a file.
    jobs: tools that run at a time.
    """
    reading = ReadingOptions(usage_path=usage_path, arch=arch, ptx=ptx or PtxOptions(), jobs=jobs)
    return load_programs(path, patterns, reading)


def load_for_gpus(path: str, gpu: str | Sequence[str] | None, options: Options) -> list[Program]:
    """Read the kernels that the options name; PTX is assembled for the GPUs. See `load_all`."""
    return load_programs(path, options.kernels, make_reading_options(gpu))


def make_reading_options(gpu: str | Sequence[str] | None, jobs: int = 1) -> ReadingOptions:
    """Return how inputs are read where nothing is said but the GPUs, for which PTX is assembled."""
    names = (gpu,) if isinstance(gpu, str) else tuple(gpu or ())
    return ReadingOptions(ptx=PtxOptions(gpus=names), jobs=jobs)


def load_programs(path: str, patterns: Sequence[str], reading: ReadingOptions) -> list[Program]:
    """Read an input, or the kernels in a folder that the patterns name; see `load_all`."""
    reader = InputReader(reading, EntryStore(None, digest_code))
    return [each.program for each in index_inputs([path], patterns, reader)]


def read_file_states(path: str) -> FileStates:
    """Return the state of a file and of those beside it, which are read with it."""
    return _read_states([path, *list_possible_siblings(path)])


def _read_states(paths: Sequence[str | Path]) -> FileStates:
    states: list[tuple[int, int, int, int] | None] = [None] * len(paths)
    for place, path in enumerate(paths):
        with suppress(OSError, ValueError):
            state = os.stat(path)
            states[place] = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
    return tuple(states)
