"""What a request waits for that finds its sector in a cache while it is still on its way there.

Warps that share data come to them side by side: where one misses, the others ask for what has been asked for
already, and wait for what is left of the first one's trip. Where they once wait together they stay together.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.traces.address_streams import AddressStream

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

L1_LEVEL, L2_LEVEL = 0, 1


class FillTiming(Struct, frozen=True):
    """trip_cycles: of a sector from the L2; turn_cycles: at least between two instructions of a warp, as all
    resident ones take turns; request_cycles: of the load/store path for a recorded request.
    """

    l2_fill_cycles: float
    warp_turn_cycles: float
    request_issue_cycles: float


class FillWaits(Struct, frozen=True, eq=False):
    """Of each entry of a stream: the level that it waits for, and what part of the trip from it is left."""

    levels: IntArray
    remaining_share: FloatArray


def compute_fill_waits(
    stream: AddressStream, levels: IntArray, fills: BoolArray, arrival: FillTiming | None
) -> FillWaits:
    """levels: where each entry finds its sector; fills: it brings what it misses into the L1."""
    left = np.ones(len(levels))
    if arrival is None or not len(levels):
        return FillWaits(levels, left)
    order = np.argsort(stream.sectors, kind="stable")
    sectors, found = stream.sectors[order], levels[order]
    brings = fills[order] & (found > L1_LEVEL)
    last = np.maximum.accumulate(np.where(brings, np.arange(len(order)), -1))
    brought = (last >= 0) & (sectors[last] == sectors) & (found == L1_LEVEL)
    later, first = order[brought], order[last[brought]]
    turns = (stream.issue_indices[later] - stream.issue_indices[first]) * arrival.warp_turn_cycles
    requests = (stream.request_numbers[later] - stream.request_numbers[first]) * arrival.request_issue_cycles
    part = np.maximum(0.0, 1.0 - np.maximum(turns, requests) / arrival.l2_fill_cycles)
    waited = levels.copy()
    waited[later] = np.where(part > 0.0, levels[first], L1_LEVEL)
    left[later] = np.where(part > 0.0, part, 1.0)
    return FillWaits(waited, left)
