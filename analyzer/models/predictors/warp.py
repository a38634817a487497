"""The quick model: one warp's walk, resident warps that hide its waits, and throughput bounds.

Per wave of CTAs an SM takes the longest of one warp's own time and what each resource needs for all
resident warps; waves follow each other, the last one with what is left. It needs no launch, and costs little
enough for whole dumps.
"""

from analyzer.models.composition import CodePart, compose_result
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import estimate_miss_rates
from analyzer.models.model_result import ModelResult
from analyzer.models.timeline_builder import build_warp_timeline

NAME = "warp"
_MAX_LOOP_ITERATIONS = 2  # of each loop: the second time what it carries over has mostly settled


def predict(model_input: ModelInput) -> ModelResult:
    """Cycles, stack and time of one kernel on one GPU."""
    miss_rates = estimate_miss_rates(model_input)
    timeline = build_warp_timeline(
        model_input, model_input.execution_counts, miss_rates, max_loop_iterations=_MAX_LOOP_ITERATIONS
    )
    return compose_result(
        model_input, NAME, timeline, (CodePart(model_input.execution_counts, model_input.demand),), miss_rates
    )
