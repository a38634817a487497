"""The roofline of the compiled code: the longest of what each resource needs, nothing waits."""

import numpy as np

from analyzer.models.composition import CodePart, compose_result
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import estimate_miss_rates
from analyzer.models.model_result import ModelResult
from analyzer.models.timeline import WarpTimeline
from analyzer.models.wait_causes import N_WAIT_CAUSES

NAME = "roofline"


def predict(model_input: ModelInput) -> ModelResult:
    """Issue slots, pipes and bytes per memory level; a warp never stalls but in queues."""
    n = len(model_input.kernel)
    idle = WarpTimeline(np.zeros((n, N_WAIT_CAUSES)), np.full(n, -1, dtype=np.int32))
    parts = (CodePart(model_input.execution_counts, model_input.demand),)
    return compose_result(model_input, NAME, idle, parts, estimate_miss_rates(model_input))
