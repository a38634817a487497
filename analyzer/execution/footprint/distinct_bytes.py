"""How many bytes repeated intervals cover, without unrolling what lies alike again and again.

Runs fall into clusters that do not overlap. Where a cluster reaches further than its widest stride, it is cut
into cells as wide as that stride: each run lies at the same place in some cells that follow each other, and
cells in which the same runs lie are measured once.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.footprint.byte_runs import (
    BoolArray,
    ByteRuns,
    concatenate_runs,
    count_bytes_by_unrolling,
    fold_runs,
    simplify_runs,
    unroll_runs,
)
from analyzer.execution.footprint.hashing import make_hash_factors

_MAX_DISTINCT_CLUSTERS = 256  # looked at one by one; more are unrolled together
_MAX_CELL_RUNS = 64  # are cut into cells, where they make more than a few pieces
_MAX_CHEAP_PIECES = 4096
_SORTED_LIMIT_FACTOR = 4  # times the limit: so many pieces are sorted at once sooner than joined step by step
_MAX_UNROLLED_REPETITIONS = 16


def count_distinct_bytes(runs: ByteRuns, max_intervals: int) -> int | None:
    """Distinct bytes of all runs, None where more than `limit` intervals would have to be held.

    `runs` are as `simplify_runs` left them.
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
    """Each cluster by itself, those that are alike but for where they lie once; all together if too many."""
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
    """Clusters that differ in more than where they lie, and how many there are of each; None for too many."""
    heads = _find_cluster_heads(runs)
    sizes = np.diff(np.append(heads, len(runs)))
    near = runs.starts - np.repeat(runs.starts[heads], sizes)
    rows = np.column_stack([near, runs.lengths, runs.steps, runs.counts]).view(np.uint64)
    place = np.arange(len(runs)) - np.repeat(heads, sizes)
    factors = make_hash_factors(rows.shape[1])
    hashes = np.add.reduceat((rows @ factors) * (2 * place + 1).astype(np.uint64), heads)
    _, firsts, which, times = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    if len(firsts) > _MAX_DISTINCT_CLUSTERS:
        return None
    twins = np.repeat(heads[firsts][which], sizes) + place  # the same row of the cluster that stands for this
    if not np.array_equal(sizes[firsts][which], sizes) or not np.array_equal(rows[twins], rows):
        return None
    spans = zip(heads[firsts], sizes[firsts], times, strict=True)
    return [(runs.take(np.arange(head, head + size)), int(n_times)) for head, size, n_times in spans]


def _count_cluster_bytes(runs: ByteRuns, max_intervals: int) -> int | None:
    """Where all runs share their widest stride and fit in one step of it, one repetition stands for all."""
    widest = int(np.argmax(runs.steps[0]))
    step, count = int(runs.steps[0, widest]), int(runs.counts[0, widest])
    if count > 1 and (runs.steps[:, widest] == step).all() and (runs.counts[:, widest] == count).all():
        counts = runs.counts.copy()
        steps = runs.steps.copy()
        counts[:, widest] = 1
        steps[:, widest] = 0
        inner = ByteRuns(starts=runs.starts, lengths=runs.lengths, steps=steps, counts=counts)
        if int(inner.compute_stops().max() - inner.starts.min()) <= step:
            once = count_distinct_bytes(simplify_runs(inner), max_intervals)
            return None if once is None else once * count
    is_much = _count_pieces(runs) > min(_MAX_CHEAP_PIECES, max_intervals)
    folded = fold_runs(runs) if is_much else runs
    if len(folded) < len(runs):
        return count_distinct_bytes(simplify_runs(folded), max_intervals)
    cut = _count_bytes_by_cells(runs, max_intervals) if is_much and len(runs) <= _MAX_CELL_RUNS else None
    if cut is not None:
        return cut
    return _count_unrolled_bytes(runs, max_intervals)


def _count_unrolled_bytes(runs: ByteRuns, max_intervals: int) -> int | None:
    """All pieces side by side, if they are not too many."""
    if _count_pieces(runs) <= _SORTED_LIMIT_FACTOR * max_intervals:
        return count_bytes_by_unrolling(runs)
    plain = unroll_runs(runs, max_intervals)
    return None if plain is None else int(plain.lengths.sum())


def _count_pieces(runs: ByteRuns) -> float:
    """Intervals that come of all repetitions."""
    return float(runs.counts.astype(np.float64).prod(axis=1).sum())


class _CellRun(Struct, frozen=True):
    """An interval that repeats within a cell, and lies at the same place in n_cells cells from `cell` on.

    strides: step and count, ascending.
    """

    cell: int
    n_cells: int
    start: int
    length: int
    strides: tuple[tuple[int, int], ...]

    @property
    def stop(self) -> int:
        return self.start + self.length + sum(step * (count - 1) for step, count in self.strides)


def _count_bytes_by_cells(runs: ByteRuns, max_intervals: int) -> int | None:
    """Cells as wide as the widest stride, those that hold the same only once; None where runs do not fit."""
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
    """Each run from the cell on that it starts in."""
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
    """The same bytes in pieces that cross no border between cells, of which the first is the piece's own.

    The widest stride, else the bytes themselves, divides a cell into slots; where it does not, or what
    repeats is wider than a slot, a few turns are taken one by one. None where they are more.
    """
    if piece.stop <= width:
        return [piece]
    *inner, (step, count) = (1, piece.length), *piece.strides
    reach = piece.stop - piece.start - step * (count - 1)
    if width % step or reach > step:
        return _fold_each_repetition(piece, width) if count <= _MAX_UNROLLED_REPETITIONS else None
    slots = width // step
    slot, offset = divmod(piece.start, step)
    whole = slots if offset + reach <= step else slots - 1  # that cross no border of a cell
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
    """`_folded`, for each turn of the widest stride."""
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
    """A part of a piece, in n_cells cells from so many cells on, each time that the piece repeats by cells.

    The first of strides is the interval itself, in steps of a byte.
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
    """First rows of the groups whose extents do not overlap; `runs` ascend by start."""
    reach = np.maximum.accumulate(runs.compute_stops())
    return np.flatnonzero(np.append(True, runs.starts[1:] >= reach[:-1]))


def _is_disjoint(runs: ByteRuns) -> BoolArray:
    extent = runs.lengths.copy()
    disjoint = np.ones(len(runs), np.bool_)
    for d in range(runs.steps.shape[1]):
        many = runs.counts[:, d] > 1
        disjoint &= ~many | (runs.steps[:, d] >= extent)
        extent += runs.steps[:, d] * (runs.counts[:, d] - 1)
    return disjoint
