"""Files analyzed where they are read: what a process, or a machine of a cluster, does of an analysis.

The unit is a `FileTask`: some files with all their kernels, or kernels of one big file. Its answer holds the
facts of each file and the results of its kernels, but nothing of their place among the inputs, which whoever
asked puts in. A task may be run again, and anywhere: it reads the same files and gives the same answer, or an
error that says what differs.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.frontend.cubin_parts import PartError, join_lines, read_cubin_part
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_typical_gpus
from analyzer.pipeline.analysis import find_input_folder
from analyzer.pipeline.input_index import (
    IndexedFile,
    ReadingOptions,
    find_facts,
    read_missing_files,
    read_programs,
)
from analyzer.pipeline.kernel_cache import KernelCache, KernelResult
from analyzer.pipeline.kernel_tasks import KernelTask, KernelTaskRunner
from analyzer.pipeline.options import Options
from analyzer.pipeline.report_assembly import assign_gpus
from analyzer.report.input_entries import InputFacts, KernelFacts
from analyzer.text.errors import InputError, ToolError, WarplensError
from analyzer.text.source import Diagnostic

_ERROR_TYPES: dict[str, type[WarplensError]] = {one.code: one for one in (InputError, ToolError)}


class FileTask(Struct, frozen=True, kw_only=True):
    """Files to read, and which of their kernels to analyze."""

    paths: tuple[str, ...]
    # Of the kernels of the one file by their index, with their GPUs; None: all kernels, on `gpus`.
    chosen: tuple[tuple[int, tuple[Gpu, ...]], ...] | None = None
    gpus: tuple[Gpu, ...] = ()  # that the user named
    only_facts: bool = False  # analyze nothing
    part: tuple[int, int] | None = None  # of the one file, a cubin: which of how many parts
    digests: tuple[str, ...] = ()  # of the chosen kernels, which must be the ones that are read
    n_kernels: int = 1  # that share the limits of work
    options: Options
    reading: ReadingOptions
    folder: str = ""  # from which the paths are; "": this process's own
    model_fingerprint: str = ""  # of the code that asks; "": this process


class FileAnswer(Struct, frozen=True):
    """What was found of one file."""

    facts: InputFacts | None = None  # None where it cannot be read
    error: tuple[str, Diagnostic] | None = None  # code of the error, and what it says
    results: tuple[KernelResult, ...] | None = None  # of the chosen kernels, or all that some GPU takes
    is_kept: bool = False  # facts and results are in the cache
    # Of a part of a cubin, see `CubinPart`; None where the cubin cannot be read in parts.
    lines: tuple[int, tuple[int, ...]] | None = None

    def make_error(self) -> WarplensError | None:
        """Return the error of reading the file."""
        if self.error is None:
            return None
        code, told = self.error
        return _ERROR_TYPES[code](told.message, location=told.location, hint=told.hint)


class TaskAnswer(Struct, frozen=True):
    """What was found of the files of a task, in their order; counts as in `EntryStore`."""

    files: tuple[FileAnswer, ...]
    n_damaged: int = 0
    n_unwritten: int = 0


KernelOnGpus = tuple[KernelFacts, tuple[Gpu, ...]]


def list_file_works(facts: InputFacts, gpus: tuple[Gpu, ...]) -> list[KernelOnGpus]:
    """Return the kernels of a file that some GPU takes, each with its GPUs; see `assign_gpus`."""
    return [
        (kernel, own or find_typical_gpus(kernel.arch)) for kernel, own in assign_gpus(facts.kernels, gpus)
    ]


def run_task(task: FileTask) -> TaskAnswer:
    """Read the files of a task, and analyze their kernels in this process.

    Raises what an analysis does but for the errors of reading, which are part of the answer.
    """
    cache = KernelCache(task.options)
    if task.part is not None:
        return TaskAnswer((_analyze_part(task, cache),), cache.store.n_damaged, cache.store.n_unwritten)
    files = [_find_kept_file(path, task.reading) for path in task.paths]
    find_facts(files, task.reading, cache)
    read_missing_files([file for file in files if file.facts is None], task.reading, cache)
    answers = tuple(_analyze_file(file, task, cache) for file in files)
    return TaskAnswer(answers, cache.store.n_damaged, cache.store.n_unwritten)


def _analyze_part(task: FileTask, cache: KernelCache) -> FileAnswer:
    """Return what was found of a part of a cubin; nothing where it has none."""
    assert task.part is not None
    file = IndexedFile(task.paths[0])
    try:
        found = read_cubin_part(file.path, *task.part)
    except (PartError, InputError, ToolError):  # whoever reads the whole says what is wrong
        return FileAnswer()
    file.take_module(found.module, digests=cache.store.is_enabled)
    answer = _analyze_file(file, task, cache)
    return replace(answer, lines=(found.header_lines, found.section_lines), is_kept=cache.keeps_kernels)


def join_parts(answers: Sequence[FileAnswer], gpus: tuple[Gpu, ...]) -> FileAnswer | None:
    """Return what was found of a cubin that was analyzed in parts; None where that could not be done."""
    n_kernels = sum(len(one.facts.kernels) for one in answers if one.facts is not None)
    kernels: list[KernelFacts | None] = [None] * n_kernels
    section_lines = [0] * n_kernels
    results: dict[str, KernelResult] = {}
    for part, answer in enumerate(answers):
        facts = answer.facts
        if facts is None or answer.lines is None or answer.results is None or facts.warnings:
            return None
        kernels[part :: len(answers)] = facts.kernels
        section_lines[part :: len(answers)] = answer.lines[1]
        works = list_file_works(facts, gpus)
        results |= {kernel.name: result for (kernel, _), result in zip(works, answer.results, strict=True)}
    first = answers[0]
    assert first.facts is not None
    assert first.lines is not None
    lines = join_lines(first.lines[0], section_lines)
    placed = [
        replace(kernel, line=line, ordinal=index + 1)
        for index, (kernel, line) in enumerate(zip(kernels, lines, strict=True))
        if kernel is not None
    ]
    facts = replace(first.facts, kernels=tuple(placed))
    taken = [kernel.name for kernel, _ in list_file_works(facts, gpus)]
    if set(taken) != set(results) or len(taken) != len(results):
        return None
    return FileAnswer(facts, results=tuple(results[name] for name in taken), is_kept=False)


_kept_file: tuple[IndexedFile, ReadingOptions] | None = None  # read last, whose next kernels may be asked for


def _find_kept_file(path: str, reading: ReadingOptions) -> IndexedFile:
    if _kept_file is not None:
        file, how = _kept_file
        if file.path == path and how == reading and file.is_unchanged:
            return file
    return IndexedFile(path)


def _analyze_file(file: IndexedFile, task: FileTask, cache: KernelCache) -> FileAnswer:
    global _kept_file
    if file.facts is None:
        assert file.error is not None
        return FileAnswer(error=(file.error.code, file.error.diagnostic))
    if task.only_facts:
        _kept_file = (file, task.reading) if file.program is not None else None
        return FileAnswer(file.facts, is_kept=bool(file.key))
    works = _choose_works(file.facts, task)
    keys = [cache.make_kernel_key(kernel, gpus, task.n_kernels) for kernel, gpus in works]
    results = [
        cache.find_kernel(key, file.facts.path, kernel) for key, (kernel, _) in zip(keys, works, strict=True)
    ]
    missing = [index for index, result in enumerate(results) if result is None]
    if missing:
        read_programs([file], task.reading, cache)
        assert file.program is not None
        folder, kernels = find_input_folder(file.program), file.program.kernels
        tasks = [
            KernelTask(kernels[kernel.ordinal - 1], gpus, folder, keys[index])
            for index in missing
            for kernel, gpus in (works[index],)
        ]
        runner = KernelTaskRunner(tasks, task.options, n_kernels=task.n_kernels, cache=cache)
        for index, result in zip(missing, runner.run_batch((0, len(tasks))).kernels, strict=True):
            results[index] = result
    _kept_file = (file, task.reading) if task.chosen is not None else None
    done = tuple(result for result in results if result is not None)
    return FileAnswer(file.facts, results=done, is_kept=cache.keeps_kernels)


def _choose_works(facts: InputFacts, task: FileTask) -> list[KernelOnGpus]:
    if task.chosen is None:
        return list_file_works(facts, task.gpus)
    indices = [index for index, _ in task.chosen]
    same = max(indices) < len(facts.kernels) and task.digests == tuple(
        facts.kernels[index].digest for index in indices
    )
    if not same:
        raise InputError(
            f"{facts.path}: the file is another one on {os.uname().nodename}",
            hint="all machines must see the same files, under the same names",
        )
    return [(facts.kernels[index], gpus) for index, gpus in task.chosen]


def run_remote_task(data: bytes) -> bytes:
    """Run a task that came from another process, pickled; return its answer as msgpack.

    Raises ToolError for another version of this package, InputError for a folder that is not there.
    """
    import pickle  # of the cluster's own, which hands us functions to call as well

    task: FileTask = pickle.loads(data)
    if task.model_fingerprint != compute_model_fingerprint():
        raise ToolError(
            f"{os.uname().nodename} has another version of warplens", hint="install the same one everywhere"
        )
    folder = task.options.cache_folder
    if folder is not None and not Path(folder).is_dir():
        task = replace(task, options=replace(task.options, cache_folder=None))
    if os.getcwd() != task.folder:
        try:
            os.chdir(task.folder)
        except OSError as error:
            raise InputError(
                f"{task.folder}: {error.strerror} on {os.uname().nodename}",
                hint="all machines must see the same files, under the same names",
            ) from None
    return msgspec.msgpack.encode(run_task(task))


def pack_task(task: FileTask) -> bytes:
    """Return a task for `run_remote_task`."""
    import pickle

    own = replace(task, folder=os.getcwd(), model_fingerprint=compute_model_fingerprint())
    return pickle.dumps(own)


def unpack_answer(data: bytes) -> TaskAnswer:
    """Return the answer of `run_remote_task`."""
    return msgspec.msgpack.decode(data, type=TaskAnswer)


def measure_file(path: str) -> int:
    """Return the size of a file in bytes, 0 where it is none: reading it says why."""
    try:
        return os.path.getsize(path)
    except (OSError, ValueError):
        return 0
