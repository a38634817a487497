"""How far predicted times are from measured ones: errors, ranks, and what a tuner would lose."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_MIN_RANKED_ROWS = 3  # two rows are always in perfect order, or in perfect disorder


class CaseTimes(Struct, frozen=True, kw_only=True):
    """Microseconds of each row; low and high bound the predicted interval. All measured and predicted > 0."""

    measured_us: FloatArray
    predicted_us: FloatArray
    low_us: FloatArray
    high_us: FloatArray


class ErrorMetrics(Struct, frozen=True, kw_only=True):
    """Shares of one; see `ScoreEntry` for what each means."""

    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    spearman: float | None
    interval_coverage: float


def measure_errors(times: CaseTimes) -> ErrorMetrics:
    """Errors over at least one row."""
    ratios = times.predicted_us / times.measured_us
    errors = np.abs(ratios - 1.0)
    inside = (times.low_us <= times.measured_us) & (times.measured_us <= times.high_us)
    return ErrorMetrics(
        mape=float(errors.mean()),
        median_ape=float(np.median(errors)),
        p90_ape=float(np.percentile(errors, 90)),
        bias=float(np.exp(np.log(ratios).mean())),
        spearman=compute_spearman(times.measured_us, times.predicted_us),
        interval_coverage=float(inside.mean()),
    )


def compute_spearman(first: FloatArray, second: FloatArray) -> float | None:
    """Correlation of ranks; None where fewer than three rows stand, or all of one side are equal."""
    if len(first) < _MIN_RANKED_ROWS:
        return None
    a, b = compute_average_ranks(first), compute_average_ranks(second)
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else None


def compute_average_ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: FloatArray = (last - (counts - 1) / 2)[places]
    return ranks


class TuningChoice(Struct, frozen=True):
    """Rows (places in the group) that are best and that a model takes for best, and what that costs."""

    best_row: int
    chosen_row: int
    chosen_us: float
    loss: float


def evaluate_choice(measured: Sequence[float], predicted: Sequence[float]) -> TuningChoice:
    """What choosing the least predicted time costs; where several have it, the mean of their times counts."""
    best = min(range(len(measured)), key=measured.__getitem__)
    least = min(predicted)
    tied = [place for place, time in enumerate(predicted) if time == least]
    chosen_us = sum(measured[place] for place in tied) / len(tied)
    return TuningChoice(best, tied[0], chosen_us, chosen_us / measured[best] - 1.0)
