"""Compression of lane addresses: most warps repeat a pattern relative to their first active lane.

warp 0: 1000 1004 1008 ...        bases = [1000, 5000], pattern_ids = [0, 0]
warp 1: 5000 5004 5008 ...        offsets[0] = 0 4 8 ...
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from analyzer.execution.footprint.hashing import make_hash_factors
from analyzer.ir.arrays import Addresses, BoolArray, IntArray

LANES = 32
_CHUNK_ROWS = 2048  # rows at a time: half a MiB of addresses fits into the CPU cache
_LANE_HASH_FACTORS: Addresses = make_hash_factors(LANES)
_MASK_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class LanePatterns(Struct, frozen=True, kw_only=True, eq=False):
    """Lane addresses: the active lanes of warp w are at bases[w] + offsets[pattern_ids[w]], modulo 2^64.

    There are usually few patterns; equal ones may occur.
    """

    bases: Addresses  # [n_warp]: address of the first active lane, 0 if there is none
    pattern_ids: IntArray  # [n_warp]
    offsets: IntArray  # [n_pattern, 32]: 0 in inactive lanes
    active: BoolArray  # [n_pattern, 32]

    def group_by_residue(self, modulus: int) -> tuple[Addresses, BoolArray, IntArray]:
        """Return representative rows for a cost that is periodic in the address with period `modulus`.

        Returns addresses [m, 32], active lanes [m, 32], and the row of each warp.
        """
        n_patterns = len(self.offsets)
        residues = (self.bases % np.uint64(modulus)).astype(np.int64)
        if n_patterns * modulus > 4 * len(self.bases) + 1024:
            keys, which = np.unique(self.pattern_ids * modulus + residues, return_inverse=True)
        else:
            wanted = self.pattern_ids * modulus + residues
            seen = np.zeros(n_patterns * modulus, np.bool_)
            seen[wanted] = True
            keys = np.flatnonzero(seen)
            which = (np.cumsum(seen) - 1)[wanted]
        rows = keys // modulus
        offsets = self.offsets[rows] + (keys % modulus)[:, None]
        return offsets.view(np.uint64), self.active[rows], which.astype(np.int64, copy=False)

    def select_warps(self, warps: BoolArray) -> "LanePatterns":
        """Select warps by a mask."""
        return LanePatterns(
            bases=self.bases[warps],
            pattern_ids=self.pattern_ids[warps],
            offsets=self.offsets,
            active=self.active,
        )

    def make_shifted(self, shifts: Addresses) -> "LanePatterns":
        """Repeat the warps for each row of `shifts`, [n, n_warp], with their bases shifted by these bytes."""
        pattern_ids = np.broadcast_to(self.pattern_ids, shifts.shape).reshape(-1)
        bases = (self.bases + shifts).reshape(-1)
        return LanePatterns(bases=bases, pattern_ids=pattern_ids, offsets=self.offsets, active=self.active)


def compress_addresses(addresses: ArrayLike, active: ArrayLike) -> LanePatterns:
    """Compress lane addresses to patterns; both arguments broadcast to [n_warp, 32]."""
    table = np.atleast_2d(np.asarray(addresses))
    table = table.astype(np.uint64, copy=False)
    masks = np.atleast_2d(np.asarray(active, np.bool_))
    n_warps, n_lanes = np.broadcast_shapes(table.shape, masks.shape, (1, LANES))
    if n_lanes != LANES:
        raise ValueError(f"{n_lanes} lanes in a warp of {LANES}")
    if len(masks) > 1 and bool((masks == masks[0]).all()):
        masks = masks[:1]
    if len(masks) == 1:
        return _compress_same_mask(table, np.broadcast_to(masks, (1, LANES)), n_warps)
    masks = np.broadcast_to(masks, (n_warps, LANES))
    leads = masks.argmax(axis=1)
    bases = np.broadcast_to(table, (n_warps, LANES))[np.arange(n_warps), leads]
    bases = np.where(masks[np.arange(n_warps), leads], bases, np.uint64(0))
    return _group_equal_rows(_RelativeAddresses(table, bases, masks))


def _compress_same_mask(table: Addresses, mask: BoolArray, n_warps: int) -> LanePatterns:
    zeros: IntArray = np.broadcast_to(np.int64(0), n_warps)
    if not mask.any():
        nothing = np.zeros((1, LANES), np.int64)
        return LanePatterns(
            bases=np.zeros(n_warps, np.uint64), pattern_ids=zeros, offsets=nothing, active=mask
        )
    lead = 0 if table.shape[1] == 1 else int(mask[0].argmax())
    bases = np.broadcast_to(table[:, lead], n_warps)
    relative = _RelativeAddresses(table, bases, mask)
    first = relative.compute_rows(0, 1)
    if table.shape[1] == 1 or len(table) == 1 or relative.is_repetition_of(first):
        return LanePatterns(bases=bases, pattern_ids=zeros, offsets=first.view(np.int64), active=mask)
    return _group_equal_rows(relative)


class _RelativeAddresses(Struct, frozen=True, eq=False):
    """Lane addresses minus the base of their warp, 0 in inactive lanes, computed by chunks."""

    table: Addresses
    bases: Addresses
    masks: BoolArray

    def compute_rows(self, start: int, stop: int) -> Addresses:
        """Return the relative addresses of warps [start, stop), [n, 32]."""
        table = self.table[start:stop] if len(self.table) > 1 else self.table
        masks = self.masks[start:stop] if len(self.masks) > 1 else self.masks
        offsets: Addresses = table - self.bases[start:stop, None]
        offsets = np.broadcast_to(offsets, (len(offsets), LANES))
        return offsets.copy() if masks.all() else np.where(masks, offsets, np.uint64(0))

    def select_warps(self, warps: NDArray[np.intp]) -> "_RelativeAddresses":
        """Select warps by index."""
        table = self.table[warps] if len(self.table) > 1 else self.table
        masks = self.masks[warps] if len(self.masks) > 1 else self.masks
        return _RelativeAddresses(table, self.bases[warps], masks)

    def iterate_chunks(self) -> Iterator[tuple[int, int, Addresses]]:
        """Yield (start, stop, relative addresses) of chunks of warps."""
        n_warps = len(self.bases)
        for start in range(0, n_warps, _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, n_warps)
            yield start, stop, self.compute_rows(start, stop)

    def is_repetition_of(self, pattern: Addresses) -> bool:
        """Return whether all warps have the relative addresses of `pattern`."""
        if not np.array_equal(self.compute_rows(len(self.bases) - 1, len(self.bases)), pattern):
            return False
        return all(bool((rows == pattern).all()) for _, _, rows in self.iterate_chunks())


def _group_equal_rows(relative: _RelativeAddresses) -> LanePatterns:
    """Group equal rows by a hash, then compare each row with its representative."""
    n_warps = len(relative.bases)
    words = _pack_masks(relative.masks)
    hashes = np.broadcast_to(words.astype(np.uint64) * _MASK_HASH_FACTOR, n_warps).copy()
    for start, stop, rows in relative.iterate_chunks():
        hashes[start:stop] += rows @ _LANE_HASH_FACTORS
    _, firsts, pattern_ids = np.unique(hashes, return_index=True, return_inverse=True)
    pattern_ids = pattern_ids.astype(np.int64, copy=False)
    if len(firsts) <= n_warps // 2:
        offsets = relative.select_warps(firsts).compute_rows(0, len(firsts))
        if _is_grouping_exact(relative, words, firsts, pattern_ids, offsets):
            active = np.broadcast_to(relative.select_warps(firsts).masks, offsets.shape)
            return LanePatterns(
                bases=relative.bases, pattern_ids=pattern_ids, offsets=offsets.view(np.int64), active=active
            )
    offsets = np.concatenate([rows for _, _, rows in relative.iterate_chunks()])
    active = np.broadcast_to(relative.masks, offsets.shape)
    own_ids = np.arange(n_warps, dtype=np.int64)
    return LanePatterns(
        bases=relative.bases, pattern_ids=own_ids, offsets=offsets.view(np.int64), active=active
    )


def _pack_masks(masks: BoolArray) -> NDArray[np.uint32]:
    packed = np.packbits(masks, axis=1)
    return np.ascontiguousarray(packed).view(np.uint32)[:, 0]


def _is_grouping_exact(
    relative: _RelativeAddresses,
    words: NDArray[np.uint32],
    firsts: NDArray[np.intp],
    pattern_ids: IntArray,
    offsets: Addresses,
) -> bool:
    """Return whether each row equals the first row with its hash.

    words: active lanes as bits
    """
    if len(words) > 1 and not np.array_equal(words[firsts][pattern_ids], words):
        return False
    return all(
        np.array_equal(offsets[pattern_ids[start:stop]], rows)
        for start, stop, rows in relative.iterate_chunks()
    )
