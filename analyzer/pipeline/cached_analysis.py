"""Analysis of files with a cache, by one process, several, or a cluster.

The report is the one of `load_all` and `analyze_programs`, byte for byte, whatever the cache holds and
whoever does the work:

1. Facts of each input (`input_index`): from the cache, else the file is read.
2. Kernels chosen by name and put on GPUs, by the facts alone (`kernel_choice`).
3. The result of each kernel (`kernel_cache`): from the cache, else its file is read, and the kernel analyzed.
4. The report, from facts and results (`report_assembly`).

Work on files (1, and with it 3 where that may be) and on kernels is cut into tasks by `analysis_plan`, done
by `task_runner` wherever `worker_pool` takes it, and each result is kept as it comes.
"""

import pickle
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from analyzer.hardware.gpu_selection import find_gpus
from analyzer.pipeline.analysis_plan import AnalysisPlan, FileTask, KernelWork
from analyzer.pipeline.input_index import (
    IndexedFile,
    IndexedInput,
    InputReader,
    ReadingOptions,
    index_inputs,
    make_reading_options,
)
from analyzer.pipeline.kernel_cache import KernelCache, KernelResult
from analyzer.pipeline.kernel_runner import KernelRunner
from analyzer.pipeline.options import Options
from analyzer.pipeline.report_assembly import assemble_report
from analyzer.pipeline.task_runner import (
    TaskAnswer,
    find_results,
    join_parts,
    make_kernel_tasks,
    run_task,
)
from analyzer.report.analyze_schema import Report
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.worker_pool import Backend, RunTasks, count_workers, open_runner


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
    reading = reading or make_reading_options(gpu, options.jobs)
    if options.backend is Backend.LOCAL:
        n_workers = count_workers(options.jobs, options.jobs)
    else:  # another machine must see the same kernels
        n_workers, reading = options.jobs, replace(reading, digests=True)
    with open_runner(options.backend, options.scheduler, n_workers) as run_tasks:
        run = _Run(AnalysisPlan(options, find_gpus(gpu), reading, n_workers), run_tasks, progress)
        report = run.analyze(paths)
    if notes is not None:
        notes += run.cache.list_notes()
    return report


class _Run:
    """One analysis of some files."""

    def __init__(self, plan: AnalysisPlan, run_tasks: RunTasks, progress: ProgressCallback) -> None:
        self.plan, self.run_tasks, self.progress = plan, run_tasks, progress
        self.options = plan.options
        self.cache = KernelCache(plan.options)
        self.reader = InputReader(plan.reading, self.cache.store)

    def analyze(self, paths: Sequence[str]) -> Report:
        """Return the report of the files."""
        self.progress(0, 0, "reading")
        inputs = index_inputs(paths, self.options.kernels, self.reader, self._read_files)
        works = self.plan.list_works(inputs, self.cache)
        analyze = self._analyze_here if self.plan.is_local else self._analyze_there
        results = find_results(works, self.cache, partial(analyze, n_kernels=len(works)))
        self.cache.finish()
        return assemble_report(
            [each.facts for each in inputs],
            [work.place(result) for work, result in zip(works, results, strict=True)],
            gpus=self.plan.gpus,
            options=self.options,
        )

    def _read_files(self, files: Sequence[IndexedFile]) -> None:
        """Give each file its facts: shared with the analysis of its kernels where that pays, else here."""
        for file in files:
            self._analyze_in_parts(file)
        groups = self.plan.group_files([file for file in files if file.is_unread])
        if groups:
            tasks = list(map(self.plan.make_task, groups))
            for index, answer in self._run_tasks(tasks, "files"):
                self._take_answer(groups[index], tasks[index], answer)
        self.reader.read([file for file in files if file.is_unread])

    def _analyze_in_parts(self, file: IndexedFile) -> None:
        """Read and analyze a big cubin in parts, if that can be done."""
        tasks = self.plan.cut_cubin(file)
        if not tasks:
            return
        answers = dict(self._run_tasks(tasks, "parts of a library"))
        found = join_parts([answers[part].files[0] for part in range(len(tasks))], self.plan.gpus)
        if found is not None and file.is_unchanged:
            file.facts, file.results = found.facts, found.results
            self.reader.keep_facts(file)

    def _analyze_here(self, works: Sequence[KernelWork], n_kernels: int) -> Sequence[KernelResult]:
        """Return the results of kernels that are analyzed in this process and its forks."""
        tasks = make_kernel_tasks(works, self.reader)
        runner = KernelRunner(tasks, self.options, self.progress, n_kernels=n_kernels, store=self.cache.store)
        return runner.run()

    def _analyze_there(self, works: Sequence[KernelWork], n_kernels: int) -> Sequence[KernelResult]:
        """Return the results of kernels that are sent to the cluster, in ranges of a file."""
        files, tasks = zip(*self.plan.cut_kernels(works, n_kernels), strict=True)
        for index, answer in self._run_tasks(tasks, "ranges of kernels"):
            self._take_answer([files[index]], tasks[index], answer)
        found = [work.source.find_result(work.kernel) for work in works]
        return [result for result in found if result is not None]

    def _run_tasks(self, tasks: Sequence[FileTask], what: str) -> Iterator[tuple[int, TaskAnswer]]:
        """Yield the index of each task with its answer, as they come."""
        self.progress(0, len(tasks), what)
        for done, (index, answer) in enumerate(self.run_tasks(run_task, tasks, TaskAnswer), 1):
            yield index, answer
            self.cache.store.n_damaged += answer.n_damaged
            self.cache.store.n_unwritten += answer.n_unwritten
            self.progress(done, len(tasks), what)

    def _take_answer(self, files: Sequence[IndexedFile], task: FileTask, answer: TaskAnswer) -> None:
        """Give files what was found of them, and keep it where whoever found it could not."""
        for file, found in zip(files, answer.files, strict=True):
            if found.error is not None:
                file.take_error(pickle.loads(found.error))
            if found.facts is None:
                continue
            file.facts, file.results = found.facts, {**file.results, **found.results}
            if self.cache.store.is_enabled and not answer.is_kept:
                self.reader.keep_facts(file)
                for work in task.list_works(IndexedInput(file, found.facts), self.cache):
                    self.cache.store.keep(work.key, found.results[work.kernel.ordinal])
