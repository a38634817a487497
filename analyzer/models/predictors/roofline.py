"""The roofline of the compiled code: the longest of what each resource needs, nothing waits."""

import numpy as np

from analyzer.models.base import Situation
from analyzer.models.causes import N_CAUSES
from analyzer.models.composition import Part, compose
from analyzer.models.placement import assumed_placement
from analyzer.models.verdict import Verdict
from analyzer.models.walk import WarpWalk

NAME = "roofline"


def predict(situation: Situation) -> Verdict:
    """Issue slots, pipes and bytes per memory level; a warp never stalls but in queues."""
    n = len(situation.kernel)
    idle = WarpWalk(np.zeros((n, N_CAUSES)), np.full(n, -1, dtype=np.int32))
    parts = (Part(situation.weights, situation.demand),)
    return compose(situation, NAME, idle, parts, assumed_placement(situation))
