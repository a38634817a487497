"""What a cache keeps between launches that use the same data again and again.

The idea: cyclic use of a footprint larger than the cache. With least-recently-used replacement nothing would
be found again; hardware replaces nearly at random. With random replacement, a line that is not used for one
cycle survives M evictions of a cache of C lines with probability exp(-M / C), and the evictions of a cycle of
F lines are its misses, M = m F. So the missed share m solves

    m = 1 - exp(-m f),  f = F / C

Invariant: m = 0 for f ≤ 1, rises with f, and tends to 1: .58 at f = 1.5, .80 at 2, .98 at 4.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import Column

_MOST_RATIO = 12.0
_N_POINTS = 2401


def compute_missed_share(footprint_ratio: Column) -> Column:
    """Return the share of accesses that miss, for footprints in units of what the cache keeps."""
    ratios, shares = _tabulate()
    found: Column = np.interp(footprint_ratio, ratios, shares)
    return found


@cache
def _tabulate() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ratios and missed shares: f = -log(1 - m) / m, inverted by interpolation."""
    shares = np.concatenate([[0.0], -np.expm1(-np.linspace(1e-6, _MOST_RATIO, _N_POINTS))])
    ratios = np.concatenate([[1.0], -np.log1p(-shares[1:]) / shares[1:]])
    return np.concatenate([[0.0], ratios]), np.concatenate([[0.0], shares])


STORED_SPACE = 1.35  # of the L2 that a stored byte takes, in loaded ones
_WHOLE_LIMIT, _WHOLE_SHARPNESS, _SHARPNESS = 1.03, 40.0, 6.0


def compute_lost_share(footprint_bytes: Column, l2_bytes: float, limit: float, *, is_whole: bool) -> Column:
    """Return the share of what is read again that the L2 no longer holds: one half at `limit` of its size.

    Chips with one L2 lose nothing up to its size and then nearly all; those with two halves, each of which
    also keeps copies of the other's lines, begin to lose earlier. Stores take more room than loads: on an
    L40S outputs stay up to three quarters of the L2, weights up to all of it.
    """
    ratio = footprint_bytes / (l2_bytes * (_WHOLE_LIMIT if is_whole else limit))
    steepness = _WHOLE_SHARPNESS if is_whole else _SHARPNESS
    lost: Column = 1.0 / (1.0 + np.exp(-np.clip(steepness * np.log(ratio), -50.0, 50.0)))
    return lost
