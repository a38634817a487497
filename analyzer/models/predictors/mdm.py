"""MDM (Wang et al., MICRO 2020) as AMALI describes it: intervals and contention beyond the L1 alone."""

from analyzer.models.base import Situation
from analyzer.models.interval_model import Interval, Reading, predict_intervals
from analyzer.models.verdict import Verdict

NAME = "mdm"
READING = Reading(name=NAME, tensor=Interval.LANES, structural=False, launch_latency=False, divergence=False)


def predict(situation: Situation) -> Verdict:
    """S_I with queueing at MSHRs, NoC and DRAM."""
    return predict_intervals(situation, READING)
