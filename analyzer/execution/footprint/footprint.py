"""Distinct bytes that the requests of many warps touch, loops included: exact, mostly without unrolling."""

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
from analyzer.execution.footprint.lane_patterns import (
    LANES,
    Addresses,
    IntArray,
    LanePatterns,
    compress_addresses,
)
from analyzer.execution.footprint.request_cost import SECTOR_BYTES

DEFAULT_MAX_INTERVALS = 500_000
_MAX_SEPARATE_PATTERNS = 64  # looked at one by one
_MAX_UNSIMPLIFIED_RUNS = 4096  # are joined with all others sooner than by themselves first
_MAX_LATTICE_AXES = 3
_MAX_EXTENT_BYTES = 2.0**61  # of an extent: beyond it addresses are no addresses


class Stride(Struct, frozen=True, eq=False):
    """A repetition: for t below `count`, `step` bytes further each time.

    step: one number, or an array that broadcasts to [n_warp, 32]; count: one number or [n_warp].
    """

    step: IntArray | int
    count: IntArray | int


class _PatternIntervals(Struct, frozen=True, kw_only=True, eq=False):
    """Intervals of the patterns, relative to the base of the warp, one pattern after the other.

    of_pattern[p]: how many are of pattern p; each is repeated counts times, steps bytes apart.
    """

    n_per_pattern: IntArray
    starts: IntArray
    lengths: IntArray
    steps: IntArray
    counts: IntArray

    def bound_extent_bytes(self) -> float:
        far = np.abs(self.starts.astype(np.float64)) + self.lengths
        return float((far + self.steps.astype(np.float64) * (self.counts - 1)).max(initial=0.0))


class _StridedRequests(Struct, frozen=True, kw_only=True, eq=False):
    """Requests as stored: for each warp its base, pattern and repetitions.

    steps, counts: [n_warp, d], or [1, d] where all warps repeat alike.
    """

    bases: Addresses
    pattern_ids: IntArray
    intervals: _PatternIntervals
    steps: IntArray
    counts: IntArray

    @property
    def n_runs(self) -> int:
        return int(self.intervals.n_per_pattern[self.pattern_ids].sum())

    def to_runs(self, origin: int) -> ByteRuns:
        seg = self.intervals
        times = seg.n_per_pattern[self.pattern_ids]
        warps = np.repeat(np.arange(len(self.bases)), times)
        place = np.arange(len(warps)) - np.repeat(np.cumsum(times) - times, times)
        first = np.cumsum(seg.n_per_pattern) - seg.n_per_pattern
        which = first[self.pattern_ids[warps]] + place
        near = (self.bases - np.uint64(origin)).view(np.int64)
        rows = warps if len(self.steps) > 1 else np.zeros(len(warps), np.intp)
        steps, counts = self.steps[rows], self.counts[rows]
        if (seg.counts > 1).any():
            steps = np.column_stack([steps, seg.steps[which]])
            counts = np.column_stack([counts, seg.counts[which]])
        starts = near[warps] + seg.starts[which]
        return ByteRuns(starts=starts, lengths=seg.lengths[which], steps=steps, counts=counts)

    def bound_extent_bytes(self) -> float:
        """An upper bound of the distance between a base and any byte touched from it."""
        reach = np.abs(self.steps.astype(np.float64)) * (self.counts - 1)
        return float(reach.sum(axis=1).max(initial=0.0)) + self.intervals.bound_extent_bytes()


class Footprint:
    """Bytes touched by any number of accesses, as a set.

    limit: at most so many intervals are held at a time when the set is evaluated.
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
        """Adds [a, a + width) of every active lane, repeated by all combinations of `strides`.

        Addresses and active lanes broadcast to [n_warp, 32]. A count of 0 or less touches nothing.
        patterns: what they compress to, where that is known already.
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
        """`add` of addresses that are compressed already; steps must be the same in all lanes of a warp."""
        n_warps = len(patterns.bases)
        steps, counts = _build_stride_table(strides, n_warps)
        self._store_patterns(patterns, width_bytes, steps, counts)

    def _add_per_lane(
        self, addresses: ArrayLike, active: ArrayLike, width_bytes: int, strides: tuple[Stride, ...]
    ) -> None:
        """Lanes step differently: each is stored as a warp with one active lane."""
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
        bases, of = patterns.bases, patterns.pattern_ids
        live = np.asarray(patterns.active.any(axis=1), np.bool_)
        keep = live[of] & np.broadcast_to((counts > 0).all(axis=1), len(of))
        if not keep.all():
            bases, of = bases[keep], of[keep]
            if len(steps) > 1:
                steps, counts = steps[keep], counts[keep]
        if not len(bases) or width_bytes <= 0:
            return
        self._simplified_runs = None
        kinds = _group_rows(of, steps, counts)
        if len(kinds.first_rows) > (
            _MAX_SEPARATE_PATTERNS if len(steps) > 1 else 1
        ):  # patterns side by side join better
            intervals = _join_lane_intervals(patterns.offsets, width_bytes)
            self._requests.append(
                _StridedRequests(bases=bases, pattern_ids=of, intervals=intervals, steps=steps, counts=counts)
            )
            return
        for kind, first in enumerate(kinds.first_rows.tolist()):
            alike = bases if len(kinds.first_rows) == 1 else bases[kinds.group_ids == kind]
            row = slice(first, first + 1) if len(steps) > 1 else slice(None)
            starts, own_steps, own_counts = _find_lattice(sort_unique(alike), steps[row], counts[row])
            pattern = int(of[first])
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
        """Adds all that `other` touches."""
        self._requests.extend(other._requests)
        self._simplified_runs = None

    def __bool__(self) -> bool:
        """Anything is touched."""
        return bool(self._requests)

    def to_simplified_runs(self) -> tuple[int, ByteRuns] | None:
        """Lowest base, and all accesses relative to it; None where they are too many or too wide."""
        runs = self._evaluate_runs()
        return None if runs is None else (self._origin, runs)

    def to_runs(self) -> tuple[int, ByteRuns] | None:
        """`simplified`, where that is known already or there is much; else all accesses as they are."""
        few = (
            self._simplified_runs is None
            and sum(access.n_runs for access in self._requests) <= _MAX_UNSIMPLIFIED_RUNS
        )
        lowest = self._find_lowest_base() if few else None
        if lowest is None:
            return self.to_simplified_runs()
        return lowest, concatenate_runs([access.to_runs(lowest) for access in self._requests])

    def count_unique_bytes(self) -> int | None:
        """Distinct bytes touched, exactly; None where more than `limit` intervals would have to be held."""
        runs = self._evaluate_runs()
        return None if runs is None else count_distinct_bytes(runs, self.max_intervals)

    def to_intervals(self) -> tuple[Addresses, Addresses] | None:
        """Disjoint intervals in ascending order, starts and stops; None where they are more than `limit`."""
        runs = self._evaluate_runs()
        plain = None if runs is None else unroll_runs(runs, self.max_intervals)
        if plain is None:
            return None
        starts = plain.starts.view(np.uint64) + np.uint64(self._origin)
        return starts, starts + plain.lengths.view(np.uint64)

    def _evaluate_runs(self) -> ByteRuns | None:
        """All accesses, simplified, relative to the lowest base; None where they are too many or too wide."""
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
        """The lowest base; None where the bytes lie too far apart."""
        lowest = min(int(access.bases.min()) for access in self._requests)
        span = max(int(access.bases.max()) for access in self._requests) - lowest
        return (
            None
            if span + max(access.bound_extent_bytes() for access in self._requests) > _MAX_EXTENT_BYTES
            else lowest
        )


def count_union_bytes(footprints: Sequence[Footprint]) -> int | None:
    """Distinct bytes that any of `footprints` touches; None where the least of their limits is exceeded."""
    together = _merge_footprints(footprints)
    return None if together is None else count_distinct_bytes(together[1], _find_interval_limit(footprints))


def count_union_sectors(footprints: Sequence[Footprint]) -> int | None:
    """Distinct sectors that these bytes lie in; None likewise."""
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
    """Lowest base, and what all touch relative to it, simplified; None where it is too much or too wide."""
    parts = [footprint.to_runs() for footprint in footprints if footprint]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if not known:
        return 0, concatenate_runs([])
    origin = min(start for start, _ in known)
    if max(start for start, _ in known) - origin > _MAX_EXTENT_BYTES:
        return None
    moved = [replace(runs, starts=runs.starts + (start - origin)) for start, runs in known]
    return origin, simplify_runs(concatenate_runs(moved))


def _has_per_lane_step(stride: Stride) -> bool:
    step = np.atleast_2d(np.asarray(stride.step))
    return step.shape[1] > 1 and bool((step != step[:, :1]).any())


def _broadcast_count(count: IntArray | int, n_warps: int) -> IntArray:
    return np.broadcast_to(np.asarray(count, np.int64).reshape(-1), n_warps)


def _build_stride_table(strides: tuple[Stride, ...], n_warps: int) -> tuple[IntArray, IntArray]:
    """Steps and counts, [n_warp, d], or [1, d] where they are the same for all warps."""
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
    """Of one pattern's offsets: unrolled code has few patterns."""
    return _join_lane_intervals(np.frombuffer(pattern, np.int64)[None, :], width_bytes)


def _join_lane_intervals(offsets: IntArray, width_bytes: int) -> _PatternIntervals:
    """Adjacent lanes of each pattern joined."""
    offsets = np.sort(offsets, axis=1)
    new = np.ones(offsets.shape, np.bool_)
    new[:, 1:] = offsets[:, 1:] - offsets[:, :-1] > width_bytes
    of_pattern = np.count_nonzero(new, axis=1).astype(np.int64)
    heads = np.flatnonzero(new)
    starts = offsets.ravel()[heads]
    tails = np.append(heads[1:], offsets.size) - 1
    lengths = offsets.ravel()[tails] + width_bytes - starts
    if len(offsets) <= _MAX_SEPARATE_PATTERNS:
        cuts = np.cumsum(of_pattern)[:-1]
        pairs = zip(np.split(starts, cuts), np.split(lengths, cuts), strict=True)
        parts = [_find_progression(*pair) for pair in pairs]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        of_pattern = np.array([len(part[0]) for part in parts], np.int64)
    else:
        columns = [starts, lengths, np.zeros_like(starts), np.ones_like(starts)]
    return _PatternIntervals(
        n_per_pattern=of_pattern, starts=columns[0], lengths=columns[1], steps=columns[2], counts=columns[3]
    )


class _RowGroups(Struct, frozen=True, eq=False):
    """Rows of one pattern that repeat alike: the first row of each kind, and the kind of each row."""

    first_rows: IntArray
    group_ids: IntArray


def _group_rows(of: IntArray, steps: IntArray, counts: IntArray) -> _RowGroups:
    if len(steps) == 1 and bool((of == of[0]).all()):
        return _RowGroups(np.zeros(1, np.int64), np.zeros(1, np.int64))
    table = of if len(steps) == 1 else np.column_stack([of, steps, counts])
    _, firsts, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return _RowGroups(firsts, kind.reshape(-1))


def _find_lattice(
    bases: Addresses, steps: IntArray, counts: IntArray
) -> tuple[Addresses, IntArray, IntArray]:
    """Ascending bases that lie evenly, or in rows of the same shape, as repetitions."""
    for _ in range(_MAX_LATTICE_AXES):
        gaps = np.diff(bases)
        if not len(gaps) or gaps[0] > _MAX_EXTENT_BYTES:
            break
        other = gaps != gaps[0]
        length = int(other.argmax()) + 1 if other.any() else len(bases)
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
    """Starts, lengths, steps, counts; equal segments at equal distances are one that repeats."""
    gaps = np.diff(starts)
    if len(gaps) and (gaps == gaps[0]).all() and (lengths == lengths[0]).all():
        return starts[:1], lengths[:1], gaps[:1], np.array([len(starts)], np.int64)
    return starts, lengths, np.zeros_like(starts), np.ones_like(starts)
