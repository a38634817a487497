"""Tasks of an analysis as whoever does them runs them: this process, a fork, a machine of a cluster.

An answer holds the facts of each file of a `FileTask` and the results of its kernels, but nothing of their
place among the inputs, which whoever asked puts in. A task may be run again, and anywhere: it reads the same
files and gives the same answer, or an error that says what differs.
"""

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.cubin_parts import PartError, join_lines, read_cubin_part
from analyzer.hardware.gpu import Gpu
from analyzer.pipeline.analysis_plan import FileTask, KernelWork
from analyzer.pipeline.input_index import (
    FileStates,
    IndexedFile,
    IndexedInput,
    InputReader,
    ReadingOptions,
    read_file_states,
)
from analyzer.pipeline.kernel_cache import KernelCache, KernelResult
from analyzer.pipeline.kernel_choice import place_kernels
from analyzer.pipeline.kernel_runner import KernelRunner, KernelTask, Results
from analyzer.pipeline.options import Options
from analyzer.report.input_entries import InputFacts, KernelFacts
from analyzer.text.errors import InputError, ToolError
from analyzer.text.progress import ProgressCallback, ignore_progress


class FileAnswer(Struct, frozen=True):
    """What was found of one file."""

    facts: InputFacts | None = None  # None where it cannot be read
    error: bytes | None = None  # of reading it, pickled with all that it says
    results: Mapping[int, KernelResult] = {}  # of the kernels that were asked for, by their ordinals
    # Of a part of a cubin, see `CubinPart`; None where the cubin cannot be read in parts.
    lines: tuple[int, tuple[int, ...]] | None = None


class TaskAnswer(Struct, frozen=True):
    """What was found of the files of a task, in their order."""

    files: tuple[FileAnswer, ...]
    is_kept: bool  # it is in the cache, but for the facts of a cubin that is read in parts
    n_damaged: int  # as in `EntryStore`
    n_unwritten: int


def run_task(task: FileTask) -> TaskAnswer:
    """Read the files of a task, and analyze their kernels in this process.

    Raises what an analysis does but for the errors of reading, which are part of the answer.
    """
    folder = task.options.cache_folder
    if folder is not None and not folder.is_dir():  # another machine need not see it, and makes none
        task = replace(task, options=replace(task.options, cache_folder=None))
    reader = InputReader(task.reading, KernelCache(task.options))
    if task.part is not None:
        answers = [_analyze_part(task, reader)]
    else:
        files = [_open_file(path, task) for path in task.paths]
        reader.find_facts(files)
        reader.read([file for file in files if file.facts is None])
        answers = [_analyze_file(file, task, reader) for file in files]
    store = reader.cache.store
    return TaskAnswer(tuple(answers), store.is_enabled, store.n_damaged, store.n_unwritten)


def _open_file(path: str, task: FileTask) -> IndexedFile:
    if task.chosen is None:
        return IndexedFile(path)
    return _open_again(path, task.reading, read_file_states(path))


@lru_cache(maxsize=1)
def _open_again(path: str, reading: ReadingOptions, states: FileStates) -> IndexedFile:
    """Return a file as the task before left it, unless it has changed: its next kernels may be asked for."""
    return IndexedFile(path)


def _analyze_file(file: IndexedFile, task: FileTask, reader: InputReader) -> FileAnswer:
    if file.facts is None:
        return FileAnswer(error=pickle.dumps(file.error))
    if task.chosen and not {kernel for kernel, _ in task.chosen} <= set(file.facts.kernels):
        raise InputError(
            f"{file.facts.path}: the file is another one on {os.uname().nodename}",
            hint="all machines must see the same files, under the same names",
        )
    works = task.list_works(IndexedInput(file, file.facts), reader.cache)

    def analyze(missing: Sequence[KernelWork]) -> Results:
        runner = make_kernel_runner(missing, reader, task.options, n_kernels=task.n_kernels)
        return runner.run_batch((0, len(missing)))

    results = find_results(works, reader.cache, analyze)
    ordinals = [work.kernel.ordinal for work in works]
    return FileAnswer(file.facts, results=dict(zip(ordinals, results, strict=True)))


def find_results(
    works: Sequence[KernelWork],
    cache: KernelCache,
    analyze: Callable[[Sequence[KernelWork]], Sequence[KernelResult]],
) -> list[KernelResult]:
    """Return the result of each kernel: that of whoever read its file, the one in the cache, or a new one.

    analyze: returns those of some kernels, in their order.
    """
    found = [work.source.find_result(work.kernel) or cache.find_kernel(work.key) for work in works]
    missing = [work for work, result in zip(works, found, strict=True) if result is None]
    new = iter(analyze(missing) if missing else ())
    return [next(new) if result is None else result for result in found]


def make_kernel_runner(
    works: Sequence[KernelWork],
    reader: InputReader,
    options: Options,
    progress: ProgressCallback = ignore_progress,
    *,
    n_kernels: int,
) -> KernelRunner:
    """Read the files of some kernels, as far as that is to be done; return what analyzes and keeps them."""
    reader.read_programs(list(dict.fromkeys(work.source.file for work in works)))
    tasks = [
        KernelTask(work.source.kernels[work.kernel.ordinal - work.source.first_ordinal], work.gpus, work.key)
        for work in works
    ]
    return KernelRunner(tasks, options, progress, n_kernels=n_kernels, cache=reader.cache)


def _analyze_part(task: FileTask, reader: InputReader) -> FileAnswer:
    """Return what was found of a part of a cubin; nothing where it has none."""
    assert task.part is not None
    file = IndexedFile(task.paths[0])
    try:
        found = read_cubin_part(file.path, *task.part)
    except (PartError, InputError, ToolError):  # whoever reads the whole says what is wrong
        return FileAnswer()
    file.take_module(found.module, digests=reader.cache.store.is_enabled)
    return replace(_analyze_file(file, task, reader), lines=(found.header_lines, found.section_lines))


def join_parts(answers: Sequence[FileAnswer], gpus: tuple[Gpu, ...]) -> FileAnswer | None:
    """Return what was found of a cubin that was analyzed in parts; None where that could not be done."""
    n_parts = len(answers)
    kernels: dict[int, KernelFacts] = {}  # by their place in the whole
    section_lines: dict[int, int] = {}
    results: dict[int, KernelResult] = {}
    for part, answer in enumerate(answers):
        if answer.facts is None or answer.lines is None or answer.facts.warnings:
            return None
        for index, (kernel, n_lines) in enumerate(zip(answer.facts.kernels, answer.lines[1], strict=True)):
            place = part + index * n_parts
            kernels[place], section_lines[place] = kernel, n_lines
            if kernel.ordinal in answer.results:
                results[place + 1] = answer.results[kernel.ordinal]
    first = answers[0]
    assert first.facts is not None
    assert first.lines is not None
    lines = join_lines(first.lines[0], [n_lines for _, n_lines in sorted(section_lines.items())])
    placed = [replace(kernels[index], line=line, ordinal=index + 1) for index, line in enumerate(lines)]
    facts = replace(first.facts, kernels=tuple(placed))
    taken = {kernel.ordinal for _, kernel, _ in place_kernels([facts], (), gpus)}
    return FileAnswer(facts, results=results) if taken == set(results) else None
