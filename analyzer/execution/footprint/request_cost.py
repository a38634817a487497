"""Cost of one memory request of a warp: global-memory sectors, wavefronts, and serialized atomics.

All functions take addresses and active lanes that broadcast to [n_warp, 32] and return one number per warp,
0 if no lane is active. Warps that repeat a pattern at the same alignment are evaluated once.

Shared memory:

1. It has 32 banks of 4 bytes. One wavefront reads at most one word of each bank; lanes that request the same
   word share it (CUDA C++ Programming Guide, shared memory of compute capability 5.x and later).
2. A wavefront returns at most 128 bytes, so a request is split into phases: the whole warp for up to 4 bytes
   per lane, half warps for 8 bytes, quarter warps for 16 bytes.
3. A phase takes as many wavefronts as its busiest bank has distinct words.
4. The two halves of a warp (8 bytes), or the two quarters of a half warp (16 bytes), merge into one phase if
   every active lane n has the address of lane n^1, or every active lane that of n^2, where that lane is
   active: the returned registers are packed two to one (NVIDIA on forums.developer.nvidia.com, "Unexpected
   shared memory bank conflict", 77228, for compute capability 7.0 and 7.5: such an LDS.128 takes 2
   wavefronts, not 4). LDS.128 of one address thus takes 2 wavefronts, which agrees with the 2 cycles fitted
   on 8.6 and 8.9. Other arrangements do not merge, however few words they have (thread n at n % 4 * 16: 4
   wavefronts; same source).

Assumed: inactive neighbours do not prevent the merge, each half warp is decided by itself, and the rule holds
for stores and later hardware.

Global memory: a load reads lines of the L1, which use the same 32 banks, so it takes wavefronts by the same
rules, but its phases never merge. Source: 3,928 CLBlast GEMM configurations that read their operands through
the L1 on RTX 2080 Ti and TITAN RTX (AutoTuningAssociation/benchmark_hub @ 8eeb99e, DOI
10.5281/zenodo.15364124). Their times follow 1 + 2 * wavefronts cycles within 8 %, with merged phases within
17 %, and do not follow the number of lines.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from analyzer.execution.footprint.lane_patterns import LANES, LanePatterns, compress_addresses
from analyzer.ir.arrays import Addresses, BoolArray, IntArray

SECTOR_BYTES = 32
_LINE_BYTES = 128  # of the L1 and the L2 of all supported architectures
_BANK_BYTES = 4
WAVEFRONT_BYTES = 128
_MATRIX_ROW_BYTES = 16  # of an 8x8 matrix of LDSM and STSM
_MATRIX_ROWS = 8


def count_sectors(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Count the distinct 32-byte sectors that active lanes touch, each lane [address, address + width)."""
    return count_pattern_sectors(compress_addresses(addresses, active), width_bytes)


def count_shared_wavefronts(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Count the wavefronts of a shared-memory load or store, by the rules of this module."""
    return count_pattern_shared_wavefronts(compress_addresses(addresses, active), width_bytes)


def count_global_wavefronts(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Count the wavefronts of a global-memory load through the L1, by the rules of this module."""
    return count_pattern_global_wavefronts(compress_addresses(addresses, active), width_bytes)


def count_matrix_wavefronts(addresses: ArrayLike, active: ArrayLike, n_matrices: int) -> IntArray:
    """Count the wavefronts of LDSM or STSM; lanes 8i to 8i+7 hold the addresses of 16-byte rows of matrix i.

    Each matrix is a phase of its own: it takes as many wavefronts as the busiest bank has distinct words in
    its eight rows. Nsight Compute counts the same: 32 wavefronts for four matrices with rows 128 bytes apart,
    16 at 64, 8 at 32, 4 at 144 (a public LDSM stride experiment on a B300, "assignment02" of simidawhu,
    2026-09-20, Nsight Compute 2025.4; 514 cycles for two such loads of each of eight warps at 128 bytes).
    On an RTX 4090 plain rows take 6,291,456 wavefronts, swizzled ones 786,432 (a public BF16 product of
    1024-cube matrices, Nsight Compute 2025.3.1; its repository was not recorded). The share
    of conflicts that costs time on a GPU is `matrix_conflict_share` in
    the hardware database. Lanes from 8 * n_matrices on are ignored.
    """
    lanes = np.arange(LANES) < _MATRIX_ROWS * n_matrices
    return _evaluate_by_residue(
        compress_addresses(addresses, np.asarray(active, np.bool_) & lanes),
        _MATRIX_ROW_BYTES,
        lambda rows, live: _sum_phase_wavefronts(rows, live, _MATRIX_ROW_BYTES, _MATRIX_ROWS),
    )


def count_atomic_wavefronts(addresses: ArrayLike, active: ArrayLike, width_bytes: int) -> IntArray:
    """Count the wavefronts of a shared-memory atomic: the lanes on the busiest bank, summed over phases.

    Lanes on the same word are serialized, like lanes on distinct words of a bank. This is assumed; it is an
    upper bound for operations that the hardware combines (ATOMS.POPC.INC).
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
    """Count the most lanes on one value, which an atomic at the L2 processes one after the other."""
    return count_pattern_same_word_lanes(compress_addresses(addresses, active), width_bytes)


def count_pattern_sectors(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """Count as `count_sectors` does, from compressed addresses."""
    return _evaluate_by_residue(
        patterns, SECTOR_BYTES, lambda rows, live: _count_units(rows, live, width_bytes, SECTOR_BYTES)
    )


def count_pattern_lines(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """Count the distinct 128-byte lines that active lanes touch, from compressed addresses."""
    return _evaluate_by_residue(
        patterns, _LINE_BYTES, lambda rows, live: _count_units(rows, live, width_bytes, _LINE_BYTES)
    )


def count_pattern_constant_passes(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """Count the distinct words of constant loads, each of which is a pass of its own.

    CUDA C++ Programming Guide, constant memory: a request is split into one for each different address.
    """
    unit = max(width_bytes, _BANK_BYTES)
    return _evaluate_by_residue(patterns, unit, lambda rows, live: _count_units(rows, live, 1, unit))


def count_pattern_shared_wavefronts(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """Count as `count_shared_wavefronts` does, from compressed addresses."""
    return _evaluate_by_residue(
        patterns,
        _find_alignment_bytes(width_bytes),
        lambda rows, live: _count_wavefronts(rows, live, width_bytes),
    )


def count_pattern_global_wavefronts(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """Count as `count_global_wavefronts` does, from compressed addresses."""
    lanes = _count_phase_lanes(width_bytes)
    return _evaluate_by_residue(
        patterns,
        _find_alignment_bytes(width_bytes),
        lambda rows, live: _sum_phase_wavefronts(rows, live, width_bytes, lanes),
    )


def count_pattern_same_word_lanes(patterns: LanePatterns, width_bytes: int) -> IntArray:
    """Count as `count_same_word_lanes` does, from compressed addresses."""

    def count_lanes(rows: Addresses, live: BoolArray) -> IntArray:
        lanes = np.arange(LANES)
        idle_words = lanes.astype(np.uint64) | np.uint64(1 << 63)  # a distinct word for each inactive lane
        words = np.sort(np.where(live, rows // np.uint64(width_bytes), idle_words), axis=1)
        first = np.zeros(words.shape, np.int64)
        first[:, 1:] = np.where(words[:, 1:] != words[:, :-1], lanes[1:], 0)
        counts: IntArray = (lanes - np.maximum.accumulate(first, axis=1)).max(axis=1) + 1
        return np.where(live.any(axis=1), counts, 0)

    return _evaluate_by_residue(patterns, width_bytes, count_lanes)


def _find_alignment_bytes(width_bytes: int) -> int:
    """Return the period of the cost in the base address; a shift by whole words only rotates the banks."""
    return WAVEFRONT_BYTES if width_bytes & (width_bytes - 1) else max(width_bytes, _BANK_BYTES)


def _evaluate_by_residue(
    patterns: LanePatterns, modulus: int, cost: Callable[[Addresses, BoolArray], IntArray]
) -> IntArray:
    """Evaluate a cost with period `modulus` once for each distinct row; return it for each warp."""
    if not len(patterns.bases):
        return np.zeros(0, np.int64)
    rows, live, which = patterns.group_by_residue(modulus)
    return cost(rows, live)[which]


def _count_units(rows: Addresses, live: BoolArray, width_bytes: int, unit_bytes: int) -> IntArray:
    """Count the distinct aligned units that the lanes of each row touch.

    Inactive lanes hold the address of an active one, so they add nothing unless no lane is active.
    """
    ordered = np.sort(_list_units(rows, width_bytes, unit_bytes), axis=1)
    counts = 1 + np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1)
    return np.where(live.any(axis=1), counts, 0).astype(np.int64, copy=False)


def _list_units(rows: Addresses, width_bytes: int, unit_bytes: int) -> Addresses:
    """Return the indices of the aligned units of `unit_bytes` that each lane touches, [m, 32 * k]."""
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
    halves = rows.reshape(-1, 2 * lanes)  # two phases that may merge
    halves_live = live.reshape(-1, 2 * lanes)
    wavefronts = _sum_phase_wavefronts(halves, halves_live, width_bytes, lanes)
    paired = _is_paired(halves, halves_live, 1) | _is_paired(halves, halves_live, 2)
    if paired.any():
        wavefronts[paired] = _sum_phase_wavefronts(
            halves[paired], halves_live[paired], width_bytes, 2 * lanes
        )
    total: IntArray = wavefronts.reshape(len(rows), -1).sum(axis=1)
    return total


def _is_paired(rows: Addresses, live: BoolArray, distance: int) -> BoolArray:
    """Return the mask of rows in which lanes n and n ^ distance have equal addresses if both are active."""
    partner = np.arange(rows.shape[1]) ^ distance
    differs = live & live[:, partner] & (rows != rows[:, partner])
    paired: BoolArray = ~differs.any(axis=1)
    return paired


def _sum_phase_wavefronts(
    rows: Addresses, live: BoolArray, width_bytes: int, phase_lanes: int, *, shares_words: bool = True
) -> IntArray:
    """Count the wavefronts of each row, summed over its phases of `phase_lanes` lanes.

    shares_words: lanes on the same word count once
    """
    phases = rows.reshape(-1, phase_lanes)
    phases_live = live.reshape(-1, phase_lanes)
    aligned = width_bytes in (4, 8, 16) and not bool((phases & np.uint64(width_bytes - 1))[phases_live].any())
    unit = width_bytes if aligned else _BANK_BYTES  # aligned vectors conflict exactly as their words do
    units = _list_units(phases, width_bytes, unit)
    repeat = units.shape[1] // phase_lanes
    counted = np.tile(phases_live, (1, repeat)) if repeat > 1 else phases_live
    if shares_words:
        leads = phases_live.argmax(axis=1)
        lead_units = units[np.arange(len(units)), leads]
        units = np.sort(np.where(counted, units, lead_units[:, None]), axis=1)
        counted = np.empty(units.shape, np.bool_)
        counted[:, 0] = True
        counted[:, 1:] = units[:, 1:] != units[:, :-1]
        counted &= phases_live.any(axis=1, keepdims=True)
    n_banks = WAVEFRONT_BYTES // unit
    banks = (units & np.uint64(n_banks - 1)).astype(np.int64)
    banks += np.arange(len(units))[:, None] * n_banks
    loads = np.bincount(banks[counted], minlength=len(units) * n_banks).reshape(len(units), n_banks)
    total: IntArray = loads.max(axis=1).astype(np.int64).reshape(len(rows), -1).sum(axis=1)
    return total
