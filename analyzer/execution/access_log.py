"""What each memory instruction touched: requests, lanes, sectors, passes, distinct bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.footprint import Footprint, Stride
from analyzer.execution.lanes import Group, Origins, Rows
from analyzer.execution.patterns import Patterns, compress
from analyzer.execution.program import Access
from analyzer.execution.requests import (
    SECTOR_BYTES,
    atomic_wavefronts,
    matrix_wavefronts,
    sectors_of,
    shared_wavefronts_of,
)
from analyzer.execution.step import Bits
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import OpKind, Space

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]
Weights = NDArray[np.float64]

_BANK_ROW_BYTES = 128
_FLUSH_LANES = 1 << 23
_MOST_PHASES = 256
_SHARED_SPACES = frozenset({Space.SHARED, Space.DISTRIBUTED_SHARED})


@dataclass(slots=True, eq=False)
class Entry:
    """Requests of one access by some warps, repeated `counts` times at `steps` bytes further each time."""

    rows: Rows | None
    active: Bits
    addresses: Addresses | None
    steps: IntArray | None = None
    counts: IntArray | None = None

    def takes(self, other: "Entry") -> bool:
        """Whether `other` goes on where this one ends, by one step in all lanes; it is then part of it."""
        own, more = self.progress(), other.progress()
        if own is None or more is None or not self._same_lanes(other):
            return False
        assert self.addresses is not None
        assert other.addresses is not None
        moved = other.addresses - self.addresses
        delta = moved[(slice(0, 1),) * moved.ndim]
        step = int(delta.view(np.int64).reshape(1)[0])
        if own.count > 1:
            step = own.step
            if int(delta.reshape(1)[0]) != step * own.count % (1 << 64):
                return False
        if (more.count > 1 and more.step != step) or not bool((moved == delta).all()):
            return False
        self.steps = np.full((1, 1), step, dtype=np.int64)
        self.counts = np.full(1, own.count + more.count, dtype=np.int64)
        return True

    def progress(self) -> "Progress | None":
        """Step and count where they are the same for all lanes and warps."""
        if self.addresses is None or (self.steps is not None and self.steps.size > 1):
            return None
        count = 1
        if self.counts is not None:
            count = int(self.counts[0])
            if len(self.counts) > 1 and bool((self.counts != count).any()):
                return None
        return Progress(0 if self.steps is None else int(self.steps.reshape(1)[0]), count)

    def _same_lanes(self, other: "Entry") -> bool:
        if self.addresses is None or other.addresses is None or self.addresses.shape != other.addresses.shape:
            return False
        if self.rows is not other.rows and not (
            self.rows is not None and other.rows is not None and np.array_equal(self.rows, other.rows)
        ):
            return False
        return self.active is other.active or np.array_equal(self.active, other.active)


@dataclass(frozen=True, slots=True)
class Progress:
    """A uniform step and count."""

    step: int
    count: int


@dataclass(slots=True, eq=False)
class AccessTotals:
    """Sums of one access over the grid. sectors and wavefronts stand only while `is_known`.

    misaligned: an address that is no multiple of the width, at which hardware would stop.
    """

    access: Access
    requests: float = 0.0
    lanes: float = 0.0
    sectors: float = 0.0
    wavefronts: float = 0.0
    is_known: bool = True
    is_doubtful: bool = False
    is_even: bool = True
    misaligned: int | None = None
    footprint: Footprint = field(default_factory=Footprint)
    entries: list[Entry] = field(default_factory=list)


class MemoryLog:
    """What every memory instruction of a batch touched."""

    def __init__(self, batch: "Batch", *, reduces: bool = True) -> None:
        self.batch, self.reduces = batch, reduces
        self.totals: dict[tuple[int, Space], AccessTotals] = {}
        self.held_lanes = 0

    def record(
        self,
        access: Access,
        group: Group,
        active: Bits,
        addresses: Addresses | None,
        origin: Origins | None,
        unknown: Origins | None,
        steps: IntArray | None = None,
    ) -> None:
        """Log one execution by a group; origin: of unknown addresses, unknown: of unknown guards."""
        totals = self._totals(access)
        if group.doubts or unknown is not None:
            totals.is_doubtful = True
        if origin is not None and not bool((np.where(active, origin, 0) == 0).all()):
            totals.is_known = False
            addresses = None
        rows = None if group.is_whole else group.rows
        self._enter(totals, Entry(rows, active, addresses, steps))
        if self.reduces and self.held_lanes > _FLUSH_LANES:
            self.reduce()

    def _enter(self, totals: AccessTotals, entry: Entry) -> None:
        if self.reduces and totals.entries and totals.entries[-1].takes(entry):
            return
        totals.entries.append(entry)
        if entry.addresses is not None:
            self.held_lanes += max(entry.active.size, entry.addresses.size)

    def _totals(self, access: Access) -> AccessTotals:
        key = (access.row, access.space)
        found = self.totals.get(key)
        if found is None:
            found = self.totals[key] = AccessTotals(access)
        return found

    def absorb(self, other: "MemoryLog", times: IntArray) -> None:
        """Add what one iteration logged, repeated `times[row]` times."""
        for totals in other.totals.values():
            own = self._totals(totals.access)
            own.is_known &= totals.is_known
            own.is_doubtful |= totals.is_doubtful
            repeated = [
                Entry(e.rows, e.active, e.addresses, e.steps, times if e.rows is None else times[e.rows])
                for e in totals.entries
            ]
            for entry in _interleaved(repeated):
                self._enter(own, entry)
        if self.held_lanes > _FLUSH_LANES:
            self.reduce()

    def reduce(self) -> None:
        """Turn held entries into sums."""
        for totals in self.totals.values():
            for entry in totals.entries:
                _add(totals, entry, self.batch)
            totals.entries.clear()
        self.held_lanes = 0


def _interleaved(entries: list[Entry]) -> list[Entry]:
    """Iterations of a period, each repeated alike, as one row of requests if they follow each other."""
    progress = [entry.progress() for entry in entries]
    first = progress[0] if progress else None
    if len(entries) < 2 or first is None or any(other != first for other in progress):
        return entries
    row = Entry(entries[0].rows, entries[0].active, entries[0].addresses)
    for entry in entries[1:]:
        if not row.takes(Entry(entry.rows, entry.active, entry.addresses)):
            return entries
    whole = row.progress()
    if whole is None or whole.step * len(entries) != first.step:
        return entries
    row.counts = np.full(1, first.count * len(entries), dtype=np.int64)
    return [row]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Requests:
    """An entry with one row per warp: arrays of [n_row, 32] or smaller; weights [n_row], counts likewise."""

    weights: Weights
    counts: IntArray
    active: Bits
    addresses: Addresses | None
    steps: IntArray | None

    def kept(self, rows: Bits) -> "_Requests":
        """Some of the rows."""
        return _Requests(
            weights=self.weights[rows],
            counts=_rows_of(self.counts, rows),
            active=_rows_of(self.active, rows),
            addresses=None if self.addresses is None else _rows_of(self.addresses, rows),
            steps=None if self.steps is None else _rows_of(self.steps, rows),
        )


def _rows_of(array: NDArray[Any], rows: Bits) -> NDArray[Any]:
    return array if len(array) != len(rows) else array[rows]


def _add(totals: AccessTotals, entry: Entry, batch: "Batch") -> None:
    requests = _requests(entry, batch)
    spread: list[Stride] = []
    n_rows = batch.n_warps if entry.rows is None else len(entry.rows)
    has_own = requests.addresses is not None and len(requests.addresses) == n_rows
    if batch.neighbours and has_own:
        spread = _spread(totals, requests, entry, batch)
    n_active = _lanes_of(requests.active)
    times = requests.weights * requests.counts
    totals.requests += float((times * (n_active > 0)).sum())
    totals.lanes += float((times * n_active).sum())
    if requests.addresses is None or totals.access.address is None:
        return
    if batch.neighbours:
        kept = requests.weights > 0
        requests = requests.kept(kept)
        spread = [
            Stride(_rows_of(np.asarray(s.step), kept), _rows_of(np.asarray(s.count), kept)) for s in spread
        ]
    _measure(totals, requests, tuple(spread))


def _requests(entry: Entry, batch: "Batch") -> _Requests:
    counts = np.ones(1, dtype=np.int64) if entry.counts is None else entry.counts
    if entry.rows is not None:
        return _Requests(
            weights=batch.weights[entry.rows],
            counts=counts,
            active=entry.active,
            addresses=entry.addresses,
            steps=entry.steps,
        )
    shape = (*batch.cta_shape, batch.shape.warps_per_cta)
    counts = counts.reshape(shape if len(counts) > 1 else (1, 1, 1))
    weights = batch.weights.reshape(shape)
    for axis in (0, 1):
        if not _varies(entry, counts, axis):  # one CTA stands for all along the axis
            weights = weights.sum(axis=axis, keepdims=True)
            counts = counts[:1] if axis == 0 else counts[:, :1]
    shape = weights.shape
    return _Requests(
        weights=weights.reshape(-1),
        counts=counts.reshape(-1) if counts.size == 1 else np.broadcast_to(counts, shape).reshape(-1),
        active=_one_row_per_warp(entry.active, shape),
        addresses=None if entry.addresses is None else _one_row_per_warp(entry.addresses, shape),
        steps=None if entry.steps is None else _one_row_per_warp(entry.steps, shape),
    )


def _varies(entry: Entry, counts: IntArray, axis: int) -> bool:
    """CTAs differ along an axis."""
    arrays = (entry.active, entry.addresses, entry.steps)
    if any(array is not None and array.ndim > 2 and array.shape[axis] > 1 for array in arrays):
        return True
    return counts.shape[axis] > 1 and bool((counts != counts.take([0], axis=axis)).any())


def _spread(totals: AccessTotals, requests: _Requests, entry: Entry, batch: "Batch") -> list[Stride]:
    """How addresses go on from a CTA to those that it stands for, along each axis of the grid."""
    addresses, active = requests.addresses, requests.active
    assert addresses is not None
    per_cta = batch.shape.warps_per_cta
    rows = np.arange(batch.n_warps, dtype=np.int64) if entry.rows is None else entry.rows
    ctas, warps = np.divmod(rows, per_cta)
    stands = batch.weights[rows] > 0
    found: list[Stride] = []
    for beside, counts in zip(batch.neighbours, batch.box_counts, strict=True):
        next_cta = beside[ctas]
        moves = stands & (next_cta >= 0)
        if not moves.any():
            continue
        wanted = next_cta * per_cta + warps
        places = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
        if (rows[places] != wanted)[moves].any():
            totals.is_even = False  # the neighbour does not run with it
            continue
        step = np.where(moves[:, None], (addresses[places] - addresses).astype(np.int64), 0)
        step = np.where(np.broadcast_to(active, (len(rows), active.shape[1])), step, 0)
        found.append(Stride(step, np.where(moves, counts[ctas], 1)))
    return found


def _one_row_per_warp(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if array.ndim == 2:
        return array
    if array.shape[:3] == (1, 1, 1):
        first: NDArray[Any] = array[0, 0]
        return first
    return np.broadcast_to(array, (*shape, array.shape[3])).reshape(-1, array.shape[3])


def _lanes_of(active: Bits) -> IntArray:
    lanes: IntArray = active.sum(axis=1)
    return lanes * WARP_LANES if active.shape[1] == 1 else lanes


def _measure(totals: AccessTotals, requests: _Requests, spread: tuple[Stride, ...]) -> None:
    access, counts, active = totals.access, requests.counts, requests.active
    assert requests.addresses is not None
    addresses = np.broadcast_to(requests.addresses, (len(requests.weights), requests.addresses.shape[1]))
    steps = requests.steps if requests.steps is not None and requests.steps.any() else None
    for shift, share in _all_phases(totals, steps, counts, spread):
        moved = addresses if shift is None else addresses + shift
        patterns = compress(moved, active)
        if access.space is Space.GLOBAL:
            totals.misaligned = totals.misaligned or _misaligned(patterns, access.width_bytes)
        weight = requests.weights * share
        if access.space in _SHARED_SPACES:
            totals.wavefronts += float((_wavefronts(access, patterns, moved, active) * weight).sum())
        else:
            sectors = _sectors(access, patterns, moved, active)
            totals.sectors += float((sectors * weight).sum())
            totals.wavefronts += float((np.maximum(sectors / 4, sectors > 0) * weight).sum())
    if access.space in (Space.GLOBAL, Space.GENERIC):
        strides: tuple[Stride, ...] = ()
        if steps is not None:
            strides = (Stride(steps, counts if len(counts) > 1 else int(counts[0])),)
        elif (counts < 1).any():
            strides = (Stride(0, counts),)
        totals.footprint.add(addresses, active, access.width_bytes, (*strides, *spread))


def _misaligned(patterns: Patterns, width_bytes: int) -> int | None:
    width = np.uint64(max(1, width_bytes))
    if width & (width - np.uint64(1)):
        return None
    rows, live, _ = patterns.at_residues(max(1, width_bytes))
    wrong = live & (rows % width != 0)
    return int(patterns.bases[0]) if wrong.any() else None


_Phase = tuple[Addresses | None, NDArray[np.float64]]


def _all_phases(
    totals: AccessTotals, steps: IntArray | None, counts: IntArray, spread: tuple[Stride, ...]
) -> Iterator[_Phase]:
    """Residues that addresses go through over iterations and CTAs: how far, how many requests have each."""
    unit = _BANK_ROW_BYTES if totals.access.space in _SHARED_SPACES else SECTOR_BYTES
    own: list[_Phase] = [(None, counts.astype(np.float64))]
    if steps is not None:
        own = [(shift, share.astype(np.float64)) for shift, share in _phases(steps, counts, unit)]
    lists = [own]
    for stride in spread:
        total = np.asarray(stride.count, dtype=np.int64)
        step = np.asarray(stride.step, dtype=np.int64)
        lists.append([(shift, share / total) for shift, share in _phases(step, total, unit)])
    if prod(map(len, lists)) > _MOST_PHASES:
        totals.is_even = False
        lists[1:] = []
    for phases in product(*lists):
        shifts = [shift for shift, _ in phases if shift is not None]
        share = phases[0][1]
        for _, more in phases[1:]:
            share = share * more
        yield (sum(shifts[1:], shifts[0]) if shifts else None), share


def _phases(steps: IntArray, counts: IntArray, unit: int) -> list[tuple[Addresses | None, IntArray]]:
    """Residues of a stepping address modulo `unit`: how far it is then, and how often it is there."""
    shared = int(np.gcd.reduce(np.append(np.abs(steps).reshape(-1), unit)))
    period = unit // shared
    found: list[tuple[Addresses | None, IntArray]] = []
    for phase in range(period):
        share: IntArray = np.maximum((counts - phase + period - 1) // period, 0)
        if share.any():
            found.append(((steps * phase).astype(np.uint64) if phase else None, share))
    return found


def _sectors(access: Access, patterns: Patterns, addresses: Addresses, active: Bits) -> IntArray:
    if access.space is not Space.LOCAL:
        return sectors_of(patterns, access.width_bytes)
    # local memory interleaves the lanes of a warp word by word
    lane = np.arange(WARP_LANES, dtype=np.uint64)[None, :] * np.uint64(4)
    total: IntArray = np.zeros(1, dtype=np.int64)
    for word in range(max(1, access.width_bytes // 4)):
        at = addresses + np.uint64(4 * word)
        placed = (at >> np.uint64(2)) * np.uint64(_BANK_ROW_BYTES) + lane + (at & np.uint64(3))
        total = total + sectors_of(compress(placed, active), min(4, access.width_bytes))
    return total


def _wavefronts(access: Access, patterns: Patterns, addresses: Addresses, active: Bits) -> IntArray:
    if access.n_matrices:
        return matrix_wavefronts(addresses, active, access.n_matrices)
    if access.kind in (OpKind.ATOMIC, OpKind.REDUCTION):
        return atomic_wavefronts(addresses, active, access.width_bytes)
    return shared_wavefronts_of(patterns, access.width_bytes)
