"""The chosen kernels of all inputs, analyzed one by one or by several processes.

Kernels are independent once a dump is read, so each is a task; several tasks make a batch for a worker.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.hardware.gpu import Gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import KernelReport
from analyzer.report.kernel_entries import make_kernel_report
from analyzer.text.progress import ProgressCallback, StepProgress, ignore_progress
from analyzer.text.source_files import SourceFiles
from analyzer.worker_pool import count_forkable_cores, run_in_forks, split_evenly

_MIN_PARALLEL_INSTRUCTIONS = 50_000  # below, processes take as long to start as they save
_EXECUTION_COST_INSTRUCTIONS = 10_000  # least time of an executed launch, as so many instructions only walked
_BATCHES_PER_WORKER = 8  # so that workers with unequal batches still end at about the same time


class KernelTask(msgspec.Struct, frozen=True, eq=False):
    """A kernel and the GPUs that it is put on."""

    loaded: LoadedKernel
    gpus: tuple[Gpu, ...]
    input_folder: Path | None = None  # None for standard input


class TaskResults(msgspec.Struct, frozen=True):
    """Report entries of some kernels in their order."""

    reports: tuple[KernelReport, ...]
    used_trip_rules: frozenset[TripCountRule]  # the user's rules that fit some loop of them


class KernelTaskRunner:
    """Runs tasks, those of each table of forms with a `KernelAnalyzer` of its own."""

    def __init__(
        self, tasks: Sequence[KernelTask], options: Options, progress: ProgressCallback = ignore_progress
    ) -> None:
        self.tasks, self.options = tasks, options
        self.steps = StepProgress(progress, sum(max(1, len(task.gpus)) for task in tasks))
        # By table of forms, for what a form costs is computed once: PTX for two architectures has two tables,
        # and the cubins of a folder may share one.
        self.analyzers: dict[int, KernelAnalyzer] = {}
        self.source_files: dict[Path | None, SourceFiles] = {}

    def run(self) -> TaskResults:
        """Run all tasks, in as many processes as `options.jobs` and the machine allow, where that pays."""
        n_workers = min(self.options.jobs, count_forkable_cores(), len(self.tasks))
        sizes = list(map(self._estimate_instructions, self.tasks))
        if n_workers < 2 or sum(sizes) < _MIN_PARALLEL_INSTRUCTIONS:
            return self.run_batch((0, len(self.tasks)))
        batches = split_evenly(sizes, n_workers * _BATCHES_PER_WORKER)
        tell, self.steps = self.steps.callback, StepProgress()  # forks tell nothing
        tell(0, len(self.tasks), "kernels")
        parts = []
        for (_, stop), part in zip(
            batches, run_in_forks(self.run_batch, batches, n_workers, TaskResults), strict=True
        ):
            parts.append(part)
            tell(stop, len(self.tasks), "kernels")
        return TaskResults(
            tuple(report for part in parts for report in part.reports),
            frozenset(rule for part in parts for rule in part.used_trip_rules),
        )

    def run_batch(self, batch: tuple[int, int]) -> TaskResults:
        """Run the tasks [start, stop), one after another."""
        reports: list[KernelReport] = []
        for task in self.tasks[slice(*batch)]:
            table = id(task.loaded.kernel.form_table)
            kernel_analyzer = self.analyzers.get(table)
            if kernel_analyzer is None:
                kernel_analyzer = self.analyzers[table] = KernelAnalyzer(
                    self.options, len(self.tasks), self.steps
                )
            self.steps.tell(task.loaded.name)
            analyses = kernel_analyzer.analyze(task.loaded, task.gpus)
            files = self.source_files.setdefault(task.input_folder, SourceFiles(task.input_folder))
            found = [
                make_kernel_report(
                    analysis,
                    input_path=task.loaded.input_path,
                    listing=self.options.listing,
                    source_files=files,
                )
                for analysis in analyses
            ]
            if self.options.identifies:
                from analyzer.pipeline.kernel_identity import add_identities

                found = add_identities(found, analyses, task.loaded, self.options)
            reports += found
        used = frozenset(
            rule for kernel_analyzer in self.analyzers.values() for rule in kernel_analyzer.used_trip_rules
        )
        return TaskResults(tuple(reports), used)

    def _estimate_instructions(self, task: KernelTask) -> int:
        """Estimate the work of a task, in instructions of one kernel on one GPU."""
        options, n_gpus = self.options, max(1, len(task.gpus))
        executed = bool(options.launch.has_dimensions or options.launch.arguments or options.launch_table)
        return n_gpus * len(task.loaded) + executed * _EXECUTION_COST_INSTRUCTIONS
