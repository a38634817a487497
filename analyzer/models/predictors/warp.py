"""The quick model: one warp's walk, resident warps that hide its waits, and throughput bounds.

Per wave of CTAs an SM takes the longest of one warp's own time and what each resource needs for all
resident warps; waves follow each other, the last one with what is left. It needs no launch, and costs little
enough for whole dumps.
"""

from analyzer.models.base import Situation
from analyzer.models.composition import Part, compose
from analyzer.models.placement import assumed_placement, load_latencies, memory_latency_cycles
from analyzer.models.verdict import Verdict
from analyzer.models.walk import WalkOptions, walk_warps

NAME = "warp"


def predict(situation: Situation) -> Verdict:
    """Cycles, stack and time of one kernel on one GPU."""
    placement = assumed_placement(situation)
    walk = walk_warps(
        situation.kernel,
        situation.cfg,
        situation.nest,
        situation.costs,
        WalkOptions(
            weights=situation.weights,
            memory_latency_cycles=memory_latency_cycles(situation, placement),
            read_release_cycles=situation.arch.memory.read_release_cycles.value,
            row_latencies=load_latencies(situation),
        ),
    )
    return compose(situation, NAME, walk, (Part(situation.weights, situation.demand),), placement)
