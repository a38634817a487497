"""Fit of a family's few reference parameters to measured rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.options import LearningOptions
from analyzer.operators.family import OperatorFamily
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch

_ROWS_PER_BATCH = 1500  # enough for ten parameters; more rows only take time
_LOSS_SCALE = 0.1  # of the soft L1 loss, in log time


def fit_parameters(
    family: OperatorFamily,
    measured: Sequence[MeasuredBatch],
    options: LearningOptions,
) -> dict[str, float]:
    """Return the parameters of least soft-L1 error of log time.

    Each batch counts the same where the options say so, or about as the root of its rows: the loss is then
    that of errors over this root, so that errors of small batches lie where it is linear.
    """
    if not family.parameters:
        return {}
    from scipy.optimize import least_squares

    soften = _soften if options.weighs_batches_alike else np.asarray
    random = np.random.default_rng(options.seed)
    parts = [
        (part, read_operator_hardware(load_gpu(part.gpu)))
        for part in (_draw_rows(batch, random) for batch in measured)
    ]
    names = [parameter.name for parameter in family.parameters]
    low = np.array([parameter.low for parameter in family.parameters])
    high = np.array([parameter.high for parameter in family.parameters])

    def compute_errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
        parameters = dict(zip(names, (low + (high - low) * values).tolist(), strict=True))
        return np.concatenate(
            [
                soften(np.log(family.compute_terms(part.batch, hardware, parameters).total_us / part.time_us))
                * len(part) ** -0.5
                for part, hardware in parts
            ]
            + [options.reference_pull * (values - initial)]
        )

    initial = (np.array([parameter.initial for parameter in family.parameters]) - low) / (high - low)
    start = np.clip(initial, 0.02, 0.98)
    found = least_squares(
        compute_errors,
        start,
        bounds=(0.0, 1.0),
        loss="linear" if options.weighs_batches_alike else "soft_l1",
        f_scale=_LOSS_SCALE * _ROWS_PER_BATCH**-0.5,
        diff_step=1e-3,
        max_nfev=40,
    )
    return dict(zip(names, (low + (high - low) * found.x).tolist(), strict=True))


def _soften(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what has the soft L1 loss of errors as its square."""
    return np.sign(errors) * _LOSS_SCALE * np.sqrt(2.0 * (np.hypot(1.0, errors / _LOSS_SCALE) - 1.0))


def _draw_rows(batch: MeasuredBatch, random: np.random.Generator) -> MeasuredBatch:
    if len(batch) <= _ROWS_PER_BATCH:
        return batch
    return batch.select(np.sort(random.choice(len(batch), _ROWS_PER_BATCH, replace=False)))
