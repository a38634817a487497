"""One kernel on any number of GPUs: flow, counts, demand, verdicts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.demand.costs import OpcodeCosts, opcode_costs
from analyzer.demand.registers import with_registers
from analyzer.execution.budget import STEP_LIMIT
from analyzer.execution.counts import TripRule, count_blocks
from analyzer.execution.provenance import Provenance
from analyzer.execution.rules import TakenRule
from analyzer.hardware.gpu import Gpu
from analyzer.ir.launch import Dim3, Launch, LaunchBook
from analyzer.ir.program import Kernel
from analyzer.models.advice import find_advice
from analyzer.models.loops import judge_loops
from analyzer.models.portability import is_native
from analyzer.models.registry import default_model, find_model, second_model
from analyzer.models.verdict import Verdict
from analyzer.pipeline.program import LoadedKernel
from analyzer.pipeline.situations import Counted, Refused, put_on
from analyzer.report.analysis import GpuVerdict, KernelAnalysis
from analyzer.report.demangle import demangle

if TYPE_CHECKING:  # execution is loaded where a launch is known
    from analyzer.pipeline.caching import CacheLab
    from analyzer.pipeline.executing import Executed

_LEAST_STEPS = 200


class Options(Struct, frozen=True, kw_only=True):
    """How to analyze: `kernels` are globs or parts of names, all where empty; `listing` adds instructions.

    models: names, the first one for loops, listing and advice; the default where empty. explain: ask a second
    one where only one is named, so that they can be compared.
    step_limit: of the abstract execution of each kernel; None shares a few seconds' worth among all.
    jobs: processes that share the kernels of big inputs. Forks of a program that has threads may hang, so one
    unless the caller knows that it has none.
    """

    kernels: tuple[str, ...] = ()
    trips: tuple[TripRule, ...] = ()
    launch: Launch = field(default_factory=Launch)
    launch_book: LaunchBook | None = None
    taken: tuple[TakenRule, ...] = ()
    listing: bool = False
    min_coverage: float = 0.0
    models: tuple[str, ...] = ()
    explain: bool = False
    step_limit: int | None = None
    jobs: int = 1


class Analyst:
    """Analyzes the kernels of one module, whose opcodes' costs are worked out once per GPU."""

    def __init__(self, options: Options, n_kernels: int = 1) -> None:
        self.options = options
        self._costs: dict[str, OpcodeCosts] = {}
        self.used: set[TripRule] = set()
        self.n_kernels = max(1, n_kernels)

    def analyze(self, loaded: LoadedKernel, gpus: tuple[Gpu, ...]) -> tuple[KernelAnalysis, ...]:
        """One analysis for each launch that the kernel has."""
        return tuple(self._analyze(counted, gpus) for counted in self.count(loaded))

    def count(self, loaded: LoadedKernel) -> Iterator[Counted]:
        """What each launch of a kernel executes: from traces, by execution, else by static guesses."""
        loaded = replace(loaded, kernel=with_registers(loaded.kernel))
        launches = launches_of(loaded.kernel, self.options)
        if loaded.traces:
            from analyzer.pipeline.traced import run_traced

            for trace in loaded.traces:
                run = run_traced(loaded, trace, launches[0])
                yield self._count(run.loaded, run.launch, run.executed)
            return
        for launch in launches:
            yield self._count(loaded, launch, self._execute(loaded, launch))

    def _execute(self, loaded: LoadedKernel, launch: Launch) -> "Executed | None":
        """Of many kernels each gets its share of the steps; one that needs more has static counts."""
        if not launch.arguments and not launch.has_dimensions:
            return None
        from analyzer.pipeline.executing import execute_kernel

        limit = self.options.step_limit or max(_LEAST_STEPS, STEP_LIMIT // self.n_kernels)
        found = execute_kernel(
            loaded, launch, trips=self.options.trips, taken=self.options.taken, step_limit=limit
        )
        is_cut = found is not None and found.profile.provenance is Provenance.UNKNOWN
        return None if is_cut and self.n_kernels > 1 and not self.options.step_limit else found

    def _count(self, loaded: LoadedKernel, launch: Launch, executed: "Executed | None") -> Counted:
        cfg, nest = loaded.cfg, loaded.loops
        if executed is None:
            counts = count_blocks(cfg, nest, self.options.trips)
        else:
            from analyzer.pipeline.executing import counts_of

            counts = counts_of(executed, cfg, nest)
            self.used |= executed.used
        self.used.update(trip.rule for trip in counts.trips if trip.rule)
        return Counted(
            loaded=loaded,
            launch=launch,
            counts=counts,
            profile=executed.profile if executed else None,
            caches=None if executed is None else self._lab(executed),
        )

    def _lab(self, executed: "Executed") -> "CacheLab | None":
        """What simulates the caches of an executed kernel."""
        if executed.ready is None:
            return None
        from analyzer.pipeline.caching import CacheLab

        options = self.options
        return CacheLab(
            ready=executed.ready,
            profile=executed.profile,
            log=executed.log,
            ears=executed.ears,
            n_kernels=self.n_kernels,
            trips=options.trips,
            taken=options.taken,
        )

    def _analyze(self, counted: Counted, gpus: tuple[Gpu, ...]) -> KernelAnalysis:
        loaded = counted.loaded
        analysis = KernelAnalysis(
            kernel=loaded.kernel,
            ordinal=loaded.ordinal,
            cfg=loaded.cfg,
            nest=loaded.loops,
            counts=counted.counts,
            profile=counted.profile,
            mix=loaded.mix,
            launch=counted.launch,
            verdicts=tuple(verdict for gpu in gpus for verdict in self._verdicts(counted, gpu)),
            loops=(),
            findings=(),
        )
        first = analysis.first
        if first is None:
            return analysis
        return replace(
            analysis,
            loops=judge_loops(first.situation, first.walk),
            findings=find_advice(first.situation, first.prediction, first.walk),
        )

    def _verdicts(self, counted: Counted, gpu: Gpu) -> tuple[GpuVerdict, ...]:
        """One verdict for each model, or why there is none on this GPU."""
        situation = put_on(counted, gpu, self._costs_on(gpu, counted.loaded.kernel))
        found: list[Verdict | None] = [None]
        if not isinstance(situation, Refused):
            found = [find_model(name)(situation) for name in models_of(self.options, counted.launch)]
        return tuple(
            GpuVerdict(
                gpu=gpu.key,
                gpu_name=gpu.name,
                transferred=not is_native(counted.loaded.kernel, gpu),
                reason=situation.reason if isinstance(situation, Refused) else "",
                verdict=verdict,
            )
            for verdict in found
        )

    def _costs_on(self, gpu: Gpu, kernel: Kernel) -> OpcodeCosts | None:
        if gpu.arch is not None and gpu.key not in self._costs:
            self._costs[gpu.key] = opcode_costs(kernel.vocabulary, gpu, gpu.arch)
        return self._costs.get(gpu.key)


def models_of(options: Options, launch: Launch) -> tuple[str, ...]:
    """Names of the models to ask."""
    names = options.models or (default_model(launch_known=launch.has_dimensions),)
    return names if len(names) > 1 or not options.explain else (*names, second_model(names[0]))


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
