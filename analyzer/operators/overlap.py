"""Times of things that overlap in part: the p-norm lies between their sum (p = 1) and the longest (p → ∞)."""

import numpy as np

from analyzer.operators.batches import Column


def add_by_norm(a: Column, b: Column, power: float) -> Column:
    """Return (a^power + b^power)^(1 / power) of times ≥ 0, without overflow."""
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    total: Column = larger * (1.0 + (smaller / np.maximum(larger, 1e-300)) ** power) ** (1.0 / power)
    return total
