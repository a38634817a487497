"""Requests as tables with one row per warp, as they are measured: many small ones in one."""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.entries import AccessTotals, Entry, one_row_per_warp
from analyzer.execution.footprint import Stride
from analyzer.execution.step import Bits

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]
Weights = NDArray[np.float64]

_GATHERED_ROWS = 4096


class Requests(Struct, frozen=True, kw_only=True, eq=False):
    """An entry with one row per warp: arrays of [n_row, 32] or smaller; weights [n_row], counts likewise.

    spread: how addresses go on from a CTA to those that it stands for, along each axis of the grid, and from
    one iteration of inner loops to the next; weights count all of these.
    """

    weights: Weights
    counts: IntArray
    active: Bits
    addresses: Addresses | None
    steps: IntArray | None
    spread: tuple[Stride, ...] = ()

    def kept(self, rows: Bits) -> "Requests":
        """Some of the rows."""
        return Requests(
            weights=self.weights[rows],
            counts=_rows_of(self.counts, rows),
            active=_rows_of(self.active, rows),
            addresses=None if self.addresses is None else _rows_of(self.addresses, rows),
            steps=None if self.steps is None else _rows_of(self.steps, rows),
            spread=tuple(
                Stride(_rows_of(np.asarray(s.step), rows), _rows_of(np.asarray(s.count), rows))
                for s in self.spread
            ),
        )

    def kind(self) -> "_Kind | None":
        """Requests of a kind are looked at in one table; None where these are too many, or unlike any.

        They are alike where their lanes go on by as much, in each row, over iterations and over CTAs.
        """
        if self.addresses is None or len(self.weights) > _GATHERED_ROWS:
            return None
        if self.steps is None and not self.spread:
            return ()
        arrays = [self.active, self.counts, np.zeros(0) if self.steps is None else self.steps]
        for stride in self.spread:
            arrays += [np.asarray(stride.step), np.asarray(stride.count)]
        return tuple(array.tobytes() for array in arrays)


_Kind = tuple[bytes, ...]


def tables_of(totals: AccessTotals, entries: Sequence[Entry], batch: "Batch") -> Iterator[Requests]:
    """Requests of one access: a loop that is not closed logs an entry per iteration."""
    if batch.neighbours:
        return _gathered(_with_neighbours(totals, entry, batch) for entry in entries)
    return _gathered(requests_of(entry, batch) for entry in entries)


def _gathered(every: Iterable[Requests]) -> Iterator[Requests]:
    held: dict[_Kind, list[Requests]] = {}
    n_rows = 0
    for requests in every:
        if not len(requests.weights):
            continue
        kind = requests.kind()
        if kind is None:
            yield requests
            continue
        held.setdefault(kind, []).append(requests)
        n_rows += len(requests.weights)
        if n_rows > _GATHERED_ROWS:
            yield from map(_concatenated, held.values())
            held, n_rows = {}, 0
    yield from map(_concatenated, held.values())


def _concatenated(parts: list[Requests]) -> Requests:
    if len(parts) == 1:
        return parts[0]
    rows = [len(part.weights) for part in parts]

    def joined(arrays: Iterable[NDArray[Any] | int]) -> NDArray[Any]:
        """Arrays of [n_row, 32] or [n_row], or smaller."""
        tables = [np.asarray(array) for array in arrays]
        width = [(max(table.shape[1] for table in tables),)] if tables[0].ndim > 1 else [()]
        return np.concatenate(
            [np.broadcast_to(table, (n, *width[0])) for table, n in zip(tables, rows, strict=True)]
        )

    return Requests(
        weights=joined(part.weights for part in parts),
        counts=joined(part.counts for part in parts),
        active=joined(part.active for part in parts),
        addresses=joined(part.addresses for part in parts if part.addresses is not None),
        steps=None
        if parts[0].steps is None
        else joined(part.steps for part in parts if part.steps is not None),
        spread=tuple(
            Stride(joined(stride.step for stride in strides), joined(stride.count for stride in strides))
            for strides in zip(*(part.spread for part in parts), strict=True)
        ),
    )


def _with_neighbours(totals: AccessTotals, entry: Entry, batch: "Batch") -> Requests:
    """CTAs that stand for others: where those next to them differ, says how the others' addresses go on."""
    requests = requests_of(entry, batch)
    n_rows = batch.n_warps if entry.rows is None else len(entry.rows)
    if requests.addresses is not None and len(requests.addresses) == n_rows:
        beside = _spread(totals, requests, entry, batch)
        requests = replace(requests, spread=(*beside, *requests.spread))
    return requests.kept(requests.weights > 0)


def requests_of(entry: Entry, batch: "Batch") -> Requests:
    """One row per warp; along axes on which CTAs do not differ, of one CTA that weighs as much as all."""
    requests = _outer_requests(entry, batch)
    if not entry.inner:
        return requests
    times = prod(int(np.asarray(stride.count).reshape(-1)[0]) for stride in entry.inner)
    return replace(requests, weights=requests.weights * times, spread=entry.inner)


def _outer_requests(entry: Entry, batch: "Batch") -> Requests:
    counts = np.ones(1, dtype=np.int64) if entry.counts is None else entry.counts
    if entry.rows is not None and not entry.is_even:
        return Requests(
            weights=batch.weights[entry.rows],
            counts=counts,
            active=entry.active,
            addresses=entry.addresses,
            steps=entry.steps,
        )
    weights = batch.weights if entry.rows is None else batch.weights[entry.rows]
    shape = (*batch.cta_shape, len(weights) // len(batch.cta_numbers))
    counts = counts.reshape(shape if len(counts) > 1 else (1, 1, 1))
    weights = weights.reshape(shape)
    for axis in (0, 1):
        if not _varies(entry, counts, axis):  # one CTA stands for all along the axis
            weights = weights.sum(axis=axis, keepdims=True)
            counts = counts[:1] if axis == 0 else counts[:, :1]
    shape = weights.shape
    return Requests(
        weights=weights.reshape(-1),
        counts=counts.reshape(-1) if counts.size == 1 else np.broadcast_to(counts, shape).reshape(-1),
        active=one_row_per_warp(entry.active, shape),
        addresses=None if entry.addresses is None else one_row_per_warp(entry.addresses, shape),
        steps=None if entry.steps is None else one_row_per_warp(entry.steps, shape),
    )


def _varies(entry: Entry, counts: IntArray, axis: int) -> bool:
    """CTAs differ along an axis."""
    arrays = (entry.active, entry.addresses, entry.steps)
    if any(array is not None and array.ndim > 2 and array.shape[axis] > 1 for array in arrays):
        return True
    return counts.shape[axis] > 1 and bool((counts != counts.take([0], axis=axis)).any())


def _spread(totals: AccessTotals, requests: Requests, entry: Entry, batch: "Batch") -> tuple[Stride, ...]:
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
    return tuple(found)


def _rows_of(array: NDArray[Any], rows: Bits) -> NDArray[Any]:
    return array if len(array) != len(rows) else array[rows]
