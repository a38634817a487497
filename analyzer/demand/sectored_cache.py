"""A set-associative sectored cache with LRU replacement, simulated on a sequence of sectors.

NVIDIA does not publish how lines are mapped to sets: a multiplicative hash spreads them, unless a geometry
asks for the plain modulo.

Example, one set of 1 way, lines of 128 bytes in sectors of 32, all accesses fill:

    sector   0     32    0     128   0
    hit      no    no    yes   no    no     (128 evicted line 0)
"""

from collections import OrderedDict, defaultdict

import numpy as np
from msgspec import Struct

from analyzer.ir.arrays import Addresses, BoolArray, IntArray

_GOLDEN_RATIO_MULTIPLIER = np.uint64(
    0x9E3779B97F4A7C15
)  # 2^64 over the golden ratio: spreads any stride evenly
_HALF_WORD_BITS = np.uint64(32)


class CacheGeometry(Struct, frozen=True, kw_only=True):
    """Geometry of a set-associative sectored cache; one that is too small for any line never hits."""

    size_bytes: int
    line_bytes: int
    sector_bytes: int
    ways: int
    has_hashed_sets: bool = True

    @property
    def n_lines(self) -> int:
        return max(0, self.size_bytes) // self.line_bytes

    @property
    def n_sets(self) -> int:
        return max(1, self.n_lines // self.ways)

    @property
    def lines_per_set(self) -> int:
        """Ways, or fewer if the cache is smaller than one set."""
        return min(self.ways, self.n_lines)


def find_hits(sectors: Addresses, requests: IntArray, fills: BoolArray, shape: CacheGeometry) -> BoolArray:
    """Return a mask of the accesses that hit in a cache that starts empty, [n].

    Sectors of a line within one request are looked up together. Any access to a present line is a use of it.
    sectors: addresses in order of access, ascending within a request.
    fills: the access allocates its sector.
    """
    if not len(sectors) or not shape.n_lines:
        return np.zeros(len(sectors), dtype=np.bool_)
    lines = sectors // np.uint64(shape.line_bytes)
    if _fits_without_eviction(lines, shape):
        return _find_earlier_fills(sectors, fills)
    bits = np.uint64(1) << (sectors % np.uint64(shape.line_bytes)) // np.uint64(shape.sector_bytes)
    new = np.ones(len(sectors), dtype=np.bool_)
    new[1:] = (lines[1:] != lines[:-1]) | (requests[1:] != requests[:-1]) | (fills[1:] != fills[:-1])
    starts = np.flatnonzero(new)
    found = _simulate_lru(
        lines[starts].tolist(),
        compute_set_indices(lines[starts], shape).tolist(),
        np.bitwise_or.reduceat(bits, starts).tolist(),
        fills[starts].tolist(),
        shape.lines_per_set,
    )
    held = np.array(found, dtype=np.uint64)[np.cumsum(new) - 1]
    present: BoolArray = (held & bits) != 0
    return present


def _fits_without_eviction(lines: Addresses, shape: CacheGeometry) -> bool:
    """Return whether no set ever evicts a line."""
    distinct = np.unique(lines)
    if len(distinct) > shape.n_lines:
        return False
    return bool(np.bincount(compute_set_indices(distinct, shape)).max() <= shape.lines_per_set)


def _find_earlier_fills(sectors: Addresses, fills: BoolArray) -> BoolArray:
    """Return a mask of the accesses whose sector an earlier access has filled."""
    filling = np.flatnonzero(fills)
    held, firsts = np.unique(sectors[filling], return_index=True)
    if not len(held):
        return np.zeros(len(sectors), dtype=np.bool_)
    places = np.minimum(np.searchsorted(held, sectors), len(held) - 1)
    earlier = filling[firsts][places] < np.arange(len(sectors))
    present: BoolArray = (held[places] == sectors) & earlier
    return present


def compute_set_indices(lines: Addresses, shape: CacheGeometry) -> IntArray:
    """Return the set of each line."""
    n_sets = np.uint64(shape.n_sets)
    if not shape.has_hashed_sets:
        return (lines % n_sets).astype(np.int64)
    return ((lines * _GOLDEN_RATIO_MULTIPLIER >> _HALF_WORD_BITS) * n_sets >> _HALF_WORD_BITS).astype(
        np.int64
    )


def _simulate_lru(
    lines: list[int], sets: list[int], wanted: list[int], fills: list[bool], ways: int
) -> list[int]:
    """Return a mask of the present sectors for each access to a line. Hot loop: nothing is factored out."""
    cache: defaultdict[int, OrderedDict[int, int]] = defaultdict(OrderedDict)
    found: list[int] = []
    for line, number, want, fill in zip(lines, sets, wanted, fills, strict=True):
        held = cache[number]
        there = held.get(line)
        if there is None:
            found.append(0)
            if fill:
                held[line] = want
                if len(held) > ways:
                    held.popitem(last=False)
            continue
        found.append(there)
        held.move_to_end(line)
        if fill:
            held[line] = there | want
    return found
