"""Errors of a model over rows of a validation, as the pages in docs/ show them."""

from collections.abc import Iterable

import numpy as np

from analyzer.report.validation import CaseEntry
from analyzer.report.validation_metrics import Times, measure_errors

FIGURES = ("rows", "MAPE", "median", "P90", "bias", "Spearman")


def times_of(cases: Iterable[CaseEntry], model: str) -> Times:
    """Measured and predicted times of the rows that a model has an answer for, in microseconds."""
    rows = [
        (case.time_us, found.time_us, found.time_us_low, found.time_us_high)
        for case in cases
        for found in case.predictions
        if found.model == model
    ]
    measured, predicted, low, high = np.array(rows).T
    return Times(measured=measured, predicted=predicted, low=low, high=high)


def figures_of(times: Times) -> tuple[str, ...]:
    """Cells of a table, in the order of `FIGURES`."""
    errors = measure_errors(times)
    shown = (f"{100 * error:.1f}%" for error in (errors.mape, errors.median_ape, errors.p90_ape))
    rank = "" if errors.spearman is None else f"{errors.spearman:.3f}"
    return (str(len(times.measured)), *shown, f"{errors.bias:.2f}", rank)
