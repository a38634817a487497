"""Tables that the benches of mixtures of experts and of collectives share."""

import numpy as np
from error_metrics import ERROR_COLUMNS
from markdown import render_table

from analyzer.evaluation.error_metrics import CaseTimes, measure_errors
from analyzer.learning.corrections import Learned
from analyzer.learning.options import LearningOptions
from analyzer.models.learned.correction import Situation
from analyzer.operators.batches import Column
from analyzer.operators.measured import MeasuredBatch

# for a few hundred rows
SMALL_SET = LearningOptions(
    n_trees=150,
    tree_depth=4,
    min_leaf_rows=8,
    transfer_trees=60,
    transfer_depth=3,
    n_perceptrons=0,
)


def format_row(
    gpu: str,
    model: str,
    measured: MeasuredBatch,
    predicted_us: Column,
    low_us: Column | None = None,
    high_us: Column | None = None,
) -> tuple[str, ...]:
    """Return the cells of one model on one GPU: `GPU`, `model`, ERROR_COLUMNS, share inside the interval."""
    times = CaseTimes(
        measured_us=measured.time_us,
        predicted_us=predicted_us,
        low_us=predicted_us if low_us is None else low_us,
        high_us=predicted_us if high_us is None else high_us,
    )
    return (gpu, model, *_format_errors(times, has_interval=low_us is not None))


def format_learned(learned: Learned) -> str:
    """Return a table of the errors on what was left out while a set of weights was learned."""
    weights = learned.weights
    names = sorted(taught.gpu for taught in weights.taught)
    rows = []
    for errors in learned.errors:
        low, high = weights.intervals[errors.situation].find(errors.predicted_us)
        for index in np.unique(errors.gpu):
            of_gpu = errors.gpu == index
            predicted_us = errors.predicted_us[of_gpu]
            times = CaseTimes(
                measured_us=predicted_us * np.exp(errors.log_error[of_gpu]),
                predicted_us=predicted_us,
                low_us=predicted_us * np.exp(low[of_gpu]),
                high_us=predicted_us * np.exp(high[of_gpu]),
            )
            what = "shapes" if errors.situation is Situation.KNOWN else errors.left_out
            cells = _format_errors(times, has_interval=True)
            rows.append((errors.situation.value, what, names[index], *cells))
    return render_table(("situation", "left out", "GPU", *ERROR_COLUMNS, "inside"), rows)


def _format_errors(times: CaseTimes, *, has_interval: bool) -> tuple[str, ...]:
    errors = measure_errors(times)
    shares = (f"{100 * error:.1f}%" for error in (errors.mape, errors.median_ape, errors.p90_ape))
    rank = "" if errors.spearman is None else f"{errors.spearman:.3f}"
    inside = f"{100 * errors.interval_coverage:.0f}%" if has_interval else ""
    return (str(len(times.measured_us)), *shares, f"{errors.bias:.2f}", rank, inside)
