"""Kernels that were read, analyzed one by one in this process, or shared among its forks.

Kernels are independent once a dump is read, so each is a task; several tasks make a batch for a fork, which
inherits what was read.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.hardware.gpu import Gpu
from analyzer.pipeline.analysis_plan import estimate_instructions, split_evenly
from analyzer.pipeline.entry_store import EntryStore
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.kernel_cache import KernelResult
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.pipeline.options import Options
from analyzer.report.kernel_entries import make_kernel_report
from analyzer.text.progress import ProgressCallback, StepProgress, ignore_progress
from analyzer.text.source_files import SourceFiles
from analyzer.worker_pool import count_workers, run_in_forks

_MIN_PARALLEL_INSTRUCTIONS = 50_000  # below, processes take as long to start as they save
# To look for a launch that faults before all the work: of each kernel, and so many kernels.
_STEPS_TO_LOOK_FOR_FAULTS = 500
_MOST_KERNELS_TO_LOOK_AT = 32
_BATCHES_PER_WORKER = 8  # so that workers with unequal batches still end at about the same time

Results = tuple[KernelResult, ...]


class KernelTask(Struct, frozen=True, eq=False):
    """A kernel and the GPUs that it is put on."""

    loaded: LoadedKernel
    gpus: tuple[Gpu, ...]
    cache_key: str = ""  # under which its result is kept; "": nowhere


class KernelRunner:
    """Runs tasks, those of each table of forms with a `KernelAnalyzer` of its own.

    n_kernels: that share the limits of work, the tasks if None.
    store: keeps each result as soon as there is one, so that what was done is not lost with a process.
    """

    def __init__(
        self,
        tasks: Sequence[KernelTask],
        options: Options,
        progress: ProgressCallback = ignore_progress,
        *,
        n_kernels: int | None = None,
        store: EntryStore | None = None,
    ) -> None:
        self.tasks, self.options, self.store = tasks, options, store
        self.n_kernels = len(tasks) if n_kernels is None else n_kernels
        self.steps = StepProgress(progress, sum(max(1, len(task.gpus)) for task in tasks))
        # By table of forms, for what a form costs is computed once: PTX for two architectures has two tables,
        # and the cubins of a folder may share one.
        self.analyzers: dict[int, KernelAnalyzer] = {}
        self.source_files: dict[Path | None, SourceFiles] = {}  # by folder of the input; None: standard input

    def run(self) -> Results:
        """Run all tasks, in as many processes as `options.jobs` and the machine allow, where that pays."""
        self._look_for_faults()
        n_workers = count_workers(self.options.jobs, len(self.tasks))
        sizes = [estimate_instructions(self.options, len(task.loaded), len(task.gpus)) for task in self.tasks]
        if n_workers < 2 or sum(sizes) < _MIN_PARALLEL_INSTRUCTIONS:
            return self.run_batch((0, len(self.tasks)))
        batches = split_evenly(sizes, n_workers * _BATCHES_PER_WORKER)
        tell, self.steps = self.steps.callback, StepProgress()  # forks tell nothing
        tell(0, len(self.tasks), "kernels")
        results: list[KernelResult] = []
        for _, part in run_in_forks(self.run_batch, batches, n_workers, Results):
            results += part
            tell(len(results), len(self.tasks), "kernels")
        return tuple(results)

    def _look_for_faults(self) -> None:
        """Execute the first steps of all launches where arguments go to several kernels.

        One that faults refuses them all, which should not be said after the work on those before it. Raises
        UsageError.
        """
        if len(self.tasks) < 2 or not self.options.launch.arguments:
            return
        looking = KernelAnalyzer(replace(self.options, step_limit=_STEPS_TO_LOOK_FOR_FAULTS), len(self.tasks))
        for task in self.tasks[:_MOST_KERNELS_TO_LOOK_AT]:
            looking.execute_roughly(task.loaded)

    def run_batch(self, batch: tuple[int, int]) -> Results:
        """Run the tasks [start, stop), one after another."""
        return tuple(map(self._run_task, self.tasks[slice(*batch)]))

    def _run_task(self, task: KernelTask) -> KernelResult:
        table = id(task.loaded.kernel.form_table)
        kernel_analyzer = self.analyzers.get(table)
        if kernel_analyzer is None:
            kernel_analyzer = self.analyzers[table] = KernelAnalyzer(self.options, self.n_kernels, self.steps)
        kernel_analyzer.used_trip_rules.clear()
        self.steps.tell(task.loaded.name)
        input_path = Path(task.loaded.input_path)
        folder = input_path.parent if input_path.is_file() else None
        files = self.source_files.setdefault(folder, SourceFiles(folder))
        analyses = kernel_analyzer.analyze(task.loaded, task.gpus)
        reports = tuple(
            make_kernel_report(
                analysis,
                input_path=task.loaded.input_path,
                listing=self.options.listing,
                source_files=files,
                measures_tail=not self.options.is_brief,
            )
            for analysis in analyses
        )
        if self.options.identifies:
            from analyzer.pipeline.kernel_identity import add_identities

            reports = add_identities(reports, analyses, task.loaded, self.options)
        used = kernel_analyzer.used_trip_rules
        result = KernelResult(reports, tuple(rule for rule in self.options.trip_rules if rule in used))
        if self.store is not None:
            self.store.keep(task.cache_key, result)
        return result
