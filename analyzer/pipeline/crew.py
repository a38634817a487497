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

from analyzer.execution.counts import TripRule
from analyzer.hardware.gpu import Gpu
from analyzer.pipeline.analyst import Analyst, Options
from analyzer.pipeline.program import LoadedKernel
from analyzer.report.kernel_view import kernel_report
from analyzer.report.report import KernelReport

_LEAST_SIZE = 50_000  # below, processes take as long to start as they save
_EXECUTED_SIZE = 10_000  # to execute a launch takes no less than so many instructions that are only walked
_SHARES = 8  # of each worker: unequal ones still end at about the same time


class Task(msgspec.Struct, frozen=True, eq=False):
    """A kernel, the GPUs that it is put on, and the place of its input among all."""

    loaded: LoadedKernel
    gpus: tuple[Gpu, ...]
    place: int


class Done(msgspec.Struct, frozen=True):
    """Report entries of some kernels in their order, and the rules that fit loops of theirs."""

    reports: tuple[KernelReport, ...]
    used: frozenset[TripRule]


class Crew:
    """Analyzes tasks, each input's by an analyst of its own."""

    def __init__(self, tasks: Sequence[Task], options: Options) -> None:
        self.tasks, self.options = tasks, options
        self.analysts: dict[int, Analyst] = {}

    def run(self) -> Done:
        """All tasks; by so many processes as `options.jobs` and the machine allow, where that pays."""
        n_workers = min(self.options.jobs, _cores(), len(self.tasks))
        sizes = list(map(self._size, self.tasks))
        if n_workers < 2 or sum(sizes) < _LEAST_SIZE:
            return self.analyze(0, len(self.tasks))
        parts = list(self._shared(_cut(sizes, n_workers * _SHARES), n_workers))
        return Done(
            tuple(report for part in parts for report in part.reports),
            frozenset(rule for part in parts for rule in part.used),
        )

    def analyze(self, start: int, stop: int) -> Done:
        """Tasks [start, stop), one after another."""
        reports: list[KernelReport] = []
        for task in self.tasks[start:stop]:
            analyst = self.analysts.get(task.place)
            if analyst is None:
                analyst = self.analysts[task.place] = Analyst(self.options, len(self.tasks))
            for analysis in analyst.analyze(task.loaded, task.gpus):
                reports.append(kernel_report(analysis, listing=self.options.listing))
        used = frozenset(rule for analyst in self.analysts.values() for rule in analyst.used)
        return Done(tuple(reports), used)

    def _shared(self, runs: Sequence[tuple[int, int]], n_workers: int) -> Iterator[Done]:
        """Runs of tasks in their order; one that fails in a worker is done again, and fails, here."""
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        gc.freeze()  # else each worker's collector would visit, and so copy, what it shares with this process
        decoder = msgspec.msgpack.Decoder(Done)
        try:
            with ProcessPoolExecutor(
                n_workers, mp_context=get_context("fork"), initializer=_begin, initargs=(self,)
            ) as pool:
                for run, found in [(run, pool.submit(_in_worker, *run)) for run in runs]:
                    yield self.analyze(*run) if found.exception() else decoder.decode(found.result())
        finally:
            gc.unfreeze()

    def _size(self, task: Task) -> int:
        """About how much work it is, in instructions of one kernel on one GPU."""
        options, n_gpus = self.options, max(1, len(task.gpus))
        executed = bool(options.launch.has_dimensions or options.launch.arguments or options.launch_book)
        return n_gpus * len(task.loaded) + executed * _EXECUTED_SIZE


def _cut(sizes: Sequence[int], n_runs: int) -> list[tuple[int, int]]:
    """Tasks [start, stop), cut after each n-th part of the work."""
    done = list(accumulate(sizes))
    cuts = [bisect_left(done, done[-1] * part / n_runs) + 1 for part in range(1, n_runs + 1)]
    return [(start, stop) for start, stop in pairwise((0, *cuts)) if stop > start]


def _cores() -> int:
    """That this process may use; one where it cannot be forked safely."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


_crew: Crew | None = None


def _begin(crew: Crew) -> None:
    """In a worker: what it inherits. A fork is handed it as it is, nothing is pickled."""
    global _crew
    _crew = crew


def _in_worker(start: int, stop: int) -> bytes:
    assert _crew is not None
    return msgspec.msgpack.encode(_crew.analyze(start, stop))
