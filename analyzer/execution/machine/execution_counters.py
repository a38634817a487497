"""Counters of what a batch of warps executed."""

import numpy as np
from msgspec import Struct, field

from analyzer.execution.lowering.segments import CompiledKernel, Segment
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.register_state import ALL_LANES, LockstepGroup, RegisterView
from analyzer.ir.arrays import IntArray
from analyzer.ir.scheduling import WARP_SIZE


class ExecutionCounters(Struct, eq=False):
    """Executions of segments and loops by each warp, and the log of memory accesses."""

    segment_runs: IntArray  # [segment, warp]
    active_lanes: IntArray  # [segment, warp], sums over the runs
    memory_log: AccessLog
    loop_entries: IntArray  # [loop, warp], arrivals at a loop from outside
    # by branch row: warp instructions, of the grid, that ran on the assumption made there
    speculative_instructions: dict[int, float] = field(default_factory=dict)
    speculative_blocks: set[int] = field(default_factory=set)
    trapped_warps: dict[int, int] = field(
        default_factory=dict
    )  # by row of a trap: a warp that surely runs it

    def count_segment(self, segment: Segment, view: RegisterView, batch: CtaBatch) -> None:
        """Count one run of a segment by a group."""
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

    def record_trap(self, row: int, group: LockstepGroup, *, is_certain: bool) -> None:
        """Record that a group runs a trap, unless it does so on an assumption."""
        if is_certain and not group.speculations:
            self.trapped_warps.setdefault(row, int(group.warp_indices[0]))


def make_counters(
    kernel: CompiledKernel, batch: CtaBatch, memory_log: AccessLog | None = None
) -> ExecutionCounters:
    """Return counters at zero; memory_log: None for a log of all accesses."""
    shape = (len(kernel.segments), batch.n_warps)
    return ExecutionCounters(
        segment_runs=np.zeros(shape, dtype=np.int64),
        active_lanes=np.zeros(shape, dtype=np.int64),
        memory_log=AccessLog(batch) if memory_log is None else memory_log,
        loop_entries=np.zeros((len(kernel.loop_forest.loops), batch.n_warps), dtype=np.int64),
    )
