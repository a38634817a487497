"""Which tile cuBLAS takes for an FP32 product: decision trees learned from profiles (SynPerf, section IV-A).

cuBLAS is closed, so the mapping from shape to tile is learned: kernel names such as
`ampere_sgemm_128x64_tn` name the tile (output columns x rows, since cuBLAS is column-major), and the
launched grid agrees with it. There is one tree per architecture and operator (a batched product has another
layout than a linear layer), in `hwdb/tiles/cublas-fp32.json`; `bench/fit_tile_trees.py` learns them.
An architecture without a profile takes the last one that is listed, the latest architecture's.

    feature 0 (log2 m) <= 6.5 ? 32 x 128 : 128 x 128      is  feature [0, -1, -1], left [1, -1, -1], ...
"""

from functools import cache

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.names import Operator
from analyzer.resources import find_data_folder


class TileTree(Struct, frozen=True):
    """A decision tree from a product's shape to its tile; leaves have left = -1."""

    architecture: str  # "sm_80"
    operator: Operator
    gpu: str  # that the profile is of
    n_rows: int
    agreement: float  # share of held-out rows whose tile it names
    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    tile_m: tuple[float, ...]  # of each node: the most frequent
    tile_n: tuple[float, ...]

    def choose(self, shape_features: NDArray[np.float64]) -> tuple[Column, Column]:
        """Return tile m and n for rows of `compute_tile_features`."""
        feature, threshold = np.array(self.feature), np.array(self.threshold)
        left, right = np.array(self.left), np.array(self.right)
        rows = np.arange(len(shape_features))
        node = np.zeros(len(rows), dtype=np.int64)
        while (inner := left[node] >= 0).any():
            goes_left = shape_features[rows, np.maximum(feature[node], 0)] <= threshold[node]
            node = np.where(inner, np.where(goes_left, left[node], right[node]), node)
        return np.array(self.tile_m)[node], np.array(self.tile_n)[node]


def compute_tile_features(batch: ProductBatch, sm_count: int) -> NDArray[np.float64]:
    """Return rows x 5: log2 of m, n, k, the batch, and tiles of 128 x 128 per SM."""
    tiles = np.ceil(batch.m / 128) * np.ceil(batch.n / 128) * batch.batch / sm_count
    return np.log2(np.stack([batch.m, batch.n, batch.k, batch.batch, tiles], axis=1))


def find_tile_tree(operator: Operator, architecture: str) -> TileTree:
    """Return the tree of an operator on an architecture, the last one listed where it has no profile."""
    trees = [tree for tree in read_tile_trees() if tree.operator is operator] or list(read_tile_trees())
    return next((tree for tree in trees if tree.architecture == architecture), trees[-1])


@cache
def read_tile_trees() -> tuple[TileTree, ...]:
    """Return all shipped trees."""
    path = find_data_folder("hwdb") / "tiles" / "cublas-fp32.json"
    return msgspec.json.decode(path.read_bytes(), type=tuple[TileTree, ...])
