"""How far predicted times are from measured ones: errors, ranks, and what a tuner would lose."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_LEAST_RANKED = 3  # two rows are always in perfect order, or in perfect disorder


class Times(Struct, frozen=True, kw_only=True):
    """Microseconds of each row; low and high bound the predicted interval. All measured and predicted > 0."""

    measured: FloatArray
    predicted: FloatArray
    low: FloatArray
    high: FloatArray


class Errors(Struct, frozen=True, kw_only=True):
    """Shares of one; see `ScoreEntry` for what each means."""

    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    spearman: float | None
    interval_coverage: float


def measure_errors(times: Times) -> Errors:
    """Errors over at least one row."""
    ratios = times.predicted / times.measured
    errors = np.abs(ratios - 1.0)
    inside = (times.low <= times.measured) & (times.measured <= times.high)
    return Errors(
        mape=float(errors.mean()),
        median_ape=float(np.median(errors)),
        p90_ape=float(np.percentile(errors, 90)),
        bias=float(np.exp(np.log(ratios).mean())),
        spearman=spearman(times.measured, times.predicted),
        interval_coverage=float(inside.mean()),
    )


def spearman(first: FloatArray, second: FloatArray) -> float | None:
    """Correlation of ranks; None where fewer than three rows stand, or all of one side are equal."""
    if len(first) < _LEAST_RANKED:
        return None
    a, b = average_ranks(first), average_ranks(second)
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else None


def average_ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: FloatArray = (last - (counts - 1) / 2)[places]
    return ranks


class Choice(Struct, frozen=True):
    """Rows (places in the group) that are best and that a model takes for best, and what that costs."""

    best: int
    chosen: int
    chosen_us: float
    loss: float


def choose(measured: Sequence[float], predicted: Sequence[float]) -> Choice:
    """What choosing the least predicted time costs; where several have it, the mean of their times counts."""
    best = min(range(len(measured)), key=measured.__getitem__)
    least = min(predicted)
    tied = [place for place, time in enumerate(predicted) if time == least]
    chosen_us = sum(measured[place] for place in tied) / len(tied)
    return Choice(best, tied[0], chosen_us, chosen_us / measured[best] - 1.0)
