"""NeuSight's FP32 products as measured batches: linear (gemm, with a bias) and batched products (bmm)."""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import ProductBatch
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import Operator
from operator_data.neusight_profiles import JUDGING, LEARNING, read_profiles

DATASET = "neusight"
_TEACHING_ROWS = 6_000


def load_teaching() -> list[MeasuredBatch]:
    """Return what teaches the shipped weights: learning rows drawn at random, and all judging rows."""
    found = []
    for operator in (Operator.GEMM, Operator.BMM):
        found += draw_learning_rows(operator) + load_products(JUDGING, operator)
    return found


def draw_learning_rows(operator: Operator) -> list[MeasuredBatch]:
    """Return 6,000 rows of each GPU of the learning table."""
    random = np.random.default_rng(0)
    return [
        batch.select(np.sort(random.permutation(len(batch))[:_TEACHING_ROWS]))
        for batch in load_products(LEARNING, operator)
    ]


def load_products(table: str, operator: Operator) -> list[MeasuredBatch]:
    """Return one batch per GPU of a table of `neusight_profiles`.

    P4's linear rows of the judging table are left out: they ran other kernels three to four times as fast as
    those of the learning table at the same shapes, so that one of the two is not what this GPU does.
    """
    found = []
    for profile in read_profiles(table, operator):
        if (table, operator, profile.gpu) == (JUDGING, Operator.GEMM, "p4"):
            continue
        assert isinstance(profile.batch, ProductBatch)
        found.append(
            MeasuredBatch(
                dataset=DATASET,
                gpu=profile.gpu,
                batch=profile.batch,
                time_us=profile.time_us,
                shape_keys=_make_keys(profile.batch),
                timing=Timing.INTERVAL,
            )
        )
    return found


def _make_keys(batch: ProductBatch) -> NDArray[np.int64]:
    """Return a key per (n, k), and of batched products per (batch, m, n, k): their dimensions are few."""
    keys = batch.n.astype(np.int64) * 1_000_003 + batch.k.astype(np.int64)
    if batch.operator is Operator.BMM:
        keys = (keys * 1_000_003 + batch.m.astype(np.int64)) * 1_000_003 + batch.batch.astype(np.int64)
    return keys
