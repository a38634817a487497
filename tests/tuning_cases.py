"""Samples with closed forms, for tests of `tune`."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from analyzer.tuning.kernel_space import KernelSpace, Tiling
from analyzer.tuning.samples import Samples

Floats = NDArray[np.float64]
N_SMS = 10
# One tile parameter each: G = ceil(rows / 16) · ceil(columns / 16), L = ceil(depth / 16) where all are 16.
SPACE = KernelSpace(
    name="toy",
    inputs=("m", "n", "k"),
    macro_parameters=("TM", "TN", "TK"),
    micro_parameters=("warps",),
    grid=(Tiling("m", "TM"), Tiling("n", "TN")),
    loop=Tiling("k", "TK"),
)
TIMES = Callable[[Floats, Floats, Floats], Floats]  # of wave, G, L


def make_samples(
    times: TIMES,
    *,
    waves: int = 4,
    macros: tuple[tuple[int, int, int], ...] = ((16, 16, 16),),
    micros: tuple[int, ...] = (1,),
    micro_factor: Callable[[int, Floats], Floats] = lambda warps, loops: np.ones_like(loops),
    loops: tuple[int, ...] = (2, 8, 32),
) -> Samples:
    """Three grids per wave of N_SMS blocks, of one row of blocks each, times loop counts, macros and micros."""
    rows, taken = [], []
    for macro in macros:
        for wave in range(1, waves + 1):
            for grid in (wave * N_SMS - 7, wave * N_SMS - 3, wave * N_SMS):
                for loop in loops:
                    shape = (macro[0], grid * macro[1], loop * macro[2])
                    exact = times(*(np.array([float(v)]) for v in (wave, grid, loop)))
                    for warps in micros:
                        rows.append((*shape, *macro, warps))
                        taken.append(float((exact * micro_factor(warps, np.array([float(loop)])))[0]))
    table = np.array(rows, dtype=np.int64)
    return Samples(SPACE, "toy-gpu", table[:, :3], table[:, 3:6], table[:, 6:], np.array(taken))


def rise_by_waves(wave: Floats, grid: Floats, loops: Floats) -> Floats:
    """Bilinear within each wave, another function in each."""
    return (0.02 + 0.01 * wave) * grid * loops + 0.3 * wave * grid + 0.5 * loops + 2.0 * wave


def map_input(space: KernelSpace, shape: Sequence[int], macro: Sequence[int]) -> tuple[int, int]:
    """G and L of one input under one macro configuration."""
    grid, loops = space.map_inputs(np.array([shape]), np.array([macro]))
    return int(grid[0]), int(loops[0])
