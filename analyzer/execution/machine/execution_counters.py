"""What a batch of warps executed."""

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.execution.lowering.segments import CompiledKernel, Segment
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.register_state import ALL_LANES, RegisterView
from analyzer.ir.scheduling import WARP_SIZE

IntArray = NDArray[np.int64]


class ExecutionCounters(Struct, eq=False):
    """What was executed: per segment and warp, executions and active lanes; per memory instruction, its log.

    entries[loop, warp]: how often a warp comes to a loop from outside.
    hanging[row]: warp instructions that ran under the assumption made at that branch.
    """

    segment_runs: IntArray
    active_lanes: IntArray
    memory_log: AccessLog
    loop_entries: IntArray
    speculative_instructions: dict[int, float] = field(default_factory=dict)
    speculative_blocks: set[int] = field(default_factory=set)

    def count_segment(self, segment: Segment, view: RegisterView, batch: CtaBatch) -> None:
        """A group runs a segment."""
        index, group = segment.index, view.group
        lanes = WARP_SIZE if view.active is ALL_LANES else group.mask.sum(axis=1)
        if group.has_all_warps:
            self.segment_runs[index] += 1
            self.active_lanes[index] += lanes
        else:
            self.segment_runs[index, group.warp_indices] += 1
            self.active_lanes[index, group.warp_indices] += lanes
        for speculation in group.speculations:
            self.speculative_blocks.add(segment.block)
            weight = float(batch.warp_weights[group.warp_indices].sum()) * (segment.stop - segment.start)
            self.speculative_instructions[speculation.branch_row] = (
                self.speculative_instructions.get(speculation.branch_row, 0.0) + weight
            )


def make_counters(
    kernel: CompiledKernel, batch: CtaBatch, memory_log: AccessLog | None = None
) -> ExecutionCounters:
    """Return counters of which none has counted; memory_log: None for one of all accesses."""
    shape = (len(kernel.segments), batch.n_warps)
    return ExecutionCounters(
        segment_runs=np.zeros(shape, dtype=np.int64),
        active_lanes=np.zeros(shape, dtype=np.int64),
        memory_log=AccessLog(batch) if memory_log is None else memory_log,
        loop_entries=np.zeros((len(kernel.loop_forest.loops), batch.n_warps), dtype=np.int64),
    )
