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
from analyzer.pipeline.kernel_runner import KernelRunner, KernelTask
from analyzer.report.input_entries import InputFacts, KernelFacts
from analyzer.text.errors import InputError, ToolError


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
    cache = KernelCache(task.options)
    store = cache.store
    reader = InputReader(task.reading, store)
    if task.part is not None:
        answers = [_analyze_part(task, reader, cache)]
    else:
        files = [_open_file(path, task) for path in task.paths]
        reader.find_facts(files)
        reader.read([file for file in files if file.facts is None])
        answers = [_analyze_file(file, task, reader, cache) for file in files]
    return TaskAnswer(tuple(answers), store.is_enabled, store.n_damaged, store.n_unwritten)


def _open_file(path: str, task: FileTask) -> IndexedFile:
    if task.chosen is None:
        return IndexedFile(path)
    return _open_again(path, task.reading, read_file_states(path))


@lru_cache(maxsize=1)
def _open_again(path: str, reading: ReadingOptions, states: FileStates) -> IndexedFile:
    """Return a file as the task before left it, unless it has changed: its next kernels may be asked for."""
    return IndexedFile(path)


def _analyze_file(file: IndexedFile, task: FileTask, reader: InputReader, cache: KernelCache) -> FileAnswer:
    if file.facts is None:
        return FileAnswer(error=pickle.dumps(file.error))
    if task.chosen and not {kernel for kernel, _ in task.chosen} <= set(file.facts.kernels):
        raise InputError(
            f"{file.facts.path}: the file is another one on {os.uname().nodename}",
            hint="all machines must see the same files, under the same names",
        )
    works = task.list_works(IndexedInput(file, file.facts), cache)

    def analyze(missing: Sequence[KernelWork]) -> Sequence[KernelResult]:
        tasks = make_kernel_tasks(missing, reader)
        runner = KernelRunner(tasks, task.options, n_kernels=task.n_kernels, store=cache.store)
        return runner.run_batch((0, len(tasks)))

    results = find_results(works, cache, analyze)
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


def make_kernel_tasks(works: Sequence[KernelWork], reader: InputReader) -> list[KernelTask]:
    """Return kernels with their code, for which the files are read that were not yet."""
    reader.read_programs(list(dict.fromkeys(work.source.file for work in works)))
    return [
        KernelTask(work.source.program.find_kernel(work.kernel.ordinal), work.gpus, work.key)
        for work in works
    ]


def _analyze_part(task: FileTask, reader: InputReader, cache: KernelCache) -> FileAnswer:
    """Return what was found of a part of a cubin; nothing where it has none."""
    assert task.part is not None
    file = IndexedFile(task.paths[0])
    try:
        found = read_cubin_part(file.path, *task.part)
    except (PartError, InputError, ToolError):  # whoever reads the whole says what is wrong
        return FileAnswer()
    file.take_module(found.module, digests=cache.store.is_enabled)
    return replace(_analyze_file(file, task, reader, cache), lines=(found.header_lines, found.section_lines))


def join_parts(answers: Sequence[FileAnswer], gpus: tuple[Gpu, ...]) -> FileAnswer | None:
    """Return what was found of a cubin that was analyzed in parts; None where that could not be done."""
    rows: list[tuple[int, KernelFacts, int, KernelResult | None]] = []  # by the kernel's place in the whole
    for part, answer in enumerate(answers):
        if answer.facts is None or answer.lines is None or answer.facts.warnings:
            return None
        rows += [
            (part + index * len(answers), kernel, n_lines, answer.results.get(kernel.ordinal))
            for index, (kernel, n_lines) in enumerate(zip(answer.facts.kernels, answer.lines[1], strict=True))
        ]
    rows.sort(key=lambda row: row[0])
    first = answers[0]
    assert first.facts is not None
    assert first.lines is not None
    lines = join_lines(first.lines[0], [row[2] for row in rows])
    placed = [replace(row[1], line=line, ordinal=row[0] + 1) for row, line in zip(rows, lines, strict=True)]
    facts = replace(first.facts, kernels=tuple(placed))
    results = {place + 1: result for place, _, _, result in rows if result is not None}
    taken = {kernel.ordinal for _, kernel, _ in place_kernels([facts], (), gpus)}
    return FileAnswer(facts, results=results) if taken == set(results) else None
