"""Timelines of a model input: the options that all models set in the same way."""

from msgspec.structs import replace

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.ir.arrays import FloatArray
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import (
    MissRates,
    compute_load_latencies,
    compute_memory_latency_cycles,
    estimate_miss_rates,
)
from analyzer.models.timeline import MAX_LOOP_ITERATIONS, TimelineOptions, WarpTimeline, simulate_warp_issue


def build_warp_timeline(
    model_input: ModelInput,
    weights: FloatArray,
    miss_rates: MissRates,
    *,
    costs: OpcodeCosts | None = None,
    n_lockstep_warps: int = 1,
    max_loop_iterations: int = MAX_LOOP_ITERATIONS,
) -> WarpTimeline:
    """Build the timeline of a warp that runs each instruction weights[n] times.

    Loads whose hits were simulated have their own latency, unless `miss_rates` is not the estimated one but
    an extreme.
    costs: those of the input if None.
    n_lockstep_warps, max_loop_iterations: see `TimelineOptions`.
    """
    options = make_timeline_options(model_input, weights, miss_rates)
    if miss_rates != estimate_miss_rates(model_input):
        options = replace(options, row_latencies={})
    options = replace(options, n_lockstep_warps=n_lockstep_warps, max_loop_iterations=max_loop_iterations)
    return simulate_warp_issue(
        model_input.cfg,
        model_input.loop_forest,
        costs or model_input.costs,
        model_input.control_codes,
        options,
    )


def make_timeline_options(
    model_input: ModelInput, weights: FloatArray, miss_rates: MissRates, *, cold_share: float = 1.0
) -> TimelineOptions:
    """Return options with the latencies of an input's memory instructions.

    cold_share: part of the sectors from DRAM that the launch before has not left in the L2.
    """
    cold_miss_rates = miss_rates.with_scaled_dram_share(cold_share)
    return TimelineOptions(
        execution_counts=weights,
        memory_latency_cycles=compute_memory_latency_cycles(model_input, cold_miss_rates),
        read_release_cycles=model_input.arch.memory.read_release_cycles.value,
        row_latencies=compute_load_latencies(model_input, cold_share),
        constant_passes=model_input.access_bytes.constant_passes,
    )
