"""AMALI (Cao et al., ISCA 2025): intervals, tensor cores by modifiers, launch latency, divergence."""

from analyzer.models.base import Situation
from analyzer.models.interval_model import Interval, Reading, predict_intervals
from analyzer.models.verdict import Verdict

NAME = "amali"
READING = Reading(name=NAME, tensor=Interval.MODIFIERS, structural=True, launch_latency=True, divergence=True)


def predict(situation: Situation) -> Verdict:
    """All terms of equation 16."""
    return predict_intervals(situation, READING)
