"""Randomized trees as arrays: the same values as scikit-learn's, of the depth asked for."""

from importlib.util import find_spec

import numpy as np
import pytest

from analyzer.learning.fit_extra_trees import fit_extra_trees

# Looked for, not imported: every process that collects this file would wait for seconds.
pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="the learn extra is not installed")


def test_trees_as_arrays_equal_scikit_learns():
    from sklearn.ensemble import ExtraTreesRegressor

    random = np.random.default_rng(4)
    rows = random.normal(size=(600, 6)).astype(np.float32).astype(np.float64)
    target = np.sin(rows[:, 0]) + (rows[:, 1] > 0.3) * rows[:, 2]
    weights = random.uniform(0.5, 2.0, 600)
    ours = fit_extra_trees(rows, target, weights, n_trees=20, depth=5, min_leaf_rows=3, seed=1)
    model = ExtraTreesRegressor(20, max_depth=5, min_samples_leaf=3, max_features=0.5, random_state=1)
    model.fit(rows.astype(np.float32), target, sample_weight=weights)
    fresh = random.normal(size=(300, 6)).astype(np.float32)
    np.testing.assert_allclose(ours.predict(fresh.astype(np.float64)), model.predict(fresh), atol=1e-5)


def test_the_mean_of_few_rows_stays_within_their_range():
    rows = np.arange(12.0)[:, None]
    found = fit_extra_trees(rows, rows[:, 0], np.ones(12), n_trees=30, depth=3, min_leaf_rows=2, seed=0)
    predicted = found.predict(np.array([[-100.0], [5.5], [100.0]]))
    assert 0.0 <= predicted[0] < 3.0
    assert predicted[1] == pytest.approx(5.5, abs=1.0)
    assert 8.0 < predicted[2] <= 11.0
