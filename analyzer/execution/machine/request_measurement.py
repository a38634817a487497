"""Cost of requests: lanes, sectors, wavefronts; and the bytes that they add to the footprint."""

from functools import lru_cache
from math import prod

import numpy as np

from analyzer.execution.footprint.footprint import Footprint, Stride
from analyzer.execution.footprint.lane_patterns import LanePatterns, compress_addresses
from analyzer.execution.footprint.request_cost import (
    SECTOR_BYTES,
    count_atomic_wavefronts,
    count_matrix_wavefronts,
    count_pattern_constant_passes,
    count_pattern_global_wavefronts,
    count_pattern_lines,
    count_pattern_same_word_lanes,
    count_pattern_sectors,
    count_pattern_shared_wavefronts,
)
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.machine.access_totals import AccessTotals
from analyzer.execution.machine.alignment_phases import AlignmentPhase, find_alignment_phases
from analyzer.execution.machine.request_tables import RequestTable
from analyzer.ir.arrays import Addresses, BoolArray, FloatArray, IntArray
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, SHARED_SPACES, AddressSpace, OpKind
from analyzer.ir.scheduling import WARP_SIZE

_BANK_ROW_BYTES = 128
_MAX_MEMOIZED_LANES = 4096
# Shift of all addresses of a request that leaves its cost as it is; SECTOR_BYTES in other spaces.
_ALIGNMENT_BYTES = {space: _BANK_ROW_BYTES for space in SHARED_SPACES} | {AddressSpace.CONSTANT: 16}


def add_to_totals(totals: AccessTotals, requests: RequestTable) -> LanePatterns | None:
    """Add the cost of requests to the totals of their access.

    Return the patterns of their addresses, None if they were not needed.
    """
    _count_requests(totals, requests)
    if requests.addresses is None or totals.access.address is None:
        totals.sectors += _count_unplaced_sectors(totals.access, requests)
        return None
    unmoved = _add_memory_cost(totals, requests)
    if totals.access.space in GLOBAL_SPACES:
        add_to_footprint(totals.footprint, totals.access, requests, unmoved)
    return unmoved


def add_to_footprint(
    footprint: Footprint, access: LoweredAccess, requests: RequestTable, patterns: LanePatterns | None = None
) -> None:
    """Add the bytes that requests of an access touch; patterns: of their addresses, if computed before."""
    counts, strides = requests.counts, requests.repeat_strides
    if requests.steps is not None and requests.steps.any():
        strides = (Stride(requests.steps, counts if len(counts) > 1 else int(counts[0])), *strides)
    elif (counts < 1).any():
        strides = (Stride(0, counts), *strides)
    strides = (*(Stride(step, count) for count, step in access.repeats), *strides)
    footprint.add(_broadcast_addresses(requests), requests.active, access.width_bytes, strides, patterns)


def _count_unplaced_sectors(access: LoweredAccess, requests: RequestTable) -> float:
    """Count whole sectors of bulk copies whose size is known and whose addresses are not."""
    if access.bulk is None:
        return 0.0
    times = float((requests.weights * requests.counts * requests.active.any(axis=1)).sum())
    return times * -(-access.width_bytes // SECTOR_BYTES) * (access.lane_bytes // max(1, access.width_bytes))


def _count_bulk_sectors(access: LoweredAccess, patterns: LanePatterns) -> FloatArray:
    """Count the sectors of bulk copies: each row of a box alone, wherever in a sector it begins."""
    # first byte in a sector, and the number of box rows that begin there
    places: list[tuple[int, float]] = [(0, 1.0)]
    for count, step in access.repeats:
        begins = np.bincount(np.arange(count) * step % SECTOR_BYTES, minlength=SECTOR_BYTES)
        placed = np.zeros(SECTOR_BYTES)
        for at, times in places:
            placed += times * np.roll(begins, at)
        places = [(at, float(placed[at])) for at in np.flatnonzero(placed).tolist()]
    sectors = np.zeros(len(patterns.bases))
    for at, times in places:
        moved = patterns.make_shifted(np.full((1, len(patterns.bases)), at, dtype=np.uint64))
        sectors += times * count_pattern_sectors(moved, access.width_bytes)
    return sectors


def _count_bulk_lines(access: LoweredAccess) -> int:
    """Count requests of the copy engine: one for each line of each row of a box."""
    return -(-access.width_bytes // _BANK_ROW_BYTES) * prod(count for count, _ in access.repeats)


def _broadcast_addresses(requests: RequestTable) -> Addresses:
    """Return the addresses with one row per weight."""
    assert requests.addresses is not None
    return np.broadcast_to(requests.addresses, (len(requests.weights), requests.addresses.shape[1]))


def _count_requests(totals: AccessTotals, requests: RequestTable) -> None:
    """Add the numbers of requests and of active lanes."""
    n_active = _count_active_lanes(requests.active)
    times = requests.weights * requests.counts
    totals.requests += float((times * (n_active > 0)).sum())
    totals.lanes += float((times * n_active).sum())


def count_lanes(requests: RequestTable) -> float:
    """Count the active lanes of all requests of the grid that a table stands for."""
    return float((requests.weights * requests.counts * _count_active_lanes(requests.active)).sum())


def _count_active_lanes(active: BoolArray) -> IntArray:
    """Count the active lanes of each row."""
    lanes: IntArray = active.sum(axis=1)
    return lanes * WARP_SIZE if active.shape[1] == 1 else lanes


def _add_memory_cost(totals: AccessTotals, requests: RequestTable) -> LanePatterns | None:
    """Add sectors and wavefronts; return the patterns of the first repetition of global accesses."""
    access, active = totals.access, requests.active
    addresses = _broadcast_addresses(requests)
    found = find_alignment_phases(requests, _ALIGNMENT_BYTES.get(access.space, SECTOR_BYTES))
    totals.is_exhaustive = totals.is_exhaustive and found.is_exhaustive
    if access.space in GLOBAL_SPACES:
        return _add_global_memory_cost(totals, requests, found.phases)
    for phase in found.phases:
        moved = addresses if phase.shift_bytes is None else addresses + phase.shift_bytes
        weight = requests.weights * phase.request_counts
        if access.space in SHARED_SPACES:
            totals.wavefronts += float((_count_shared_wavefronts(access, moved, active) * weight).sum())
            if access.kind is OpKind.STORE:
                rows = count_pattern_lines(compress_addresses(moved, active), access.width_bytes)
                totals.lines += float((rows * weight).sum())
        elif access.space is AddressSpace.CONSTANT:
            patterns = compress_addresses(moved, active)
            passes = count_pattern_constant_passes(patterns, access.width_bytes)
            totals.wavefronts += float((passes * weight).sum())
        else:
            sectors = _count_local_sectors(access, moved, active)
            totals.sectors += float((sectors * weight).sum())
            totals.wavefronts += float((np.maximum(sectors / 4, sectors > 0) * weight).sum())
    return None


def _add_global_memory_cost(
    totals: AccessTotals, requests: RequestTable, phases: tuple[AlignmentPhase, ...]
) -> LanePatterns | None:
    """Add sectors and wavefronts of accesses to global memory; return their patterns.

    If all lanes of a warp step equally far, the phases are further warps with the same patterns.
    """
    unmoved = compress_addresses(_broadcast_addresses(requests), requests.active)
    moves = [
        np.zeros((1, 1), np.uint64) if phase.shift_bytes is None else phase.shift_bytes for phase in phases
    ]
    weights = (
        np.stack([requests.weights * phase.request_counts for phase in phases])
        if phases
        else np.zeros((0, 0))
    )
    shifts = [_find_warp_shifts(shift, unmoved) for shift in moves]
    together = [shift for shift in shifts if shift is not None]
    if len(together) == len(moves):
        tables = [unmoved.make_shifted(np.stack(together))] if together else []
    else:
        tables = [
            compress_addresses(_broadcast_addresses(requests) + shift, requests.active) for shift in moves
        ]
    passes_of = (
        count_pattern_same_word_lanes
        if totals.access.kind in ATOMIC_KINDS
        else count_pattern_global_wavefronts
    )
    for patterns, weight in zip(tables, weights.reshape(len(tables), -1), strict=True):
        if totals.access.bulk is not None:
            totals.sectors += float((_count_bulk_sectors(totals.access, patterns) * weight).sum())
            totals.wavefronts += _count_bulk_lines(totals.access) * float(weight.sum())
            continue
        if totals.access.space is AddressSpace.GLOBAL:
            totals.misaligned_address = totals.misaligned_address or _find_misaligned_address(
                patterns, totals.access.width_bytes
            )
        totals.sectors += float((count_pattern_sectors(patterns, totals.access.width_bytes) * weight).sum())
        totals.lines += float((count_pattern_lines(patterns, totals.access.width_bytes) * weight).sum())
        passes = passes_of(patterns, totals.access.width_bytes)
        totals.wavefronts += float((passes * weight).sum())
    return unmoved


def _find_warp_shifts(shift: Addresses, patterns: LanePatterns) -> Addresses | None:
    """Return the shift of each warp, None if active lanes of a warp shift unequally far."""
    n_warps = len(patterns.bases)
    if shift.shape[1] == 1:
        return np.broadcast_to(shift[:, 0], n_warps)
    shift, active = np.broadcast_to(shift, (n_warps, shift.shape[1])), patterns.active[patterns.pattern_ids]
    own: Addresses = shift[np.arange(n_warps), active.argmax(axis=1)]
    return own if bool(((shift == own[:, None]) | ~active).all()) else None


def _find_misaligned_address(patterns: LanePatterns, width_bytes: int) -> int | None:
    """Return the first address that is no multiple of the width, a power of two; None if all are."""
    width = np.uint64(max(1, width_bytes))
    if width & (width - np.uint64(1)):
        return None
    rows, live, row_of_warp = patterns.group_by_residue(max(1, width_bytes))
    wrong = live & (rows % width != 0)
    if not wrong.any():
        return None
    warp = int(wrong.any(axis=1)[row_of_warp].argmax())
    lane = int(wrong[row_of_warp[warp]].argmax())
    offset = int(patterns.offsets[patterns.pattern_ids[warp], lane])
    return (int(patterns.bases[warp]) + offset) % (1 << 64)


def _count_local_sectors(access: LoweredAccess, addresses: Addresses, active: BoolArray) -> IntArray:
    """Count sectors of local memory, which interleaves the lanes of a warp word by word."""
    lane = np.arange(WARP_SIZE, dtype=np.uint64)[None, :] * np.uint64(4)
    total: IntArray = np.zeros(1, dtype=np.int64)
    for word in range(max(1, access.width_bytes // 4)):
        at = addresses + np.uint64(4 * word)
        placed = (at >> np.uint64(2)) * np.uint64(_BANK_ROW_BYTES) + lane + (at & np.uint64(3))
        total = total + count_pattern_sectors(compress_addresses(placed, active), min(4, access.width_bytes))
    return total


def _count_shared_wavefronts(access: LoweredAccess, addresses: Addresses, active: BoolArray) -> IntArray:
    """Count wavefronts of each row.

    Memoized: unrolled code repeats an access at a multiple of 128 bytes, all banks, further on.
    """
    is_atomic = access.kind in ATOMIC_KINDS
    if addresses.size > _MAX_MEMOIZED_LANES or active.size > _MAX_MEMOIZED_LANES:
        return _count_wavefronts(access.width_bytes, access.n_matrices, is_atomic, addresses, active)
    near = addresses - (addresses[0, 0] & ~np.uint64(_BANK_ROW_BYTES - 1))
    key = (near.tobytes(), active.tobytes(), near.shape, active.shape)
    return _count_memoized_wavefronts(access.width_bytes, access.n_matrices, is_atomic, key)


_WavefrontKey = tuple[bytes, bytes, tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=4096)
def _count_memoized_wavefronts(
    width_bytes: int, n_matrices: int, is_atomic: bool, key: _WavefrontKey
) -> IntArray:
    near, active, shape, active_shape = key
    return _count_wavefronts(
        width_bytes,
        n_matrices,
        is_atomic,
        np.frombuffer(near, dtype=np.uint64).reshape(shape),
        np.frombuffer(active, dtype=bool).reshape(active_shape),
    )


def _count_wavefronts(
    width_bytes: int, n_matrices: int, is_atomic: bool, addresses: Addresses, active: BoolArray
) -> IntArray:
    """Count wavefronts of an access to shared memory, by its kind."""
    if n_matrices:
        return count_matrix_wavefronts(addresses, active, n_matrices)
    if is_atomic:
        return count_atomic_wavefronts(addresses, active, width_bytes)
    return count_pattern_shared_wavefronts(compress_addresses(addresses, active), width_bytes)
