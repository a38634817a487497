"""Extremely randomized trees by scikit-learn as `TreeEnsemble`; on few rows better than boosted ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.learning.fit_trees import Rows
from analyzer.models.learned.trees import TreeEnsemble

_LEAF = -1  # scikit-learn's mark of a node without children
_FEATURE_SHARE = 0.5  # of the features, tried at each split


def fit_extra_trees(
    rows: Rows, target: Rows, weights: Rows, *, n_trees: int, depth: int, min_leaf_rows: int, seed: int
) -> TreeEnsemble:
    """Return the mean of trees with random thresholds, as a sum of trees of one depth."""
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(
        n_estimators=n_trees,
        max_depth=depth,
        min_samples_leaf=min_leaf_rows,
        max_features=_FEATURE_SHARE,
        n_jobs=1,
        random_state=seed,
    )
    model.fit(rows.astype(np.float32), target, sample_weight=weights)
    features = np.zeros((n_trees, 2**depth - 1), dtype=np.int16)
    thresholds = np.full((n_trees, 2**depth - 1), np.inf, dtype=np.float32)
    leaves = np.zeros((n_trees, 2**depth), dtype=np.float32)
    for i, tree in enumerate(model.estimators_):
        _write_tree(tree.tree_, features[i], thresholds[i], leaves[i])
    leaves /= n_trees
    return TreeEnsemble(features, thresholds, leaves, 0.0)


def _write_tree(
    tree: Any, features: NDArray[np.int16], thresholds: NDArray[np.float32], leaves: NDArray[np.float32]
) -> None:
    """Write a tree as a perfect one: what was a leaf higher up sends all rows left."""
    n_inner = len(features)
    pending = [(0, 0)]  # node of the tree, place in the perfect tree
    while pending:
        node, place = pending.pop()
        if tree.children_left[node] == _LEAF:
            while place < n_inner:
                place = 2 * place + 1
            leaves[place - n_inner] = tree.value[node].ravel()[0]
            continue
        features[place] = tree.feature[node]
        thresholds[place] = tree.threshold[node]
        pending += [
            (int(tree.children_left[node]), 2 * place + 1),
            (int(tree.children_right[node]), 2 * place + 2),
        ]
