"""Analysis of files with a cache, by one process, several, or a cluster.

The report is the one of `load_all` and `analyze_programs`, byte for byte, whatever the cache holds and
whoever does the work:

1. Facts of each input (`input_index`): from the cache, else the file is read.
2. Kernels chosen by name and put on GPUs, by the facts alone.
3. The result of each kernel (`kernel_cache`): from the cache, else its file is read, and the kernel analyzed.
4. The report, from facts and results (`report_assembly`).

Work is shared in two ways. Many files are read and analyzed a few at a time, each by one process
(`file_analysis`), where a kernel's report does not depend on how many others there are; so are parts of a big
cubin (`frontend.cubin_parts`). What is left is read here, and its kernels are shared among forks
(`kernel_tasks`), or sent to a cluster in ranges of a file. Each result is kept as it comes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial

from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.cubin_parts import MAX_BYTES as CUBIN_PART_MAX_BYTES
from analyzer.frontend.cubin_parts import MIN_BYTES as CUBIN_PART_MIN_BYTES
from analyzer.frontend.module_reader import STANDARD_INPUT
from analyzer.frontend.ptx_reader import PtxOptions
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_gpus, find_typical_gpus
from analyzer.pipeline.analysis import find_input_folder
from analyzer.pipeline.file_analysis import (
    FileAnswer,
    FileTask,
    TaskAnswer,
    join_parts,
    list_file_works,
    measure_file,
    pack_task,
    run_remote_task,
    run_task,
    unpack_answer,
)
from analyzer.pipeline.input_index import (
    IndexedFile,
    IndexedInput,
    ReadingOptions,
    index_inputs,
    read_missing_files,
    read_programs,
)
from analyzer.pipeline.kernel_cache import KernelCache, KernelResult, shares_limits
from analyzer.pipeline.kernel_tasks import KernelTask, KernelTaskRunner, estimate_instructions
from analyzer.pipeline.options import Options
from analyzer.pipeline.report_assembly import assemble_report, assign_gpus, choose_kernel_facts
from analyzer.report.analyze_schema import Report
from analyzer.report.input_entries import KernelFacts
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.worker_pool import (
    Backend,
    RunTasks,
    connect,
    count_forkable_cores,
    run_in_forks,
    split_evenly,
)

_PARTS_PER_WORKER = 2  # of a cubin whose kernels are executed: they take unequally long
_MIN_SHARED_BYTES = 1 << 20  # of files; less is read here in the time that processes take to start
_TASKS_PER_WORKER = 8
_CLUSTER_TASKS = 64  # of files; a cluster's size is not known before it is asked
_CUBINS_PER_TASK = 64
_MIN_RANGE_INSTRUCTIONS = 200_000  # of a big file: what a machine analyzes in the time that it reads the file


class _Work(Struct, frozen=True, eq=False):
    """A kernel by its facts, with its GPUs and the key of its result."""

    source: IndexedInput
    kernel: KernelFacts
    gpus: tuple[Gpu, ...]
    key: str


def analyze_files(
    paths: Sequence[str],
    gpu: str | Sequence[str] | None,
    options: Options,
    progress: ProgressCallback = ignore_progress,
    *,
    reading: ReadingOptions | None = None,
    notes: list[str] | None = None,
) -> Report:
    """Analyze files and folders; return the report of `load_all` and `analyze_programs`.

    reading: how files are read; by default PTX is assembled for the GPUs.
    notes: receives sentences on the state of the cache, such as damaged entries.
    Raises InputError, ToolError, HardwareError, UsageError, or GateError for `options.min_coverage`.
    """
    reading = reading or _make_reading_options(gpu, options)
    run = _Run(options, find_gpus(gpu), reading, progress)
    with run.connections:
        report = run.analyze(paths)
    if notes is not None:
        notes += run.cache.list_notes()
    return report


def _make_reading_options(gpu: str | Sequence[str] | None, options: Options) -> ReadingOptions:
    names = (gpu,) if isinstance(gpu, str) else tuple(gpu or ())
    return ReadingOptions(ptx=PtxOptions(gpus=names), jobs=options.jobs)


class _Run:
    """One analysis of some files."""

    def __init__(
        self, options: Options, gpus: tuple[Gpu, ...], reading: ReadingOptions, progress: ProgressCallback
    ) -> None:
        self.options, self.gpus, self.progress = options, gpus, progress
        self.cache = KernelCache(options)
        self.connections = ExitStack()
        self.is_local = options.backend is Backend.LOCAL
        # Another machine must see the same kernels.
        self.reading = reading if self.is_local else replace(reading, digests=True)
        # Results of files that were analyzed by whoever read them, one for each kernel that some GPU takes.
        self.early: dict[int, tuple[KernelResult, ...]] = {}

    def analyze(self, paths: Sequence[str]) -> Report:
        """Return the report of the files."""
        self.progress(0, 0, "reading")
        inputs = index_inputs(paths, self.options.kernels, self.reading, self.cache, self._read_files)
        works = self._list_works(inputs)
        results = self._find_results(works)
        missing = [index for index, result in enumerate(results) if result is None]
        if missing:
            analyze = self._analyze_here if self.is_local else self._analyze_on_cluster
            analyze(works, missing, results)
            self.cache.finish()
        done = [result for result in results if result is not None]
        return assemble_report(
            [each.facts for each in inputs],
            tuple(report for result in done for report in result.reports),
            gpus=self.gpus,
            options=self.options,
            used_trip_rules=frozenset(rule for result in done for rule in result.used_trip_rules),
        )

    def _read_files(self, files: Sequence[IndexedFile]) -> None:
        """Give each file its facts: shared with the analysis of its kernels where that pays, else here."""
        left = [file for file in files if not self._analyze_in_parts(file)]
        shared = [file for file in left if file.path != STANDARD_INPUT]
        n_workers = self._count_workers(len(shared))
        sizes = [measure_file(file.path) for file in shared]
        pays = n_workers >= 2 and self._analyzes_files_alone and sum(sizes) >= _MIN_SHARED_BYTES
        if not shared or (self.is_local and not pays):
            read_missing_files(left, self.reading, self.cache)
            return
        ranges = split_evenly([size + 1 for size in sizes], self._count_file_tasks(shared, n_workers))
        groups = [shared[start:stop] for start, stop in ranges]
        tasks = [self._make_task(tuple(file.path for file in group)) for group in groups]
        for index, answer in self._run_tasks(tasks, n_workers, "files"):
            for file, found in zip(groups[index], answer.files, strict=True):
                self._take_answer(file, found)
        read_missing_files([file for file in left if file not in shared], self.reading, self.cache)

    def _count_workers(self, n_tasks: int) -> int:
        return min(self.options.jobs, count_forkable_cores(), n_tasks)

    def _analyze_in_parts(self, file: IndexedFile) -> bool:
        """Read and analyze a big cubin in parts, one for each process; return whether that could be done."""
        n_workers = self._count_workers(self.options.jobs)
        is_plain = self.reading.usage_path is None and not self.reading.arch and file.path.endswith(".cubin")
        if not (is_plain and self.is_local and n_workers >= 2 and self._analyzes_files_alone):
            return False
        if not CUBIN_PART_MIN_BYTES <= measure_file(file.path) < CUBIN_PART_MAX_BYTES:
            return False
        n_parts = n_workers * (_PARTS_PER_WORKER if self.options.assumes_launch else 1)
        task = self._make_task((file.path,))
        tasks = [replace(task, part=(part, n_parts)) for part in range(n_parts)]
        answers = dict(self._run_tasks(tasks, n_workers, "parts of a library"))
        found = join_parts([answers[part].files[0] for part in range(n_parts)], self.gpus)
        if found is None or not file.is_unchanged:
            return False
        self._take_answer(file, found, stores_kernels=False)
        return True

    def _count_file_tasks(self, files: Sequence[IndexedFile], n_workers: int) -> int:
        if all(file.path.endswith(".cubin") for file in files):
            # Cubins that are read together share runs of the disassembler, which takes long to start.
            return min(len(files), n_workers) if self.is_local else -(-len(files) // _CUBINS_PER_TASK)
        return min(len(files), n_workers * _TASKS_PER_WORKER if self.is_local else _CLUSTER_TASKS)

    @property
    def _analyzes_files_alone(self) -> bool:
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

    def _make_task(self, paths: tuple[str, ...]) -> FileTask:
        return FileTask(
            paths=paths,
            gpus=self.gpus,
            only_facts=not self._analyzes_files_alone,
            options=replace(self.options, jobs=1),
            reading=replace(self.reading, jobs=1),
        )

    def _take_answer(self, file: IndexedFile, found: FileAnswer, *, stores_kernels: bool = True) -> None:
        error = found.make_error()
        if error is not None and file.is_named:
            raise error
        file.error, file.facts = error, found.facts
        if found.facts is None:
            return
        if found.results is not None:
            self.early[id(file)] = found.results
        if not found.is_kept and file.is_unchanged:
            self.cache.store_input(file.key, found.facts)
            if not stores_kernels:
                return
            works = list_file_works(found.facts, self.gpus) if found.results else []
            for (kernel, gpus), result in zip(works, found.results or (), strict=True):
                self._keep(self.cache.make_kernel_key(kernel, gpus, 1), result)

    def _keep(self, key: str, result: KernelResult) -> None:
        if key:
            self.cache.store_kernel(key, result)

    def _list_works(self, inputs: Sequence[IndexedInput]) -> list[_Work]:
        chosen = choose_kernel_facts([each.facts for each in inputs], self.options.kernels)
        placed = [
            (source, kernel, own or find_typical_gpus(kernel.arch))
            for source, kernels in zip(inputs, chosen, strict=True)
            for kernel, own in assign_gpus(kernels, self.gpus)
        ]
        return [
            _Work(source, kernel, own, self.cache.make_kernel_key(kernel, own, len(placed)))
            for source, kernel, own in placed
        ]

    def _find_results(self, works: Sequence[_Work]) -> list[KernelResult | None]:
        """Return the results that are there: of files that were analyzed, and those in the cache."""
        early = {key: iter(results) for key, results in self.early.items()}
        found: list[KernelResult | None] = []
        for work in works:
            path, file = work.source.facts.path, id(work.source.file)
            if file in early:
                found.append(next(early[file]).place(path, work.kernel))
            else:
                found.append(self.cache.find_kernel(work.key, path, work.kernel))
        return found

    def _analyze_here(
        self, works: Sequence[_Work], missing: Sequence[int], results: list[KernelResult | None]
    ) -> None:
        """Analyze the kernels whose results are missing in this process and its forks, and put them in."""
        sources = {id(works[index].source): works[index].source for index in missing}
        read_programs([source.file for source in sources.values()], self.reading, self.cache)
        programs = {key: source.make_program() for key, source in sources.items()}
        tasks = []
        for work in (works[index] for index in missing):
            program = programs[id(work.source)]
            loaded = program.kernels[work.kernel.ordinal - program.first_ordinal]
            tasks.append(KernelTask(loaded, work.gpus, find_input_folder(program), work.key))
        runner = KernelTaskRunner(tasks, self.options, self.progress, n_kernels=len(works), cache=self.cache)
        for index, result in zip(missing, runner.run().kernels, strict=True):
            results[index] = result

    def _analyze_on_cluster(
        self, works: Sequence[_Work], missing: Sequence[int], results: list[KernelResult | None]
    ) -> None:
        """Send the kernels whose results are missing to the cluster, in ranges of a file, and put them in."""
        ranges = [
            [of_file[place] for place in range(*part)]
            for of_file in _group_by_file(works, missing)
            for part in self._split_range([works[index] for index in of_file])
        ]
        tasks = [self._make_range_task([works[index] for index in part], len(works)) for part in ranges]
        for number, answer in self._run_tasks(tasks, self.options.jobs, "ranges of kernels"):
            (found,) = answer.files
            if (error := found.make_error()) is not None:
                raise error
            for index, result in zip(ranges[number], found.results or (), strict=True):
                work = works[index]
                results[index] = result.place(work.source.facts.path, work.kernel)
                if not found.is_kept:
                    self._keep(work.key, result)

    def _split_range(self, works: Sequence[_Work]) -> list[tuple[int, int]]:
        sizes = [
            estimate_instructions(self.options, work.kernel.instructions, len(work.gpus)) for work in works
        ]
        return split_evenly(sizes, max(1, sum(sizes) // _MIN_RANGE_INSTRUCTIONS))

    def _make_range_task(self, works: Sequence[_Work], n_kernels: int) -> FileTask:
        source = works[0].source
        return FileTask(
            paths=(source.file.path,),
            chosen=tuple((work.kernel.ordinal - source.first_ordinal, work.gpus) for work in works),
            digests=tuple(work.kernel.digest for work in works),
            n_kernels=n_kernels,
            options=replace(self.options, jobs=1),
            reading=replace(self.reading, jobs=1),
        )

    def _run_tasks(
        self, tasks: Sequence[FileTask], n_workers: int, what: str
    ) -> Iterator[tuple[int, TaskAnswer]]:
        """Yield the index of each task with its answer, as they come."""
        self.progress(0, len(tasks), what)
        answers = self._run_in_forks(tasks, n_workers) if self.is_local else self._run_on_cluster(tasks)
        for done, (index, answer) in enumerate(answers, 1):
            yield index, answer
            self.cache.store.n_damaged += answer.n_damaged
            self.cache.store.n_unwritten += answer.n_unwritten
            self.progress(done, len(tasks), what)

    def _run_in_forks(self, tasks: Sequence[FileTask], n_workers: int) -> Iterator[tuple[int, TaskAnswer]]:
        run_nth: Callable[[int], TaskAnswer] = partial(_run_nth, tasks)
        return enumerate(run_in_forks(run_nth, range(len(tasks)), n_workers, TaskAnswer))

    def _run_on_cluster(self, tasks: Sequence[FileTask]) -> Iterator[tuple[int, TaskAnswer]]:
        packed = [pack_task(task) for task in tasks]
        for index, data in self._run_remote_tasks(run_remote_task, packed):
            yield index, unpack_answer(data)

    @cached_property
    def _run_remote_tasks(self) -> RunTasks:
        """Connect to the cluster, until `connections` are closed."""
        options = self.options
        return self.connections.enter_context(connect(options.scheduler, options.jobs))


def _run_nth(tasks: Sequence[FileTask], index: int) -> TaskAnswer:
    return run_task(tasks[index])


def _group_by_file(works: Sequence[_Work], missing: Sequence[int]) -> list[list[int]]:
    """Return the indices of the missing kernels of each file."""
    groups: dict[int, list[int]] = {}
    for index in missing:
        groups.setdefault(id(works[index].source), []).append(index)
    return list(groups.values())
