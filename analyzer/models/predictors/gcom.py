"""GCoM (Lee et al., ISCA 2022) as AMALI describes it: equations 3 to 14, its baseline.

Initiation intervals follow from lanes alone (14), so a matrix instruction takes 32 cycles whatever its shape
and type; no launch latency, no divergence.
"""

from analyzer.models.base import Situation
from analyzer.models.interval_model import Interval, Reading, predict_intervals
from analyzer.models.verdict import Verdict

NAME = "gcom"
READING = Reading(name=NAME, tensor=Interval.LANES, structural=True, launch_latency=False, divergence=False)


def predict(situation: Situation) -> Verdict:
    """S_I with contention for units, L1, NoC and DRAM."""
    return predict_intervals(situation, READING)
