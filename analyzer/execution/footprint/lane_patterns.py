"""Lane addresses of many warps, compressed: most warps repeat a pattern from their first active lane on."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from analyzer.execution.footprint.hashing import make_hash_factors

Addresses = NDArray[np.uint64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

LANES = 32
_CHUNK_ROWS = 2048  # rows at a time: half a MiB of addresses stays in the cache
_LANE_HASH_FACTORS: Addresses = make_hash_factors(LANES)
_MASK_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class LanePatterns(Struct, frozen=True, kw_only=True, eq=False):
    """Warp w's active lanes are at bases[w] + offsets[of[w]], modulo 2^64.

    bases[w]: address of the first active lane, 0 where none is; offsets[k, 32]: 0 in inactive lanes;
    active[k, 32]. Few rows k as a rule, but equal rows may occur.
    """

    bases: Addresses
    pattern_ids: IntArray
    offsets: IntArray
    active: BoolArray

    def group_by_residue(self, modulus: int) -> tuple[Addresses, BoolArray, IntArray]:
        """Rows of addresses that stand for all warps, if cost is the same `modulus` bytes further on.

        Returns addresses [m, 32], active lanes [m, 32], and for each warp the row that equals it.
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
        """Some of the warps."""
        return LanePatterns(
            bases=self.bases[warps],
            pattern_ids=self.pattern_ids[warps],
            offsets=self.offsets,
            active=self.active,
        )

    def make_shifted(self, shifts: Addresses) -> "LanePatterns":
        """The warps once more for each row of `shifts`, [n, n_warp], so many bytes further on."""
        of = np.broadcast_to(self.pattern_ids, shifts.shape).reshape(-1)
        bases = (self.bases + shifts).reshape(-1)
        return LanePatterns(bases=bases, pattern_ids=of, offsets=self.offsets, active=self.active)


def compress_addresses(addresses: ArrayLike, active: ArrayLike) -> LanePatterns:
    """Finds the patterns that lane addresses repeat; both arguments broadcast to [n_warp, 32]."""
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
    """Lane addresses minus the base of their warp, 0 in inactive lanes, made a chunk at a time."""

    table: Addresses
    bases: Addresses
    masks: BoolArray

    def compute_rows(self, start: int, stop: int) -> Addresses:
        table = self.table[start:stop] if len(self.table) > 1 else self.table
        masks = self.masks[start:stop] if len(self.masks) > 1 else self.masks
        offsets: Addresses = table - self.bases[start:stop, None]
        offsets = np.broadcast_to(offsets, (len(offsets), LANES))
        return offsets.copy() if masks.all() else np.where(masks, offsets, np.uint64(0))

    def select_warps(self, warps: NDArray[np.intp]) -> "_RelativeAddresses":
        table = self.table[warps] if len(self.table) > 1 else self.table
        masks = self.masks[warps] if len(self.masks) > 1 else self.masks
        return _RelativeAddresses(table, self.bases[warps], masks)

    def iterate_chunks(self) -> Iterator[tuple[int, int, Addresses]]:
        n_warps = len(self.bases)
        for start in range(0, n_warps, _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, n_warps)
            yield start, stop, self.compute_rows(start, stop)

    def is_repetition_of(self, pattern: Addresses) -> bool:
        if not np.array_equal(self.compute_rows(len(self.bases) - 1, len(self.bases)), pattern):
            return False
        return all(bool((rows == pattern).all()) for _, _, rows in self.iterate_chunks())


def _group_equal_rows(relative: _RelativeAddresses) -> LanePatterns:
    """Groups equal rows by a hash, then compares each row with the one that stands for it."""
    n_warps = len(relative.bases)
    words = _pack_masks(relative.masks)
    hashes = np.broadcast_to(words.astype(np.uint64) * _MASK_HASH_FACTOR, n_warps).copy()
    for start, stop, rows in relative.iterate_chunks():
        hashes[start:stop] += rows @ _LANE_HASH_FACTORS
    _, firsts, of = np.unique(hashes, return_index=True, return_inverse=True)
    of = of.astype(np.int64, copy=False)
    if len(firsts) <= n_warps // 2:
        offsets = relative.select_warps(firsts).compute_rows(0, len(firsts))
        if _is_grouping_exact(relative, words, firsts, of, offsets):
            active = np.broadcast_to(relative.select_warps(firsts).masks, offsets.shape)
            return LanePatterns(
                bases=relative.bases, pattern_ids=of, offsets=offsets.view(np.int64), active=active
            )
    offsets = np.concatenate([rows for _, _, rows in relative.iterate_chunks()])
    active = np.broadcast_to(relative.masks, offsets.shape)
    every = np.arange(n_warps, dtype=np.int64)
    return LanePatterns(
        bases=relative.bases, pattern_ids=every, offsets=offsets.view(np.int64), active=active
    )


def _pack_masks(masks: BoolArray) -> NDArray[np.uint32]:
    packed = np.packbits(masks, axis=1)
    return np.ascontiguousarray(packed).view(np.uint32)[:, 0]


def _is_grouping_exact(
    relative: _RelativeAddresses,
    words: NDArray[np.uint32],
    firsts: NDArray[np.intp],
    of: IntArray,
    offsets: Addresses,
) -> bool:
    if len(words) > 1 and not np.array_equal(words[firsts][of], words):
        return False
    return all(
        np.array_equal(offsets[of[start:stop]], rows) for start, stop, rows in relative.iterate_chunks()
    )
