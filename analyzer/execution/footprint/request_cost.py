"""What one memory request of a warp costs: sectors of global memory, passes of shared memory, turns.

All functions take addresses and active lanes that broadcast to [n_warp, 32] and return one number per warp,
0 where no lane is active. Warps that repeat a pattern at the same alignment are looked at once.

The rule of shared memory. It has 32 banks of 4 bytes; one pass (wavefront) reads at most one word of each
bank, and lanes that ask for the same word share it (CUDA C++ Programming Guide, shared memory of compute
capability 5.x and later). A pass returns at most 128 bytes, so a warp goes in phases: all lanes for up to
4 bytes a lane, half warps for 8, quarter warps for 16; each phase takes as many passes as its busiest bank
has distinct words. The two halves of a warp (8 bytes), or the two quarters of a half warp (16 bytes), go as
one phase when every active lane n has the address of lane n^1, or every active lane that of n^2, where such a
neighbour is active: the returned registers are packed two to one (NVIDIA on forums.developer.nvidia.com,
"Unexpected shared memory bank conflict", 77228, for compute capability 7.0 and 7.5: an LDS.128 takes 2 passes
rather than 4 so). Thus LDS.128 of one address takes 2 passes, which agrees with the 2 cycles fitted on 8.6
and 8.9. That lanes in other arrangements do not merge, few words or not (thread n at n % 4 * 16: 4 passes),
is from the same place. That inactive neighbours do not prevent it, that each half warp is judged by itself,
and that it holds for stores and for later hardware, is assumed.

Global memory. A load reads lines of the L1, which lie in the same 32 banks, so it takes passes by the same
rule, but its phases never merge. Found on 3,928 matrix products that read their operands through the L1
(data/kernel_tuner, gemm.parquet, RTX 2080 Ti and TITAN RTX): their times follow 1 + 2 * passes cycles within
8 %, with merged phases within 17 %, and do not follow the number of lines.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from analyzer.execution.footprint.lane_patterns import (
    LANES,
    Addresses,
    BoolArray,
    IntArray,
    LanePatterns,
    compress_addresses,
)

SECTOR_BYTES = 32
_BANK_BYTES = 4
_WAVEFRONT_BYTES = 128
_MATRIX_ROW_BYTES = 16  # of a matrix of LDSM and STSM
_MATRIX_ROWS = 8


def count_sectors(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Distinct 32-byte sectors that the active lanes touch, each lane [address, address + width)."""
    return count_pattern_sectors(compress_addresses(addresses, active), width_bytes)


def count_shared_wavefronts(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Passes of a shared-memory load or store; the rule stands at the top of this module."""
    return count_pattern_shared_wavefronts(compress_addresses(addresses, active), width_bytes)


def count_global_wavefronts(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Passes of a load from global memory through the L1; the rule stands at the top of this module."""
    return count_pattern_global_wavefronts(compress_addresses(addresses, active), width_bytes)


def count_matrix_wavefronts(addresses: ArrayLike, active: ArrayLike, n_matrices: int) -> IntArray:
    """Passes of LDSM or STSM: the lanes 8i to 8i+7 hold the row addresses of matrix i, 16 bytes a row.

    Each matrix goes by itself: as many passes as the busiest bank has distinct words of its eight rows. So
    Nsight Compute counts: 32 passes for four matrices whose rows lie 128 bytes apart, 16 at 64, 8 at 32, 4 at
    144 (B300, stored text 69517425756, where two such loads of each of eight warps took 514 cycles at 128
    bytes); eight times as many in plain rows as in permuted ones on an RTX 4090 (stored text 68713194919).
    What a GPU takes of those beyond one for each matrix is `matrix_conflict_share` of the hardware database.
    Lanes beyond 8 * n_matrices play no part.
    """
    lanes = np.arange(LANES) < _MATRIX_ROWS * n_matrices
    return _evaluate_by_residue(
        compress_addresses(addresses, np.asarray(active, np.bool_) & lanes),
        _MATRIX_ROW_BYTES,
        lambda rows, live: _sum_phase_wavefronts(rows, live, _MATRIX_ROW_BYTES, _MATRIX_ROWS),
    )


def count_atomic_wavefronts(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Passes of a shared-memory atomic: as many as lanes fall on the busiest bank, phase by phase.

    Lanes on one word do not share: they go one after the other, as lanes on distinct words of a bank do.
    This is assumed; it is an upper bound for the forms that the hardware combines (ATOMS.POPC.INC).
    """
    unit = max(width_bytes, _BANK_BYTES)
    return _evaluate_by_residue(
        compress_addresses(addresses, active),
        unit,
        lambda rows, live: _sum_phase_wavefronts(
            rows, live, unit, _count_phase_lanes(width_bytes), shares_words=False
        ),
    )


def count_same_word_lanes(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """The largest number of lanes that ask for one value: turns of an atomic at the L2, where they queue."""
    return count_pattern_same_word_lanes(compress_addresses(addresses, active), width_bytes)


def count_pattern_sectors(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """`sectors_per_request` of addresses that are compressed already."""
    return _evaluate_by_residue(
        patterns, SECTOR_BYTES, lambda rows, live: _count_sectors(rows, live, width_bytes)
    )


def count_pattern_shared_wavefronts(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """`count_shared_wavefronts` of addresses that are compressed already."""
    return _evaluate_by_residue(
        patterns,
        _find_alignment_bytes(width_bytes),
        lambda rows, live: _count_wavefronts(rows, live, width_bytes),
    )


def count_pattern_global_wavefronts(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """`count_global_wavefronts` of addresses that are compressed already."""
    lanes = _count_phase_lanes(width_bytes)
    return _evaluate_by_residue(
        patterns,
        _find_alignment_bytes(width_bytes),
        lambda rows, live: _sum_phase_wavefronts(rows, live, width_bytes, lanes),
    )


def count_pattern_same_word_lanes(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """`count_same_word_lanes` of addresses that are compressed already."""

    def count_lanes(rows: Addresses, live: BoolArray) -> IntArray:
        lanes = np.arange(LANES)
        none = lanes.astype(np.uint64) | np.uint64(1 << 63)  # one of its own for each lane that asks for none
        words = np.sort(np.where(live, rows // np.uint64(width_bytes), none), axis=1)
        first = np.zeros(words.shape, np.int64)
        first[:, 1:] = np.where(words[:, 1:] != words[:, :-1], lanes[1:], 0)
        counts: IntArray = (lanes - np.maximum.accumulate(first, axis=1)).max(axis=1) + 1
        return np.where(live.any(axis=1), counts, 0)

    return _evaluate_by_residue(patterns, width_bytes, count_lanes)


def _find_alignment_bytes(width_bytes: int) -> int:
    """Where patterns start is of no account but modulo this: a common shift by words rotates the banks."""
    return _WAVEFRONT_BYTES if width_bytes & (width_bytes - 1) else max(width_bytes, _BANK_BYTES)


def _evaluate_by_residue(
    patterns: LanePatterns, modulus: int, cost: Callable[[Addresses, BoolArray], IntArray]
) -> IntArray:
    if not len(patterns.bases):
        return np.zeros(0, np.int64)
    rows, live, which = patterns.group_by_residue(modulus)
    return cost(rows, live)[which]


def _count_sectors(rows: Addresses, live: BoolArray, width_bytes: int) -> IntArray:
    """Inactive lanes hold the address of an active one, so they add nothing unless no lane is active."""
    ordered = np.sort(_list_units(rows, width_bytes, SECTOR_BYTES), axis=1)
    counts = 1 + np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1)
    return np.where(live.any(axis=1), counts, 0).astype(np.int64, copy=False)


def _list_units(rows: Addresses, width_bytes: int, unit_bytes: int) -> Addresses:
    """Numbers of the `unit_bytes` long units that each lane touches, [m, 32 * k]."""
    units = rows // np.uint64(unit_bytes)
    within = rows % np.uint64(unit_bytes)
    if bool((within <= np.uint64(max(unit_bytes - width_bytes, 0))).all()) and width_bytes <= unit_bytes:
        return units
    reach = [*range(unit_bytes, width_bytes - 1, unit_bytes), width_bytes - 1]
    return np.concatenate([units, *((rows + np.uint64(r)) // np.uint64(unit_bytes) for r in reach)], axis=1)


def _count_phase_lanes(width_bytes: int) -> int:
    return LANES if width_bytes <= 4 else LANES // 2 if width_bytes <= 8 else LANES // 4


def _count_wavefronts(rows: Addresses, live: BoolArray, width_bytes: int) -> IntArray:
    lanes = _count_phase_lanes(width_bytes)
    if lanes == LANES:
        return _sum_phase_wavefronts(rows, live, width_bytes, LANES)
    halves = rows.reshape(-1, 2 * lanes)  # what may go as one phase
    halves_live = live.reshape(-1, 2 * lanes)
    passes = _sum_phase_wavefronts(halves, halves_live, width_bytes, lanes)
    paired = _is_paired(halves, halves_live, 1) | _is_paired(halves, halves_live, 2)
    if paired.any():
        passes[paired] = _sum_phase_wavefronts(halves[paired], halves_live[paired], width_bytes, 2 * lanes)
    total: IntArray = passes.reshape(len(rows), -1).sum(axis=1)
    return total


def _is_paired(rows: Addresses, live: BoolArray, distance: int) -> BoolArray:
    partner = np.arange(rows.shape[1]) ^ distance
    differs = live & live[:, partner] & (rows != rows[:, partner])
    paired: BoolArray = ~differs.any(axis=1)
    return paired


def _sum_phase_wavefronts(
    rows: Addresses, live: BoolArray, width_bytes: int, phase_lanes: int, *, shares_words: bool = True
) -> IntArray:
    """Passes of each row, summed over its phases of `phase_lanes` lanes."""
    phases = rows.reshape(-1, phase_lanes)
    phases_live = live.reshape(-1, phase_lanes)
    aligned = width_bytes in (4, 8, 16) and not bool((phases & np.uint64(width_bytes - 1))[phases_live].any())
    unit = width_bytes if aligned else _BANK_BYTES  # whole vectors conflict as each of their words does
    units = _list_units(phases, width_bytes, unit)
    repeat = units.shape[1] // phase_lanes
    counted = np.tile(phases_live, (1, repeat)) if repeat > 1 else phases_live
    if shares_words:
        leads = phases_live.argmax(axis=1)
        stand_in = units[np.arange(len(units)), leads]
        units = np.sort(np.where(counted, units, stand_in[:, None]), axis=1)
        counted = np.empty(units.shape, np.bool_)
        counted[:, 0] = True
        counted[:, 1:] = units[:, 1:] != units[:, :-1]
        counted &= phases_live.any(axis=1, keepdims=True)
    n_banks = _WAVEFRONT_BYTES // unit
    banks = (units & np.uint64(n_banks - 1)).astype(np.int64)
    banks += np.arange(len(units))[:, None] * n_banks
    loads = np.bincount(banks[counted], minlength=len(units) * n_banks).reshape(len(units), n_banks)
    total: IntArray = loads.max(axis=1).astype(np.int64).reshape(len(rows), -1).sum(axis=1)
    return total
