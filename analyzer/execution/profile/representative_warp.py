"""One warp to stand for all: AMALI takes the medoid of the largest cluster of per-warp pipe use."""

from importlib import import_module

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analyzer.execution.profile.execution_profile import ExecutionProfile, WarpClass
from analyzer.text.errors import UsageError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

N_SUB_CORES = 4
_MAX_CLUSTERS = 4
_MIN_SILHOUETTE_SCORE = 0.5
_MAX_SAMPLED_ROWS = 2048
_RANDOM_SEED = 0


def assign_sub_cores(warps: ArrayLike) -> IntArray:
    """Sub-core that each warp of a CTA runs on: warp number modulo four (AMALI)."""
    return np.asarray(warps, dtype=np.int64) % N_SUB_CORES


def find_representative_warp(pipe_use: ArrayLike, weights: ArrayLike | None = None) -> int:
    """The row of `pipe_use` [n_warp, n_pipe] that stands for all; weights[i]: how many warps row i is.

    Each pipe is scaled to its largest use. Rows are clustered by k-means, k from 2 to 4 and below the number
    of distinct rows, where the mean silhouette is largest; unless that exceeds 0.5 (a reasonable structure,
    after Kaufman and Rousseeuw) they are one cluster. Of two distinct rows each is a cluster. The answer is
    the medoid of the heaviest cluster; ties go to the row that comes first. Same input, same answer.
    """
    use = np.asarray(pipe_use, dtype=np.float64)
    if use.ndim != 2 or not len(use):
        raise ValueError("pipe_use must be [n_warp, n_pipe] with at least one warp")
    heavy = np.ones(len(use)) if weights is None else np.asarray(weights, dtype=np.float64)
    rows, first, inverse = np.unique(use, axis=0, return_index=True, return_inverse=True)
    summed = np.zeros(len(rows))
    np.add.at(summed, inverse.reshape(-1), heavy)
    order = np.argsort(first)
    rows, first, summed = rows[order], first[order], summed[order]
    largest = rows.max(axis=0)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    labels = _cluster_rows(scaled, summed)
    share = np.zeros(int(labels.max()) + 1)
    np.add.at(share, labels, summed)
    members = np.flatnonzero(labels == _find_heaviest_label(labels, share))
    return int(first[members[_find_medoid(scaled[members], summed[members])]])


def find_representative_class(profile: ExecutionProfile, block_use: ArrayLike) -> WarpClass:
    """The class of the representative warp; block_use[n_block, n_pipe]: what one run of a block takes."""
    counts = np.stack([one.block_counts for one in profile.warp_classes])
    use = counts @ np.asarray(block_use, dtype=np.float64)
    return profile.warp_classes[find_representative_warp(use, [one.n_warps for one in profile.warp_classes])]


def _find_heaviest_label(labels: IntArray, share: FloatArray) -> int:
    """The heaviest cluster; of several the one whose first row comes first."""
    heaviest = np.flatnonzero(share == share.max())
    return int(min(heaviest.tolist(), key=lambda label: int(np.argmax(labels == label))))


def _cluster_rows(rows: FloatArray, weights: FloatArray) -> IntArray:
    if len(rows) <= 2:
        return np.arange(len(rows), dtype=np.int64)
    try:
        cluster, metrics = import_module("sklearn.cluster"), import_module("sklearn.metrics")
    except ImportError:
        raise UsageError(
            "choosing a representative warp needs scikit-learn", hint="pip install scikit-learn"
        ) from None
    sample = np.unique(np.linspace(0, len(rows) - 1, _MAX_SAMPLED_ROWS).astype(np.int64))
    best, labels = _MIN_SILHOUETTE_SCORE, np.zeros(len(rows), dtype=np.int64)
    for k in range(2, min(_MAX_CLUSTERS, len(rows) - 1) + 1):
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
    """The row nearest to all; of very many rows the one nearest to their mean."""
    if len(rows) > _MAX_SAMPLED_ROWS:
        mean = np.average(rows, axis=0, weights=weights if weights.any() else None)
        return int(np.argmin(np.linalg.norm(rows - mean, axis=1)))
    distances = np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=2)
    return int(np.argmin(np.round(distances @ weights, 9)))
