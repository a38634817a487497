"""Distinct bytes that the requests of many warps touch, loops included: exact, mostly without unrolling."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import ArrayLike

from analyzer.execution.mixing import distinct
from analyzer.execution.patterns import LANES, Addresses, IntArray, Patterns, compress
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.runs import Runs, concatenate, in_units, simplify, unroll
from analyzer.execution.volume import measure

DEFAULT_LIMIT = 500_000
_FEW_PATTERNS = 64  # looked at one by one
_FEW_RUNS = 4096  # are joined with all others sooner than by themselves first
_MOST_AXES = 3
_WIDEST = 2.0**61  # of an extent: beyond it addresses are no addresses


class Stride(Struct, frozen=True, eq=False):
    """A repetition: for t below `count`, `step` bytes further each time.

    step: one number, or an array that broadcasts to [n_warp, 32]; count: one number or [n_warp].
    """

    step: IntArray | int
    count: IntArray | int


class _Access(Struct, frozen=True, kw_only=True, eq=False):
    """Requests as stored: for each warp its base, pattern and repetitions.

    steps, counts: [n_warp, d], or [1, d] where all warps repeat alike.
    """

    bases: Addresses
    of: IntArray
    segments: "_Segments"
    steps: IntArray
    counts: IntArray

    @property
    def n_runs(self) -> int:
        return int(self.segments.of_pattern[self.of].sum())

    def runs(self, origin: int) -> Runs:
        seg = self.segments
        times = seg.of_pattern[self.of]
        warps = np.repeat(np.arange(len(self.bases)), times)
        place = np.arange(len(warps)) - np.repeat(np.cumsum(times) - times, times)
        first = np.cumsum(seg.of_pattern) - seg.of_pattern
        which = first[self.of[warps]] + place
        near = (self.bases - np.uint64(origin)).view(np.int64)
        rows = warps if len(self.steps) > 1 else np.zeros(len(warps), np.intp)
        steps, counts = self.steps[rows], self.counts[rows]
        if (seg.counts > 1).any():
            steps = np.column_stack([steps, seg.steps[which]])
            counts = np.column_stack([counts, seg.counts[which]])
        starts = near[warps] + seg.starts[which]
        return Runs(starts=starts, lengths=seg.lengths[which], steps=steps, counts=counts)

    def extent(self) -> float:
        """An upper bound of the distance between a base and any byte touched from it."""
        reach = np.abs(self.steps.astype(np.float64)) * (self.counts - 1)
        return float(reach.sum(axis=1).max(initial=0.0)) + self.segments.extent()


class _Segments(Struct, frozen=True, kw_only=True, eq=False):
    """Intervals of the patterns, relative to the base of the warp, one pattern after the other.

    of_pattern[p]: how many are of pattern p; each is repeated counts times, steps bytes apart.
    """

    of_pattern: IntArray
    starts: IntArray
    lengths: IntArray
    steps: IntArray
    counts: IntArray

    def extent(self) -> float:
        far = np.abs(self.starts.astype(np.float64)) + self.lengths
        return float((far + self.steps.astype(np.float64) * (self.counts - 1)).max(initial=0.0))


class Footprint:
    """Bytes touched by any number of accesses, as a set.

    limit: at most so many intervals are held at a time when the set is evaluated.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._accesses: list[_Access] = []
        self._evaluated: Runs | None = None
        self._origin = 0

    def add(
        self,
        addresses: ArrayLike,
        active: ArrayLike,
        width_bytes: int,
        strides: tuple[Stride, ...] = (),
        patterns: Patterns | None = None,
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
        if any(_is_per_lane(stride) for stride in strides):
            self._add_lanes(table, active, width_bytes, strides)
        else:
            if patterns is None or len(patterns.bases) != n_warps:
                patterns = compress(table, active)
            self.add_patterns(patterns, width_bytes, strides)

    def add_patterns(self, patterns: Patterns, width_bytes: int, strides: tuple[Stride, ...] = ()) -> None:
        """`add` of addresses that are compressed already; steps must be the same in all lanes of a warp."""
        n_warps = len(patterns.bases)
        steps, counts = _stride_table(strides, n_warps)
        self._store(patterns, width_bytes, steps, counts)

    def _add_lanes(
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
            Stride(step.ravel()[lanes, None], _per_warp(stride.count, len(masks))[lanes // LANES])
            for step, stride in zip(steps[1:], strides, strict=True)
        )
        first = np.arange(LANES)[None, :] == 0
        self.add_patterns(compress(table.ravel()[lanes, None], first), width_bytes, single)

    def _store(self, patterns: Patterns, width_bytes: int, steps: IntArray, counts: IntArray) -> None:
        bases, of = patterns.bases, patterns.of
        live = np.asarray(patterns.active.any(axis=1), np.bool_)
        keep = live[of] & np.broadcast_to((counts > 0).all(axis=1), len(of))
        if not keep.all():
            bases, of = bases[keep], of[keep]
            if len(steps) > 1:
                steps, counts = steps[keep], counts[keep]
        if not len(bases) or width_bytes <= 0:
            return
        self._evaluated = None
        kinds = _kinds(of, steps, counts)
        if len(kinds.firsts) > (_FEW_PATTERNS if len(steps) > 1 else 1):  # patterns side by side join better
            segments = _segments(patterns.offsets, width_bytes)
            self._accesses.append(_Access(bases=bases, of=of, segments=segments, steps=steps, counts=counts))
            return
        for kind, first in enumerate(kinds.firsts.tolist()):
            alike = bases if len(kinds.firsts) == 1 else bases[kinds.of == kind]
            row = slice(first, first + 1) if len(steps) > 1 else slice(None)
            starts, own_steps, own_counts = _as_lattice(distinct(alike), steps[row], counts[row])
            pattern = int(of[first])
            self._accesses.append(
                _Access(
                    bases=starts,
                    of=np.broadcast_to(np.int64(0), len(starts)),
                    segments=_segments_of(patterns.offsets[pattern].tobytes(), width_bytes),
                    steps=own_steps,
                    counts=own_counts,
                )
            )

    def merge(self, other: "Footprint") -> None:
        """Adds all that `other` touches."""
        self._accesses.extend(other._accesses)
        self._evaluated = None

    def __bool__(self) -> bool:
        """Anything is touched."""
        return bool(self._accesses)

    def simplified(self) -> tuple[int, Runs] | None:
        """Lowest base, and all accesses relative to it; None where they are too many or too wide."""
        runs = self._runs()
        return None if runs is None else (self._origin, runs)

    def pieces(self) -> tuple[int, Runs] | None:
        """`simplified`, where that is known already or there is much; else all accesses as they are."""
        few = self._evaluated is None and sum(access.n_runs for access in self._accesses) <= _FEW_RUNS
        lowest = self._lowest() if few else None
        if lowest is None:
            return self.simplified()
        return lowest, concatenate([access.runs(lowest) for access in self._accesses])

    def unique_bytes(self) -> int | None:
        """Distinct bytes touched, exactly; None where more than `limit` intervals would have to be held."""
        runs = self._runs()
        return None if runs is None else measure(runs, self.limit)

    def intervals(self) -> tuple[Addresses, Addresses] | None:
        """Disjoint intervals in ascending order, starts and stops; None where they are more than `limit`."""
        runs = self._runs()
        plain = None if runs is None else unroll(runs, self.limit)
        if plain is None:
            return None
        starts = plain.starts.view(np.uint64) + np.uint64(self._origin)
        return starts, starts + plain.lengths.view(np.uint64)

    def _runs(self) -> Runs | None:
        """All accesses, simplified, relative to the lowest base; None where they are too many or too wide."""
        if self._evaluated is not None:
            return self._evaluated
        if not self._accesses:
            self._origin = 0
            return concatenate([])
        lowest = self._lowest()
        if lowest is None:
            return None
        self._origin = lowest
        parts: list[Runs] = []
        for access in self._accesses:
            if access.n_runs > self.limit:
                return None
            parts.append(simplify(access.runs(self._origin)))
        runs = simplify(concatenate(parts)) if len(parts) > 1 else parts[0]
        self._evaluated = runs
        return runs

    def _lowest(self) -> int | None:
        """The lowest base; None where the bytes lie too far apart."""
        lowest = min(int(access.bases.min()) for access in self._accesses)
        span = max(int(access.bases.max()) for access in self._accesses) - lowest
        return None if span + max(access.extent() for access in self._accesses) > _WIDEST else lowest


def union_bytes(footprints: Sequence[Footprint]) -> int | None:
    """Distinct bytes that any of `footprints` touches; None where the least of their limits is exceeded."""
    together = _together(footprints)
    return None if together is None else measure(together[1], _least_limit(footprints))


def union_sectors(footprints: Sequence[Footprint]) -> int | None:
    """Distinct sectors that these bytes lie in; None likewise."""
    together = _together(footprints)
    if together is None:
        return None
    origin, runs = together
    placed = replace(runs, starts=runs.starts + origin % SECTOR_BYTES)
    whole = measure(simplify(in_units(placed, SECTOR_BYTES)), _least_limit(footprints))
    return None if whole is None else whole // SECTOR_BYTES


def _least_limit(footprints: Sequence[Footprint]) -> int:
    return min((footprint.limit for footprint in footprints), default=DEFAULT_LIMIT)


def _together(footprints: Sequence[Footprint]) -> tuple[int, Runs] | None:
    """Lowest base, and what all touch relative to it, simplified; None where it is too much or too wide."""
    parts = [footprint.pieces() for footprint in footprints if footprint]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if not known:
        return 0, concatenate([])
    origin = min(start for start, _ in known)
    if max(start for start, _ in known) - origin > _WIDEST:
        return None
    moved = [replace(runs, starts=runs.starts + (start - origin)) for start, runs in known]
    return origin, simplify(concatenate(moved))


def _is_per_lane(stride: Stride) -> bool:
    step = np.atleast_2d(np.asarray(stride.step))
    return step.shape[1] > 1 and bool((step != step[:, :1]).any())


def _per_warp(count: IntArray | int, n_warps: int) -> IntArray:
    return np.broadcast_to(np.asarray(count, np.int64).reshape(-1), n_warps)


def _stride_table(strides: tuple[Stride, ...], n_warps: int) -> tuple[IntArray, IntArray]:
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
def _segments_of(pattern: bytes, width_bytes: int) -> _Segments:
    """Of one pattern's offsets: unrolled code has few patterns."""
    return _segments(np.frombuffer(pattern, np.int64)[None, :], width_bytes)


def _segments(offsets: IntArray, width_bytes: int) -> _Segments:
    """Adjacent lanes of each pattern joined."""
    offsets = np.sort(offsets, axis=1)
    new = np.ones(offsets.shape, np.bool_)
    new[:, 1:] = offsets[:, 1:] - offsets[:, :-1] > width_bytes
    of_pattern = np.count_nonzero(new, axis=1).astype(np.int64)
    heads = np.flatnonzero(new)
    starts = offsets.ravel()[heads]
    tails = np.append(heads[1:], offsets.size) - 1
    lengths = offsets.ravel()[tails] + width_bytes - starts
    if len(offsets) <= _FEW_PATTERNS:
        cuts = np.cumsum(of_pattern)[:-1]
        pairs = zip(np.split(starts, cuts), np.split(lengths, cuts), strict=True)
        parts = [_as_progression(*pair) for pair in pairs]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        of_pattern = np.array([len(part[0]) for part in parts], np.int64)
    else:
        columns = [starts, lengths, np.zeros_like(starts), np.ones_like(starts)]
    return _Segments(
        of_pattern=of_pattern, starts=columns[0], lengths=columns[1], steps=columns[2], counts=columns[3]
    )


class _Kinds(Struct, frozen=True, eq=False):
    """Rows of one pattern that repeat alike: the first row of each kind, and the kind of each row."""

    firsts: IntArray
    of: IntArray


def _kinds(of: IntArray, steps: IntArray, counts: IntArray) -> _Kinds:
    if len(steps) == 1 and bool((of == of[0]).all()):
        return _Kinds(np.zeros(1, np.int64), np.zeros(1, np.int64))
    table = of if len(steps) == 1 else np.column_stack([of, steps, counts])
    _, firsts, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return _Kinds(firsts, kind.reshape(-1))


def _as_lattice(bases: Addresses, steps: IntArray, counts: IntArray) -> tuple[Addresses, IntArray, IntArray]:
    """Ascending bases that lie evenly, or in rows of the same shape, as repetitions."""
    for _ in range(_MOST_AXES):
        gaps = np.diff(bases)
        if not len(gaps) or gaps[0] > _WIDEST:
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


def _as_progression(starts: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Starts, lengths, steps, counts; equal segments at equal distances are one that repeats."""
    gaps = np.diff(starts)
    if len(gaps) and (gaps == gaps[0]).all() and (lengths == lengths[0]).all():
        return starts[:1], lengths[:1], gaps[:1], np.array([len(starts)], np.int64)
    return starts, lengths, np.zeros_like(starts), np.ones_like(starts)
