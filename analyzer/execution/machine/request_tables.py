"""Tables of requests with one row per warp, in which requests are measured; small ones are merged."""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.footprint.footprint import Stride
from analyzer.execution.machine.access_totals import AccessLogEntry, AccessTotals, flatten_to_warp_rows
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.ir.arrays import Addresses, BoolArray, FloatArray, IntArray

_MAX_TABLE_ROWS = 4096


class RequestTable(Struct, frozen=True, kw_only=True, eq=False):
    """Requests with one row per warp; arrays of lanes are [n_row, 32] or smaller."""

    weights: FloatArray  # [n_row], requests of the grid that each row represents, without `counts`
    counts: IntArray  # [n_row] or [1], iterations
    active: BoolArray
    addresses: Addresses | None  # None if unknown
    steps: IntArray | None  # bytes from one iteration to the next, None for 0
    # along the grid axes from a CTA to those that it represents, and along inner loops; in `weights`
    repeat_strides: tuple[Stride, ...] = ()

    def select_rows(self, rows: BoolArray) -> "RequestTable":
        """Return some of the rows."""
        return RequestTable(
            weights=self.weights[rows],
            counts=_select_rows(self.counts, rows),
            active=_select_rows(self.active, rows),
            addresses=None if self.addresses is None else _select_rows(self.addresses, rows),
            steps=None if self.steps is None else _select_rows(self.steps, rows),
            repeat_strides=tuple(
                Stride(_select_rows(np.asarray(s.step), rows), _select_rows(np.asarray(s.count), rows))
                for s in self.repeat_strides
            ),
        )

    def make_merge_key(self) -> "_MergeKey | None":
        """Return a key that is equal for tables that may be merged; None if this one may not be.

        Such tables have the same strides in each row, along iterations and CTAs.
        """
        if self.addresses is None or len(self.weights) > _MAX_TABLE_ROWS:
            return None
        if self.steps is None and not self.repeat_strides:
            return ()
        arrays = [self.active, self.counts, np.zeros(0) if self.steps is None else self.steps]
        for stride in self.repeat_strides:
            arrays += [np.asarray(stride.step), np.asarray(stride.count)]
        return tuple(array.tobytes() for array in arrays)


_MergeKey = tuple[bytes, ...]


def build_request_tables(
    totals: AccessTotals, entries: Sequence[AccessLogEntry], batch: CtaBatch
) -> Iterator[RequestTable]:
    """Build the tables of one access, merged: a loop that is not accelerated logs an entry per iteration."""
    if batch.neighbor_ctas:
        return _merge_tables(_build_table_with_neighbors(totals, entry, batch) for entry in entries)
    return _merge_tables(build_request_table(entry, batch) for entry in entries)


def _merge_tables(every: Iterable[RequestTable]) -> Iterator[RequestTable]:
    """Merge tables with the same key, until they have too many rows."""
    held: dict[_MergeKey, list[RequestTable]] = {}
    n_rows = 0
    for requests in every:
        if not len(requests.weights):
            continue
        kind = requests.make_merge_key()
        if kind is None:
            yield requests
            continue
        held.setdefault(kind, []).append(requests)
        n_rows += len(requests.weights)
        if n_rows > _MAX_TABLE_ROWS:
            yield from map(_concatenate_tables, held.values())
            held, n_rows = {}, 0
    yield from map(_concatenate_tables, held.values())


def _concatenate_tables(parts: list[RequestTable]) -> RequestTable:
    """Return one table of several with the same key."""
    if len(parts) == 1:
        return parts[0]
    rows = [len(part.weights) for part in parts]

    def joined(arrays: Iterable[NDArray[Any] | int]) -> NDArray[Any]:
        """Concatenate arrays of [n_row, 32] or [n_row], or smaller."""
        tables = [np.asarray(array) for array in arrays]
        width = [(max(table.shape[1] for table in tables),)] if tables[0].ndim > 1 else [()]
        return np.concatenate(
            [
                table if table.shape == (n, *width[0]) else np.broadcast_to(table, (n, *width[0]))
                for table, n in zip(tables, rows, strict=True)
            ]
        )

    return RequestTable(
        weights=joined(part.weights for part in parts),
        counts=joined(part.counts for part in parts),
        active=joined(part.active for part in parts),
        addresses=joined(part.addresses for part in parts if part.addresses is not None),
        steps=None
        if parts[0].steps is None
        else joined(part.steps for part in parts if part.steps is not None),
        repeat_strides=tuple(
            Stride(joined(stride.step for stride in strides), joined(stride.count for stride in strides))
            for strides in zip(*(part.repeat_strides for part in parts), strict=True)
        ),
    )


def _build_table_with_neighbors(totals: AccessTotals, entry: AccessLogEntry, batch: CtaBatch) -> RequestTable:
    """Build a table of CTAs that represent others: its strides are the distances to neighbor CTAs."""
    requests = build_request_table(entry, batch)
    n_rows = batch.n_warps if entry.rows is None else len(entry.rows)
    if requests.addresses is not None and len(requests.addresses) == n_rows:
        cta_strides = _find_cta_strides(totals, requests, entry, batch)
        requests = replace(requests, repeat_strides=(*cta_strides, *requests.repeat_strides))
    return requests.select_rows(requests.weights > 0)


def build_request_table(entry: AccessLogEntry, batch: CtaBatch) -> RequestTable:
    """Build a table of one entry; along axes on which CTAs do not differ, one CTA has the weight of all."""
    requests = _build_outer_table(entry, batch)
    if not entry.inner_strides:
        return requests
    times = prod(int(np.asarray(stride.count).reshape(-1)[0]) for stride in entry.inner_strides)
    return replace(requests, weights=requests.weights * times, repeat_strides=entry.inner_strides)


def _build_outer_table(entry: AccessLogEntry, batch: CtaBatch) -> RequestTable:
    """Build a table of one entry without repetitions of inner loops."""
    counts = np.ones(1, dtype=np.int64) if entry.counts is None else entry.counts
    if entry.rows is not None and not entry.is_cta_uniform:
        return RequestTable(
            weights=batch.warp_weights[entry.rows],
            counts=counts,
            active=entry.active,
            addresses=entry.addresses,
            steps=entry.steps,
        )
    weights = batch.warp_weights if entry.rows is None else batch.warp_weights[entry.rows]
    shape = (*batch.cta_shape, len(weights) // len(batch.cta_numbers))
    counts = counts.reshape(shape if len(counts) > 1 else (1, 1, 1))
    weights = weights.reshape(shape)
    for axis in (0, 1):
        if not _has_varying_ctas(entry, counts, axis):  # one CTA represents all along the axis
            weights = weights.sum(axis=axis, keepdims=True)
            counts = counts[:1] if axis == 0 else counts[:, :1]
    shape = weights.shape
    return RequestTable(
        weights=weights.reshape(-1),
        counts=counts.reshape(-1) if counts.size == 1 else np.broadcast_to(counts, shape).reshape(-1),
        active=flatten_to_warp_rows(entry.active, shape),
        addresses=None if entry.addresses is None else flatten_to_warp_rows(entry.addresses, shape),
        steps=None if entry.steps is None else flatten_to_warp_rows(entry.steps, shape),
    )


def _has_varying_ctas(entry: AccessLogEntry, counts: IntArray, axis: int) -> bool:
    """Return whether CTAs differ along an axis."""
    arrays = (entry.active, entry.addresses, entry.steps)
    if any(array is not None and array.ndim > 2 and array.shape[axis] > 1 for array in arrays):
        return True
    return counts.shape[axis] > 1 and bool((counts != counts.take([0], axis=axis)).any())


def _find_cta_strides(
    totals: AccessTotals, requests: RequestTable, entry: AccessLogEntry, batch: CtaBatch
) -> tuple[Stride, ...]:
    """Return the strides from a CTA to those that it represents, along each axis of the grid."""
    addresses, active = requests.addresses, requests.active
    assert addresses is not None
    per_cta = batch.launch_shape.warps_per_cta
    rows = np.arange(batch.n_warps, dtype=np.int64) if entry.rows is None else entry.rows
    ctas, warps = np.divmod(rows, per_cta)
    is_counted = batch.warp_weights[rows] > 0
    found: list[Stride] = []
    for neighbors, counts in zip(batch.neighbor_ctas, batch.box_counts, strict=True):
        next_cta = neighbors[ctas]
        moves = is_counted & (next_cta >= 0)
        if not moves.any():
            continue
        wanted = next_cta * per_cta + warps
        places = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
        if (rows[places] != wanted)[moves].any():
            totals.is_exhaustive = False  # the neighbor CTA does not run with it
            continue
        step = np.where(moves[:, None], (addresses[places] - addresses).astype(np.int64), 0)
        step = np.where(np.broadcast_to(active, (len(rows), active.shape[1])), step, 0)
        found.append(Stride(step, np.where(moves, counts[ctas], 1)))
    return tuple(found)


def _select_rows(array: NDArray[Any], rows: BoolArray) -> NDArray[Any]:
    return array if len(array) != len(rows) else array[rows]
