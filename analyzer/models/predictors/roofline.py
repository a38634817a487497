"""The roofline of the compiled code: the longest of the times that each resource needs; no warp waits."""

from analyzer.models.composition import CodePart, compose_result
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import estimate_miss_rates
from analyzer.models.model_result import ModelResult

NAME = "roofline"


def predict(model_input: ModelInput) -> ModelResult:
    """Return the longest of issue slots, pipes and bytes per memory level; a warp waits in queues alone."""
    parts = (CodePart(model_input.execution_counts, model_input.demand),)
    return compose_result(model_input, NAME, None, parts, estimate_miss_rates(model_input))
