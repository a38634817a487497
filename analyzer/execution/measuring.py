"""What requests cost: lanes, sectors, passes; their bytes go to the footprint."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.entries import AccessTotals, Entry
from analyzer.execution.footprint import Stride
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
_MOST_PHASES = 256
_SMALL_TABLE = 4096
_GATHERED_ROWS = 4096
_SHARED_SPACES = frozenset({Space.SHARED, Space.DISTRIBUTED_SHARED})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """An entry with one row per warp: arrays of [n_row, 32] or smaller; weights [n_row], counts likewise."""

    weights: Weights
    counts: IntArray
    active: Bits
    addresses: Addresses | None
    steps: IntArray | None

    @property
    def is_plain(self) -> bool:
        """Each at one address, so that they can be looked at together with others."""
        return self.steps is None and self.addresses is not None

    def kept(self, rows: Bits) -> "Requests":
        """Some of the rows."""
        return Requests(
            weights=self.weights[rows],
            counts=_rows_of(self.counts, rows),
            active=_rows_of(self.active, rows),
            addresses=None if self.addresses is None else _rows_of(self.addresses, rows),
            steps=None if self.steps is None else _rows_of(self.steps, rows),
        )


def _rows_of(array: NDArray[Any], rows: Bits) -> NDArray[Any]:
    return array if len(array) != len(rows) else array[rows]


def gathered(every: Iterable[Requests]) -> Iterator[Requests]:
    """The same requests, many small tables in one: a loop that is not closed logs one per iteration."""
    held: list[Requests] = []
    n_rows = 0
    for requests in every:
        if not requests.is_plain or len(requests.weights) > _GATHERED_ROWS:
            yield requests
            continue
        held.append(requests)
        n_rows += len(requests.weights)
        if n_rows > _GATHERED_ROWS:
            yield _concatenated(held)
            held, n_rows = [], 0
    if held:
        yield _concatenated(held)


def _concatenated(parts: list[Requests]) -> Requests:
    if len(parts) == 1:
        return parts[0]
    rows = [len(part.weights) for part in parts]
    tables = [part.addresses for part in parts if part.addresses is not None]
    return Requests(
        weights=np.concatenate([part.weights for part in parts]),
        counts=np.concatenate([np.broadcast_to(p.counts, n) for p, n in zip(parts, rows, strict=True)]),
        active=np.concatenate(
            [np.broadcast_to(p.active, (n, WARP_LANES)) for p, n in zip(parts, rows, strict=True)]
        ),
        addresses=np.concatenate(
            [np.broadcast_to(table, (n, WARP_LANES)) for table, n in zip(tables, rows, strict=True)]
        ),
        steps=None,
    )


def add_requests(totals: AccessTotals, requests: Requests) -> None:
    """Add what requests cost to the totals of their access."""
    _count(totals, requests)
    if requests.addresses is not None and totals.access.address is not None:
        _measure(totals, requests, ())


def _count(totals: AccessTotals, requests: Requests) -> None:
    n_active = _lanes_of(requests.active)
    times = requests.weights * requests.counts
    totals.requests += float((times * (n_active > 0)).sum())
    totals.lanes += float((times * n_active).sum())


def add_with_neighbours(totals: AccessTotals, entry: Entry, batch: "Batch") -> None:
    """CTAs that stand for others: where those next to them differ, says how the others' addresses go on."""
    requests = requests_of(entry, batch)
    spread: list[Stride] = []
    n_rows = batch.n_warps if entry.rows is None else len(entry.rows)
    if requests.addresses is not None and len(requests.addresses) == n_rows:
        spread = _spread(totals, requests, entry, batch)
    _count(totals, requests)
    if requests.addresses is None or totals.access.address is None:
        return
    kept = requests.weights > 0
    strides = (
        Stride(_rows_of(np.asarray(s.step), kept), _rows_of(np.asarray(s.count), kept)) for s in spread
    )
    _measure(totals, requests.kept(kept), tuple(strides))


def requests_of(entry: Entry, batch: "Batch") -> Requests:
    """One row per warp; along axes on which CTAs do not differ, of one CTA that weighs as much as all."""
    counts = np.ones(1, dtype=np.int64) if entry.counts is None else entry.counts
    if entry.rows is not None:
        return Requests(
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
    return Requests(
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


def _spread(totals: AccessTotals, requests: Requests, entry: Entry, batch: "Batch") -> list[Stride]:
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


def _measure(totals: AccessTotals, requests: Requests, spread: tuple[Stride, ...]) -> None:
    access, counts, active = totals.access, requests.counts, requests.active
    assert requests.addresses is not None
    addresses = np.broadcast_to(requests.addresses, (len(requests.weights), requests.addresses.shape[1]))
    steps = requests.steps if requests.steps is not None and requests.steps.any() else None
    unmoved: Patterns | None = None
    for shift, share in _all_phases(totals, steps, counts, spread):
        moved = addresses if shift is None else addresses + shift
        weight = requests.weights * share
        if access.space in _SHARED_SPACES:
            totals.wavefronts += float((_wavefronts(access, moved, active) * weight).sum())
        else:
            patterns = compress(moved, active)
            unmoved = patterns if shift is None else unmoved
            if access.space is Space.GLOBAL:
                totals.misaligned = totals.misaligned or _misaligned(patterns, access.width_bytes)
            sectors = _sectors(access, patterns, moved, active)
            totals.sectors += float((sectors * weight).sum())
            totals.wavefronts += float((np.maximum(sectors / 4, sectors > 0) * weight).sum())
    if access.space in (Space.GLOBAL, Space.GENERIC):
        strides: tuple[Stride, ...] = ()
        if steps is not None:
            strides = (Stride(steps, counts if len(counts) > 1 else int(counts[0])),)
        elif (counts < 1).any():
            strides = (Stride(0, counts),)
        totals.footprint.add(addresses, active, access.width_bytes, (*strides, *spread), unmoved)


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


def _wavefronts(access: Access, addresses: Addresses, active: Bits) -> IntArray:
    """Passes of each row. Unrolled code does the same a multiple of all banks further on, again and again."""
    is_atomic = access.kind in (OpKind.ATOMIC, OpKind.REDUCTION)
    if addresses.size > _SMALL_TABLE or active.size > _SMALL_TABLE:
        return _count_wavefronts(access.width_bytes, access.n_matrices, is_atomic, addresses, active)
    near = addresses - (addresses[0, 0] & ~np.uint64(_BANK_ROW_BYTES - 1))
    key = (near.tobytes(), active.tobytes(), near.shape, active.shape)
    return _known_wavefronts(access.width_bytes, access.n_matrices, is_atomic, key)


_Table = tuple[bytes, bytes, tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=4096)
def _known_wavefronts(width_bytes: int, n_matrices: int, is_atomic: bool, key: _Table) -> IntArray:
    near, active, shape, active_shape = key
    return _count_wavefronts(
        width_bytes,
        n_matrices,
        is_atomic,
        np.frombuffer(near, dtype=np.uint64).reshape(shape),
        np.frombuffer(active, dtype=bool).reshape(active_shape),
    )


def _count_wavefronts(
    width_bytes: int, n_matrices: int, is_atomic: bool, addresses: Addresses, active: Bits
) -> IntArray:
    if n_matrices:
        return matrix_wavefronts(addresses, active, n_matrices)
    if is_atomic:
        return atomic_wavefronts(addresses, active, width_bytes)
    return shared_wavefronts_of(compress(addresses, active), width_bytes)
