"""Analysis of one kernel on any number of GPUs: counts, demand, predictions."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from analyzer.demand.opcode_costs import OpcodeCosts, build_opcode_costs
from analyzer.demand.register_count import add_register_count
from analyzer.execution.machine.budget import DEFAULT_STEP_LIMIT
from analyzer.execution.profile.cta_boxes import CtaBox
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.profile.work_assumption import WorkAssumption
from analyzer.execution.static_counts.block_counts import TripCountRule, count_block_executions
from analyzer.execution.static_counts.profile_counts import make_block_counts
from analyzer.hardware.gpu import Gpu
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.module import Kernel
from analyzer.pipeline.further_analyses import add_further_analyses
from analyzer.pipeline.gpu_binding import CountedLaunch
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.pipeline.model_runs import run_on_gpu
from analyzer.pipeline.options import Options
from analyzer.pipeline.unknown_ranges import UnknownRange, find_unknown_range
from analyzer.report.input_entries import KernelFacts
from analyzer.report.kernel_analysis import GpuResult, KernelAnalysis
from analyzer.text.demangling import demangle
from analyzer.text.progress import StepProgress

if TYPE_CHECKING:  # execution is loaded where a launch is known
    from analyzer.pipeline.launch_execution import ExecutedLaunch
    from analyzer.traffic.cache_experiment import CacheExperiment

_MIN_STEPS_PER_KERNEL = 200
_EXTREME_BUDGET_DIVISOR = 10  # part of a kernel's steps for each end of its interval


class KernelAnalyzer:
    """Analyzer of the kernels of one module, whose opcodes' costs are computed once per GPU."""

    def __init__(self, options: Options, n_kernels: int = 1, steps: StepProgress | None = None) -> None:
        """Prepare for a kernel among `n_kernels`; each of them on each GPU is a step."""
        self.options, self.steps = options, steps or StepProgress()
        self._costs_by_gpu: dict[str, OpcodeCosts] = {}
        self.used_trip_rules: set[TripCountRule] = set()
        self.n_kernels = max(1, n_kernels)
        self.n_sharing = self.n_kernels if options.shares_steps else 1  # kernels that share limits of work

    def analyze(self, loaded: LoadedKernel, gpus: tuple[Gpu, ...]) -> tuple[KernelAnalysis, ...]:
        """Return one analysis for each launch of the kernel."""
        return tuple(self._analyze_launch(counted, gpus) for counted in self.count_launches(loaded))

    def count_launches(self, loaded: LoadedKernel) -> Iterator[CountedLaunch]:
        """Yield the counts of each launch: from traces, by abstract execution, else by static rules."""
        loaded = replace(loaded, kernel=add_register_count(loaded.kernel))
        options = replace(self.options, assumes_launch=False) if loaded.traces else self.options
        launches = find_launches(loaded.kernel, options)
        if loaded.traces:
            from analyzer.pipeline.trace_matching import make_traced_launch

            for trace in loaded.traces:
                run = make_traced_launch(loaded, trace, launches[0])
                yield self._make_counted_launch(run.loaded, run.launch, run.executed)
            return
        for launch in launches:
            yield self._make_counted_launch(loaded, launch, self._execute(loaded, launch))

    def execute_roughly(self, loaded: LoadedKernel) -> None:
        """Execute some CTAs of each launch of a kernel. Raises UsageError where one would fault."""
        for launch in () if loaded.traces else find_launches(loaded.kernel, self.options):
            self._execute(loaded, launch, rough_boxes=())

    def _execute(
        self,
        loaded: LoadedKernel,
        launch: Launch,
        assumption: WorkAssumption = WorkAssumption.LIKELY,
        rough_boxes: tuple[CtaBox, ...] | None = None,
    ) -> "ExecutedLaunch | None":
        """Execute a launch; None where it is not known, or needs more than a kernel's share of the steps."""
        if not launch.arguments and not launch.has_dimensions:
            return None
        from analyzer.pipeline.launch_execution import execute_kernel, explain_shared_arguments

        limit = self.options.step_limit or max(_MIN_STEPS_PER_KERNEL, DEFAULT_STEP_LIMIT // self.n_sharing)
        if assumption is not WorkAssumption.LIKELY:
            limit = max(_MIN_STEPS_PER_KERNEL, limit // _EXTREME_BUDGET_DIVISOR)
        work = "" if assumption is WorkAssumption.LIKELY else f" with the {assumption.value} work"
        self.steps.tell(f"executing {demangle(loaded.name)}{work}")
        with explain_shared_arguments(self.n_kernels if launch.arguments else 1):
            found = execute_kernel(
                loaded,
                launch,
                trips=self.options.trip_rules,
                taken=self.options.branch_rules,
                step_limit=limit,
                assumption=assumption,
                rough_boxes=rough_boxes,
            )
        is_cut = found is not None and found.profile.provenance is Provenance.UNKNOWN
        return None if is_cut and self.n_sharing > 1 and not self.options.step_limit else found

    def _make_counted_launch(
        self, loaded: LoadedKernel, launch: Launch, executed: "ExecutedLaunch | None"
    ) -> CountedLaunch:
        cfg, loop_forest = loaded.cfg, loaded.loops
        if executed is None:
            counts = count_block_executions(cfg, loop_forest, self.options.trip_rules)
        else:
            counts = make_block_counts(executed.profile, cfg, loop_forest)
            self.used_trip_rules |= executed.used_trip_rules
        self.used_trip_rules.update(trip.rule for trip in counts.trips if trip.rule)
        return CountedLaunch(
            loaded=loaded,
            launch=launch,
            counts=counts,
            profile=executed.profile if executed else None,
            cache_experiment=None if executed is None else self._make_cache_experiment(executed),
        )

    def _make_cache_experiment(self, executed: "ExecutedLaunch") -> "CacheExperiment | None":
        """Return the simulation of the caches of an executed kernel."""
        if executed.prepared is None:
            return None
        from analyzer.traffic.cache_experiment import CacheExperiment

        options = self.options
        return CacheExperiment(
            prepared=executed.prepared,
            profile=executed.profile,
            memory_log=executed.memory_log,
            mbarrier_recorder=executed.mbarrier_recorder,
            n_kernels=self.n_sharing,
            trip_rules=options.trip_rules,
            branch_rules=options.branch_rules,
        )

    def _find_unknown_range(self, counted: CountedLaunch) -> UnknownRange | None:
        """Return the least and the most work of an executed launch; None where all that matters is known."""
        if self.options.is_brief:
            return None

        def count_work(assumption: WorkAssumption) -> CountedLaunch | None:
            boxes = () if counted.profile is None else counted.profile.cta_boxes
            executed = self._execute(counted.loaded, counted.launch, assumption, boxes)
            if executed is None or executed.profile.provenance is Provenance.UNKNOWN:
                return None
            found = self._make_counted_launch(counted.loaded, counted.launch, executed)
            return replace(found, cache_experiment=counted.cache_experiment)

        return find_unknown_range(counted, count_work)

    def _analyze_launch(self, counted: CountedLaunch, gpus: tuple[Gpu, ...]) -> KernelAnalysis:
        loaded, unknown_range = counted.loaded, self._find_unknown_range(counted)
        analysis = KernelAnalysis(
            kernel=loaded.kernel,
            ordinal=loaded.ordinal,
            cfg=loaded.cfg,
            loop_forest=loaded.loops,
            counts=counted.counts,
            profile=counted.profile,
            mix=loaded.mix,
            launch=counted.launch,
            results=tuple(result for gpu in gpus for result in self._run_models(counted, gpu, unknown_range)),
            loops=(),
            findings=(),
        )
        return add_further_analyses(analysis, counted, self.options, self.n_kernels, self.steps.tell)

    def _run_models(
        self, counted: CountedLaunch, gpu: Gpu, unknown_range: UnknownRange | None
    ) -> tuple[GpuResult, ...]:
        """Return one result for each model, or one refusal if the kernel does not run on the GPU."""
        self.steps.begin(f"{demangle(counted.loaded.name)} on {gpu.name}")
        costs = self._find_costs(gpu, counted.loaded.kernel)
        widen = None if unknown_range is None else partial(unknown_range.widen, gpu=gpu, costs=costs)
        return run_on_gpu(counted, gpu, costs, self.options, widen)

    def _find_costs(self, gpu: Gpu, kernel: Kernel) -> OpcodeCosts | None:
        if gpu.arch is not None and gpu.key not in self._costs_by_gpu:
            self._costs_by_gpu[gpu.key] = build_opcode_costs(kernel.form_table, gpu, gpu.arch)
        return self._costs_by_gpu.get(gpu.key)


def find_launches(kernel: Kernel, options: Options) -> tuple[Launch, ...]:
    """Return the launches of a kernel; what was not given is taken from metadata, and assumed on request."""
    launches = tuple(
        _complete_from_metadata(launch, kernel) for launch in find_given_launches(kernel, options)
    )
    if not options.assumes_launch:
        return launches
    from analyzer.pipeline.assumed_launch import assume_launch

    return tuple(assume_launch(kernel, launch) for launch in launches)


def find_given_launches(kernel: Kernel | KernelFacts, options: Options) -> tuple[Launch, ...]:
    """Return the launches of the launch file if it names the kernel, else the one of the options."""
    table = options.launch_table
    if table is None:
        return (options.launch,)
    found = table.find_launches(kernel.name, demangle(kernel.name), kernel_hash=kernel.triton_hash)
    return found or (options.launch,)


def _complete_from_metadata(launch: Launch, kernel: Kernel) -> Launch:
    """Return the launch with what the user leaves open taken from the metadata of the code."""
    resources = kernel.resources
    block, dynamic = launch.block, launch.dynamic_shared_bytes
    if block is None and resources.block_threads is not None and resources.has_exact_block_threads:
        block = Dim3(resources.block_threads)
    if dynamic is None:
        dynamic = resources.dynamic_shared_bytes
    return replace(launch, block=block, dynamic_shared_bytes=dynamic)
