"""Where a row lies among shapes, for interpolation between measured rows: near rows err alike.

Coordinates: thrice the share of each term in the reference time (what limits the row), half the logarithm of
the time, and a quarter of log2 of each size. A distance of about one is as far as errors stay alike.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import OperatorBatch, RaggedLengths
from analyzer.operators.family import ReferenceTerms

_SHARE_WEIGHT, _TIME_WEIGHT, _SIZE_WEIGHT = 3.0, 0.5, 0.25


def locate_rows(batch: OperatorBatch, terms: ReferenceTerms) -> NDArray[np.float64]:
    """Return rows x coordinates; as many for all batches of one type."""
    columns = [_SHARE_WEIGHT * terms.terms_us / terms.terms_us.sum(axis=1, keepdims=True)]
    columns.append(_TIME_WEIGHT * np.log(terms.total_us)[:, None])
    for name in batch.__struct_fields__:
        value = getattr(batch, name)
        if isinstance(value, RaggedLengths):
            value = value.sum_rows(value.values)
        if isinstance(value, np.ndarray):
            columns.append(_SIZE_WEIGHT * np.log2(value)[:, None])
    return np.hstack(columns)
