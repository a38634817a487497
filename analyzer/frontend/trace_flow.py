"""What the order of traced instructions says of control flow, which the tracer does not write down.

A trace has no branch targets and no guards. Lanes that take a branch are those of its mask, so the next
instruction of the warp that any of them runs is where it leads. Instructions whose guards switch off every
lane are traced with an empty mask, and are run by the lanes that run what follows them.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.trace import IntArray, MaskArray, Trace

_SAMPLES = 24  # executions of each branch that are looked at
_WINDOWS = (32, 4096, 1 << 62)  # how far ahead, in steps that nearly always end with the first


class TracedFlow(Struct, frozen=True, eq=False):
    """By instruction of a trace.

    targets[i]: where branch i was seen to lead, as instructions, most often first; is_partial[i]: some of the
    lanes that could have run it did not, or the warp went on behind it; heads: instructions that a warp came
    to by a jump.
    """

    targets: tuple[tuple[int, ...], ...]
    is_partial: NDArray[np.bool_]
    heads: tuple[int, ...]


def observe_flow(trace: Trace, leaves: NDArray[np.bool_]) -> TracedFlow:
    """Targets of the instructions that `leaves` marks, and starts of straight runs."""
    ids = trace.ids.astype(np.int64)
    is_last = np.zeros(len(ids), dtype=bool)
    is_last[trace.starts[1:][np.diff(trace.starts) > 0] - 1] = True
    goes_on = np.zeros(len(ids), dtype=bool)
    goes_on[:-1] = (ids[1:] == ids[:-1] + 1) & ~is_last[:-1]
    firsts = trace.starts[:-1][np.diff(trace.starts) > 0]
    jumped = np.flatnonzero(~goes_on[:-1] & ~is_last[:-1]) + 1
    heads = np.unique(np.concatenate((ids[jumped], ids[firsts])))
    targets: list[tuple[int, ...]] = [()] * len(trace.instructions)
    for number in np.flatnonzero(leaves).tolist():
        at = np.flatnonzero((ids == number) & (trace.masks != 0))
        targets[number] = _targets(trace, ids, at)
    return TracedFlow(tuple(targets), _partial(trace, ids, goes_on), tuple(heads.tolist()))


def _partial(trace: Trace, ids: IntArray, goes_on: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Instructions that some lanes of their warp passed by."""
    partial = np.zeros(len(trace.instructions), dtype=bool)
    partial[ids[trace.masks == 0]] = True
    # after a straight step: lanes of the one before that are missing
    lost = goes_on[:-1] & ((trace.masks[:-1] & ~trace.masks[1:]) != 0)
    partial[ids[1:][lost]] = True
    followed = goes_on[:-1] & ((trace.masks[:-1] & trace.masks[1:]) != trace.masks[1:])
    partial[ids[:-1][followed]] = True
    return partial


def _targets(trace: Trace, ids: IntArray, at: IntArray) -> tuple[int, ...]:
    found: dict[int, int] = {}
    for place in at[np.unique(np.linspace(0, len(at) - 1, _SAMPLES).astype(int))].tolist() if len(at) else ():
        end = int(trace.starts[np.searchsorted(trace.starts, place, side="right")])
        target = _next_of_lanes(trace.masks, ids, place, end)
        if target is not None:
            found[target] = found.get(target, 0) + 1
    return tuple(sorted(found, key=lambda target: (-found[target], target)))


def _next_of_lanes(masks: MaskArray, ids: IntArray, place: int, end: int) -> int | None:
    """The next instruction that any lane of the one at `place` runs."""
    begin = place + 1
    for window in _WINDOWS:
        stop = min(end, place + 1 + window)
        hits = np.flatnonzero(masks[begin:stop] & masks[place])
        if len(hits):
            hit = begin + int(hits[0])
            while hit - 1 > place and masks[hit - 1] == 0 and ids[hit - 1] + 1 == ids[hit]:
                hit -= 1
            return int(ids[hit])
        begin = stop
    return None
