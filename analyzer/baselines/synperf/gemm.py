"""Tasks of cuBLAS-like matrix products, by a table of tiles.

For FP32 the tile is what decision trees learned from profiles (`tile_table`), and the splits of k that cuBLAS
makes for a few small products (5 % of the profiled ones) are left out.

For tensor cores no profile with kernel names is open, so this rests on a rule, not on data: of the tiles that
NVIDIA's guide to matrix products lists (256 x 128 the most efficient, 64 x 64 the least), the one with the
least time of waves: ceil(tiles / SMs) · tile area / relative efficiency. Kernels with asynchronous MMA are
persistent.
"""

import numpy as np

from analyzer.baselines.synperf.tile_table import compute_tile_features, find_tile_tree
from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.names import DataType
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable, tabulate_equal_tasks
from analyzer.operators.task_demand import stack_demand

# Tile m, n, and efficiency relative to the largest (NVIDIA, "Matrix multiplication background", figure 5's
# order; the figures are round numbers in that order, not measurements).
_TENSOR_TILES = np.array(
    [[256, 128, 1.0], [128, 256, 1.0], [128, 128, 0.95], [128, 64, 0.8], [64, 128, 0.8], [64, 64, 0.65]]
)
_K_STEP = 32.0


def choose_tensor_tile(batch: ProductBatch, sm_count: int) -> tuple[Column, Column]:
    """Return tile m and n with the least time of waves for each row (a rule, see the module)."""
    tile_m, tile_n, efficiency = _TENSOR_TILES.T
    tiles = np.ceil(batch.m[:, None] / tile_m) * np.ceil(batch.n[:, None] / tile_n) * batch.batch[:, None]
    best = np.argmin(np.ceil(tiles / sm_count) * tile_m * tile_n / efficiency, axis=1)
    return tile_m[best], tile_n[best]


def decompose_gemm(batch: ProductBatch, figures: PipeFigures) -> TaskTable:
    """Return the tasks of products, one group of equal tasks per row."""
    scalar = batch.dtype is DataType.FP32
    if scalar:
        tree = find_tile_tree(batch.operator, figures.architecture)
        tile_m, tile_n = tree.choose(compute_tile_features(batch, figures.sm_count))
    else:
        tile_m, tile_n = choose_tensor_tile(batch, figures.sm_count)
    tiles_m, tiles_n = np.ceil(batch.m / tile_m), np.ceil(batch.n / tile_n)
    ops = 2.0 * tile_m * tile_n * np.ceil(batch.k / _K_STEP) * _K_STEP
    # Means over the tiles: those at an edge load less.
    a_bytes = batch.m / tiles_m * batch.dtype.activation_bytes
    b_bytes = batch.n / tiles_n * batch.dtype.weight_bytes
    demand = stack_demand(
        tensor=0.0 if scalar else ops,
        fma=ops / 2.0 if scalar else 0.0,
        xu=0.0,
        load_bytes=batch.k * (a_bytes + b_bytes),
    )
    persistent = not scalar and figures.has_asynchronous_mma
    policy = SchedulingPolicy.PERSISTENT if persistent else SchedulingPolicy.HARDWARE
    return tabulate_equal_tasks(tiles_m * tiles_n * batch.batch, demand, policy, 1)
