"""A situation's code walked: what every model that walks asks for in the same way."""

from msgspec.structs import replace

from analyzer.demand.opcode_costs import FloatArray, OpcodeCosts
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
    """Walk a warp that runs each instruction weights[n] times, loads served as `miss_rates` says.

    Loads whose hits were simulated take their own latency, unless the placement is a supposed one. costs:
    those of the situation where not given; warps, visits: see `TimelineOptions`.
    """
    options = make_timeline_options(model_input, weights, miss_rates)
    if miss_rates != estimate_miss_rates(model_input):
        options = replace(options, row_latencies={})
    options = replace(options, n_lockstep_warps=n_lockstep_warps, max_loop_iterations=max_loop_iterations)
    return simulate_warp_issue(
        model_input.kernel, model_input.cfg, model_input.loop_forest, costs or model_input.costs, options
    )


def make_timeline_options(
    model_input: ModelInput, weights: FloatArray, miss_rates: MissRates, *, cold_share: float = 1.0
) -> TimelineOptions:
    """Latencies of a situation's memory instructions: of each load whose hits were simulated, else of all.

    lost_share: of what would come from DRAM, the part that the last launch has not left in the L2.
    """
    cold_miss_rates = MissRates(miss_rates.l1_miss_rate, miss_rates.dram_share * cold_share)
    return TimelineOptions(
        execution_counts=weights,
        memory_latency_cycles=compute_memory_latency_cycles(model_input, cold_miss_rates),
        read_release_cycles=model_input.arch.memory.read_release_cycles.value,
        row_latencies=compute_load_latencies(model_input, cold_share),
    )
