"""Intervals of a warp's execution: instructions that issue without a stall, then a stall.

AMALI (Cao et al., ISCA 2025) section 4.5, after Karkhanis and Smith (ISCA 2004). The timeline gives the
stalls. An interval begins at each instruction that a scoreboard keeps, after each one whose result the next
one waits for (a stall of fixed latency, which the timeline charges to the row before it), and where
executions change:

    row            0   1   2   3   4   5
    executions     1   1   8   8   8   8
    wait before    -   -   -   -   yes -
    wait after     -   -   yes -   -   -
    interval       0   0   1   2   3   3

MDM's longer intervals go from one wait for global memory to the next, or to where a loop begins or ends.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from analyzer.demand.l1_policies import L1Policy, find_l1_policy
from analyzer.demand.opcode_costs import PIPES
from analyzer.ir.arrays import FloatArray, make_read_only
from analyzer.ir.opcode import Opcode, OpKind
from analyzer.models.interface import ModelInput
from analyzer.models.timeline import WarpTimeline
from analyzer.models.wait_causes import WaitCause

# Stalls that begin an interval: those for data (equation 18), barriers, fences and matrix groups.
DATA_WAIT_CAUSES = (
    WaitCause.WAIT,
    WaitCause.SHORT_SCOREBOARD,
    WaitCause.LONG_SCOREBOARD,
    WaitCause.BARRIER,
    WaitCause.GMMA,
    WaitCause.MEMBAR,
)
# Those before the instruction that they are charged to; `WaitCause.WAIT` comes after it.
_CAUSES_BEFORE = DATA_WAIT_CAUSES[1:]


class Intervals(Struct, frozen=True, eq=False):
    """Intervals of one warp's timeline, with the demand of one pass through each; k intervals."""

    interval_of_row: NDArray[np.int64]  # [n]
    memory_interval: NDArray[np.int64]  # [k], MDM's longer interval that it is in
    executions: FloatArray  # [k], by one warp
    instructions: FloatArray  # [k]
    pipe_cycles: FloatArray  # [k, pipe], on the pipes of a sub-core
    l1_bytes: FloatArray  # [k], of accesses that look into the L1
    read_bytes: FloatArray  # [k], requested from global memory
    written_bytes: FloatArray  # [k], to global memory
    issue_cycles: FloatArray  # [n], initiation interval of each instruction on its pipe

    def __post_init__(self) -> None:
        make_read_only(*astuple(self))


def split_into_intervals(
    model_input: ModelInput, timeline: WarpTimeline, weights: FloatArray, issue_cycles: FloatArray
) -> Intervals:
    """Split a timeline; issue_cycles[n]: initiation interval of each instruction on its pipe."""
    is_frequency_change = np.ones(len(weights), dtype=bool)
    is_frequency_change[1:] = weights[1:] != weights[:-1]
    starts = is_frequency_change | (timeline.waits[:, _CAUSES_BEFORE].sum(axis=1) > 0)
    starts[1:] |= timeline.waits[:-1, WaitCause.WAIT] > 0
    memory_starts = _mask_loop_changes(model_input) | (timeline.waits[:, WaitCause.LONG_SCOREBOARD] > 0)
    starts |= memory_starts
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
        l1_bytes=total(np.where(_mask_past_l1(model_input), 0.0, moved.global_bytes) + moved.local_bytes),
        read_bytes=total(np.where(loads, moved.global_bytes, 0.0)),
        written_bytes=total(np.where(loads, 0.0, moved.global_bytes)),
        issue_cycles=issue_cycles,
    )


def _mask_loop_changes(model_input: ModelInput) -> NDArray[np.bool_]:
    """Return a mask of the rows before which the innermost loop changes, [n]."""
    loops = np.array([-1 if loop is None else loop for loop in model_input.loop_forest.loop_of])
    blocks = np.asarray(model_input.cfg.block_of)
    loop_of_row = np.full(len(model_input.kernel), -1)
    loop_of_row[: len(blocks)] = loops[blocks]
    changes: NDArray[np.bool_] = np.diff(loop_of_row, prepend=-2) != 0
    return changes


def _mask_past_l1(model_input: ModelInput) -> NDArray[np.bool_]:
    """Return a mask of the instructions whose global accesses do not look into the L1, [n]."""
    kernel = model_input.kernel
    return kernel.form_table.make_opcode_mask(_goes_past_l1)[kernel.opcode_ids]


def _goes_past_l1(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.BULK_COPY or find_l1_policy(opcode) is L1Policy.BYPASS
