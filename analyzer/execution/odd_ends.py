"""Rounds at the ends of a loop in which an instruction at an mbarrier is left out.

A pipeline that copies some tiles ahead stops copying some rounds before its loop ends, and begins to wait for
free buffers some rounds after it began. When it is left out decides how far ahead copies are; how often does
not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from msgspec import Struct

from analyzer.execution.hearing import Heard
from analyzer.execution.program import CompiledKernel


class OddEnds(Struct, frozen=True):
    """Rounds before the first one in which it is done, and after the last one.

    every_time: each time that the loop is gone through; else of all rounds together.
    """

    before: int
    after: int
    every_time: bool


def find_odd_ends(heard: Mapping[int, Heard], kernel: CompiledKernel) -> dict[int, OddEnds]:
    """By row, those of instructions that are done in one piece of their loop's rounds."""
    homes = {row: _home(row, heard, kernel) for row in heard}
    found = {}
    for row, one in heard.items():
        if homes[row] is None or not one.turns:
            continue
        warp = max(one.turns, key=lambda warp: len(one.turns[warp]))
        beside = [other for other in heard if homes[other] == homes[row] and warp in heard[other].turns]
        every = max(beside, key=lambda other: len(heard[other].turns[warp]))
        ends = _compare(one.turns[warp], heard[every].turns[warp], is_later=every > row)
        if ends is not None:
            found[row] = ends
    return found


def _home(row: int, heard: Mapping[int, Heard], kernel: CompiledKernel) -> int | None:
    """The innermost loop with another instruction at an mbarrier: one in which a warp only waits is none."""
    for loop in kernel.nest.around(kernel.cfg.block_of[row]):
        blocks = kernel.nest.loops[loop].blocks
        if any(other != row and kernel.cfg.block_of[other] in blocks for other in heard):
            return loop
    return None


def _compare(turns: list[int], every: list[int], *, is_later: bool) -> OddEnds | None:
    """is_later: what comes in every round comes behind it in a round."""
    before = bisect_left(every, turns[0]) - (not is_later)
    after = len(every) - bisect_right(every, turns[-1]) - is_later
    left_out = len(every) - len(turns)
    if before < 0 or after < 0 or not left_out or not before + after or left_out % (before + after):
        return None
    return OddEnds(before, after, every_time=left_out > before + after)
