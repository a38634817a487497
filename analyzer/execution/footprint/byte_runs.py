"""Sets of strided byte intervals: simplified by formulas, unrolled only where necessary.

A run is the interval [start, start + length) repeated under nested strides: at start + sum of t_d * step_d
for all 0 <= t_d < count_d. Simplification applies these rules until nothing changes, for at most 16 rounds:

1. Absorb: a stride no longer than the interval makes the interval longer.
2. Fuse: a stride that continues the next smaller one raises the count of that one.
3. Join: overlapping or adjacent intervals with the same strides become one.
4. Chain: intervals that lie whole steps apart become one with a higher count.

Invariant: the set of bytes never changes. Normal form: steps ascend; strides with count 1 have step 0 and
come last.

    start 0, length 4, step 4, count 8          becomes   start 0, length 32
    two runs of length 32, step 64, count 2,
    at 0 and at 128                             become    start 0, length 32, step 64, count 4
"""

from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.footprint.hashing import make_hash_factors
from analyzer.ir.arrays import BoolArray, IntArray

_MAX_INT64 = np.int64(2**63 - 1)
_MAX_SIMPLIFY_ROUNDS = 16
_MAX_MEMOIZED_RUNS = 64
_MAX_FOLD_GROUPS = 32


class ByteRuns(Struct, frozen=True, kw_only=True, eq=False):
    """A set of m runs with up to d nested strides."""

    starts: IntArray  # [m]
    lengths: IntArray  # [m], > 0
    steps: IntArray  # [m, d]
    counts: IntArray  # [m, d], >= 1

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_unrolled(self) -> bool:
        """True if no run repeats."""
        return not (self.counts > 1).any()

    def take(self, rows: NDArray[np.intp] | BoolArray) -> "ByteRuns":
        """Return the runs at these rows."""
        return ByteRuns(
            starts=self.starts[rows],
            lengths=self.lengths[rows],
            steps=self.steps[rows],
            counts=self.counts[rows],
        )

    def compute_stops(self) -> IntArray:
        """Return the end of the last repetition of each run, in normal form."""
        ends: IntArray = self.starts + self.lengths + (self.steps * (self.counts - 1)).sum(axis=1)
        return ends


def make_runs(starts: IntArray, lengths: IntArray) -> ByteRuns:
    """Make runs without repetition."""
    no_strides = np.zeros((len(starts), 0), np.int64)
    return ByteRuns(starts=starts, lengths=lengths, steps=no_strides, counts=no_strides)


def concatenate_runs(parts: list[ByteRuns]) -> ByteRuns:
    """Concatenate runs, padded to the largest number of strides."""
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
    """Rewrite runs as fewer or simpler ones with the same bytes, by the rules above.

    Results for few runs are cached, since unrolled code repeats the same pattern.
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
    """Round runs in normal form out to whole aligned units (for example sectors).

    A stride that is no multiple of the unit becomes several runs whose strides are, one for each offset in a
    unit.
    """
    for d in range(runs.steps.shape[1]):
        positions = np.minimum(unit_bytes // np.gcd(runs.steps[:, d], unit_bytes), runs.counts[:, d])
        rows = np.repeat(np.arange(len(runs)), positions)
        repetition = np.arange(len(rows)) - np.repeat(np.cumsum(positions) - positions, positions)
        steps, counts, positions = runs.steps[rows], runs.counts[rows], positions[rows]
        starts = runs.starts[rows] + repetition * steps[:, d]
        counts[:, d] = -((repetition - counts[:, d]) // positions)
        steps[:, d] *= positions
        runs = ByteRuns(starts=starts, lengths=runs.lengths[rows], steps=steps, counts=counts)
    lows = runs.starts // unit_bytes * unit_bytes
    highs = -(-(runs.starts + runs.lengths) // unit_bytes) * unit_bytes
    return ByteRuns(starts=lows, lengths=highs - lows, steps=runs.steps, counts=runs.counts)


def unroll_runs(runs: ByteRuns, max_intervals: int) -> ByteRuns | None:
    """Unroll runs to disjoint intervals in ascending order; None if there are more than `max_intervals`.

    runs: results of `simplify_runs`
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
    """Merge equal runs at equal distances to one run with a further stride."""
    kinds = _number_groups([runs.lengths, *runs.steps.T, *runs.counts.T], len(runs))
    n_kinds = int(kinds.max(initial=0)) + 1
    if n_kinds > _MAX_FOLD_GROUPS:
        return runs
    groups = (runs.take(np.flatnonzero(kinds == kind)) for kind in range(n_kinds))
    return concatenate_runs([_fold_group(group) for group in groups])


def _fold_group(equal_runs: ByteRuns) -> ByteRuns:
    """Merge runs that differ only in their start, wherever successive starts have the most frequent gap."""
    starts = np.sort(equal_runs.starts)
    gaps, times = np.unique(np.diff(starts), return_counts=True)
    if not len(gaps):
        return equal_runs
    step = int(gaps[times.argmax()])
    heads = np.append(0, np.flatnonzero(np.diff(starts) != step) + 1)
    first = equal_runs.take(np.arange(len(heads)))
    return ByteRuns(
        starts=starts[heads],
        lengths=first.lengths,
        steps=np.column_stack([first.steps, np.full(len(heads), step)]),
        counts=np.column_stack([first.counts, np.diff(np.append(heads, len(starts)))]),
    )


def count_bytes_by_unrolling(runs: ByteRuns) -> int:
    """Count distinct bytes by unrolling all repetitions."""
    starts, lengths, rows = runs.starts, runs.lengths, np.arange(len(runs))
    for d in range(runs.steps.shape[1]):
        times = runs.counts[rows, d]
        repetition = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        rows = np.repeat(rows, times)
        starts = np.repeat(starts, times) + repetition * runs.steps[rows, d]
    firsts, stops = _union_intervals(starts, starts + lengths[rows])
    return int((stops - firsts).sum())


def _normalize(runs: ByteRuns) -> ByteRuns:
    """Bring runs into normal form, and absorb and fuse strides (rules 1 and 2)."""
    if not runs.steps.shape[1]:
        return runs
    steps, counts = runs.steps.copy(), runs.counts.copy()
    starts, lengths = runs.starts.copy(), runs.lengths.copy()
    is_negative = steps < 0
    starts += np.where(is_negative, steps * (counts - 1), 0).sum(axis=1)
    np.abs(steps, out=steps)
    _clear_single_strides(steps, counts)
    _sort_strides(steps, counts)
    depth = steps.shape[1]
    for d in range(depth):
        absorbed = (counts[:, d] > 1) & (steps[:, d] <= lengths)
        if not absorbed.any():
            continue
        lengths += np.where(absorbed, steps[:, d] * (counts[:, d] - 1), 0)
        counts[absorbed, d] = 1
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
    """Fuse stride d with stride d - 1 if it is a multiple of its step and leaves no gap, in place."""
    inner, outer = steps[:, d - 1], steps[:, d]
    pair = (counts[:, d] > 1) & (counts[:, d - 1] > 1)
    pair &= outer % np.maximum(inner, 1) == 0
    pair &= outer <= inner * counts[:, d - 1]
    more = (counts[:, d] - 1) * (outer // np.maximum(inner, 1))
    counts[:, d - 1] += np.where(pair, more, 0)
    counts[pair, d] = 1
    steps[pair, d] = 0


def _join_intervals(runs: ByteRuns) -> ByteRuns:
    """Join overlapping and adjacent intervals with equal strides (rule 3)."""
    groups = _number_groups([*runs.steps.T, *runs.counts.T], len(runs))
    starts, stops, rows = merge_intervals(groups, runs.starts, runs.starts + runs.lengths)
    return ByteRuns(starts=starts, lengths=stops - starts, steps=runs.steps[rows], counts=runs.counts[rows])


def _chain_intervals(runs: ByteRuns) -> ByteRuns:
    """Chain intervals that lie whole steps apart and repeat by that step (rule 4).

    In units of the step these are intervals of iterations, which are merged like bytes.
    """
    for d in range(runs.steps.shape[1]):
        step = np.maximum(runs.steps[:, d], 1)
        others = [
            c for e in range(runs.steps.shape[1]) if e != d for c in (runs.steps[:, e], runs.counts[:, e])
        ]
        keys = [runs.steps[:, d], runs.lengths, runs.starts % step, *others]
        iterations = runs.starts // step
        single_ids = np.where(runs.counts[:, d] == 1, np.arange(len(runs)) + 1, 0)  # these stay alone
        groups = _number_groups([*keys, single_ids], len(runs))
        first, last, rows = merge_intervals(groups, iterations, iterations + runs.counts[:, d])
        if len(rows) == len(runs):
            continue
        counts = runs.counts[rows]
        counts[:, d] = last - first
        starts = runs.starts[rows] + (first - iterations[rows]) * step[rows]
        runs = ByteRuns(starts=starts, lengths=runs.lengths[rows], steps=runs.steps[rows], counts=counts)
    return runs


def _number_groups(columns: list[IntArray], n_rows: int) -> IntArray:
    """Number rows so that rows get the same number if and only if all their columns are equal."""
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
    """Merge the intervals of each group; return starts, stops, and a row of the same group for each.

    Starts and stops are sorted separately: the union has a gap after the i-th stop if the next start is
    larger than it, since then the i first starts and the i first stops belong to the same intervals. Groups
    are shifted so that they do not overlap, and merged in one pass. If their extents are too large for 64
    bits, the intervals are returned unchanged.
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
    shifted_starts, shifted_stops = _union_intervals(starts + shift[groups], stops + shift[groups])
    group = np.searchsorted(ends, shifted_starts, side="right")
    member = np.zeros(n_groups, np.intp)
    member[groups] = rows
    return shifted_starts - shift[group], shifted_stops - shift[group], member[group]


def _union_intervals(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    starts, stops = np.sort(starts), np.sort(stops)
    gaps = np.flatnonzero(starts[1:] > stops[:-1])
    first = np.append(0, gaps + 1)[: len(starts)]
    last = np.append(gaps, len(stops) - 1)[: len(stops)]
    return starts[first], stops[last]
