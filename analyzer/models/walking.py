"""A situation's code walked: what every model that walks asks for in the same way."""

from msgspec.structs import replace

from analyzer.demand.costs import FloatArray, OpcodeCosts
from analyzer.models.base import Situation
from analyzer.models.placement import (
    Placement,
    assumed_placement,
    load_latencies,
    memory_latency_cycles,
)
from analyzer.models.walk import SETTLING_VISITS, WalkOptions, WarpWalk, walk_warps


def walk_situation(
    situation: Situation,
    weights: FloatArray,
    placement: Placement,
    *,
    costs: OpcodeCosts | None = None,
    warps: int = 1,
    visits: int = SETTLING_VISITS,
) -> WarpWalk:
    """Walk a warp that runs each instruction weights[n] times, loads served as `placement` says.

    Loads whose hits were simulated take their own latency, unless the placement is a supposed one. costs:
    those of the situation where not given; warps, visits: see `WalkOptions`.
    """
    options = walk_options(situation, weights, placement)
    if placement != assumed_placement(situation):
        options = replace(options, row_latencies={})
    options = replace(options, warps=warps, visits=visits)
    return walk_warps(situation.kernel, situation.cfg, situation.nest, costs or situation.costs, options)


def walk_options(
    situation: Situation, weights: FloatArray, placement: Placement, *, lost_share: float = 1.0
) -> WalkOptions:
    """Latencies of a situation's memory instructions: of each load whose hits were simulated, else of all.

    lost_share: of what would come from DRAM, the part that the last launch has not left in the L2.
    """
    placed = Placement(placement.l2_share, placement.dram_share * lost_share)
    return WalkOptions(
        weights=weights,
        memory_latency_cycles=memory_latency_cycles(situation, placed),
        read_release_cycles=situation.arch.memory.read_release_cycles.value,
        row_latencies=load_latencies(situation, lost_share),
    )
