"""Plan of an analysis of files: what there is to do, and how it is cut into tasks.

Nothing is read here but sizes of files: facts of inputs say which kernels are wanted and on which GPUs. A
`FileTask` is what one process, or a machine of a cluster, does at a time. Work is cut in three ways:

- Many files are read and analyzed a few at a time where a kernel's report does not depend on how many others
  there are (`AnalysisPlan.analyzes_files_alone`); else a cluster reads them so, and analyzes nothing yet.
- A big cubin is read and analyzed in parts (`frontend.cubin_parts`).
- Kernels of a file that was indexed go to a cluster in ranges. Processes of this machine need no tasks for
  them: they inherit what was read (`kernel_runner`).
"""

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.cubin_parts import MAX_BYTES as CUBIN_PART_MAX_BYTES
from analyzer.frontend.cubin_parts import MIN_BYTES as CUBIN_PART_MIN_BYTES
from analyzer.frontend.module_reader import STANDARD_INPUT
from analyzer.hardware.gpu import Gpu
from analyzer.pipeline.input_index import IndexedFile, IndexedInput, ReadingOptions
from analyzer.pipeline.kernel_cache import KernelCache, KernelResult, shares_limits
from analyzer.pipeline.kernel_choice import place_kernels
from analyzer.pipeline.options import Options
from analyzer.report.input_entries import KernelFacts
from analyzer.worker_pool import Backend

_PARTS_PER_WORKER = 2  # of a cubin whose kernels are executed: they take unequally long
_MIN_SHARED_BYTES = 1 << 20  # of files; less is read here in the time that processes take to start
_TASKS_PER_WORKER = 8
_CLUSTER_TASKS = 64  # of files; a cluster's size is not known before it is asked
_CUBINS_PER_TASK = 64
_MIN_RANGE_INSTRUCTIONS = 200_000  # of a big file: what a machine analyzes in the time that it reads the file
_EXECUTION_COST_INSTRUCTIONS = 10_000  # least time of an executed launch, as so many instructions only walked

KernelOnGpus = tuple[KernelFacts, tuple[Gpu, ...]]


class KernelWork(Struct, frozen=True, eq=False):
    """A kernel by its facts, with its GPUs and the key of its result."""

    source: IndexedInput
    kernel: KernelFacts
    gpus: tuple[Gpu, ...]
    key: str

    @property
    def own_facts(self) -> KernelFacts:
        """Facts of the kernel as its file alone has them."""
        facts = self.source.file.facts
        assert facts is not None
        return facts.kernels[self.kernel.ordinal - self.source.first_ordinal]

    def place(self, result: KernelResult) -> KernelResult:
        """Return the result at the place that the kernel has among the inputs."""
        return result.place(self.source.facts.path, self.kernel)


class FileTask(Struct, frozen=True, kw_only=True):
    """Files to read, and which of their kernels to analyze."""

    paths: tuple[str, ...]
    # Kernels of the one file, which must be the ones that are read; None: all kernels of each, on `gpus`.
    chosen: tuple[KernelOnGpus, ...] | None = None
    gpus: tuple[Gpu, ...] = ()  # that the user named
    part: tuple[int, int] | None = None  # of the one file, a cubin: which of how many parts
    n_kernels: int = 1  # that share the limits of work
    options: Options
    reading: ReadingOptions

    def list_works(self, source: IndexedInput, cache: KernelCache) -> list[KernelWork]:
        """Return the kernels of a file that are to be analyzed."""
        chosen = self.chosen
        if chosen is None:
            placed = place_kernels([source.facts], (), self.gpus)
            chosen = tuple((kernel, gpus) for _, kernel, gpus in placed)
        return [
            KernelWork(source, kernel, gpus, cache.make_kernel_key(kernel, gpus, self.n_kernels))
            for kernel, gpus in chosen
        ]


class AnalysisPlan(Struct, frozen=True):
    """How the work of an analysis is cut into tasks."""

    options: Options
    gpus: tuple[Gpu, ...]  # that the user named
    reading: ReadingOptions
    n_workers: int  # processes that may share it

    @property
    def analyzes_files_alone(self) -> bool:
        """True if whoever reads a file may analyze its kernels without knowing the other files."""
        options = self.options
        table = options.launch_table
        named = [one for _, launches in table.entries for one in launches] if table else []
        return not (
            options.kernels
            or options.listing
            or options.levels
            or shares_limits(options, [options.launch, *named])
        )

    @property
    def is_local(self) -> bool:
        """True if processes of this machine do the work."""
        return self.options.backend is Backend.LOCAL

    def list_works(self, inputs: Sequence[IndexedInput], cache: KernelCache) -> list[KernelWork]:
        """Return the kernels to analyze. Raises UsageError for a pattern that fits nothing."""
        placed = list(place_kernels([each.facts for each in inputs], self.options.kernels, self.gpus))
        return [
            KernelWork(inputs[index], kernel, gpus, cache.make_kernel_key(kernel, gpus, len(placed)))
            for index, kernel, gpus in placed
        ]

    def group_files(self, files: Sequence[IndexedFile]) -> list[list[IndexedFile]]:
        """Return groups of files, each for a task; none where this process reads them as fast."""
        shared = [file for file in files if file.path != STANDARD_INPUT]
        sizes = [_measure_file(file.path) for file in shared]
        n_workers = min(self.n_workers, len(shared))
        pays = n_workers >= 2 and self.analyzes_files_alone and sum(sizes) >= _MIN_SHARED_BYTES
        if not shared or (self.is_local and not pays):
            return []
        # Cubins that are read together share runs of the disassembler, which takes long to start.
        if all(file.path.endswith(".cubin") for file in shared):
            n_tasks = n_workers if self.is_local else -(-len(shared) // _CUBINS_PER_TASK)
        else:
            n_tasks = n_workers * _TASKS_PER_WORKER if self.is_local else _CLUSTER_TASKS
        ranges = split_evenly([size + 1 for size in sizes], min(len(shared), n_tasks))
        return [shared[start:stop] for start, stop in ranges]

    def make_task(self, files: Sequence[IndexedFile]) -> FileTask:
        """Return the task of some files: to read them, and to analyze all kernels where that may be."""
        return FileTask(
            paths=tuple(file.path for file in files),
            chosen=None if self.analyzes_files_alone else (),
            gpus=self.gpus,
            options=replace(self.options, jobs=1),
            reading=replace(self.reading, jobs=1),
        )

    def cut_cubin(self, file: IndexedFile) -> list[FileTask]:
        """Return the parts of a big cubin, some for each process; none where the file is read as a whole."""
        is_plain = self.reading.usage_path is None and not self.reading.arch and file.path.endswith(".cubin")
        if not (is_plain and self.is_local and self.n_workers >= 2 and self.analyzes_files_alone):
            return []
        if not CUBIN_PART_MIN_BYTES <= _measure_file(file.path) < CUBIN_PART_MAX_BYTES:
            return []
        n_parts = self.n_workers * (_PARTS_PER_WORKER if self.options.assumes_launch else 1)
        task = self.make_task([file])
        return [replace(task, part=(part, n_parts)) for part in range(n_parts)]

    def cut_kernels(
        self, works: Sequence[KernelWork], n_kernels: int
    ) -> Iterator[tuple[IndexedFile, FileTask]]:
        """Yield ranges of kernels of a file, each with its file."""
        for _, group in groupby(works, key=lambda work: id(work.source)):
            of_file = list(group)
            file = of_file[0].source.file
            sizes = [
                estimate_instructions(self.options, work.kernel.instructions, len(work.gpus))
                for work in of_file
            ]
            for start, stop in split_evenly(sizes, max(1, sum(sizes) // _MIN_RANGE_INSTRUCTIONS)):
                chosen = tuple((work.own_facts, work.gpus) for work in of_file[start:stop])
                yield file, replace(self.make_task([file]), chosen=chosen, n_kernels=n_kernels)


def estimate_instructions(options: Options, n_instructions: int, n_gpus: int) -> int:
    """Estimate the work of a kernel, in instructions of one kernel on one GPU."""
    executed = bool(
        options.launch.has_dimensions
        or options.launch.arguments
        or options.launch_table
        or options.assumes_launch
    )
    return max(1, n_gpus) * n_instructions + executed * _EXECUTION_COST_INSTRUCTIONS


def split_evenly(sizes: Sequence[int], n_parts: int) -> list[tuple[int, int]]:
    """Return ranges [start, stop) of tasks, cut after each n-th part of their total size.

    >>> split_evenly([5, 1, 1, 1, 8], 2)
    [(0, 4), (4, 5)]
    """
    done = list(accumulate(sizes))
    cuts = [bisect_left(done, done[-1] * part / n_parts) + 1 for part in range(1, n_parts + 1)]
    return [(start, stop) for start, stop in pairwise((0, *cuts)) if stop > start]


def _measure_file(path: str) -> int:
    """Return the size of a file in bytes, 0 where it is none: reading it says why."""
    try:
        return os.path.getsize(path)
    except (OSError, ValueError):
        return 0
