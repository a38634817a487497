"""AMALI (Cao et al., ISCA 2025): intervals, tensor cores by modifiers, launch latency, divergence."""

from analyzer.models.interface import ModelInput
from analyzer.models.interval_model import IntervalOptions, MmaIntervalSource, predict_by_intervals
from analyzer.models.model_result import ModelResult

NAME = "amali"
OPTIONS = IntervalOptions(
    model_name=NAME,
    mma_interval=MmaIntervalSource.MODIFIERS,
    has_structural_contention=True,
    has_launch_latency=True,
    has_divergence=True,
)


def predict(model_input: ModelInput) -> ModelResult:
    """Predict with all terms of equation 16."""
    return predict_by_intervals(model_input, OPTIONS)
