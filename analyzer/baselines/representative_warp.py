"""Choice of one warp that represents all of a grid.

As in AMALI, warps are clustered by the use that they make of each pipe, and the medoid of the heaviest
cluster is the representative.
"""

from importlib import import_module

import numpy as np
from numpy.typing import ArrayLike

from analyzer.execution.profile.execution_profile import ExecutionProfile, WarpClass
from analyzer.ir.arrays import FloatArray, IntArray
from analyzer.text.errors import UsageError

N_SUB_CORES = 4
_MAX_CLUSTERS = 4
_MIN_SILHOUETTE_SCORE = 0.5
_MAX_SAMPLED_ROWS = 2048
_RANDOM_SEED = 0


def assign_sub_cores(warps: ArrayLike) -> IntArray:
    """Return the sub-core that each warp of a CTA runs on: warp number modulo four (AMALI)."""
    return np.asarray(warps, dtype=np.int64) % N_SUB_CORES


def find_representative_warp(pipe_use: ArrayLike, weights: ArrayLike | None = None) -> int:
    """Return the index of the row of `pipe_use` that represents all rows.

    Each pipe is scaled to its largest use. Rows are clustered by k-means, with the k (from 2 to 4, below the
    number of distinct rows) of the largest mean silhouette. Unless that exceeds 0.5 (a reasonable structure,
    after Kaufman and Rousseeuw), all rows are one cluster. Two distinct rows are two clusters. The result is
    the medoid of the heaviest cluster; ties go to the first row. The result is deterministic.

    pipe_use: [n_warp, n_pipe].
    weights: number of warps of each row.
    """
    use = np.asarray(pipe_use, dtype=np.float64)
    if use.ndim != 2 or not len(use):
        raise ValueError("pipe_use must be [n_warp, n_pipe] with at least one warp")
    row_weights = np.ones(len(use)) if weights is None else np.asarray(weights, dtype=np.float64)
    rows, first, inverse = np.unique(use, axis=0, return_index=True, return_inverse=True)
    group_weights = np.zeros(len(rows))
    np.add.at(group_weights, inverse.reshape(-1), row_weights)
    order = np.argsort(first)
    rows, first, group_weights = rows[order], first[order], group_weights[order]
    largest = rows.max(axis=0)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    labels = _cluster_rows(scaled, group_weights)
    share = np.zeros(int(labels.max()) + 1)
    np.add.at(share, labels, group_weights)
    members = np.flatnonzero(labels == _find_heaviest_label(labels, share))
    return int(first[members[_find_medoid(scaled[members], group_weights[members])]])


def find_representative_class(profile: ExecutionProfile, block_use: ArrayLike) -> WarpClass:
    """Return the class of the representative warp.

    block_use: [n_block, n_pipe], pipe use of one execution of each block.
    """
    counts = np.stack([one.block_counts for one in profile.warp_classes])
    use = counts @ np.asarray(block_use, dtype=np.float64)
    return profile.warp_classes[find_representative_warp(use, [one.n_warps for one in profile.warp_classes])]


def _find_heaviest_label(labels: IntArray, share: FloatArray) -> int:
    """Return the heaviest cluster; of several the one whose first row comes first."""
    heaviest = np.flatnonzero(share == share.max())
    return int(min(heaviest.tolist(), key=lambda label: int(np.argmax(labels == label))))


def _cluster_rows(rows: FloatArray, weights: FloatArray) -> IntArray:
    """Return the cluster of each row, by k-means with the best silhouette. Raises UsageError.

    It runs in one thread: sums in another order can make another one of two equally good clusterings best.
    """
    if len(rows) <= 2:
        return np.arange(len(rows), dtype=np.int64)
    try:
        limits = import_module("threadpoolctl").threadpool_limits
        cluster, metrics = import_module("sklearn.cluster"), import_module("sklearn.metrics")
    except ImportError:
        raise UsageError(
            "choosing a representative warp needs scikit-learn", hint="pip install scikit-learn"
        ) from None
    sample = np.unique(np.linspace(0, len(rows) - 1, _MAX_SAMPLED_ROWS).astype(np.int64))
    best, labels = _MIN_SILHOUETTE_SCORE, np.zeros(len(rows), dtype=np.int64)
    for k in range(2, min(_MAX_CLUSTERS, len(rows) - 1) + 1):
        with limits(limits=1):
            fit = cluster.KMeans(n_clusters=k, n_init=10, random_state=_RANDOM_SEED).fit(
                rows, sample_weight=weights
            )
        found = np.asarray(fit.labels_, dtype=np.int64)
        if not 2 <= len(np.unique(found[sample])) < len(sample):
            continue
        score = float(metrics.silhouette_score(rows[sample], found[sample]))
        if score > best + 1e-9:
            best, labels = score, found
    return labels


def _find_medoid(rows: FloatArray, weights: FloatArray) -> int:
    """Return the row nearest to all others; of very many rows the one nearest to their mean."""
    if len(rows) > _MAX_SAMPLED_ROWS:
        mean = np.average(rows, axis=0, weights=weights if weights.any() else None)
        return int(np.argmin(np.linalg.norm(rows - mean, axis=1)))
    distances = np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=2)
    return int(np.argmin(np.round(distances @ weights, 9)))
