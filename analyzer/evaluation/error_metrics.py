"""Metrics of predicted against measured times: errors, rank correlation, and the loss of a tuner's choice.

Example: measured 10, 20 us and predicted 11, 16 us have errors of 10 % and 20 %, so a MAPE of 15 %.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.ir.arrays import FloatArray

_MIN_RANKED_ROWS = 3  # two rows are always in perfect order, or in perfect disorder


class CaseTimes(Struct, frozen=True, kw_only=True):
    """Times of rows in microseconds, one element per row."""

    measured_us: FloatArray  # > 0
    predicted_us: FloatArray  # > 0
    low_us: FloatArray  # ends of the predicted interval
    high_us: FloatArray


class ErrorMetrics(Struct, frozen=True, kw_only=True):
    """Errors as shares of one; `ScoreEntry` defines each."""

    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    spearman: float | None
    interval_coverage: float


def measure_errors(times: CaseTimes) -> ErrorMetrics:
    """Compute the errors over at least one row."""
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
    """Compute the rank correlation; None for fewer than three rows, or where all of one side are equal."""
    if len(first) < _MIN_RANKED_ROWS:
        return None
    a, b = compute_average_ranks(first), compute_average_ranks(second)
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else None


def compute_average_ranks(values: FloatArray) -> FloatArray:
    """Compute ranks from 1; equal values get the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: FloatArray = (last - (counts - 1) / 2)[inverse]
    return ranks


class TuningChoice(Struct, frozen=True):
    """A model's choice among the rows of a group; rows are indices in the group."""

    best_row: int  # least measured time
    chosen_row: int  # least predicted time
    chosen_us: float  # measured time of the choice
    loss: float  # chosen over best time, less one


def evaluate_choice(measured: Sequence[float], predicted: Sequence[float]) -> TuningChoice:
    """Evaluate the choice of the least predicted time, by the mean measured time where several have it."""
    best = min(range(len(measured)), key=measured.__getitem__)
    least = min(predicted)
    tied = [index for index, time in enumerate(predicted) if time == least]
    chosen_us = sum(measured[index] for index in tied) / len(tied)
    return TuningChoice(best, tied[0], chosen_us, chosen_us / measured[best] - 1.0)
