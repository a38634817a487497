"""Infers branch targets and guards, which a trace does not record, from the order of its instructions.

The mask of a traced branch holds the lanes that take it, so its target is the next instruction of the warp
that any of these lanes executes. An instruction whose guard is false on all lanes is traced with an empty
mask; it belongs to the lanes of the instruction after it.

    0x10 ffffffff BRA        followed by 0x80 ffffffff MOV: target 0x80
    0x10 0000ffff BRA        followed by 0x20 ffff0000 MOV, 0x80 0000ffff ADD: target 0x80, partly executed
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.arrays import IntArray
from analyzer.ir.trace import MaskArray, Trace

_MAX_BRANCH_SAMPLES = 24  # executions of each branch that are examined
_SEARCH_WINDOWS = (32, 4096, 1 << 62)  # instructions to search; the first window nearly always suffices


class TracedControlFlow(Struct, frozen=True, eq=False):
    """Control flow of a trace, by index of its distinct instructions."""

    targets: tuple[tuple[int, ...], ...]  # observed targets of each branch, the most frequent first
    is_partial: NDArray[np.bool_]  # some lanes did not execute it, or other lanes went on after it
    leaders: tuple[int, ...]  # instructions that a warp reached by a jump, or began with


def observe_control_flow(trace: Trace, is_jump: NDArray[np.bool_]) -> TracedControlFlow:
    """Observe the targets of the instructions that `is_jump` marks, partial executions and leaders."""
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
    """Return the instructions that some lanes of the warp skipped."""
    partial = np.zeros(len(trace.instructions), dtype=bool)
    partial[ids[trace.masks == 0]] = True
    # At a fall-through: lanes of the instruction before that are missing here.
    lost = falls_through[:-1] & ((trace.masks[:-1] & ~trace.masks[1:]) != 0)
    partial[ids[1:][lost]] = True
    followed = falls_through[:-1] & ((trace.masks[:-1] & trace.masks[1:]) != trace.masks[1:])
    partial[ids[:-1][followed]] = True
    return partial


def _find_targets(trace: Trace, ids: IntArray, at: IntArray) -> tuple[int, ...]:
    """Return the targets of executions `at` of one branch, of which some are examined."""
    found: dict[int, int] = {}
    for position in (
        at[np.unique(np.linspace(0, len(at) - 1, _MAX_BRANCH_SAMPLES).astype(int))].tolist()
        if len(at)
        else ()
    ):
        end = int(trace.warp_starts[np.searchsorted(trace.warp_starts, position, side="right")])
        target = _find_next_instruction(trace.masks, ids, position, end)
        if target is not None:
            found[target] = found.get(target, 0) + 1
    return tuple(sorted(found, key=lambda target: (-found[target], target)))


def _find_next_instruction(masks: MaskArray, ids: IntArray, position: int, end: int) -> int | None:
    """Return the next instruction that any lane of execution `position` executes, None if there is none."""
    begin = position + 1
    for window in _SEARCH_WINDOWS:
        stop = min(end, position + 1 + window)
        hits = np.flatnonzero(masks[begin:stop] & masks[position])
        if len(hits):
            hit = begin + int(hits[0])
            while hit - 1 > position and masks[hit - 1] == 0 and ids[hit - 1] + 1 == ids[hit]:
                hit -= 1
            return int(ids[hit])
        begin = stop
    return None
