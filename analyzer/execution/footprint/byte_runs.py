"""Repeated byte intervals: joined, closed where a formula does, unrolled only where it must be.

A run is the interval [start, start + length) repeated under nested strides: it stands at
start + sum of t_d * step_d for all t_d below count_d. Normal form: strides ascend, those that
repeat once have step 0 and come last.
"""

from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.footprint.hashing import make_hash_factors

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_MAX_INT64 = np.int64(2**63 - 1)
_MAX_SIMPLIFY_ROUNDS = 16
_MAX_MEMOIZED_RUNS = 64
_MAX_FOLD_GROUPS = 32


class ByteRuns(Struct, frozen=True, kw_only=True, eq=False):
    """starts[m], lengths[m] > 0, steps[m, d], counts[m, d] >= 1."""

    starts: IntArray
    lengths: IntArray
    steps: IntArray
    counts: IntArray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_unrolled(self) -> bool:
        return not (self.counts > 1).any()

    def take(self, rows: NDArray[np.intp] | BoolArray) -> "ByteRuns":
        return ByteRuns(
            starts=self.starts[rows],
            lengths=self.lengths[rows],
            steps=self.steps[rows],
            counts=self.counts[rows],
        )

    def compute_stops(self) -> IntArray:
        """End of the last repetition, in normal form."""
        ends: IntArray = self.starts + self.lengths + (self.steps * (self.counts - 1)).sum(axis=1)
        return ends


def make_runs(starts: IntArray, lengths: IntArray) -> ByteRuns:
    """Intervals that do not repeat."""
    none = np.zeros((len(starts), 0), np.int64)
    return ByteRuns(starts=starts, lengths=lengths, steps=none, counts=none)


def concatenate_runs(parts: list[ByteRuns]) -> ByteRuns:
    """All runs of `parts`, with as many strides as the one that has most."""
    depth = max((part.steps.shape[1] for part in parts), default=0)
    if not parts:
        return make_runs(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return ByteRuns(
        starts=np.concatenate([part.starts for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        steps=np.concatenate([_pad_columns(part.steps, depth, 0) for part in parts]),
        counts=np.concatenate([_pad_columns(part.counts, depth, 1) for part in parts]),
    )


def _pad_columns(columns: IntArray, depth: int, value: int) -> IntArray:
    n_rows, width = columns.shape
    if width == depth:
        return columns
    padded = np.full((n_rows, depth), value, dtype=np.int64)
    padded[:, :width] = columns
    return padded


def simplify_runs(runs: ByteRuns) -> ByteRuns:
    """The same bytes in fewer or simpler runs: strides absorbed, neighbours joined, chains closed.

    Unrolled code touches the same bytes a little further on, again and again: what came of few runs is kept.
    """
    if len(runs) > _MAX_MEMOIZED_RUNS:
        return _simplify(runs)
    arrays = (runs.starts, runs.lengths, runs.steps, runs.counts)
    return _simplify_memoized(*(array.tobytes() for array in arrays), depth=runs.steps.shape[1])


@lru_cache(maxsize=256)
def _simplify_memoized(starts: bytes, lengths: bytes, steps: bytes, counts: bytes, *, depth: int) -> ByteRuns:
    first, second, *tables = (np.frombuffer(data, np.int64) for data in (starts, lengths, steps, counts))
    shape = (len(first), depth)
    return _simplify(
        ByteRuns(
            starts=first, lengths=second, steps=tables[0].reshape(shape), counts=tables[1].reshape(shape)
        )
    )


def _simplify(runs: ByteRuns) -> ByteRuns:
    runs = _normalize(runs)
    for _ in range(_MAX_SIMPLIFY_ROUNDS):
        if runs.is_unrolled:
            break
        before = len(runs)
        runs = _normalize(_join_intervals(runs))
        if len(runs) < before:
            continue
        runs = _normalize(_chain_intervals(runs))
        if len(runs) == before:
            return runs
    return _join_intervals(runs)


def round_to_units(runs: ByteRuns, unit_bytes: int) -> ByteRuns:
    """The whole units, which begin at multiples of their size, that runs in normal form touch.

    A stride that is no multiple of a unit becomes several that are, as many as there are places in a unit.
    """
    for d in range(runs.steps.shape[1]):
        places = np.minimum(unit_bytes // np.gcd(runs.steps[:, d], unit_bytes), runs.counts[:, d])
        rows = np.repeat(np.arange(len(runs)), places)
        repetition = np.arange(len(rows)) - np.repeat(np.cumsum(places) - places, places)
        steps, counts, places = runs.steps[rows], runs.counts[rows], places[rows]
        starts = runs.starts[rows] + repetition * steps[:, d]
        counts[:, d] = -((repetition - counts[:, d]) // places)
        steps[:, d] *= places
        runs = ByteRuns(starts=starts, lengths=runs.lengths[rows], steps=steps, counts=counts)
    lows = runs.starts // unit_bytes * unit_bytes
    highs = -(-(runs.starts + runs.lengths) // unit_bytes) * unit_bytes
    return ByteRuns(starts=lows, lengths=highs - lows, steps=runs.steps, counts=runs.counts)


def unroll_runs(runs: ByteRuns, max_intervals: int) -> ByteRuns | None:
    """Disjoint plain intervals in ascending order, None where more than `limit` would be held.

    `runs` are as `simplify_runs` left them.
    """
    while not runs.is_unrolled:
        times = runs.counts[:, 0]
        total = int(times.sum())
        if total > max_intervals:
            return None
        rows = np.repeat(np.arange(len(runs)), times)
        repetition = np.arange(total) - np.repeat(np.cumsum(times) - times, times)
        wide = runs.take(rows)
        runs = simplify_runs(
            ByteRuns(
                starts=wide.starts + repetition * wide.steps[:, 0],
                lengths=wide.lengths,
                steps=wide.steps[:, 1:],
                counts=wide.counts[:, 1:],
            )
        )
    return None if len(runs) > max_intervals else runs


def fold_runs(runs: ByteRuns) -> ByteRuns:
    """The same bytes, where runs that are alike and lie evenly are one that repeats once more."""
    kinds = _number_groups([runs.lengths, *runs.steps.T, *runs.counts.T], len(runs))
    n_kinds = int(kinds.max(initial=0)) + 1
    if n_kinds > _MAX_FOLD_GROUPS:
        return runs
    every = (runs.take(np.flatnonzero(kinds == kind)) for kind in range(n_kinds))
    return concatenate_runs([_fold_group(alike) for alike in every])


def _fold_group(alike: ByteRuns) -> ByteRuns:
    """Runs that differ in where they start alone: those in a row at the distance that most have, as one."""
    starts = np.sort(alike.starts)
    gaps, times = np.unique(np.diff(starts), return_counts=True)
    if not len(gaps):
        return alike
    step = int(gaps[times.argmax()])
    heads = np.append(0, np.flatnonzero(np.diff(starts) != step) + 1)
    first = alike.take(np.arange(len(heads)))
    return ByteRuns(
        starts=starts[heads],
        lengths=first.lengths,
        steps=np.column_stack([first.steps, np.full(len(heads), step)]),
        counts=np.column_stack([first.counts, np.diff(np.append(heads, len(starts)))]),
    )


def count_bytes_by_unrolling(runs: ByteRuns) -> int:
    """Distinct bytes of all repetitions, each held by itself."""
    starts, lengths, rows = runs.starts, runs.lengths, np.arange(len(runs))
    for d in range(runs.steps.shape[1]):
        times = runs.counts[rows, d]
        repetition = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        rows = np.repeat(rows, times)
        starts = np.repeat(starts, times) + repetition * runs.steps[rows, d]
    firsts, stops = _union_intervals(starts, starts + lengths[rows])
    return int((stops - firsts).sum())


def _normalize(runs: ByteRuns) -> ByteRuns:
    """Normal form; a stride no longer than the interval makes it longer, one that continues another too."""
    if not runs.steps.shape[1]:
        return runs
    steps, counts = runs.steps.copy(), runs.counts.copy()
    starts, lengths = runs.starts.copy(), runs.lengths.copy()
    down = steps < 0
    starts += np.where(down, steps * (counts - 1), 0).sum(axis=1)
    np.abs(steps, out=steps)
    _clear_single_strides(steps, counts)
    _sort_strides(steps, counts)
    depth = steps.shape[1]
    for d in range(depth):
        taken = (counts[:, d] > 1) & (steps[:, d] <= lengths)
        if not taken.any():
            continue
        lengths += np.where(taken, steps[:, d] * (counts[:, d] - 1), 0)
        counts[taken, d] = 1
    _clear_single_strides(steps, counts)
    _sort_strides(steps, counts)
    for d in range(depth - 1, 0, -1):
        _fuse_strides(steps, counts, d)
    _sort_strides(steps, counts)
    used = int((counts > 1).any(axis=0).sum())
    return ByteRuns(starts=starts, lengths=lengths, steps=steps[:, :used], counts=counts[:, :used])


def _clear_single_strides(steps: IntArray, counts: IntArray) -> None:
    once = (counts == 1) | (steps == 0)
    steps[once] = 0
    counts[once] = 1


def _sort_strides(steps: IntArray, counts: IntArray) -> None:
    if steps.shape[1] < 2:
        return
    order = np.argsort(np.where(counts > 1, steps, _MAX_INT64), axis=1, kind="stable")
    steps[:] = np.take_along_axis(steps, order, axis=1)
    counts[:] = np.take_along_axis(counts, order, axis=1)


def _fuse_strides(steps: IntArray, counts: IntArray, d: int) -> None:
    """Stride d steps over whole steps of stride d - 1 and leaves no gap: both are one."""
    inner, outer = steps[:, d - 1], steps[:, d]
    pair = (counts[:, d] > 1) & (counts[:, d - 1] > 1)
    pair &= outer % np.maximum(inner, 1) == 0
    pair &= outer <= inner * counts[:, d - 1]
    more = (counts[:, d] - 1) * (outer // np.maximum(inner, 1))
    counts[:, d - 1] += np.where(pair, more, 0)
    counts[pair, d] = 1
    steps[pair, d] = 0


def _join_intervals(runs: ByteRuns) -> ByteRuns:
    """Overlapping and touching intervals that repeat alike become one."""
    groups = _number_groups([*runs.steps.T, *runs.counts.T], len(runs))
    starts, stops, rows = merge_intervals(groups, runs.starts, runs.starts + runs.lengths)
    return ByteRuns(starts=starts, lengths=stops - starts, steps=runs.steps[rows], counts=runs.counts[rows])


def _chain_intervals(runs: ByteRuns) -> ByteRuns:
    """Intervals that lie whole steps apart and repeat by that step become one with a higher count."""
    for d in range(runs.steps.shape[1]):
        step = np.maximum(runs.steps[:, d], 1)
        others = [
            c for e in range(runs.steps.shape[1]) if e != d for c in (runs.steps[:, e], runs.counts[:, e])
        ]
        alike = [runs.steps[:, d], runs.lengths, runs.starts % step, *others]
        turns = runs.starts // step
        alone = np.where(runs.counts[:, d] == 1, np.arange(len(runs)) + 1, 0)
        groups = _number_groups([*alike, alone], len(runs))
        first, last, rows = merge_intervals(groups, turns, turns + runs.counts[:, d])
        if len(rows) == len(runs):
            continue
        counts = runs.counts[rows]
        counts[:, d] = last - first
        starts = runs.starts[rows] + (first - turns[rows]) * step[rows]
        runs = ByteRuns(starts=starts, lengths=runs.lengths[rows], steps=runs.steps[rows], counts=counts)
    return runs


def _number_groups(columns: list[IntArray], n_rows: int) -> IntArray:
    """Numbers rows by the combination of their values: equal numbers, equal rows."""
    varying = [column for column in columns if n_rows and (column != column[0]).any()]
    if not varying:
        return np.zeros(n_rows, np.int64)
    if len(varying) == 1:
        return np.unique(varying[0], return_inverse=True)[1]
    table = np.stack(varying)
    hashes = make_hash_factors(len(table)) @ table.view(np.uint64)
    _, firsts, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    if bool((table == table[:, firsts[numbers]]).all()):
        return numbers
    return np.unique(table, axis=1, return_inverse=True)[1].reshape(-1)  # two rows share a hash


def merge_intervals(
    groups: IntArray, starts: IntArray, stops: IntArray
) -> tuple[IntArray, IntArray, NDArray[np.intp]]:
    """Union within each group: starts, stops, and a row of the same group for each.

    The i earliest starts and the i earliest stops belong to the same intervals where the i-th stop lies
    before the next start: there the union has a gap. So both are sorted by themselves, and groups are laid
    end to end. Where the groups reach too far for that, intervals come back as they were.
    """
    rows = np.arange(len(starts))
    n_groups = int(groups.max(initial=0)) + 1
    if n_groups == 1:
        merged_starts, merged_stops = _union_intervals(starts, stops)
        return merged_starts, merged_stops, np.zeros(len(merged_starts), np.intp)
    lows = np.full(n_groups, _MAX_INT64)
    np.minimum.at(lows, groups, starts)
    spans = np.zeros(n_groups, np.int64)
    np.maximum.at(spans, groups, stops - lows[groups] + 1)
    if float(spans.astype(np.float64).sum()) > 2.0**62:
        return starts, stops, rows
    ends = np.cumsum(spans)
    shift = ends - spans - lows
    laid_starts, laid_stops = _union_intervals(starts + shift[groups], stops + shift[groups])
    group = np.searchsorted(ends, laid_starts, side="right")
    member = np.zeros(n_groups, np.intp)
    member[groups] = rows
    return laid_starts - shift[group], laid_stops - shift[group], member[group]


def _union_intervals(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    starts, stops = np.sort(starts), np.sort(stops)
    gaps = np.flatnonzero(starts[1:] > stops[:-1])
    first = np.append(0, gaps + 1)[: len(starts)]
    last = np.append(gaps, len(stops) - 1)[: len(stops)]
    return starts[first], stops[last]
