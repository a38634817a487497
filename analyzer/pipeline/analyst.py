"""One kernel on any number of GPUs: flow, counts, demand, verdicts."""

from dataclasses import dataclass, field, replace

from analyzer.demand.accesses import access_bytes
from analyzer.demand.costs import OpcodeCosts, opcode_costs
from analyzer.demand.demand import instruction_weights, measure_demand
from analyzer.demand.registers import with_registers
from analyzer.demand.tiles import with_known_tiles
from analyzer.execution.budget import STEP_LIMIT
from analyzer.execution.counts import BlockCounts, TripRule, count_blocks
from analyzer.execution.profile import ExecutionProfile
from analyzer.execution.provenance import Provenance
from analyzer.execution.rules import TakenRule
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import Occupancy, occupancy
from analyzer.hardware.schema import Arch
from analyzer.ir.launch import Dim3, Launch, LaunchBook
from analyzer.ir.program import Kernel
from analyzer.models.advice import find_advice
from analyzer.models.base import Situation
from analyzer.models.loops import judge_loop
from analyzer.models.portability import is_native, missing_units
from analyzer.models.warp import predict
from analyzer.pipeline.executing import Executed, counts_of, execute_kernel
from analyzer.pipeline.program import LoadedKernel
from analyzer.pipeline.traced import run_traced
from analyzer.report.analysis import GpuVerdict, KernelAnalysis
from analyzer.report.demangle import demangle

ASSUMED_BLOCK_THREADS = 256
_LEAST_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to analyze: `kernels` are globs or parts of names, all where empty; `listing` adds instructions.

    step_limit: of the abstract execution of each kernel; None shares a few seconds' worth among all.
    """

    kernels: tuple[str, ...] = ()
    trips: tuple[TripRule, ...] = ()
    launch: Launch = field(default_factory=Launch)
    launch_book: LaunchBook | None = None
    taken: tuple[TakenRule, ...] = ()
    listing: bool = False
    min_coverage: float = 0.0
    step_limit: int | None = None


class Analyst:
    """Analyzes the kernels of one module, whose opcodes' costs are worked out once per GPU."""

    def __init__(self, options: Options, n_kernels: int = 1) -> None:
        self.options = options
        self._costs: dict[str, OpcodeCosts] = {}
        self.used: set[TripRule] = set()
        self.n_kernels = max(1, n_kernels)

    def analyze(self, loaded: LoadedKernel, gpus: tuple[Gpu, ...]) -> tuple[KernelAnalysis, ...]:
        """One analysis for each launch that the kernel has."""
        loaded = replace(loaded, kernel=with_registers(loaded.kernel))
        launches = launches_of(loaded.kernel, self.options)
        if loaded.traces:
            runs = (run_traced(loaded, trace, launches[0]) for trace in loaded.traces)
            return tuple(self._analyze(run.loaded, run.launch, gpus, run.executed) for run in runs)
        pairs = zip(launches, (self._execute(loaded, one) for one in launches), strict=True)
        return tuple(self._analyze(loaded, launch, gpus, executed) for launch, executed in pairs)

    def _execute(self, loaded: LoadedKernel, launch: Launch) -> Executed | None:
        """Of many kernels each gets its share of the steps; one that needs more has static counts."""
        limit = self.options.step_limit or max(_LEAST_STEPS, STEP_LIMIT // self.n_kernels)
        found = execute_kernel(
            loaded, launch, trips=self.options.trips, taken=self.options.taken, step_limit=limit
        )
        is_cut = found is not None and found.profile.provenance is Provenance.UNKNOWN
        return None if is_cut and self.n_kernels > 1 and not self.options.step_limit else found

    def _analyze(
        self, loaded: LoadedKernel, launch: Launch, gpus: tuple[Gpu, ...], executed: Executed | None
    ) -> KernelAnalysis:
        cfg, nest = loaded.cfg, loaded.loops
        if executed is None:
            counts = count_blocks(cfg, nest, self.options.trips)
        else:
            counts = counts_of(executed, cfg, nest)
        self.used.update(trip.rule for trip in counts.trips if trip.rule)
        if executed is not None:
            self.used |= executed.used
        profile = executed.profile if executed else None
        verdicts = tuple(self._verdict(loaded, launch, counts, profile, gpu) for gpu in gpus)
        analysis = KernelAnalysis(
            kernel=loaded.kernel,
            ordinal=loaded.ordinal,
            cfg=cfg,
            nest=nest,
            counts=counts,
            profile=profile,
            mix=loaded.mix,
            launch=launch,
            verdicts=verdicts,
            loops=(),
            findings=(),
        )
        first = analysis.first
        if first is None:
            return analysis
        return replace(
            analysis,
            loops=tuple(judge_loop(first.situation, first.walk, loop) for loop in nest.loops),
            findings=find_advice(first.situation, first.prediction, first.walk),
        )

    def _verdict(
        self,
        loaded: LoadedKernel,
        launch: Launch,
        counts: BlockCounts,
        profile: ExecutionProfile | None,
        gpu: Gpu,
    ) -> GpuVerdict:
        reason, verdict = "", None
        missing = missing_units(loaded.kernel, gpu)
        if gpu.arch is None:
            reason = f"{gpu.name} has figures for operator models only"
        elif missing:
            reason = f"{gpu.name} ({gpu.file.arch}) has no {', '.join(missing)}, which the kernel needs"
        else:
            situation = self._situation(loaded, launch, counts, profile, gpu, gpu.arch)
            if situation.occupancy.ctas_per_sm:
                verdict = predict(situation)
            else:
                reason = f"a CTA does not fit on {gpu.name}: too much {situation.occupancy.limiter.value}"
        return GpuVerdict(
            gpu=gpu.key,
            gpu_name=gpu.name,
            transferred=not is_native(loaded.kernel, gpu),
            reason=reason,
            verdict=verdict,
        )

    def _situation(
        self,
        loaded: LoadedKernel,
        launch: Launch,
        counts: BlockCounts,
        profile: ExecutionProfile | None,
        gpu: Gpu,
        arch: Arch,
    ) -> Situation:
        kernel, cfg = loaded.kernel, loaded.cfg
        costs = self._costs.get(gpu.key)
        if costs is None:
            costs = self._costs[gpu.key] = opcode_costs(kernel.vocabulary, gpu, arch)
        tiled = with_known_tiles(cfg, costs)
        threads = launch.block.count if launch.block else ASSUMED_BLOCK_THREADS
        resident = _occupancy(kernel, launch, arch, threads)
        weights = instruction_weights(cfg, counts.per_warp)
        moved = access_bytes(cfg, tiled.costs, profile)
        wave = gpu.sm_count * max(1, resident.ctas_per_sm)
        return Situation(
            kernel=kernel,
            cfg=cfg,
            nest=loaded.loops,
            counts=counts,
            weights=weights,
            gpu=gpu,
            arch=arch,
            costs=tiled.costs,
            moved=moved,
            demand=measure_demand(kernel, weights, tiled.costs, moved),
            occupancy=resident,
            grid=launch.grid,
            grid_ctas=launch.grid.count if launch.grid else wave,
            block=launch.block,
            block_threads=threads,
            guessed_tiles=tiled.guessed,
        )


def launches_of(kernel: Kernel, options: Options) -> tuple[Launch, ...]:
    """Those of the launch file where it names the kernel, else the one of the command line."""
    book = options.launch_book
    found = book.launches_for(kernel.name, demangle(kernel.name)) if book else ()
    return tuple(_with_metadata(launch, kernel) for launch in found or (options.launch,))


def _with_metadata(launch: Launch, kernel: Kernel) -> Launch:
    """What the user leaves open, as metadata says it."""
    resources = kernel.resources
    block, dynamic = launch.block, launch.dynamic_shared_bytes
    if block is None and resources.block_threads is not None and resources.block_threads_exact:
        block = Dim3(resources.block_threads)
    if dynamic is None:
        dynamic = resources.dynamic_shared_bytes
    return replace(launch, block=block, dynamic_shared_bytes=dynamic)


def _occupancy(kernel: Kernel, launch: Launch, arch: Arch, threads: int) -> Occupancy:
    return occupancy(
        arch.limits,
        block_threads=threads,
        registers=kernel.resources.registers or 0,
        shared_bytes=(kernel.resources.shared_bytes or 0) + (launch.dynamic_shared_bytes or 0),
    )
