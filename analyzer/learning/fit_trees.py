"""Gradient-boosted trees by scikit-learn, turned into `TreeEnsemble`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.models.learned.trees import TreeEnsemble

Rows = NDArray[np.float64]
_ROWS_FOR_THREADS = 50_000


def fit_trees(
    rows: Rows,
    target: Rows,
    weights: Rows,
    *,
    n_trees: int,
    depth: int,
    rate: float,
    min_leaf_rows: int,
    seed: int,
) -> TreeEnsemble:
    """Return trees that predict `target` from rows x features, by least squares with weights."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingRegressor(
        max_iter=n_trees,
        max_depth=depth,
        max_leaf_nodes=2**depth,
        learning_rate=rate,
        min_samples_leaf=min(min_leaf_rows, max(len(rows) // 8, 1)),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    # thresholds are kept in float32, so rows are split as float32 too; few rows go faster with one thread
    with threadpool_limits(1 if len(rows) < _ROWS_FOR_THREADS else None):
        model.fit(rows.astype(np.float32), target, sample_weight=weights)
    base = float(np.ravel(model._baseline_prediction)[0])
    return _make_perfect([stage[0].nodes for stage in model._predictors], depth, base)


def _make_perfect(trees: list[NDArray[Any]], depth: int, base: float) -> TreeEnsemble:
    """Return trees padded to perfect ones: what was a leaf higher up sends all rows left."""
    features = np.zeros((len(trees), 2**depth - 1), dtype=np.int16)
    thresholds = np.full((len(trees), 2**depth - 1), np.inf, dtype=np.float32)
    leaves = np.zeros((len(trees), 2**depth), dtype=np.float32)
    for i, nodes in enumerate(trees):
        pending = [(0, 0)]  # node of the tree, place in the perfect tree
        while pending:
            node, place = pending.pop()
            if nodes[node]["is_leaf"]:
                _fill_leaf(leaves[i], place, depth, float(nodes[node]["value"]))
                continue
            features[i, place] = nodes[node]["feature_idx"]
            thresholds[i, place] = nodes[node]["num_threshold"]
            pending += [
                (int(nodes[node]["left"]), 2 * place + 1),
                (int(nodes[node]["right"]), 2 * place + 2),
            ]
    return TreeEnsemble(features, thresholds, leaves, base)


def _fill_leaf(leaves: NDArray[np.float32], place: int, depth: int, value: float) -> None:
    """Write a leaf's value to the leftmost leaf below its place, where thresholds of infinity lead."""
    while place < 2**depth - 1:
        place = 2 * place + 1
    leaves[place - (2**depth - 1)] = value
