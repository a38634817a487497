"""Learned policies that choose a kernel's configuration, to compare others with: WaveTune, section 5.1.

A cost model predicts the time of every candidate and takes the fastest; a dispatch tree maps a shape to the
index of a configuration. Both see the same rows as what they are compared with. The paper's parameters:
boosted trees with 600 estimators of depth 10, learning rate 0.05, subsample 0.8 (XGBoost); a decision tree
of depth 15, 30 samples to split, 15 in a leaf.

Two things differ. scikit-learn's histogram boosting has no subsampling, and all rows are used; its other
settings are XGBoost's (splits on 255 bins, an L2 penalty of 1, leaves limited by depth alone). And the trees
learn the logarithm of the time, for the ranking needs relative errors; on the time itself they do worse.
"""

import pickle
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_N_TREES, _DEPTH, _RATE = 600, 10, 0.05
_DISPATCH_DEPTH, _DISPATCH_SPLIT, _DISPATCH_LEAF = 15, 30, 15


class CostModel(Struct, frozen=True):
    """Boosted trees that predict the logarithm of a time from a shape and a configuration."""

    regressor: Any

    def choose(self, shapes: Floats, configs: Floats) -> Integers:
        """Return for each shape [n, a] the index of the configuration [c, b] that is predicted fastest."""
        return np.asarray(self._predict(shapes, configs).argmin(axis=1), dtype=np.int64)

    def rank(self, shapes: Floats, configs: Floats) -> Integers:
        """Return for each shape the indices [n, c] of all configurations, the fastest first."""
        return np.asarray(self._predict(shapes, configs).argsort(axis=1, kind="stable"), dtype=np.int64)

    def _predict(self, shapes: Floats, configs: Floats) -> Floats:
        """Return the logarithm of the times [n, c]."""
        predicted: Floats = self.regressor.predict(_cross(shapes, configs))
        return predicted.reshape(len(shapes), len(configs))

    @property
    def size_bytes(self) -> int:
        """Bytes of the model when it is stored."""
        return len(pickle.dumps(self.regressor))


class DispatchTree(Struct, frozen=True):
    """A decision tree from a shape to the index of a configuration."""

    classifier: Any

    def choose(self, shapes: Floats) -> Integers:
        """Return the index of a configuration for each shape [n, a]."""
        return np.asarray(self.classifier.predict(shapes), dtype=np.int64)

    def rank(self, shapes: Floats) -> Integers:
        """Return for each shape the indices [n, seen] of what was best somewhere, likeliest first."""
        likely = self.classifier.predict_proba(shapes).argsort(axis=1, kind="stable")[:, ::-1]
        return np.asarray(self.classifier.classes_[likely], dtype=np.int64)

    @property
    def size_bytes(self) -> int:
        """Bytes of the model when it is stored."""
        return len(pickle.dumps(self.classifier))


def fit_cost_model(
    shapes: Floats, configs: Floats, time_us: Floats, seed: int = 0, n_trees: int = _N_TREES
) -> CostModel:
    """Return a cost model of measured rows: shapes [n, a], configurations [n, b], times [n]."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    regressor = HistGradientBoostingRegressor(
        max_iter=n_trees,
        max_depth=_DEPTH,
        learning_rate=_RATE,
        max_leaf_nodes=None,
        min_samples_leaf=1,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    regressor.fit(np.concatenate([shapes, configs], axis=1), np.log(time_us))
    return CostModel(regressor)


def fit_dispatch_tree(shapes: Floats, best: Integers, seed: int = 0) -> DispatchTree:
    """Return a tree of shapes [n, a] and the index of the best configuration of each [n]."""
    from sklearn.tree import DecisionTreeClassifier

    classifier = DecisionTreeClassifier(
        max_depth=_DISPATCH_DEPTH,
        min_samples_split=_DISPATCH_SPLIT,
        min_samples_leaf=_DISPATCH_LEAF,
        random_state=seed,
    )
    classifier.fit(shapes, best)
    return DispatchTree(classifier)


def _cross(shapes: Floats, configs: Floats) -> Floats:
    """Return the rows [n · c, a + b] of all configurations for each shape."""
    n_shapes, n_configs = len(shapes), len(configs)
    left, right = np.repeat(shapes, n_configs, axis=0), np.tile(configs, (n_shapes, 1))
    return np.concatenate([left, right], axis=1)
