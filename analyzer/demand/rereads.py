"""Data that CTAs read again after all that run at a time have read more than the L2 holds.

A recording of an SM's addresses is cut after some ten thousand sectors, so it does not tell how often a CTA
reads its data in all: that is what it asks for beyond the L1 over its distinct sectors. What is read again
comes from the DRAM where other reads have driven it out of the L2 meanwhile. How often, the simulated L2
says, of which the recorded CTAs have their part. Where the recording ends before any sector is read twice,
though its lines are more than the L1 holds, it goes through that L2 twice: so far apart are these reads at
least. CTAs of other SMs that share the data read them in step, so they wait for the same fill.

Invariant: nothing changes where the L2 holds what the concurrent CTAs read, or where each sector is read
once.

Example: 768 CTAs of a warp read 3 KB of each of 1,536 rows, 32 times over, from an L2 of 4 MiB: 4.7 MB come
around again and again. An LRU cache of 16 ways misses 4 of 5 then, so that loads take the DRAM's latency.
"""

import numpy as np
from msgspec import Struct

from analyzer.demand.sectored_cache import CacheGeometry, find_hits
from analyzer.ir.arrays import Addresses, IntArray

_MIN_READS_OF_A_SECTOR = 1.5  # by one CTA beyond the L1, from which it reads its data again
_MIN_SEEN_READS = 1.1  # of a recorded sector beyond the L1: fewer are rims of tiles


class Rereads(Struct, frozen=True):
    """What reading again costs: DRAM sectors, and requests that wait for the DRAM."""

    dram_factor: float = 1.0  # DRAM sectors over those of reading once
    waiting_share: float = 0.0  # of the requests that miss the L1


def find_rereads(
    sectors: Addresses,
    request_numbers: IntArray,
    l1: CacheGeometry,
    rereading_l2: CacheGeometry,
    reads_of_a_sector: float,
) -> Rereads:
    """Find what CTAs read again from the DRAM.

    sectors, request_numbers: recorded reads beyond the L1, in their order.
    rereading_l2: see `CacheHierarchy`. reads_of_a_sector: by one CTA, beyond the L1.
    """
    if reads_of_a_sector < _MIN_READS_OF_A_SECTOR or not len(sectors):
        return Rereads()
    unique = np.unique(sectors)
    if len(sectors) < _MIN_SEEN_READS * len(unique):
        lines_bytes = len(np.unique(unique // l1.line_bytes)) * l1.line_bytes
        if lines_bytes <= l1.size_bytes:
            return Rereads()
        sectors = np.concatenate([sectors, sectors])
        request_numbers = np.concatenate([request_numbers, request_numbers + request_numbers[-1] + 1])
    n_hits = np.count_nonzero(
        find_hits(sectors, request_numbers, np.ones(len(sectors), dtype=np.bool_), rereading_l2)
    )
    missed = 1.0 - n_hits / (len(sectors) - len(unique))
    again = reads_of_a_sector - 1.0
    return Rereads(1.0 + again * missed, again * missed / reads_of_a_sector)
