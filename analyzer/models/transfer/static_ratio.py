"""Transfer of a launch whose code is known: the ratio of two static predictions, levelled by the measurement.

The static model answers for the code on the source and on the target. What it missed on the source, measured
over predicted body, is partly the model's own error on this code, which it repeats on the target, and partly
the source's alone:

    body_target = static_target (body_measured / static_source)^_CARRIED_EXPONENT

It is not carried where the launch floor hides the body that was measured.
"""

import math

from msgspec import Struct

from analyzer.models.composition import LAUNCH_BOUND
from analyzer.models.transfer.analytic import (
    Limit,
    TransferEstimate,
    add_launch_floor,
    find_overhead_us,
    is_at_floor,
)
from analyzer.models.transfer.gpu_figures import TransferFigures
from analyzer.models.transfer.measured_launch import MeasuredLaunch

# Half of it, in log space: misses of convolutions on RTX 2080 Ti and TITAN RTX correlate by 0.5, those of
# dedispersions on A100 and RTX A4000 by 0.8, and errors of both are least about there.
_CARRIED_EXPONENT = 0.5
_MAX_MISSED_FACTOR = 3.0  # more than that is another launch than the one that was predicted
_MIN_BODY_SHARE = 0.05  # of a time


class StaticTime(Struct, frozen=True):
    """What the static model says of a launch on one GPU, by the timing of the measurement."""

    time_us: float
    bound: str


def predict_by_code(
    launch: MeasuredLaunch,
    at_source: StaticTime,
    at_target: StaticTime,
    source: TransferFigures,
    target: TransferFigures,
) -> TransferEstimate:
    """Return the time on the target from the static times on both GPUs and the measured one."""
    carried = math.pow(_find_missed_factor(launch, at_source, source), _CARRIED_EXPONENT)
    body_us = _subtract_overhead(at_target.time_us, target.find_empty_us(launch.timing)) * carried
    time_us = add_launch_floor(launch, body_us, source, target)
    return TransferEstimate(time_us, Limit.LAUNCH if at_target.bound == LAUNCH_BOUND else Limit.SM)


def _find_missed_factor(launch: MeasuredLaunch, at_source: StaticTime, source: TransferFigures) -> float:
    """Return measured over predicted body on the source; 1 where a launch floor hides one of them."""
    if at_source.bound == LAUNCH_BOUND or is_at_floor(launch, source):
        return 1.0
    measured_us = _subtract_overhead(launch.time_us, find_overhead_us(launch, source))
    factor = measured_us / _subtract_overhead(at_source.time_us, source.find_empty_us(launch.timing))
    return math.exp(max(-math.log(_MAX_MISSED_FACTOR), min(math.log(_MAX_MISSED_FACTOR), math.log(factor))))


def _subtract_overhead(time_us: float, overhead_us: float) -> float:
    return max(time_us - overhead_us, _MIN_BODY_SHARE * time_us)
