"""The fast model: one warp's timeline, resident warps that hide its waits, and throughput bounds.

For each wave of CTAs an SM takes the longest of one warp's own time and the time that each resource needs for
all resident warps. Waves follow each other, the last one with the rest of the grid. The model needs no
launch, and is fast enough for whole dumps.
"""

from analyzer.models.composition import CodePart, compose_result
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import estimate_miss_rates
from analyzer.models.model_result import ModelResult
from analyzer.models.timeline_builder import build_warp_timeline

NAME = "warp"
_MAX_LOOP_ITERATIONS = 2  # loop-carried waits have mostly converged in the second one


def predict(model_input: ModelInput) -> ModelResult:
    """Predict cycles, CPI stack and time of one kernel on one GPU."""
    miss_rates = estimate_miss_rates(model_input)
    timeline = build_warp_timeline(
        model_input, model_input.execution_counts, miss_rates, max_loop_iterations=_MAX_LOOP_ITERATIONS
    )
    return compose_result(
        model_input, NAME, timeline, (CodePart(model_input.execution_counts, model_input.demand),), miss_rates
    )
