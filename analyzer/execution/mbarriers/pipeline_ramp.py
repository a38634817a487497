"""Iterations at the ends of a loop in which an instruction at an mbarrier is skipped.

A pipeline that copies some tiles ahead stops copying some iterations before its loop ends, and begins to wait
for free buffers some iterations after it began. The position of the skipped iterations decides how far ahead
copies are; their number alone does not.

Events of one warp have timestamps, which are common to all instructions. The instruction with most events in
a loop marks the iterations: if it has events at 1, 3, 5, 7 and a copy has events at 2, 4, the copy is active
in the first two iterations and skipped in the last two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from msgspec import Struct

from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierEvents
from analyzer.execution.profile.mbarrier_pipelines import PipelineRamp


class MeasuredRamp(Struct, frozen=True):
    """Ramp of an instruction as recorded."""

    ramp: PipelineRamp
    active_share: float  # share of the recorded iterations in which the instruction is active


def find_pipeline_ramps(
    events: Mapping[int, MbarrierEvents], n_executions: Mapping[int, int], kernel: CompiledKernel
) -> dict[int, MeasuredRamp]:
    """Find the ramps of instructions whose active iterations of a loop are contiguous, by row.

    n_executions: executions of each instruction by warps, predicated off or not.
    """
    loop_of = {row: _find_pipeline_loop(row, events, kernel) for row in events}
    found: dict[int, MeasuredRamp] = {}
    for row, one in events.items():
        if loop_of[row] is None or not one.timestamps:
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
        others = [
            other for other in events if loop_of[other] == loop_of[row] and warp in events[other].timestamps
        ]
        marker_row = max(others, key=lambda other: len(events[other].timestamps[warp]))
        active_times, iteration_times = one.timestamps[warp], events[marker_row].timestamps[warp]
        ramp = _find_ramp(
            active_times,
            iteration_times,
            is_later=marker_row > row,
            is_guarded=n_executions[row] == n_executions[marker_row],
        )
        if ramp is not None:
            found[row] = MeasuredRamp(ramp, len(active_times) / len(iteration_times))
    return found


def _find_one_sided_ramp(active_times: list[int], iteration_times: list[int]) -> MeasuredRamp | None:
    """Return the ramp of a wait whose repeated waits for one phase are all at one end of the loop.

    active_times: timestamps of waits for a new phase.
    iteration_times: timestamps of all waits.
    """
    before, last = iteration_times.index(active_times[0]), iteration_times.index(active_times[-1])
    after = len(iteration_times) - 1 - last
    if last + 1 - before > len(active_times) or (before and after):
        return None
    ramp = PipelineRamp(
        before, after, is_per_loop_entry=False, is_predicated=True, n_active_iterations=len(active_times)
    )
    return MeasuredRamp(ramp, len(active_times) / len(iteration_times))


def _find_pipeline_loop(row: int, events: Mapping[int, MbarrierEvents], kernel: CompiledKernel) -> int | None:
    """Return the innermost loop that contains another instruction at an mbarrier.

    A loop in which a warp only polls one mbarrier does not count.
    """
    for loop in kernel.loop_forest.find_enclosing_loops(kernel.cfg.block_of[row]):
        blocks = kernel.loop_forest.loops[loop].blocks
        if any(other != row and kernel.cfg.block_of[other] in blocks for other in events):
            return loop
    return None


def _find_ramp(
    active_times: list[int], iteration_times: list[int], *, is_later: bool, is_guarded: bool
) -> PipelineRamp | None:
    """Return the ramp of an instruction, None if its active iterations are not contiguous.

    active_times: timestamps of the instruction.
    iteration_times: timestamps of an instruction that is active in every iteration.
    is_later: that instruction comes later in the iteration than this one.
    is_guarded: both are executed equally often, so this one is predicated off where it is skipped.
    """
    before = bisect_left(iteration_times, active_times[0]) - (not is_later)
    after = len(iteration_times) - bisect_right(iteration_times, active_times[-1]) - is_later
    n_skipped = len(iteration_times) - len(active_times)
    if before < 0 or after < 0 or not n_skipped or not before + after or n_skipped % (before + after):
        return None
    n_active = len(active_times) * (before + after) // n_skipped  # active iterations of one loop entry
    n_active_iterations = n_active if n_active < before + after else 0
    return PipelineRamp(before, after, n_skipped > before + after, is_guarded, n_active_iterations)
