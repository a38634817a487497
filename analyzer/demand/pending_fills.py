"""Waits of requests that hit a sector while it is still being filled (hits on misses).

Warps that share data request them at about the same time: one misses, and the others wait for the rest of its
fill. The time between two requests is estimated from their order: at least as many turns of the warp
scheduler, and as many requests of the load/store path, as lie between them. A warp that comes to the same
load once more has got what it waited for there, since the load writes the same register: so where it waited
after the miss, the fill is over.

Example, a fill of 200 cycles: a hit that is issued 50 cycles after the miss waits for 0.75 of the fill, by
another warp or another instruction. A loop that loads one word after another waits for each sector once.
"""

import numpy as np
from msgspec import Struct

from analyzer.execution.traces.address_streams import AddressStream
from analyzer.ir.arrays import BoolArray, FloatArray, IntArray, make_read_only

L1_LEVEL, L2_LEVEL = 0, 1


class CacheFillTiming(Struct, frozen=True):
    """Times that decide whether a fill is still pending."""

    l2_fill_cycles: float  # of a sector from the L2
    warp_turn_cycles: float  # at least between two instructions of a warp, as resident warps take turns
    request_issue_cycles: float  # of the load/store path for each recorded request


class FillWaits(Struct, frozen=True, eq=False):
    """Waits of the entries of a stream."""

    levels: IntArray  # level whose fill each entry waits for
    remaining_share: FloatArray  # part of that fill that is left
    filling_rows: IntArray  # instruction whose miss is filled; its own for an entry that waits for no other

    def __post_init__(self) -> None:
        make_read_only(self.levels, self.remaining_share, self.filling_rows)


def compute_fill_waits(
    stream: AddressStream, levels: IntArray, fills: BoolArray, timing: CacheFillTiming | None
) -> FillWaits:
    """Compute the waits of a stream.

    levels: level that serves each entry, 0 for the L1; fills: the entry allocates its misses in the L1.
    """
    remaining_shares, filling_rows = np.ones(len(levels)), stream.rows.astype(np.int64)
    if timing is None or not len(levels):
        return FillWaits(levels, remaining_shares, filling_rows)
    order = np.argsort(stream.sectors, kind="stable")
    sectors, found = stream.sectors[order], levels[order]
    allocates = fills[order] & (found > L1_LEVEL)
    last = np.maximum.accumulate(np.where(allocates, np.arange(len(order)), -1))
    is_fill_hit = (last >= 0) & (sectors[last] == sectors) & (found == L1_LEVEL)
    hits, misses = order[is_fill_hit], order[last[is_fill_hit]]
    turns = (stream.issue_indices[hits] - stream.issue_indices[misses]) * timing.warp_turn_cycles
    requests = (stream.request_numbers[hits] - stream.request_numbers[misses]) * timing.request_issue_cycles
    remaining = np.maximum(0.0, 1.0 - np.maximum(turns, requests) / timing.l2_fill_cycles)
    waits = levels > L1_LEVEL
    waits[hits[remaining > 0.0]] = True
    if stream.is_copy is not None:
        waits &= ~stream.is_copy
    is_over = _find_last_waits(stream, waits)[hits] >= stream.issue_indices[misses]
    remaining = np.where(is_over, 0.0, remaining)
    waited_levels = levels.copy()
    waited_levels[hits] = np.where(remaining > 0.0, levels[misses], L1_LEVEL)
    remaining_shares[hits] = np.where(remaining > 0.0, remaining, 1.0)
    filling_rows[hits] = np.where(remaining > 0.0, stream.rows[misses], stream.rows[hits])
    return FillWaits(waited_levels, remaining_shares, filling_rows)


def _find_last_waits(stream: AddressStream, waits: BoolArray) -> IntArray:
    """Return when the warp of each entry last waited at the same load before, as an issue index; else -1.

    waits: entries that do not hit, or hit what is being filled.
    """
    n_rows = int(stream.rows.max()) + 1
    keys = stream.warps.astype(np.int64) * n_rows + stream.rows
    order = np.lexsort((stream.request_numbers, keys))
    keys, numbers, indices = keys[order], stream.request_numbers[order], stream.issue_indices[order]
    positions = np.arange(len(order))
    starts_request = np.concatenate([[True], (keys[1:] != keys[:-1]) | (numbers[1:] != numbers[:-1])])
    # The end of the warp's request before, where its load was the same.
    before = np.maximum.accumulate(np.where(starts_request, positions, 0)) - 1
    last_wait = np.maximum.accumulate(np.where(waits[order], positions, -1))
    found = np.where(before >= 0, last_wait[before], -1)
    is_own = (found >= 0) & (keys[found] == keys)
    last = np.full(len(order), -1, dtype=np.int64)
    last[order] = np.where(is_own, indices[found], -1)
    return last
