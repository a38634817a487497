"""What the order of traced instructions says of control flow, which the tracer does not write down.

A trace has no branch targets and no guards. Lanes that take a branch are those of its mask, so the next
instruction of the warp that any of them runs is where it leads. Instructions whose guards switch off every
lane are traced with an empty mask, and are run by the lanes that run what follows them.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.trace import IntArray, MaskArray, Trace

_MAX_BRANCH_SAMPLES = 24  # executions of each branch that are looked at
_SEARCH_WINDOWS = (32, 4096, 1 << 62)  # how far ahead, in steps that nearly always end with the first


class TracedControlFlow(Struct, frozen=True, eq=False):
    """By instruction of a trace.

    targets[i]: where branch i was seen to lead, as instructions, most often first; is_partial[i]: some of the
    lanes that could have run it did not, or the warp went on behind it; heads: instructions that a warp came
    to by a jump.
    """

    targets: tuple[tuple[int, ...], ...]
    is_partial: NDArray[np.bool_]
    leaders: tuple[int, ...]


def observe_control_flow(trace: Trace, is_jump: NDArray[np.bool_]) -> TracedControlFlow:
    """Targets of the instructions that `leaves` marks, and starts of straight runs."""
    ids = trace.instruction_ids.astype(np.int64)
    is_last = np.zeros(len(ids), dtype=bool)
    is_last[trace.warp_starts[1:][np.diff(trace.warp_starts) > 0] - 1] = True
    falls_through = np.zeros(len(ids), dtype=bool)
    falls_through[:-1] = (ids[1:] == ids[:-1] + 1) & ~is_last[:-1]
    firsts = trace.warp_starts[:-1][np.diff(trace.warp_starts) > 0]
    jumped = np.flatnonzero(~falls_through[:-1] & ~is_last[:-1]) + 1
    leaders = np.unique(np.concatenate((ids[jumped], ids[firsts])))
    targets: list[tuple[int, ...]] = [()] * len(trace.instructions)
    for number in np.flatnonzero(is_jump).tolist():
        at = np.flatnonzero((ids == number) & (trace.masks != 0))
        targets[number] = _find_targets(trace, ids, at)
    return TracedControlFlow(
        tuple(targets), _find_partially_executed(trace, ids, falls_through), tuple(leaders.tolist())
    )


def _find_partially_executed(
    trace: Trace, ids: IntArray, falls_through: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Instructions that some lanes of their warp passed by."""
    partial = np.zeros(len(trace.instructions), dtype=bool)
    partial[ids[trace.masks == 0]] = True
    # after a straight step: lanes of the one before that are missing
    lost = falls_through[:-1] & ((trace.masks[:-1] & ~trace.masks[1:]) != 0)
    partial[ids[1:][lost]] = True
    followed = falls_through[:-1] & ((trace.masks[:-1] & trace.masks[1:]) != trace.masks[1:])
    partial[ids[:-1][followed]] = True
    return partial


def _find_targets(trace: Trace, ids: IntArray, at: IntArray) -> tuple[int, ...]:
    found: dict[int, int] = {}
    for place in (
        at[np.unique(np.linspace(0, len(at) - 1, _MAX_BRANCH_SAMPLES).astype(int))].tolist()
        if len(at)
        else ()
    ):
        end = int(trace.warp_starts[np.searchsorted(trace.warp_starts, place, side="right")])
        target = _find_next_instruction(trace.masks, ids, place, end)
        if target is not None:
            found[target] = found.get(target, 0) + 1
    return tuple(sorted(found, key=lambda target: (-found[target], target)))


def _find_next_instruction(masks: MaskArray, ids: IntArray, place: int, end: int) -> int | None:
    """The next instruction that any lane of the one at `place` runs."""
    begin = place + 1
    for window in _SEARCH_WINDOWS:
        stop = min(end, place + 1 + window)
        hits = np.flatnonzero(masks[begin:stop] & masks[place])
        if len(hits):
            hit = begin + int(hits[0])
            while hit - 1 > place and masks[hit - 1] == 0 and ids[hit - 1] + 1 == ids[hit]:
                hit -= 1
            return int(ids[hit])
        begin = stop
    return None
