"""What requests cost: lanes, sectors, passes; their bytes go to the footprint."""

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.entries import AccessTotals
from analyzer.execution.footprint import Footprint, Stride
from analyzer.execution.patterns import Patterns, compress
from analyzer.execution.phases import Phase, phases_of
from analyzer.execution.program import Access
from analyzer.execution.request_tables import Requests
from analyzer.execution.requests import (
    SECTOR_BYTES,
    atomic_wavefronts,
    global_wavefronts_of,
    lanes_on_a_word_of,
    matrix_wavefronts,
    sectors_of,
    shared_wavefronts_of,
)
from analyzer.execution.step import Bits
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, Space

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]
Weights = NDArray[np.float64]

_BANK_ROW_BYTES = 128
_SMALL_TABLE = 4096
_SHARED_SPACES = frozenset({Space.SHARED, Space.DISTRIBUTED_SHARED})


def add_requests(totals: AccessTotals, requests: Requests) -> Patterns | None:
    """Add what requests cost to the totals of their access; the patterns of their addresses, if looked at."""
    _count(totals, requests)
    if requests.addresses is None or totals.access.address is None:
        totals.sectors += _sectors_anywhere(totals.access, requests)
        return None
    unmoved = _measure(totals, requests)
    if totals.access.space in GLOBAL_SPACES:
        touch(totals.footprint, totals.access, requests, unmoved)
    return unmoved


def touch(footprint: Footprint, access: Access, requests: Requests, patterns: Patterns | None = None) -> None:
    """Add the bytes that requests of an access touch; patterns: of their addresses, where known already."""
    counts, strides = requests.counts, requests.spread
    if requests.steps is not None and requests.steps.any():
        strides = (Stride(requests.steps, counts if len(counts) > 1 else int(counts[0])), *strides)
    elif (counts < 1).any():
        strides = (Stride(0, counts), *strides)
    strides = (*(Stride(step, count) for count, step in access.repeats), *strides)
    footprint.add(_addresses(requests), requests.active, access.width_bytes, strides, patterns)


def _sectors_anywhere(access: Access, requests: Requests) -> float:
    """Of copies of which the size is known but not the place: whole sectors."""
    if access.bulk is None:
        return 0.0
    times = float((requests.weights * requests.counts * requests.active.any(axis=1)).sum())
    return times * -(-access.width_bytes // SECTOR_BYTES) * (access.lane_bytes // max(1, access.width_bytes))


def _bulk_sectors(access: Access, patterns: Patterns) -> Weights:
    """Of each row of a box, one after the other, wherever in a sector it begins."""
    places: list[tuple[int, float]] = [(0, 1.0)]  # where rows begin in a sector, and how many do there
    for count, step in access.repeats:
        begins = np.bincount(np.arange(count) * step % SECTOR_BYTES, minlength=SECTOR_BYTES)
        placed = np.zeros(SECTOR_BYTES)
        for at, times in places:
            placed += times * np.roll(begins, at)
        places = [(at, float(placed[at])) for at in np.flatnonzero(placed).tolist()]
    sectors = np.zeros(len(patterns.bases))
    for at, times in places:
        moved = patterns.moved(np.full((1, len(patterns.bases)), at, dtype=np.uint64))
        sectors += times * sectors_of(moved, access.width_bytes)
    return sectors


def _bulk_lines(access: Access) -> int:
    """Requests of the engine: one for each line of each row of a box."""
    return -(-access.width_bytes // _BANK_ROW_BYTES) * prod(count for count, _ in access.repeats)


def _addresses(requests: Requests) -> Addresses:
    """One row per weight."""
    assert requests.addresses is not None
    return np.broadcast_to(requests.addresses, (len(requests.weights), requests.addresses.shape[1]))


def _count(totals: AccessTotals, requests: Requests) -> None:
    n_active = _lanes_of(requests.active)
    times = requests.weights * requests.counts
    totals.requests += float((times * (n_active > 0)).sum())
    totals.lanes += float((times * n_active).sum())


def _lanes_of(active: Bits) -> IntArray:
    lanes: IntArray = active.sum(axis=1)
    return lanes * WARP_LANES if active.shape[1] == 1 else lanes


def _measure(totals: AccessTotals, requests: Requests) -> Patterns | None:
    """Sectors and passes; the patterns of addresses that did not move, where they were looked at."""
    access, active = totals.access, requests.active
    addresses = _addresses(requests)
    found = phases_of(requests, _BANK_ROW_BYTES if access.space in _SHARED_SPACES else SECTOR_BYTES)
    totals.is_even = totals.is_even and found.is_whole
    if access.space in GLOBAL_SPACES:
        return _measure_global(totals, requests, found.every)
    for phase in found.every:
        moved = addresses if phase.shift is None else addresses + phase.shift
        weight = requests.weights * phase.share
        if access.space in _SHARED_SPACES:
            totals.wavefronts += float((_wavefronts(access, moved, active) * weight).sum())
        else:
            sectors = _local_sectors(access, moved, active)
            totals.sectors += float((sectors * weight).sum())
            totals.wavefronts += float((np.maximum(sectors / 4, sectors > 0) * weight).sum())
    return None


def _measure_global(totals: AccessTotals, requests: Requests, phases: list[Phase]) -> Patterns | None:
    """Where all lanes of a warp move alike the phases are more warps of the same patterns."""
    unmoved = compress(_addresses(requests), requests.active)
    moves = [np.zeros((1, 1), np.uint64) if phase.shift is None else phase.shift for phase in phases]
    weights = np.stack([requests.weights * phase.share for phase in phases]) if phases else np.zeros((0, 0))
    shifts = [_of_warps(shift, unmoved) for shift in moves]
    together = [shift for shift in shifts if shift is not None]
    if len(together) == len(moves):
        tables = [unmoved.moved(np.stack(together))] if together else []
    else:
        tables = [compress(_addresses(requests) + shift, requests.active) for shift in moves]
    passes_of = lanes_on_a_word_of if totals.access.kind in ATOMIC_KINDS else global_wavefronts_of
    for patterns, weight in zip(tables, weights.reshape(len(tables), -1), strict=True):
        if totals.access.bulk is not None:
            totals.sectors += float((_bulk_sectors(totals.access, patterns) * weight).sum())
            totals.wavefronts += _bulk_lines(totals.access) * float(weight.sum())
            continue
        if totals.access.space is Space.GLOBAL:
            totals.misaligned = totals.misaligned or _misaligned(patterns, totals.access.width_bytes)
        totals.sectors += float((sectors_of(patterns, totals.access.width_bytes) * weight).sum())
        passes = passes_of(patterns, totals.access.width_bytes)
        totals.wavefronts += float((passes * weight).sum())
    return unmoved


def _of_warps(shift: Addresses, patterns: Patterns) -> Addresses | None:
    """How far each warp moves, None where its active lanes move unequally far."""
    n_warps = len(patterns.bases)
    if shift.shape[1] == 1:
        return np.broadcast_to(shift[:, 0], n_warps)
    shift, active = np.broadcast_to(shift, (n_warps, shift.shape[1])), patterns.active[patterns.of]
    own: Addresses = shift[np.arange(n_warps), active.argmax(axis=1)]
    return own if bool(((shift == own[:, None]) | ~active).all()) else None


def _misaligned(patterns: Patterns, width_bytes: int) -> int | None:
    width = np.uint64(max(1, width_bytes))
    if width & (width - np.uint64(1)):
        return None
    rows, live, _ = patterns.at_residues(max(1, width_bytes))
    wrong = live & (rows % width != 0)
    return int(patterns.bases[0]) if wrong.any() else None


def _local_sectors(access: Access, addresses: Addresses, active: Bits) -> IntArray:
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
    is_atomic = access.kind in ATOMIC_KINDS
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
