"""AMALI (Cao et al., ISCA 2025): intervals, tensor cores by modifiers, launch latency, divergence.

`OPTIONS` takes the paper's sense where its letter leaves a choice or fails, `LETTER` the letter: one warp
stands for all, idle ones too, and its stalls and the issue of the others add up, as in the published code.
"""

from msgspec.structs import replace

from analyzer.baselines.interval_model import (
    IntervalOptions,
    MmaIntervalSource,
    WarpOverlap,
    predict_by_intervals,
)
from analyzer.baselines.warp_selection import RepresentedWarps
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "amali"
OPTIONS = IntervalOptions(
    model_name=NAME,
    mma_interval=MmaIntervalSource.MODIFIERS,
    has_structural_contention=True,
    has_launch_latency=True,
    has_divergence=True,
    overlap=WarpOverlap.LONGER,
)
LETTER = replace(OPTIONS, overlap=WarpOverlap.SUM, represented=RepresentedWarps.ALL)


def predict(model_input: ModelInput) -> ModelResult:
    """Predict with all terms of equation 16."""
    return predict_by_intervals(model_input, OPTIONS)
