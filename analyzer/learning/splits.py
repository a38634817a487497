"""Splits by hash: the same rows stay on the same side in every run, whatever else a table holds."""

import numpy as np
from numpy.typing import NDArray


def assign_folds(keys: NDArray[np.int64], n_folds: int, seed: int) -> NDArray[np.int64]:
    """Return a fold from 0 to n_folds - 1 for each key, by its hash (splitmix64)."""
    step = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64  # numpy warns of a scalar product that wraps around
    state = keys.astype(np.uint64) + np.uint64(step)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = state ^ (state >> np.uint64(31))
    return (state % np.uint64(n_folds)).astype(np.int64)
