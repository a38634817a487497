"""Learn which tile cuBLAS takes from profiled launches: one decision tree per architecture and operator."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.synperf.tile_table import TileTree, compute_tile_features
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.batches import Column, ProductBatch

_LEAVES = 64
_LEAST_LEAF_ROWS = 5
_SHARE_HELD_OUT = 0.2


class ProfiledTiles(Struct, frozen=True):
    """Products of one operator on one GPU, with the tile of each launch."""

    gpu: str
    batch: ProductBatch
    tile_m: Column
    tile_n: Column


def learn_tile_tree(profile: ProfiledTiles, seed: int = 0) -> TileTree:
    """Return the tree of a profile, learned on four fifths of its rows; `agreement` is that on the others."""
    from sklearn.tree import DecisionTreeClassifier

    gpu = load_gpu(profile.gpu)
    features = compute_tile_features(profile.batch, gpu.sm_count)
    tiles, labels = np.unique(np.stack([profile.tile_m, profile.tile_n], 1), axis=0, return_inverse=True)
    held_out = np.random.default_rng(seed).random(len(features)) < _SHARE_HELD_OUT
    model = DecisionTreeClassifier(
        max_leaf_nodes=_LEAVES, min_samples_leaf=_LEAST_LEAF_ROWS, random_state=seed
    )
    model.fit(features[~held_out], labels[~held_out])
    tree = model.tree_
    most_frequent: NDArray[np.int64] = model.classes_[tree.value[:, 0, :].argmax(axis=1)]
    return TileTree(
        architecture=gpu.code[0],
        operator=profile.batch.operator,
        gpu=profile.gpu,
        n_rows=len(features),
        agreement=round(float(model.score(features[held_out], labels[held_out])), 4),
        feature=tuple(np.maximum(tree.feature, -1).tolist()),
        threshold=tuple(np.round(tree.threshold, 6).tolist()),
        left=tuple(tree.children_left.tolist()),
        right=tuple(tree.children_right.tolist()),
        tile_m=tuple(tiles[most_frequent, 0].tolist()),
        tile_n=tuple(tiles[most_frequent, 1].tolist()),
    )
