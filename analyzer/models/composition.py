"""Composition of a launch from one warp's timeline and throughput bounds, part of the code by part.

For each wave of CTAs, a part of the code takes the longest of the warps' own time and of the cycles that each
resource needs for all resident CTAs. What exceeds the warps' own time is queueing for that resource; its
cycles are attributed to the instructions that use it. L2 and DRAM are bounded over the whole launch, since
waves overlap there. Launch overhead is added at the end.

Invariant: the cycles of the stall profile sum to the predicted cycles.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.opcode_costs import PIPES
from analyzer.demand.warp_demand import WarpDemand, compute_warp_demand
from analyzer.execution.profile.work_assumption import WorkAssumption
from analyzer.ir.arrays import FloatArray
from analyzer.models.bounds import (
    DRAM_BOUND,
    L1_BOUND,
    L2_BOUND,
    LATENCY_BOUND,
    SHARED_MEMORY_BOUND,
    compute_gpu_bounds,
    compute_sm_bounds,
    count_elected_warps,
    find_throttle_stall,
)
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.launch_overhead import compute_cta_dispatch_cycles, compute_launch_overhead_cycles
from analyzer.models.miss_rates import ALL_IN_DRAM, ALL_IN_L1, MissRates, compute_memory_latency_cycles
from analyzer.models.model_result import (
    CycleRange,
    ModelResult,
    SmScaling,
    find_clock_mhz,
    make_prediction,
)
from analyzer.models.stalls import StallAccumulator, StallProfile
from analyzer.models.timeline import WarpTimeline
from analyzer.models.unknown_extremes import compute_static_work_factors, with_extreme_static_accesses
from analyzer.models.wait_causes import STALL_BY_CAUSE, WaitCause
from analyzer.models.waves import split_into_waves

LAUNCH_BOUND = "launch"


class CodePart(Struct, frozen=True, eq=False):
    """Instructions that are bounded together, by how often warps execute them."""

    execution_counts: FloatArray  # [n], of the mean warp
    demand: WarpDemand  # of the mean warp
    separate_timeline_counts: FloatArray | None = None  # [n], of the timeline's warp if it is another one

    @property
    def timeline_execution_counts(self) -> FloatArray:
        """Executions by the warp of the timeline, [n]."""
        return (
            self.execution_counts if self.separate_timeline_counts is None else self.separate_timeline_counts
        )


class _ComposedCycles(Struct, frozen=True, eq=False):
    """Cycles of the launch, its binding resource, and the cycles that each resource needs."""

    stalls: StallProfile
    bound: str
    bounds: Mapping[str, float]

    @property
    def busy_cycles(self) -> float:
        """Cycles without launch overhead."""
        return self.stalls.total_cycles - self.stalls.unattributed_cycles.get(Stall.LAUNCH, 0.0)


def compose_result(
    model_input: ModelInput,
    model: str,
    timeline: WarpTimeline | None,
    parts: tuple[CodePart, ...],
    miss_rates: MissRates,
    notes: tuple[str, ...] = (),
) -> ModelResult:
    """Return the result of a model whose cycles come from one warp's timeline and from throughput bounds.

    timeline: None where a warp never waits but in queues.
    """
    best = _compose_parts(model_input, timeline, parts, miss_rates)
    low, high = (
        _compose_extreme(model_input, timeline, parts, miss_rates, assumption)
        for assumption in (WorkAssumption.LEAST, WorkAssumption.MOST)
    )

    def predict_balanced_cycles(ctas_per_sm: int) -> float:
        balanced = replace(model_input, grid_ctas=ctas_per_sm * model_input.gpu.sm_count)
        return _compose_parts(balanced, timeline, parts, miss_rates).busy_cycles

    return ModelResult(
        model_input=model_input,
        prediction=make_prediction(
            model_input,
            model,
            best.stalls,
            bound=best.bound,
            bounds_cycles=best.bounds,
            cycle_range=CycleRange(low.stalls.total_cycles, high.stalls.total_cycles),
            miss_rates=miss_rates,
            notes=notes,
        ),
        stalls=best.stalls,
        timeline=timeline,
        sm_scaling=SmScaling(
            model_input.grid_ctas / model_input.gpu.sm_count, best.busy_cycles, predict_balanced_cycles
        ),
    )


def _compose_extreme(
    model_input: ModelInput,
    timeline: WarpTimeline | None,
    parts: tuple[CodePart, ...],
    miss_rates: MissRates,
    assumption: WorkAssumption,
) -> _ComposedCycles:
    """Compose one end of the interval: all hits or all misses; without a launch, also trips and sectors."""
    extreme = ALL_IN_L1 if assumption is WorkAssumption.LEAST else ALL_IN_DRAM
    shifted = _shift_memory_latency(model_input, timeline, miss_rates, extreme)
    if model_input.profile is None:
        model_input = with_extreme_static_accesses(model_input, assumption)
        factors = compute_static_work_factors(model_input, assumption)
        parts = tuple(_scale_part(model_input, part, factors) for part in parts)
    return _compose_parts(model_input, shifted, parts, extreme)


def _scale_part(model_input: ModelInput, part: CodePart, factors: FloatArray) -> CodePart:
    """Return a part whose instructions are executed `factors` times as often, [n]."""
    counts, separate = part.execution_counts * factors, part.separate_timeline_counts
    return CodePart(
        counts,
        compute_warp_demand(
            model_input.kernel.opcode_ids, counts, model_input.costs, model_input.access_bytes
        ),
        None if separate is None else separate * factors,
    )


def _shift_memory_latency(
    model_input: ModelInput,
    timeline: WarpTimeline | None,
    timeline_miss_rates: MissRates,
    miss_rates: MissRates,
) -> WarpTimeline | None:
    """Return the timeline for another memory latency: each long wait changes by the difference."""
    if timeline is None:
        return None
    longer = compute_memory_latency_cycles(model_input, miss_rates) - compute_memory_latency_cycles(
        model_input, timeline_miss_rates
    )
    waits = timeline.waits.copy()
    long_waits = waits[:, WaitCause.LONG_SCOREBOARD]
    waits[:, WaitCause.LONG_SCOREBOARD] = np.where(long_waits > 0, np.maximum(long_waits + longer, 0.0), 0.0)
    return WarpTimeline(waits, timeline.producers)


def _compose_parts(
    model_input: ModelInput, timeline: WarpTimeline | None, parts: tuple[CodePart, ...], miss_rates: MissRates
) -> _ComposedCycles:
    clock = find_clock_mhz(model_input)
    accumulator = StallAccumulator(len(model_input.kernel))
    bounds: dict[str, float] = {}
    excess: dict[str, float] = {}
    for part in parts:
        found = _add_part(accumulator, model_input, timeline, part, miss_rates, clock)
        for name, cycles in found.bounds.items():
            bounds[name] = bounds.get(name, 0.0) + cycles
        excess[found.bound] = excess.get(found.bound, 0.0) + found.cycles
    bound = max(excess, key=lambda name: excess[name], default=LATENCY_BOUND)
    if _add_launch_cycles(accumulator, model_input, clock):
        bound = LAUNCH_BOUND
    return _ComposedCycles(accumulator.build_profile(), bound, bounds)


class _PartCycles(Struct, frozen=True):
    """Cycles of one part in all waves, and the resource that bounds it."""

    cycles: float
    bound: str
    bounds: Mapping[str, float]


def _add_part(
    accumulator: StallAccumulator,
    model_input: ModelInput,
    timeline: WarpTimeline | None,
    part: CodePart,
    miss_rates: MissRates,
    clock: float,
) -> _PartCycles:
    """Add the cycles of one part: SMs wave by wave, L2 and DRAM over the whole launch."""
    waits = 0.0 if timeline is None else timeline.waits.sum(axis=1)
    warp_cycles = float((part.timeline_execution_counts * (1.0 + waits)).sum())
    bounds: dict[str, float] = {LATENCY_BOUND: 0.0}
    queues: dict[str, float] = {}
    waves, elected = split_into_waves(model_input), count_elected_warps(model_input)
    for wave in waves:
        local = compute_sm_bounds(model_input, wave.max_ctas_per_sm, miss_rates, part.demand, elected)
        name = max(local, key=lambda which: local[which], default=LATENCY_BOUND)
        longer = max(0.0, local.get(name, 0.0) - warp_cycles) * wave.n_waves
        queues[name] = queues.get(name, 0.0) + longer
        for key, cycles in {**local, LATENCY_BOUND: warp_cycles}.items():
            bounds[key] = bounds.get(key, 0.0) + cycles * wave.n_waves
    shared = compute_gpu_bounds(model_input, model_input.grid_ctas, miss_rates, clock, part.demand)
    name = max(shared, key=lambda which: shared[which], default=LATENCY_BOUND)
    n_waves = sum(wave.n_waves for wave in waves)
    beyond = shared.get(name, 0.0) - warp_cycles * n_waves
    if beyond > sum(queues.values()):
        queues = {name: beyond}
    for which, cycles in queues.items():
        _add_queue_cycles(accumulator, model_input, part, which, cycles)
    _add_timeline(accumulator, timeline, part.timeline_execution_counts * n_waves)
    bounds |= {key: max(cycles, bounds.get(key, 0.0)) for key, cycles in shared.items()}
    return _PartCycles(warp_cycles * n_waves + sum(queues.values()), _find_binding_resource(queues), bounds)


def _find_binding_resource(queues: dict[str, float]) -> str:
    """Return the resource with the longest queue, or the warps' own time without any queue."""
    name = max(queues, key=lambda which: queues[which], default=LATENCY_BOUND)
    return name if queues.get(name, 0.0) > 0 else LATENCY_BOUND


def _add_timeline(accumulator: StallAccumulator, timeline: WarpTimeline | None, weights: FloatArray) -> None:
    accumulator.add_row_cycles(Stall.SELECTED, weights)
    if timeline is None:
        return
    for cause, stall in STALL_BY_CAUSE.items():
        accumulator.add_row_cycles(stall, weights * timeline.waits[:, cause])


def _add_queue_cycles(
    accumulator: StallAccumulator, model_input: ModelInput, part: CodePart, name: str, cycles: float
) -> None:
    """Add cycles of queueing for a resource to the instructions that use it."""
    if cycles > 0:
        accumulator.distribute_cycles(
            find_throttle_stall(name), cycles, _compute_resource_use(model_input, name, part.execution_counts)
        )


def _compute_resource_use(model_input: ModelInput, bound: str, weights: FloatArray) -> FloatArray:
    """Return how much each instruction uses the resource that bounds the part, [n]."""
    ids = model_input.kernel.opcode_ids
    names = np.array([pipe.value == bound for pipe in PIPES])
    if names.any():
        cycles = model_input.costs.issue_cycles[ids] * model_input.access_bytes.constant_passes
        used: FloatArray = weights * cycles * names[model_input.costs.pipe[ids]]
        return used
    moved = model_input.access_bytes
    by_bytes = {SHARED_MEMORY_BOUND: moved.shared_bytes, L1_BOUND: moved.global_bytes + moved.local_bytes}
    by_bytes |= {L2_BOUND: moved.global_bytes, DRAM_BOUND: moved.global_bytes}
    return weights * by_bytes[bound] if bound in by_bytes else weights


def _add_launch_cycles(accumulator: StallAccumulator, model_input: ModelInput, clock: float) -> bool:
    """Add launch overhead, and the cycles that dispatching the CTAs takes beyond running them.

    Returns whether the launch bounds the kernel.
    """

    busy_cycles = float(accumulator.cycles.sum()) + sum(accumulator.unattributed_cycles.values())
    overhead = compute_launch_overhead_cycles(model_input, clock)
    dispatch_excess_cycles = compute_cta_dispatch_cycles(model_input, clock) - busy_cycles
    accumulator.add_unattributed_cycles(Stall.LAUNCH, overhead + max(0.0, dispatch_excess_cycles))
    return dispatch_excess_cycles > 0 or overhead > busy_cycles / 2
