"""A warp's execution cut into intervals: instructions that issue without a stall, then a stall.

AMALI section 4.5, after Karkhanis and Smith. The walk gives the stalls; each instruction that stalls begins
an interval, and so does each place where the code starts to run more or less often.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.costs import PIPES, FloatArray
from analyzer.models.base import Situation
from analyzer.models.causes import Cause
from analyzer.models.walk import WarpWalk

# Stalls for data, which alone cut intervals (equation 18); barriers and matrix groups end them too.
DATA_CAUSES = (Cause.WAIT, Cause.SHORT, Cause.LONG, Cause.BARRIER, Cause.GMMA)


class Intervals(Struct, frozen=True, eq=False):
    """Intervals of one warp's walk, each with what one pass through it asks for.

    of_row[n]: interval of each instruction; memory[k]: the memory interval that it is a part of, which only
    waits for global memory cut (MDM's); runs[k]: how often a warp runs interval k; instructions[k];
    pipe_cycles[k, pipe]: cycles on each pipe of a sub-core; l1_bytes[k]: through the L1; read_bytes[k],
    written_bytes[k]: asked of global memory.
    """

    of_row: NDArray[np.int64]
    memory: NDArray[np.int64]
    runs: FloatArray
    instructions: FloatArray
    pipe_cycles: FloatArray
    l1_bytes: FloatArray
    read_bytes: FloatArray
    written_bytes: FloatArray
    issue_cycles: FloatArray


def cut_intervals(
    situation: Situation, walk: WarpWalk, weights: FloatArray, issue_cycles: FloatArray
) -> Intervals:
    """Cut a walk; issue_cycles[n]: initiation interval of each instruction on its pipe."""
    turns = np.ones(len(weights), dtype=bool)
    turns[1:] = weights[1:] != weights[:-1]
    starts = turns | (walk.waits[:, DATA_CAUSES].sum(axis=1) > 0)
    memory_starts = turns | (walk.waits[:, Cause.LONG] > 0)
    of_row = np.cumsum(starts) - 1
    n = int(of_row[-1]) + 1
    ids = situation.kernel.opcode_ids
    moved = situation.moved
    loads = situation.costs.is_memory_load[ids]

    def total(values: FloatArray) -> FloatArray:
        return np.bincount(of_row, weights=values, minlength=n).astype(np.float64)

    pipes = of_row * len(PIPES) + situation.costs.pipe[ids]
    by_pipe = np.bincount(pipes, weights=issue_cycles, minlength=n * len(PIPES))
    return Intervals(
        of_row=of_row,
        memory=(np.cumsum(memory_starts) - 1)[np.flatnonzero(starts)],
        runs=weights[np.flatnonzero(starts)],
        instructions=np.bincount(of_row, minlength=n).astype(np.float64),
        pipe_cycles=by_pipe.reshape(n, len(PIPES)).astype(np.float64),
        l1_bytes=total(moved.global_bytes + moved.local_bytes),
        read_bytes=total(np.where(loads, moved.global_bytes, 0.0)),
        written_bytes=total(np.where(loads, 0.0, moved.global_bytes)),
        issue_cycles=issue_cycles,
    )
