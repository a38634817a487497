"""Tasks of cuBLAS-like matrix products, by a table of tiles.

cuBLAS is closed, so that which tile it takes has to be learned from profiles. For FP32 there are some: the
kernel's name and the grid of each product in NeuSight's collection (Pascal to Ampere), from which a decision
tree per architecture and layout learned tile and split of k (`TileTrees`; `analyzer.learning.tile_trees`). An
architecture without a profile takes the most similar one's, as the paper does.

For tensor cores no profile with kernel names is open, so this rests on a rule, not on data: of the tiles
that NVIDIA's guide to matrix products lists (256 x 128 the most efficient, 64 x 64 the least), the one with
the least time of waves: ceil(tiles / SMs) · tile area / relative efficiency. Hopper's kernels are
persistent.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.decompose.task_demand import stack_demand
from analyzer.operators.names import DataType
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable, tabulate_equal_tasks

# Tile m, n, and efficiency relative to the largest (NVIDIA, "Matrix multiplication background", figure 5's
# order; the figures are round numbers in that order, not measurements).
_TENSOR_TILES = np.array(
    [[256, 128, 1.0], [128, 256, 1.0], [128, 128, 0.95], [128, 64, 0.8], [64, 128, 0.8], [64, 64, 0.65]]
)
_K_STEP = 32.0


class Tiling(Struct, frozen=True):
    """Tile and split of k of each row."""

    tile_m: Column
    tile_n: Column
    splits: Column


class TileTree(Struct, frozen=True):
    """A decision tree from a product's shape to its tile, in arrays: leaves have left = -1."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    tiling: NDArray[np.float64]  # nodes x (tile m, tile n, splits)

    def choose(self, shape_features: NDArray[np.float64]) -> Tiling:
        """Return the tilings of rows of shape features (`compute_tile_features`)."""
        rows = np.arange(len(shape_features))
        node = np.zeros(len(rows), dtype=np.int64)
        while (inner := self.left[node] >= 0).any():
            goes_left = shape_features[rows, np.maximum(self.feature[node], 0)] <= self.threshold[node]
            node = np.where(inner, np.where(goes_left, self.left[node], self.right[node]), node)
        return Tiling(*self.tiling[node].T)


def compute_tile_features(batch: ProductBatch, sm_count: int) -> NDArray[np.float64]:
    """Return rows x 5: log2 of m, n, k, the batch, and tiles of 128 x 128 per SM."""
    tiles = np.ceil(batch.m / 128) * np.ceil(batch.n / 128) * batch.batch / sm_count
    return np.log2(np.stack([batch.m, batch.n, batch.k, batch.batch, tiles], axis=1))


def choose_tensor_tiling(batch: ProductBatch, sm_count: int) -> Tiling:
    """Return the tile with the least time of waves for each row (a rule, see the module)."""
    tile_m, tile_n, efficiency = _TENSOR_TILES.T
    tiles = np.ceil(batch.m[:, None] / tile_m) * np.ceil(batch.n[:, None] / tile_n) * batch.batch[:, None]
    cost = np.ceil(tiles / sm_count) * tile_m * tile_n / efficiency
    best = np.argmin(cost, axis=1)
    return Tiling(tile_m[best], tile_n[best], np.ones(len(batch)))


def decompose_gemm(batch: ProductBatch, figures: PipeFigures, tree: TileTree | None = None) -> TaskTable:
    """Return the tasks of products, one group of equal tasks per row.

    `tree`: what was learned of FP32 tiles; without it the rule for tensor cores chooses.
    """
    if tree is None:
        tiling = choose_tensor_tiling(batch, figures.sm_count)
    else:
        tiling = tree.choose(compute_tile_features(batch, figures.sm_count))
    tiles_m, tiles_n = np.ceil(batch.m / tiling.tile_m), np.ceil(batch.n / tiling.tile_n)
    k = np.ceil(batch.k / tiling.splits / _K_STEP) * _K_STEP
    ops = 2.0 * tiling.tile_m * tiling.tile_n * k
    # Means over the tiles: those at an edge load less.
    a_bytes = batch.m / tiles_m * batch.dtype.activation_bytes
    b_bytes = batch.n / tiles_n * batch.dtype.weight_bytes
    loads = batch.k / tiling.splits * (a_bytes + b_bytes)
    scalar = batch.dtype is DataType.FP32
    demand = stack_demand(0.0 if scalar else ops, ops / 2.0 if scalar else 0.0, 0.0, loads)
    persistent = figures.architecture in ("sm_90", "sm_100", "sm_103")
    policy = SchedulingPolicy.PERSISTENT if persistent else SchedulingPolicy.HARDWARE
    return tabulate_equal_tasks(tiles_m * tiles_n * batch.batch * tiling.splits, demand, policy, 1)
