"""Count of the distinct bytes of strided intervals, mostly without unrolling.

1. Split the runs into clusters whose extents do not overlap. A cluster of one run without self-overlap is a
   product of length and counts. Clusters that are equal up to their position are counted once.
2. If all runs of a cluster share the widest stride and one repetition fits into a step, count one repetition
   and multiply.
3. Merge equal runs at equal distances (`fold_runs`) and try again.
4. Cut the cluster into cells as wide as its widest stride. A run then lies at the same offset in a range of
   cells; cells with the same runs are counted once.
5. Otherwise unroll, up to a limit.

    [0, 32) and [48, 56), each repeated 1000 times by 64:
    one repetition ends at 56 and fits into a step of 64, so the count is (32 + 8) * 1000
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.footprint.byte_runs import (
    ByteRuns,
    concatenate_runs,
    count_bytes_by_unrolling,
    fold_runs,
    simplify_runs,
    unroll_runs,
)
from analyzer.execution.footprint.hashing import make_hash_factors
from analyzer.ir.arrays import BoolArray

_MAX_DISTINCT_CLUSTERS = 256  # counted one by one; more are unrolled together
_MAX_CELL_RUNS = 64  # clusters of more runs are not cut into cells
_MAX_CHEAP_PIECES = 4096  # up to this number, unrolling is cheaper than folding and cutting
# Up to this multiple of the limit, sorting all pieces is faster than joining them stride by stride.
_SORTED_LIMIT_FACTOR = 4
_MAX_UNROLLED_REPETITIONS = 16


def count_distinct_bytes(runs: ByteRuns, max_intervals: int) -> int | None:
    """Count the distinct bytes of all runs; None if more than `max_intervals` intervals had to be stored.

    runs: results of `simplify_runs`
    """
    if runs.is_unrolled:
        return int(runs.lengths.sum())
    runs = runs.take(np.argsort(runs.starts, kind="stable"))
    heads = _find_cluster_heads(runs)
    sizes = np.diff(np.append(heads, len(runs)))
    closed = np.zeros(len(runs), np.bool_)
    closed[heads[sizes == 1]] = True
    closed &= _is_disjoint(runs)
    volume = runs.lengths[closed] * runs.counts[closed].prod(axis=1)
    rest = runs.take(~closed)
    other = _count_bytes_by_clusters(rest, max_intervals) if len(rest) else 0
    return None if other is None else int(volume.sum()) + other


def _count_bytes_by_clusters(runs: ByteRuns, max_intervals: int) -> int | None:
    """Count by clusters, equal ones once; all together if there are too many distinct ones."""
    total = 0
    clusters = _find_distinct_clusters(runs)
    if clusters is None:
        return _count_unrolled_bytes(runs, max_intervals)
    for cluster, times in clusters:
        part = _count_cluster_bytes(cluster, max_intervals)
        if part is None:
            return None
        total += part * times
    return total


def _find_distinct_clusters(runs: ByteRuns) -> list[tuple[ByteRuns, int]] | None:
    """Return clusters that differ in more than their position, and the number of each; None if too many."""
    heads = _find_cluster_heads(runs)
    sizes = np.diff(np.append(heads, len(runs)))
    offsets = runs.starts - np.repeat(runs.starts[heads], sizes)
    rows = np.column_stack([offsets, runs.lengths, runs.steps, runs.counts]).view(np.uint64)
    position = np.arange(len(runs)) - np.repeat(heads, sizes)
    factors = make_hash_factors(rows.shape[1])
    hashes = np.add.reduceat((rows @ factors) * (2 * position + 1).astype(np.uint64), heads)
    _, firsts, which, times = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    if len(firsts) > _MAX_DISTINCT_CLUSTERS:
        return None
    representatives = (
        np.repeat(heads[firsts][which], sizes) + position
    )  # same row of the representative cluster
    if not np.array_equal(sizes[firsts][which], sizes) or not np.array_equal(rows[representatives], rows):
        return None
    spans = zip(heads[firsts], sizes[firsts], times, strict=True)
    return [(runs.take(np.arange(head, head + size)), int(n_times)) for head, size, n_times in spans]


def _count_cluster_bytes(runs: ByteRuns, max_intervals: int) -> int | None:
    """Count the bytes of one cluster, by the first of the methods 2 to 5 that applies."""
    widest = int(np.argmax(runs.steps[0]))
    step, times = int(runs.steps[0, widest]), int(runs.counts[0, widest])
    if times > 1 and (runs.steps[:, widest] == step).all() and (runs.counts[:, widest] == times).all():
        counts = runs.counts.copy()
        steps = runs.steps.copy()
        counts[:, widest] = 1
        steps[:, widest] = 0
        inner = ByteRuns(starts=runs.starts, lengths=runs.lengths, steps=steps, counts=counts)
        if int(inner.compute_stops().max() - inner.starts.min()) <= step:
            once = count_distinct_bytes(simplify_runs(inner), max_intervals)
            return None if once is None else once * times
    has_many_pieces = _count_pieces(runs) > min(_MAX_CHEAP_PIECES, max_intervals)
    folded = fold_runs(runs) if has_many_pieces else runs
    if len(folded) < len(runs):
        return count_distinct_bytes(simplify_runs(folded), max_intervals)
    can_cut = has_many_pieces and len(runs) <= _MAX_CELL_RUNS
    count = _count_bytes_by_cells(runs, max_intervals) if can_cut else None
    if count is not None:
        return count
    return _count_unrolled_bytes(runs, max_intervals)


def _count_unrolled_bytes(runs: ByteRuns, max_intervals: int) -> int | None:
    """Count by unrolling; None if there are too many pieces."""
    if _count_pieces(runs) <= _SORTED_LIMIT_FACTOR * max_intervals:
        return count_bytes_by_unrolling(runs)
    plain = unroll_runs(runs, max_intervals)
    return None if plain is None else int(plain.lengths.sum())


def _count_pieces(runs: ByteRuns) -> float:
    """Return the number of intervals of all repetitions."""
    return float(runs.counts.astype(np.float64).prod(axis=1).sum())


class _CellRun(Struct, frozen=True):
    """A strided interval that lies at the same offset in a range of consecutive cells."""

    cell: int  # first cell
    n_cells: int
    start: int  # offset in the cell
    length: int
    strides: tuple[tuple[int, int], ...]  # (step, count), ascending

    @property
    def stop(self) -> int:
        """End of the last repetition, relative to the first cell."""
        return self.start + self.length + sum(step * (count - 1) for step, count in self.strides)


def _count_bytes_by_cells(runs: ByteRuns, max_intervals: int) -> int | None:
    """Count by cells as wide as the widest stride, equal ones once; None if runs cannot be cut."""
    width = int(runs.steps.max())
    pieces: list[_CellRun] = []
    for piece in _split_into_cells(runs, width):
        folded = _fold_into_cells(piece, width)
        if folded is None:
            return None
        pieces += folded
    borders = sorted({piece.cell for piece in pieces} | {piece.cell + piece.n_cells for piece in pieces})
    known: dict[tuple[_CellRun, ...], int | None] = {}
    total = 0
    for first, end in pairwise(borders):
        inside = tuple(
            replace(piece, cell=0, n_cells=1)
            for piece in pieces
            if piece.cell <= first < piece.cell + piece.n_cells
        )
        if inside not in known:
            known[inside] = count_distinct_bytes(simplify_runs(_make_byte_runs(inside)), max_intervals)
        part = known[inside]
        if part is None:
            return None
        total += part * (end - first)
    return total


def _split_into_cells(runs: ByteRuns, width: int) -> Iterator[_CellRun]:
    """Yield each run with the cell in which it starts; the widest stride becomes its number of cells."""
    for at, length, steps, counts in zip(
        (runs.starts - runs.starts.min()).tolist(),
        runs.lengths.tolist(),
        runs.steps.tolist(),
        runs.counts.tolist(),
        strict=True,
    ):
        cell, start = divmod(at, width)
        strides = [stride for stride in zip(steps, counts, strict=True) if stride[1] > 1]
        n_cells = strides.pop()[1] if strides and strides[-1][0] == width else 1
        yield _CellRun(cell=cell, n_cells=n_cells, start=start, length=length, strides=tuple(strides))


def _fold_into_cells(piece: _CellRun, width: int) -> list[_CellRun] | None:
    """Split a piece into pieces that cross no cell border; None if there are too many.

    The widest stride of the piece divides a cell into slots (a piece without strides repeats its bytes, by
    1). If the step does not divide the cell, or one repetition is wider than a slot, repetitions are split
    one by one.
    """
    if piece.stop <= width:
        return [piece]
    *inner, (step, count) = (1, piece.length), *piece.strides
    reach = piece.stop - piece.start - step * (count - 1)
    if width % step or reach > step:
        return _fold_each_repetition(piece, width) if count <= _MAX_UNROLLED_REPETITIONS else None
    slots = width // step
    slot, offset = divmod(piece.start, step)
    whole = slots if offset + reach <= step else slots - 1  # slots inside the cell
    n_whole, rest = divmod(slot + count, slots)
    spans = [(0, 1, slot, min(slot + count, whole))]
    if n_whole:
        spans += [(1, n_whole - 1, 0, whole), (n_whole, 1, 0, min(rest, whole))]
    found = [
        _shift_cell_run(piece, cell, n_cells, first * step + offset, (*inner, (step, end - first)))
        for cell, n_cells, first, end in spans
        if n_cells and first < end
    ]
    if whole == slots or not n_whole:
        return found
    across = _fold_into_cells(
        _shift_cell_run(piece, 0, n_whole, (slots - 1) * step + offset, tuple(inner)), width
    )
    return None if across is None else found + across


def _fold_each_repetition(piece: _CellRun, width: int) -> list[_CellRun] | None:
    """Do `_fold_into_cells` for each repetition of the widest stride."""
    *inner, (step, count) = (1, piece.length), *piece.strides
    found: list[_CellRun] = []
    for repetition in range(count):
        cell, start = divmod(piece.start + repetition * step, width)
        folded = _fold_into_cells(_shift_cell_run(piece, cell, 1, start, tuple(inner)), width)
        if folded is None:
            return None
        found += folded
    return found


def _shift_cell_run(
    piece: _CellRun, cells: int, n_cells: int, start: int, strides: tuple[tuple[int, int], ...]
) -> _CellRun:
    """Make a part of a piece, shifted by `cells` cells and present in `n_cells` cells for each of its cells.

    strides: the first is the interval itself, with step 1
    """
    return _CellRun(
        cell=piece.cell + cells,
        n_cells=piece.n_cells + n_cells - 1,
        start=start,
        length=strides[0][1],
        strides=tuple(stride for stride in strides[1:] if stride[1] > 1),
    )


def _make_byte_runs(pieces: Sequence[_CellRun]) -> ByteRuns:
    return concatenate_runs(
        [
            ByteRuns(
                starts=np.array([piece.start]),
                lengths=np.array([piece.length]),
                steps=np.array([[step for step, _ in piece.strides]], np.int64),
                counts=np.array([[count for _, count in piece.strides]], np.int64),
            )
            for piece in pieces
        ]
    )


def _find_cluster_heads(runs: ByteRuns) -> NDArray[np.intp]:
    """Return the first row of each cluster.

    runs: by ascending start
    """
    reach = np.maximum.accumulate(runs.compute_stops())
    return np.flatnonzero(np.append(True, runs.starts[1:] >= reach[:-1]))


def _is_disjoint(runs: ByteRuns) -> BoolArray:
    """Return the mask of runs whose repetitions do not overlap."""
    extent = runs.lengths.copy()
    disjoint = np.ones(len(runs), np.bool_)
    for d in range(runs.steps.shape[1]):
        many = runs.counts[:, d] > 1
        disjoint &= ~many | (runs.steps[:, d] >= extent)
        extent += runs.steps[:, d] * (runs.counts[:, d] - 1)
    return disjoint
