"""Compute and format errors of a model over rows of a validation, for the pages in docs/."""

from collections.abc import Iterable

import numpy as np

from analyzer.evaluation.error_metrics import CaseTimes, measure_errors
from analyzer.report.validation_schema import CaseEntry

ERROR_COLUMNS = ("rows", "MAPE", "median", "P90", "bias", "Spearman")


def collect_times(cases: Iterable[CaseEntry], model: str) -> CaseTimes:
    """Return measured and predicted times, in microseconds, of the rows that a model has a prediction for."""
    rows = [
        (case.time_us, found.time_us, found.time_us_low, found.time_us_high)
        for case in cases
        for found in case.predictions
        if found.model == model
    ]
    measured, predicted, low, high = np.array(rows).T
    return CaseTimes(measured_us=measured, predicted_us=predicted, low_us=low, high_us=high)


def format_errors(times: CaseTimes) -> tuple[str, ...]:
    """Format the cells of a table row, in the order of `ERROR_COLUMNS`."""
    errors = measure_errors(times)
    shown = (f"{100 * error:.1f}%" for error in (errors.mape, errors.median_ape, errors.p90_ape))
    rank = "" if errors.spearman is None else f"{errors.spearman:.3f}"
    return (str(len(times.measured_us)), *shown, f"{errors.bias:.2f}", rank)
