"""A warp's execution cut into intervals: instructions that issue without a stall, then a stall.

AMALI section 4.5, after Karkhanis and Smith. The walk gives the stalls; each instruction that stalls begins
an interval, and so does each place where the code starts to run more or less often.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.opcode_costs import PIPES, FloatArray
from analyzer.models.interface import ModelInput
from analyzer.models.timeline import WarpTimeline
from analyzer.models.wait_causes import WaitCause

# Stalls for data, which alone cut intervals (equation 18); barriers and matrix groups end them too.
DATA_WAIT_CAUSES = (
    WaitCause.WAIT,
    WaitCause.SHORT_SCOREBOARD,
    WaitCause.LONG_SCOREBOARD,
    WaitCause.BARRIER,
    WaitCause.GMMA,
)


class Intervals(Struct, frozen=True, eq=False):
    """Intervals of one warp's walk, each with what one pass through it asks for.

    of_row[n]: interval of each instruction; memory[k]: the memory interval that it is a part of, which only
    waits for global memory cut (MDM's); runs[k]: how often a warp runs interval k; instructions[k];
    pipe_cycles[k, pipe]: cycles on each pipe of a sub-core; l1_bytes[k]: through the L1; read_bytes[k],
    written_bytes[k]: asked of global memory.
    """

    interval_of_row: NDArray[np.int64]
    memory_interval: NDArray[np.int64]
    executions: FloatArray
    instructions: FloatArray
    pipe_cycles: FloatArray
    l1_bytes: FloatArray
    read_bytes: FloatArray
    written_bytes: FloatArray
    issue_cycles: FloatArray


def split_into_intervals(
    model_input: ModelInput, timeline: WarpTimeline, weights: FloatArray, issue_cycles: FloatArray
) -> Intervals:
    """Cut a walk; issue_cycles[n]: initiation interval of each instruction on its pipe."""
    is_frequency_change = np.ones(len(weights), dtype=bool)
    is_frequency_change[1:] = weights[1:] != weights[:-1]
    starts = is_frequency_change | (timeline.waits[:, DATA_WAIT_CAUSES].sum(axis=1) > 0)
    memory_starts = is_frequency_change | (timeline.waits[:, WaitCause.LONG_SCOREBOARD] > 0)
    of_row = np.cumsum(starts) - 1
    n = int(of_row[-1]) + 1
    ids = model_input.kernel.opcode_ids
    moved = model_input.access_bytes
    loads = model_input.costs.is_memory_load[ids]

    def total(values: FloatArray) -> FloatArray:
        return np.bincount(of_row, weights=values, minlength=n).astype(np.float64)

    pipes = of_row * len(PIPES) + model_input.costs.pipe[ids]
    by_pipe = np.bincount(pipes, weights=issue_cycles, minlength=n * len(PIPES))
    return Intervals(
        interval_of_row=of_row,
        memory_interval=(np.cumsum(memory_starts) - 1)[np.flatnonzero(starts)],
        executions=weights[np.flatnonzero(starts)],
        instructions=np.bincount(of_row, minlength=n).astype(np.float64),
        pipe_cycles=by_pipe.reshape(n, len(PIPES)).astype(np.float64),
        l1_bytes=total(moved.global_bytes + moved.local_bytes),
        read_bytes=total(np.where(loads, moved.global_bytes, 0.0)),
        written_bytes=total(np.where(loads, 0.0, moved.global_bytes)),
        issue_cycles=issue_cycles,
    )
