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
from analyzer.execution.rings import OddEnds


class HeardEnds(Struct, frozen=True):
    """part: of the rounds that were heard, those in which it was done."""

    ends: OddEnds
    part: float


def find_odd_ends(
    heard: Mapping[int, Heard], came: Mapping[int, int], kernel: CompiledKernel
) -> dict[int, HeardEnds]:
    """By row, those of instructions that are done in one piece of their loop's rounds.

    came: how often warps came to each instruction, whether they said something there or not.
    """
    homes = {row: _home(row, heard, kernel) for row in heard}
    found: dict[int, HeardEnds] = {}
    for row, one in heard.items():
        if homes[row] is None or not one.turns:
            continue
        warp = max(one.turns, key=lambda warp: len(one.turns[warp]))
        if repeats := one.repeats.get(warp):
            if (at_one_end := _told_once(one.turns[warp], sorted(one.turns[warp] + repeats))) is not None:
                found[row] = at_one_end
            continue
        beside = [other for other in heard if homes[other] == homes[row] and warp in heard[other].turns]
        every = max(beside, key=lambda other: len(heard[other].turns[warp]))
        turns, rounds = one.turns[warp], heard[every].turns[warp]
        ends = _compare(turns, rounds, is_later=every > row, is_guarded=came[row] == came[every])
        if ends is not None:
            found[row] = HeardEnds(ends, len(turns) / len(rounds))
    return found


def _told_once(turns: list[int], rounds: list[int]) -> HeardEnds | None:
    """Of an instruction that is come to in all rounds and says something new in those of one end alone."""
    before, last = rounds.index(turns[0]), rounds.index(turns[-1])
    after = len(rounds) - 1 - last
    if last + 1 - before > len(turns) or (before and after):
        return None
    ends = OddEnds(before, after, every_time=False, is_guarded=True, few=len(turns))
    return HeardEnds(ends, len(turns) / len(rounds))


def _home(row: int, heard: Mapping[int, Heard], kernel: CompiledKernel) -> int | None:
    """The innermost loop with another instruction at an mbarrier: one in which a warp only waits is none."""
    for loop in kernel.nest.around(kernel.cfg.block_of[row]):
        blocks = kernel.nest.loops[loop].blocks
        if any(other != row and kernel.cfg.block_of[other] in blocks for other in heard):
            return loop
    return None


def _compare(turns: list[int], every: list[int], *, is_later: bool, is_guarded: bool) -> OddEnds | None:
    """is_later: what comes in every round comes behind it in a round."""
    before = bisect_left(every, turns[0]) - (not is_later)
    after = len(every) - bisect_right(every, turns[-1]) - is_later
    left_out = len(every) - len(turns)
    if before < 0 or after < 0 or not left_out or not before + after or left_out % (before + after):
        return None
    done = len(turns) * (before + after) // left_out  # of the rounds of one time
    few = done if done < before + after else 0
    return OddEnds(before, after, left_out > before + after, is_guarded, few)
