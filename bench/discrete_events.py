"""Why steps become a line: blocks of random duration, dispatched greedily (WaveTune, figure 4).

Blocks start in order, each on the SM that is free first. Without variance all SMs finish together and the
total time is a staircase with one step per wave; with variance they drift apart and the staircase wears down
to a line. Since the order does not depend on how many blocks there are, one pass over the blocks gives the
total time of every grid: the running maximum of the finishing times.

    2 SMs, durations 5, 5, 5: blocks finish at 5, 5, 10, so grids of 1, 2, 3 blocks take 5, 5, 10
"""

import heapq

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST_SHARE = 0.05  # of the mean: a Gaussian has negative durations, a block has not


def simulate_grids(durations: Floats, n_sms: int) -> Floats:
    """Return the total time [blocks] of the grids of 1, 2, ... blocks of these durations."""
    free = [0.0] * n_sms
    finished = np.empty(len(durations))
    for block, duration in enumerate(durations.tolist()):
        finished[block] = end = free[0] + duration
        heapq.heapreplace(free, end)
    return np.maximum.accumulate(finished)


def simulate_gaussian_grids(
    n_sms: int, waves: int, *, mean: float, deviation: float, repeats: int = 1, seed: int = 0
) -> Floats:
    """Return the mean total time [n_sms · waves] of grids whose blocks' durations are Gaussian."""
    generator = np.random.default_rng(seed)
    total = np.zeros(n_sms * waves)
    for _ in range(repeats):
        drawn = generator.normal(mean, deviation, len(total))
        total += simulate_grids(np.maximum(drawn, _LEAST_SHARE * mean), n_sms)
    return total / repeats


def measure_step_share(times: Floats, n_sms: int) -> Floats:
    """Return, wave by wave from the second, the part of a wave's rise that comes at its first block.

    1 is a staircase; of a line each of the n_sms blocks of a wave has the same part, 1 / n_sms.
    """
    ends = times[n_sms - 1 :: n_sms]
    first = times[n_sms::n_sms]
    rise = np.maximum(ends[1 : len(first) + 1] - ends[: len(first)], 1e-300)
    share: Floats = (first - ends[: len(first)]) / rise
    return share
