"""Gradient-boosted regression trees as arrays.

Each tree is a perfect binary tree of the same depth, so that a row walks it with arithmetic alone: the
children of node i are 2i + 1 (feature <= threshold) and 2i + 2. A leaf that training put higher up is
repeated below itself by thresholds of infinity, which send all rows left.

    one tree of depth 1, feature 0, threshold .5, leaves -1 and 2:
    predict([[.2], [.7]]) = [-1, 2]
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

_ROWS_AT_ONCE = 4096  # keeps the walk's arrays in the cache


class TreeEnsemble(Struct, frozen=True):
    """Sum of regression trees: trees x (2^depth - 1) inner nodes, trees x 2^depth leaves."""

    features: NDArray[np.int16]
    thresholds: NDArray[np.float32]
    leaves: NDArray[np.float32]
    base: float  # added to the sum

    def __post_init__(self) -> None:
        """Raise ValueError for arrays that do not fit each other."""
        n_trees, n_inner = self.features.shape  # of another rank: a ValueError too
        if self.thresholds.shape != (n_trees, n_inner) or self.leaves.shape != (n_trees, n_inner + 1):
            raise ValueError("the arrays of its trees do not fit each other")
        if not n_trees or n_inner & (n_inner + 1) or self.features.dtype.kind != "i":
            raise ValueError("its trees are not perfect binary trees")

    def takes(self, n_features: int) -> bool:
        """Return whether rows may have so many features."""
        return not self.features.size or bool(0 <= self.features.min() <= self.features.max() < n_features)

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ensemble's value for rows x features."""
        values = np.ascontiguousarray(rows, dtype=np.float32)
        result = np.empty(len(values))
        for start in range(0, len(values), _ROWS_AT_ONCE):
            result[start : start + _ROWS_AT_ONCE] = self._predict_part(values[start : start + _ROWS_AT_ONCE])
        return result

    def _predict_part(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        n_trees, n_inner = self.features.shape
        depth = (n_inner + 1).bit_length() - 1
        flat_features = self.features.ravel()
        flat_thresholds = self.thresholds.ravel()
        flat_values = values.ravel()
        tree_starts = (np.arange(n_trees, dtype=np.int32) * n_inner)[:, None]
        row_starts = np.arange(len(values), dtype=np.int32)[None, :] * values.shape[1]
        nodes = np.zeros((n_trees, len(values)), dtype=np.int32)
        for _ in range(depth):
            index = nodes + tree_starts
            goes_right = flat_values[row_starts + flat_features[index]] > flat_thresholds[index]
            nodes = 2 * nodes + 1 + goes_right
        leaf_starts = np.arange(n_trees, dtype=np.int32)[:, None] * self.leaves.shape[1]
        found = self.leaves.ravel()[nodes - n_inner + leaf_starts]
        total: NDArray[np.float64] = self.base + found.sum(axis=0, dtype=np.float64)
        return total
