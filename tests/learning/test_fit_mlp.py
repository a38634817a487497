"""Perceptrons that are learned by torch and evaluated in numpy."""

import numpy as np

from analyzer.learning.fit_mlp import fit_mlp


def test_a_feature_that_never_varied_decides_nothing():
    """Its mean is rounded when it is kept, and a tiny spread would make that a deviation of many."""
    random = np.random.default_rng(0)
    varied = random.normal(size=(400, 1))
    rows = np.hstack([varied, np.full((400, 1), 0.1), np.zeros((400, 1))])
    found = fit_mlp(
        rows,
        varied[:, 0],
        np.ones(400),
        n_members=2,
        hidden=(16,),
        n_steps=300,
        batch_rows=64,
        weight_decay=1e-3,
        seed=0,
    )
    assert np.abs(found.predict(rows) - varied[:, 0]).mean() < 0.1
    elsewhere = np.hstack([varied, np.full((400, 1), 7.0), np.full((400, 1), 1e-3)])
    assert np.array_equal(found.predict(elsewhere), found.predict(rows))
