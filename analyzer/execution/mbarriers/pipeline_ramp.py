"""Rounds at the ends of a loop in which an instruction at an mbarrier is left out.

A pipeline that copies some tiles ahead stops copying some rounds before its loop ends, and begins to wait for
free buffers some rounds after it began. When it is left out decides how far ahead copies are; how often does
not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from msgspec import Struct

from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierEvents
from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp


class MeasuredRamp(Struct, frozen=True):
    """part: of the rounds that were heard, those in which it was done."""

    ramp: PipelineRamp
    active_share: float


def find_pipeline_ramps(
    events: Mapping[int, MbarrierEvents], n_executions: Mapping[int, int], kernel: CompiledKernel
) -> dict[int, MeasuredRamp]:
    """By row, those of instructions that are done in one piece of their loop's rounds.

    came: how often warps came to each instruction, whether they said something there or not.
    """
    homes = {row: _find_pipeline_loop(row, events, kernel) for row in events}
    found: dict[int, MeasuredRamp] = {}
    for row, one in events.items():
        if homes[row] is None or not one.timestamps:
            continue
        warp = max(one.timestamps, key=lambda warp: len(one.timestamps[warp]))
        if repeats := one.repeated_waits.get(warp):
            if (
                at_one_end := _find_one_sided_ramp(
                    one.timestamps[warp], sorted(one.timestamps[warp] + repeats)
                )
            ) is not None:
                found[row] = at_one_end
            continue
        beside = [
            other for other in events if homes[other] == homes[row] and warp in events[other].timestamps
        ]
        every = max(beside, key=lambda other: len(events[other].timestamps[warp]))
        turns, rounds = one.timestamps[warp], events[every].timestamps[warp]
        ramp = _find_ramp(
            turns, rounds, is_later=every > row, is_guarded=n_executions[row] == n_executions[every]
        )
        if ramp is not None:
            found[row] = MeasuredRamp(ramp, len(turns) / len(rounds))
    return found


def _find_one_sided_ramp(turns: list[int], rounds: list[int]) -> MeasuredRamp | None:
    """Of an instruction that is come to in all rounds and says something new in those of one end alone."""
    before, last = rounds.index(turns[0]), rounds.index(turns[-1])
    after = len(rounds) - 1 - last
    if last + 1 - before > len(turns) or (before and after):
        return None
    ramp = PipelineRamp(
        before, after, is_per_loop_entry=False, is_predicated=True, n_active_iterations=len(turns)
    )
    return MeasuredRamp(ramp, len(turns) / len(rounds))


def _find_pipeline_loop(row: int, events: Mapping[int, MbarrierEvents], kernel: CompiledKernel) -> int | None:
    """The innermost loop with another instruction at an mbarrier: one in which a warp only waits is none."""
    for loop in kernel.loop_forest.find_enclosing_loops(kernel.cfg.block_of[row]):
        blocks = kernel.loop_forest.loops[loop].blocks
        if any(other != row and kernel.cfg.block_of[other] in blocks for other in events):
            return loop
    return None


def _find_ramp(
    turns: list[int], every: list[int], *, is_later: bool, is_guarded: bool
) -> PipelineRamp | None:
    """is_later: what comes in every round comes behind it in a round."""
    before = bisect_left(every, turns[0]) - (not is_later)
    after = len(every) - bisect_right(every, turns[-1]) - is_later
    left_out = len(every) - len(turns)
    if before < 0 or after < 0 or not left_out or not before + after or left_out % (before + after):
        return None
    done = len(turns) * (before + after) // left_out  # of the rounds of one time
    few = done if done < before + after else 0
    return PipelineRamp(before, after, left_out > before + after, is_guarded, few)
