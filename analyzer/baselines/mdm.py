"""MDM (Wang et al., MICRO 2020) as AMALI describes it: intervals and contention beyond the L1 alone."""

from analyzer.baselines.interval_model import (
    IntervalOptions,
    MmaIntervalSource,
    WarpOverlap,
    predict_by_intervals,
)
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "mdm"
OPTIONS = IntervalOptions(
    model_name=NAME,
    mma_interval=MmaIntervalSource.LANES,
    has_structural_contention=False,
    has_launch_latency=False,
    has_divergence=False,
    overlap=WarpOverlap.HIDDEN,
)


def predict(model_input: ModelInput) -> ModelResult:
    """Predict S_I with queues at MSHRs, NoC and DRAM."""
    return predict_by_intervals(model_input, OPTIONS)
