"""The chosen kernels of all inputs, analyzed one by one or by several processes.

Kernels are independent once a dump is read. Workers are forks, so they find the parsed input where it is, and
they send back encoded report entries, which takes a tenth of the time that pickling does.
"""

import gc
import os
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec

from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.hardware.gpu import Gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer, Options
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.report.analyze_schema import KernelReport
from analyzer.report.kernel_entries import make_kernel_report

_MIN_PARALLEL_INSTRUCTIONS = 50_000  # below, processes take as long to start as they save
_EXECUTION_COST_INSTRUCTIONS = (
    10_000  # to execute a launch takes no less than so many instructions that are only walked
)
_BATCHES_PER_WORKER = 8  # of each worker: unequal ones still end at about the same time


class KernelTask(msgspec.Struct, frozen=True, eq=False):
    """A kernel, the GPUs that it is put on, and the place of its input among all."""

    loaded: LoadedKernel
    gpus: tuple[Gpu, ...]
    input_index: int


class TaskResults(msgspec.Struct, frozen=True):
    """Report entries of some kernels in their order, and the rules that fit loops of theirs."""

    reports: tuple[KernelReport, ...]
    used_trip_rules: frozenset[TripCountRule]


class ParallelRun:
    """Analyzes tasks, each input's by an analyst of its own."""

    def __init__(self, tasks: Sequence[KernelTask], options: Options) -> None:
        self.tasks, self.options = tasks, options
        self.analyzers: dict[int, KernelAnalyzer] = {}

    def run(self) -> TaskResults:
        """All tasks; by so many processes as `options.jobs` and the machine allow, where that pays."""
        n_workers = min(self.options.jobs, _count_usable_cores(), len(self.tasks))
        sizes = list(map(self._estimate_instructions, self.tasks))
        if n_workers < 2 or sum(sizes) < _MIN_PARALLEL_INSTRUCTIONS:
            return self.analyze_tasks(0, len(self.tasks))
        parts = list(self._run_in_workers(_split_tasks(sizes, n_workers * _BATCHES_PER_WORKER), n_workers))
        return TaskResults(
            tuple(report for part in parts for report in part.reports),
            frozenset(rule for part in parts for rule in part.used_trip_rules),
        )

    def analyze_tasks(self, start: int, stop: int) -> TaskResults:
        """Tasks [start, stop), one after another."""
        reports: list[KernelReport] = []
        for task in self.tasks[start:stop]:
            kernel_analyzer = self.analyzers.get(task.input_index)
            if kernel_analyzer is None:
                kernel_analyzer = self.analyzers[task.input_index] = KernelAnalyzer(
                    self.options, len(self.tasks)
                )
            for analysis in kernel_analyzer.analyze(task.loaded, task.gpus):
                reports.append(make_kernel_report(analysis, listing=self.options.listing))
        used = frozenset(
            rule for kernel_analyzer in self.analyzers.values() for rule in kernel_analyzer.used_trip_rules
        )
        return TaskResults(tuple(reports), used)

    def _run_in_workers(self, runs: Sequence[tuple[int, int]], n_workers: int) -> Iterator[TaskResults]:
        """Runs of tasks in their order; one that fails in a worker is done again, and fails, here."""
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        gc.freeze()  # else each worker's collector would visit, and so copy, what it shares with this process
        decoder = msgspec.msgpack.Decoder(TaskResults)
        try:
            with ProcessPoolExecutor(
                n_workers, mp_context=get_context("fork"), initializer=_init_worker, initargs=(self,)
            ) as pool:
                for run, found in [(run, pool.submit(_analyze_in_worker, *run)) for run in runs]:
                    yield self.analyze_tasks(*run) if found.exception() else decoder.decode(found.result())
        finally:
            gc.unfreeze()

    def _estimate_instructions(self, task: KernelTask) -> int:
        """About how much work it is, in instructions of one kernel on one GPU."""
        options, n_gpus = self.options, max(1, len(task.gpus))
        executed = bool(options.launch.has_dimensions or options.launch.arguments or options.launch_book)
        return n_gpus * len(task.loaded) + executed * _EXECUTION_COST_INSTRUCTIONS


def _split_tasks(sizes: Sequence[int], n_runs: int) -> list[tuple[int, int]]:
    """Tasks [start, stop), cut after each n-th part of the work."""
    done = list(accumulate(sizes))
    cuts = [bisect_left(done, done[-1] * part / n_runs) + 1 for part in range(1, n_runs + 1)]
    return [(start, stop) for start, stop in pairwise((0, *cuts)) if stop > start]


def _count_usable_cores() -> int:
    """That this process may use; one where it cannot be forked safely."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


_inherited_run: ParallelRun | None = None


def _init_worker(parallel_run: ParallelRun) -> None:
    """In a worker: what it inherits. A fork is handed it as it is, nothing is pickled."""
    global _inherited_run
    _inherited_run = parallel_run


def _analyze_in_worker(start: int, stop: int) -> bytes:
    assert _inherited_run is not None
    return msgspec.msgpack.encode(_inherited_run.analyze_tasks(start, stop))
