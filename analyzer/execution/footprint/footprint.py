"""Footprint of memory requests: the distinct bytes that many warps touch, loops included, counted exactly.

Requests are stored compressed. Lane addresses become a base and a pattern for each warp (`lane_patterns`);
loop iterations become strides; warps at regular distances become strides too. To evaluate the set, patterns
are split into intervals, which with the strides are runs of bytes (`byte_runs`), and the runs are simplified
and counted (`distinct_bytes`).

    footprint = Footprint()
    footprint.add(1000 + 4 * lanes, True, 4, (Stride(128, 10),))     # a warp reads 128 bytes, 10 times
    footprint.count_unique_bytes()                                   # 1280
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import ArrayLike

from analyzer.execution.footprint.byte_runs import (
    ByteRuns,
    concatenate_runs,
    round_to_units,
    simplify_runs,
    unroll_runs,
)
from analyzer.execution.footprint.distinct_bytes import count_distinct_bytes
from analyzer.execution.footprint.hashing import sort_unique
from analyzer.execution.footprint.lane_patterns import LANES, LanePatterns, compress_addresses
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.ir.arrays import Addresses, IntArray

DEFAULT_MAX_INTERVALS = 500_000
_MAX_SEPARATE_PATTERNS = 64  # up to this number, patterns are stored one by one
_MAX_UNSIMPLIFIED_RUNS = 4096  # up to this number, runs are merged with others before simplification
_MAX_LATTICE_AXES = 3
_MAX_EXTENT_BYTES = 2.0**61  # larger extents do not come from valid addresses


class Stride(Struct, frozen=True, eq=False):
    """A repetition by `step` bytes, `count` times."""

    step: IntArray | int  # a number, or an array that broadcasts to [n_warp, 32]
    count: IntArray | int  # a number, or [n_warp]


class _PatternIntervals(Struct, frozen=True, kw_only=True, eq=False):
    """Intervals of patterns, relative to the base of the warp, one pattern after the other."""

    n_per_pattern: IntArray  # number of intervals of each pattern
    starts: IntArray  # this and the rest: by interval
    lengths: IntArray
    steps: IntArray
    counts: IntArray

    def bound_extent_bytes(self) -> float:
        """Return an upper bound of the distance between a base and any byte touched from it."""
        far = np.abs(self.starts.astype(np.float64)) + self.lengths
        return float((far + self.steps.astype(np.float64) * (self.counts - 1)).max(initial=0.0))


class _StridedRequests(Struct, frozen=True, kw_only=True, eq=False):
    """Stored requests: base, pattern and strides of each warp."""

    bases: Addresses  # [n_warp]
    pattern_ids: IntArray  # [n_warp]
    intervals: _PatternIntervals
    steps: IntArray  # [n_warp, d], or [1, d] if all warps have the same strides
    counts: IntArray  # same shape

    @property
    def n_runs(self) -> int:
        """Number of runs that `to_runs` returns."""
        return int(self.intervals.n_per_pattern[self.pattern_ids].sum())

    def to_runs(self, origin: int) -> ByteRuns:
        """Convert to runs with starts relative to `origin`."""
        intervals = self.intervals
        times = intervals.n_per_pattern[self.pattern_ids]
        warps = np.repeat(np.arange(len(self.bases)), times)
        position = np.arange(len(warps)) - np.repeat(np.cumsum(times) - times, times)
        first = np.cumsum(intervals.n_per_pattern) - intervals.n_per_pattern
        which = first[self.pattern_ids[warps]] + position
        bases = (self.bases - np.uint64(origin)).view(np.int64)
        rows = warps if len(self.steps) > 1 else np.zeros(len(warps), np.intp)
        steps, counts = self.steps[rows], self.counts[rows]
        if (intervals.counts > 1).any():
            steps = np.column_stack([steps, intervals.steps[which]])
            counts = np.column_stack([counts, intervals.counts[which]])
        starts = bases[warps] + intervals.starts[which]
        return ByteRuns(starts=starts, lengths=intervals.lengths[which], steps=steps, counts=counts)

    def bound_extent_bytes(self) -> float:
        """Return an upper bound of the distance between a base and any byte touched from it."""
        reach = np.abs(self.steps.astype(np.float64)) * (self.counts - 1)
        return float(reach.sum(axis=1).max(initial=0.0)) + self.intervals.bound_extent_bytes()


class Footprint:
    """Set of the bytes that any number of requests touch.

    max_intervals: most intervals that an evaluation may store; beyond it, results are None
    """

    def __init__(self, max_intervals: int = DEFAULT_MAX_INTERVALS) -> None:
        self.max_intervals = max_intervals
        self._requests: list[_StridedRequests] = []
        self._simplified_runs: ByteRuns | None = None
        self._origin = 0

    def add(
        self,
        addresses: ArrayLike,
        active: ArrayLike,
        width_bytes: int,
        strides: tuple[Stride, ...] = (),
        patterns: LanePatterns | None = None,
    ) -> None:
        """Add [a, a + width) of every active lane, repeated by all combinations of `strides`.

        Addresses and active lanes broadcast to [n_warp, 32]. A count of 0 or less touches nothing.

        patterns: the compressed addresses, if they are known already
        """
        table = np.atleast_2d(np.asarray(addresses))
        rows = [np.atleast_2d(np.asarray(stride.step)).shape[0] for stride in strides]
        rows += [np.size(stride.count) for stride in strides]
        n_warps = np.broadcast_shapes(*[(row,) for row in rows], (len(table),))[0]
        table = np.broadcast_to(table, (n_warps, table.shape[1]))
        if any(_has_per_lane_step(stride) for stride in strides):
            self._add_per_lane(table, active, width_bytes, strides)
        else:
            if patterns is None or len(patterns.bases) != n_warps:
                patterns = compress_addresses(table, active)
            self.add_patterns(patterns, width_bytes, strides)

    def add_patterns(
        self, patterns: LanePatterns, width_bytes: int, strides: tuple[Stride, ...] = ()
    ) -> None:
        """Add requests with compressed addresses; steps must be equal in all lanes of a warp."""
        n_warps = len(patterns.bases)
        steps, counts = _build_stride_table(strides, n_warps)
        self._store_patterns(patterns, width_bytes, steps, counts)

    def _add_per_lane(
        self, addresses: ArrayLike, active: ArrayLike, width_bytes: int, strides: tuple[Stride, ...]
    ) -> None:
        """Add requests whose lanes have different steps: each lane becomes a warp with one active lane."""
        table, masks, *steps = np.broadcast_arrays(
            np.atleast_2d(np.asarray(addresses, np.uint64)),
            np.atleast_2d(np.asarray(active, np.bool_)),
            np.zeros((1, LANES), np.int64),
            *(np.asarray(stride.step, np.int64) for stride in strides),
        )
        lanes = np.flatnonzero(masks)
        single = tuple(
            Stride(step.ravel()[lanes, None], _broadcast_count(stride.count, len(masks))[lanes // LANES])
            for step, stride in zip(steps[1:], strides, strict=True)
        )
        first = np.arange(LANES)[None, :] == 0
        self.add_patterns(compress_addresses(table.ravel()[lanes, None], first), width_bytes, single)

    def _store_patterns(
        self, patterns: LanePatterns, width_bytes: int, steps: IntArray, counts: IntArray
    ) -> None:
        bases, pattern_ids = patterns.bases, patterns.pattern_ids
        is_active = np.asarray(patterns.active.any(axis=1), np.bool_)
        keep = is_active[pattern_ids] & np.broadcast_to((counts > 0).all(axis=1), len(pattern_ids))
        if not keep.all():
            bases, pattern_ids = bases[keep], pattern_ids[keep]
            if len(steps) > 1:
                steps, counts = steps[keep], counts[keep]
        if not len(bases) or width_bytes <= 0:
            return
        self._simplified_runs = None
        groups = _group_rows(pattern_ids, steps, counts)
        # With equal strides, patterns stay together: their intervals may join.
        if len(groups.first_rows) > (_MAX_SEPARATE_PATTERNS if len(steps) > 1 else 1):
            intervals = _join_lane_intervals(patterns.offsets, width_bytes)
            self._requests.append(
                _StridedRequests(
                    bases=bases, pattern_ids=pattern_ids, intervals=intervals, steps=steps, counts=counts
                )
            )
            return
        for group, first in enumerate(groups.first_rows.tolist()):
            own_bases = bases if len(groups.first_rows) == 1 else bases[groups.group_ids == group]
            row = slice(first, first + 1) if len(steps) > 1 else slice(None)
            starts, own_steps, own_counts = _find_lattice(sort_unique(own_bases), steps[row], counts[row])
            pattern = int(pattern_ids[first])
            self._requests.append(
                _StridedRequests(
                    bases=starts,
                    pattern_ids=np.broadcast_to(np.int64(0), len(starts)),
                    intervals=_join_pattern_intervals(patterns.offsets[pattern].tobytes(), width_bytes),
                    steps=own_steps,
                    counts=own_counts,
                )
            )

    def merge(self, other: "Footprint") -> None:
        """Add all bytes of another footprint."""
        self._requests.extend(other._requests)
        self._simplified_runs = None

    def __bool__(self) -> bool:
        """Return whether any byte is touched."""
        return bool(self._requests)

    def to_simplified_runs(self) -> tuple[int, ByteRuns] | None:
        """Return the lowest base and the simplified runs relative to it; None if too many or too wide."""
        runs = self._evaluate_runs()
        return None if runs is None else (self._origin, runs)

    def to_runs(self) -> tuple[int, ByteRuns] | None:
        """Return the lowest base and runs relative to it, which are simplified only if there are many."""
        few = (
            self._simplified_runs is None
            and sum(access.n_runs for access in self._requests) <= _MAX_UNSIMPLIFIED_RUNS
        )
        lowest = self._find_lowest_base() if few else None
        if lowest is None:
            return self.to_simplified_runs()
        return lowest, concatenate_runs([access.to_runs(lowest) for access in self._requests])

    def count_unique_bytes(self) -> int | None:
        """Count the distinct bytes; None if more than `max_intervals` intervals had to be stored."""
        runs = self._evaluate_runs()
        return None if runs is None else count_distinct_bytes(runs, self.max_intervals)

    def to_intervals(self) -> tuple[Addresses, Addresses] | None:
        """Return starts and stops of disjoint ascending intervals; None if more than `max_intervals`."""
        runs = self._evaluate_runs()
        plain = None if runs is None else unroll_runs(runs, self.max_intervals)
        if plain is None:
            return None
        starts = plain.starts.view(np.uint64) + np.uint64(self._origin)
        return starts, starts + plain.lengths.view(np.uint64)

    def _evaluate_runs(self) -> ByteRuns | None:
        """Return the simplified runs relative to the lowest base, cached; None if too many or too wide."""
        if self._simplified_runs is not None:
            return self._simplified_runs
        if not self._requests:
            self._origin = 0
            return concatenate_runs([])
        lowest = self._find_lowest_base()
        if lowest is None:
            return None
        self._origin = lowest
        parts: list[ByteRuns] = []
        for access in self._requests:
            if access.n_runs > self.max_intervals:
                return None
            parts.append(simplify_runs(access.to_runs(self._origin)))
        runs = simplify_runs(concatenate_runs(parts)) if len(parts) > 1 else parts[0]
        self._simplified_runs = runs
        return runs

    def _find_lowest_base(self) -> int | None:
        """Return the lowest base; None if the bytes lie too far apart."""
        lowest = min(int(access.bases.min()) for access in self._requests)
        span = max(int(access.bases.max()) for access in self._requests) - lowest
        return (
            None
            if span + max(access.bound_extent_bytes() for access in self._requests) > _MAX_EXTENT_BYTES
            else lowest
        )


def count_union_bytes(footprints: Sequence[Footprint]) -> int | None:
    """Count the distinct bytes of a union; None if the smallest limit of the footprints is exceeded."""
    together = _merge_footprints(footprints)
    return None if together is None else count_distinct_bytes(together[1], _find_interval_limit(footprints))


def count_union_sectors(footprints: Sequence[Footprint]) -> int | None:
    """Count the distinct sectors of a union; None if the smallest limit of the footprints is exceeded."""
    together = _merge_footprints(footprints)
    if together is None:
        return None
    origin, runs = together
    placed = replace(runs, starts=runs.starts + origin % SECTOR_BYTES)
    whole = count_distinct_bytes(
        simplify_runs(round_to_units(placed, SECTOR_BYTES)), _find_interval_limit(footprints)
    )
    return None if whole is None else whole // SECTOR_BYTES


def _find_interval_limit(footprints: Sequence[Footprint]) -> int:
    return min((footprint.max_intervals for footprint in footprints), default=DEFAULT_MAX_INTERVALS)


def _merge_footprints(footprints: Sequence[Footprint]) -> tuple[int, ByteRuns] | None:
    """Return the lowest base and the simplified runs of a union; None if too many or too wide."""
    parts = [footprint.to_runs() for footprint in footprints if footprint]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if not known:
        return 0, concatenate_runs([])
    origin = min(start for start, _ in known)
    if max(start for start, _ in known) - origin > _MAX_EXTENT_BYTES:
        return None
    shifted = [replace(runs, starts=runs.starts + (start - origin)) for start, runs in known]
    return origin, simplify_runs(concatenate_runs(shifted))


def _has_per_lane_step(stride: Stride) -> bool:
    step = np.atleast_2d(np.asarray(stride.step))
    return step.shape[1] > 1 and bool((step != step[:, :1]).any())


def _broadcast_count(count: IntArray | int, n_warps: int) -> IntArray:
    return np.broadcast_to(np.asarray(count, np.int64).reshape(-1), n_warps)


def _build_stride_table(strides: tuple[Stride, ...], n_warps: int) -> tuple[IntArray, IntArray]:
    """Return steps and counts, [n_warp, d], or [1, d] if they are equal for all warps."""
    if not strides or not n_warps:
        none = np.zeros((1, len(strides)), np.int64)
        return none, none
    steps = [np.atleast_2d(np.asarray(stride.step, np.int64))[:, 0] for stride in strides]
    counts = [np.asarray(stride.count, np.int64).reshape(-1) for stride in strides]
    n_rows = n_warps if any(_varies(column) for column in (*steps, *counts)) else 1

    def table(columns: list[IntArray]) -> IntArray:
        rows = [np.broadcast_to(column if n_rows > 1 else column[:1], n_rows) for column in columns]
        return np.stack(rows, axis=1)

    return table(steps), table(counts)


def _varies(column: IntArray) -> bool:
    return bool((column != column[:1]).any())


@lru_cache(maxsize=1024)
def _join_pattern_intervals(pattern: bytes, width_bytes: int) -> _PatternIntervals:
    """Join the intervals of one pattern; cached, since unrolled code has few patterns."""
    return _join_lane_intervals(np.frombuffer(pattern, np.int64)[None, :], width_bytes)


def _join_lane_intervals(offsets: IntArray, width_bytes: int) -> _PatternIntervals:
    """Join the bytes of adjacent lanes in each pattern.

    offsets: [n_pattern, 32]
    """
    offsets = np.sort(offsets, axis=1)
    is_head = np.ones(offsets.shape, np.bool_)
    is_head[:, 1:] = offsets[:, 1:] - offsets[:, :-1] > width_bytes
    n_per_pattern = np.count_nonzero(is_head, axis=1).astype(np.int64)
    heads = np.flatnonzero(is_head)
    starts = offsets.ravel()[heads]
    tails = np.append(heads[1:], offsets.size) - 1
    lengths = offsets.ravel()[tails] + width_bytes - starts
    if len(offsets) <= _MAX_SEPARATE_PATTERNS:
        cuts = np.cumsum(n_per_pattern)[:-1]
        pairs = zip(np.split(starts, cuts), np.split(lengths, cuts), strict=True)
        parts = [_find_progression(*pair) for pair in pairs]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        n_per_pattern = np.array([len(part[0]) for part in parts], np.int64)
    else:
        columns = [starts, lengths, np.zeros_like(starts), np.ones_like(starts)]
    return _PatternIntervals(
        n_per_pattern=n_per_pattern,
        starts=columns[0],
        lengths=columns[1],
        steps=columns[2],
        counts=columns[3],
    )


class _RowGroups(Struct, frozen=True, eq=False):
    """Groups of warps with equal pattern and strides."""

    first_rows: IntArray  # first warp of each group
    group_ids: IntArray  # group of each warp


def _group_rows(pattern_ids: IntArray, steps: IntArray, counts: IntArray) -> _RowGroups:
    if len(steps) == 1 and bool((pattern_ids == pattern_ids[0]).all()):
        return _RowGroups(np.zeros(1, np.int64), np.zeros(1, np.int64))
    table = pattern_ids if len(steps) == 1 else np.column_stack([pattern_ids, steps, counts])
    _, firsts, group_ids = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return _RowGroups(firsts, group_ids.reshape(-1))


def _find_lattice(
    bases: Addresses, steps: IntArray, counts: IntArray
) -> tuple[Addresses, IntArray, IntArray]:
    """Convert ascending bases at regular distances to one base with strides, by up to 3 axes.

    Bases 0 8 16 100 108 116 become 0, with strides (8, 3) and (100, 2).
    """
    for _ in range(_MAX_LATTICE_AXES):
        gaps = np.diff(bases)
        if not len(gaps) or gaps[0] > _MAX_EXTENT_BYTES:
            break
        differs = gaps != gaps[0]
        length = int(differs.argmax()) + 1 if differs.any() else len(bases)
        if length < 2 or len(bases) % length:
            break
        rows = bases.reshape(-1, length)
        if bool((rows - rows[:, :1] != rows[0] - rows[0, 0]).any()):
            break
        bases = rows[:, 0]
        steps = np.append(steps, [[int(gaps[0])]], axis=1)
        counts = np.append(counts, [[length]], axis=1)
    return bases, steps, counts


def _find_progression(starts: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Merge equal intervals at equal distances to one; return starts, lengths, steps, counts."""
    gaps = np.diff(starts)
    if len(gaps) and (gaps == gaps[0]).all() and (lengths == lengths[0]).all():
        return starts[:1], lengths[:1], gaps[:1], np.array([len(starts)], np.int64)
    return starts, lengths, np.zeros_like(starts), np.ones_like(starts)
