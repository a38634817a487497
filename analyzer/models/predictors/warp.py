"""The quick model: one warp's walk, resident warps that hide its waits, and throughput bounds.

Per wave of CTAs an SM takes the longest of one warp's own time and what each resource needs for all
resident warps; waves follow each other, the last one with what is left. It needs no launch, and costs little
enough for whole dumps.
"""

from analyzer.models.base import Situation
from analyzer.models.composition import Part, compose
from analyzer.models.placement import assumed_placement
from analyzer.models.verdict import Verdict
from analyzer.models.walking import walk_situation

NAME = "warp"
_VISITS = 2  # of each loop: the second time what it carries over has mostly settled


def predict(situation: Situation) -> Verdict:
    """Cycles, stack and time of one kernel on one GPU."""
    placement = assumed_placement(situation)
    walk = walk_situation(situation, situation.weights, placement, visits=_VISITS)
    return compose(situation, NAME, walk, (Part(situation.weights, situation.demand),), placement)
