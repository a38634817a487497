"""Hash factors for rows of arrays, and sorted distinct values."""

import numpy as np
from numpy.typing import NDArray

_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MASK64 = (1 << 64) - 1


def make_hash_factors(count: int) -> NDArray[np.uint64]:
    """Make fixed pseudo-random odd numbers; the dot product of a row with them is its hash.

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), written here to avoid loading numpy.random.
    """
    found = []
    for number in range(1, count + 1):
        z = number * _GOLDEN_GAMMA & _MASK64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
        found.append((z ^ z >> 31) | 1)
    return np.array(found, dtype=np.uint64)


def sort_unique(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the sorted distinct values; unlike `np.unique` this does not load numpy.ma."""
    ordered = np.sort(values, axis=None)
    keep = np.ones(len(ordered), dtype=bool)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep]
