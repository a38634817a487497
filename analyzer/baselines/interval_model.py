"""AMALI's composition of a kernel's cycles (Cao et al., ISCA 2025), with options for GCoM and MDM.

C = S_I + S_IP + KLL + ID (equation 16): the stalls and issue of one warp, the contention of all resident
warps, kernel launch latency, and instruction divergence between sub-cores.

A stall of S_I is a wait for data: a result of fixed latency, a load, a barrier, a group of products. Traces
of instructions, which the papers have, know nothing else. A compiler's stall counts also space instructions
of one pipe, and its scoreboards keep registers that a store has yet to read; contention for pipes is S_IP, so
that either would be counted twice, and would cut intervals to little more than an instruction each. So only
the scoreboards of results are the compiler's; waits for fixed latencies follow from the code.

How one warp's S_I relates to the other resident warps is a matter of `WarpOverlap`; waves of CTAs follow each
other.
"""

from enum import Enum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.baselines.contention import (
    ISSUE_RATE_PER_CYCLE,
    WaveLoad,
    add_memory_contention,
    add_structural_contention,
    compute_issue_cycles,
)
from analyzer.baselines.intervals import DATA_WAIT_CAUSES, Intervals, split_into_intervals
from analyzer.baselines.launch_latency import compute_cold_miss_shares, compute_launch_latency_cycles
from analyzer.baselines.warp_selection import (
    RepresentativeWarp,
    RepresentedWarps,
    count_divergence_instructions,
    select_representative_warp,
)
from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.demand.stall_counts import compute_data_stalls
from analyzer.ir.arrays import FloatArray
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.isa.control_encoding import NO_BARRIER
from analyzer.models.bounds import LATENCY_BOUND
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.miss_rates import ALL_IN_DRAM, ALL_IN_L1, MissRates, estimate_miss_rates
from analyzer.models.model_result import CycleRange, ModelResult, find_clock_mhz, make_prediction
from analyzer.models.stalls import StallAccumulator, StallProfile
from analyzer.models.timeline import WarpTimeline
from analyzer.models.timeline_builder import build_warp_timeline
from analyzer.models.wait_causes import STALL_BY_CAUSE
from analyzer.models.waves import Wave, split_into_waves


class WarpOverlap(Enum):
    """Overlap of a warp's own stalls with the issue of the other warps of its sub-core.

    HIDDEN is the rule of GCoM's published code (yonsei-hpcp/gcom @6173342, `gto`), after GPUMech: a stall of
    s cycles hides min(s p, 1) intervals of mean length of each other warp, where p is the probability that
    a warp issues in a cycle. SUM is what AMALI's published code does (ShihengCao/AMALi @0770b0a).
    """

    LONGER = "longer"  # the longer of the two counts, for a whole wave
    HIDDEN = "hidden"  # stall by stall
    SUM = "sum"  # both add up


class MmaIntervalSource(Enum):
    """Source of the initiation interval of matrix instructions."""

    MODIFIERS = "modifiers"  # equation 25
    LANES = "lanes"  # equation 14


class IntervalOptions(Struct, frozen=True, kw_only=True):
    """Terms that a model has."""

    model_name: str
    mma_interval: MmaIntervalSource
    has_structural_contention: bool
    has_launch_latency: bool
    has_divergence: bool
    overlap: WarpOverlap
    represented: RepresentedWarps = RepresentedWarps.WORKING


class IntervalTerms(Struct, frozen=True, kw_only=True):
    """Cycles of the terms of equation 16 in the whole launch."""

    single_warp: float  # S_I
    issue: float  # issue slots of other warps beyond S_I
    structural: float  # S_ComStruct and S_MemStruct
    memory: float  # S_MSHR, S_NoC and S_DRAM
    launch: float  # KLL
    divergence: float  # ID


class _ComposedResult(Struct, frozen=True, eq=False):
    stalls: StallProfile
    terms: IntervalTerms


def predict_by_intervals(model_input: ModelInput, options: IntervalOptions) -> ModelResult:
    """Predict by interval analysis, with the terms that the options name."""
    chosen = select_representative_warp(model_input, options.represented)
    miss_rates = estimate_miss_rates(model_input)
    costs = _make_interval_costs(model_input, options)
    model_input = _keep_data_waits(model_input, costs)
    timeline = _build_timeline(model_input, chosen, costs, miss_rates)
    found = _compose_terms(model_input, options, chosen, timeline, costs, miss_rates)
    low, high = (
        _compose_terms(
            model_input, options, chosen, _build_timeline(model_input, chosen, costs, extreme), costs, extreme
        )
        for extreme in (ALL_IN_L1, ALL_IN_DRAM)
    )
    terms = found.terms
    bounds = {
        LATENCY_BOUND: terms.single_warp,
        "issue": terms.issue,
        "functional units and L1": terms.structural,
        "NoC and DRAM": terms.memory,
        "launch": terms.launch,
        "divergence": terms.divergence,
    }
    bounds = {name: cycles for name, cycles in bounds.items() if cycles > 0}
    prediction = make_prediction(
        model_input,
        options.model_name,
        found.stalls,
        bound=max(bounds, key=lambda name: bounds[name], default=LATENCY_BOUND),
        bounds_cycles=bounds,
        cycle_range=CycleRange(low.stalls.total_cycles, high.stalls.total_cycles),
        miss_rates=miss_rates,
        notes=chosen.notes,
    )
    return ModelResult(model_input=model_input, prediction=prediction, stalls=found.stalls, timeline=timeline)


def _make_interval_costs(model_input: ModelInput, options: IntervalOptions) -> OpcodeCosts:
    """Return costs with the model's matrix intervals; a matrix instruction's latency is its interval (26)."""
    costs = model_input.costs
    if options.mma_interval is MmaIntervalSource.MODIFIERS:
        is_matrix = costs.tensor_cycles > 0
        return replace(costs, latency_cycles=np.where(is_matrix, costs.tensor_cycles, costs.latency_cycles))
    arch = model_input.arch
    lanes = arch.tensor_cores_per_sm.value / arch.limits.subcores_per_sm.value
    interval = WARP_SIZE / lanes

    def by_lanes(cycles: FloatArray) -> FloatArray:
        return np.where(costs.tensor_cycles > 0, interval, cycles)

    return replace(
        costs,
        issue_cycles=by_lanes(costs.issue_cycles),
        latency_cycles=by_lanes(costs.latency_cycles),
        wgmma_cycles=np.where(costs.wgmma_cycles > 0, interval, 0.0),
    )


def _keep_data_waits(model_input: ModelInput, costs: OpcodeCosts) -> ModelInput:
    """Return the input with control codes that make a warp wait for results alone."""
    codes = model_input.control_codes
    stalls = compute_data_stalls(model_input.cfg, costs, model_input.arch)
    no_reads = np.full_like(codes.read_barrier, NO_BARRIER)
    return replace(model_input, control_codes=replace(codes, stall_cycles=stalls, read_barrier=no_reads))


def _build_timeline(
    model_input: ModelInput, chosen: RepresentativeWarp, costs: OpcodeCosts, miss_rates: MissRates
) -> WarpTimeline:
    """Build the timeline of one warp whose pipes are always free: contention for them is S_IP.

    That holds for the products of a warpgroup as well, which queue at the tensor core while the warp goes on:
    it waits for the latency of the last one (26), not for the time that all take there.
    """
    free = replace(
        costs,
        issue_cycles=np.minimum(costs.issue_cycles, 1.0),
        wgmma_cycles=np.minimum(costs.wgmma_cycles, 1.0),
    )
    return build_warp_timeline(model_input, chosen.execution_counts, miss_rates, costs=free)


def _compose_terms(
    model_input: ModelInput,
    options: IntervalOptions,
    chosen: RepresentativeWarp,
    timeline: WarpTimeline,
    costs: OpcodeCosts,
    miss_rates: MissRates,
) -> _ComposedResult:
    accumulator = StallAccumulator(len(model_input.kernel))
    clock = find_clock_mhz(model_input)
    per_row = costs.issue_cycles[model_input.kernel.opcode_ids] * model_input.access_bytes.constant_passes
    intervals = split_into_intervals(model_input, timeline, chosen.execution_counts, per_row)
    single_warp = issue = structural = memory = 0.0
    waits = timeline.waits[:, DATA_WAIT_CAUSES]
    for wave in split_into_waves(model_input, chosen.n_ctas):
        warps = float(wave.max_ctas_per_sm * model_input.occupancy.warps_per_cta)
        issued = compute_issue_cycles(model_input, intervals, warps)
        exposed = waits
        if options.overlap is WarpOverlap.HIDDEN:
            exposed = _hide_waits(waits, intervals, warps / min(warps, _count_sub_cores(model_input)))
        single_warp += _add_single_warp_cycles(accumulator, exposed, chosen.execution_counts, wave)
        slots = float(issued.uncontended @ intervals.executions)
        issue += _add_issue_slots(accumulator, options, chosen, waits, slots, wave)
        if options.has_structural_contention:
            structural += add_structural_contention(accumulator, model_input, intervals, issued, wave.n_waves)
        wave_load = WaveLoad(
            warps_per_sm=wave.n_ctas / wave.n_busy_sms * model_input.occupancy.warps_per_cta,
            n_busy_sms=wave.n_busy_sms,
            n_waves=wave.n_waves,
        )
        covered = intervals.instructions / ISSUE_RATE_PER_CYCLE
        if options.has_structural_contention:
            covered = covered + issued.contended - issued.uncontended
        memory += add_memory_contention(
            accumulator, model_input, intervals, miss_rates, clock, wave_load, covered
        )
    launch = _add_launch_latency(accumulator, model_input, clock) if options.has_launch_latency else 0.0
    divergence = _add_divergence(accumulator, model_input, chosen) if options.has_divergence else 0.0
    terms = IntervalTerms(
        single_warp=single_warp,
        issue=issue,
        structural=structural,
        memory=memory,
        launch=launch,
        divergence=divergence,
    )
    return _ComposedResult(accumulator.build_profile(), terms)


def _count_sub_cores(model_input: ModelInput) -> float:
    return float(model_input.arch.limits.subcores_per_sm.value)


def _hide_waits(waits: FloatArray, intervals: Intervals, warps_per_sub_core: float) -> FloatArray:
    """Return the part of waits [n, cause] that other warps do not hide, see `WarpOverlap.HIDDEN`."""
    of_row, executions = intervals.interval_of_row, intervals.executions
    stalls = np.bincount(of_row, weights=waits.sum(axis=1), minlength=len(executions))
    instructions = float(intervals.instructions @ executions)
    if instructions <= 0:
        return waits
    issue_probability = instructions / (instructions + float(stalls @ executions))
    mean_interval = instructions / float(executions.sum())
    hidden = np.minimum(stalls * issue_probability, 1.0) * (warps_per_sub_core - 1.0) * mean_interval
    left = np.divide(np.maximum(stalls - hidden, 0.0), stalls, out=np.zeros_like(stalls), where=stalls > 0)
    exposed: FloatArray = waits * left[of_row][:, None]
    return exposed


def _add_single_warp_cycles(
    accumulator: StallAccumulator, waits: FloatArray, weights: FloatArray, wave: Wave
) -> float:
    """Add S_I (equations 17 to 20) of equal waves, with waits for barriers and matrix groups; return it.

    waits: [n, cause], columns as in `DATA_WAIT_CAUSES`.
    """
    accumulator.add_row_cycles(Stall.SELECTED, weights / ISSUE_RATE_PER_CYCLE * wave.n_waves)
    total = float(weights.sum()) / ISSUE_RATE_PER_CYCLE * wave.n_waves
    for cause, of_cause in zip(DATA_WAIT_CAUSES, waits.T, strict=True):
        cycles = weights * of_cause * wave.n_waves
        accumulator.add_row_cycles(STALL_BY_CAUSE[cause], cycles)
        total += float(cycles.sum())
    return total


def _add_issue_slots(
    accumulator: StallAccumulator,
    options: IntervalOptions,
    chosen: RepresentativeWarp,
    waits: FloatArray,
    slots: float,
    wave: Wave,
) -> float:
    """Add the issue slots of other warps beyond the representative one's time; return their cycles."""
    own = float(chosen.execution_counts.sum()) / ISSUE_RATE_PER_CYCLE
    if options.overlap is WarpOverlap.LONGER:
        own += float(chosen.execution_counts @ waits.sum(axis=1))
    cycles = max(0.0, slots - own) * wave.n_waves
    accumulator.distribute_cycles(Stall.NOT_SELECTED, cycles, chosen.execution_counts)
    return cycles


def _add_launch_latency(accumulator: StallAccumulator, model_input: ModelInput, clock: float) -> float:
    """Add KLL as stalls of cold constant and instruction caches (equation 27); return it."""
    cycles = compute_launch_latency_cycles(model_input, clock)
    for stall, share in compute_cold_miss_shares(model_input).items():
        accumulator.add_unattributed_cycles(stall, cycles * share)
    return cycles


def _add_divergence(
    accumulator: StallAccumulator, model_input: ModelInput, chosen: RepresentativeWarp
) -> float:
    """Add ID (equation 29); return it."""
    cycles = count_divergence_instructions(model_input, chosen) / ISSUE_RATE_PER_CYCLE
    accumulator.add_unattributed_cycles(Stall.IDLE, cycles)
    return cycles
