"""GCoM (Lee et al., ISCA 2022) as AMALI describes it: equations 3 to 14, its baseline.

Initiation intervals follow from lanes alone (14), so a matrix instruction takes 32 cycles for any shape and
type. There is no launch latency and no divergence.
"""

from analyzer.baselines.interval_model import (
    IntervalOptions,
    MmaIntervalSource,
    WarpOverlap,
    predict_by_intervals,
)
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "gcom"
OPTIONS = IntervalOptions(
    model_name=NAME,
    mma_interval=MmaIntervalSource.LANES,
    has_structural_contention=True,
    has_launch_latency=False,
    has_divergence=False,
    overlap=WarpOverlap.HIDDEN,
)


def predict(model_input: ModelInput) -> ModelResult:
    """Predict S_I with contention for functional units, L1, NoC and DRAM."""
    return predict_by_intervals(model_input, OPTIONS)
