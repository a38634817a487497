"""What a batch of warps executed."""

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from analyzer.execution.access_log import MemoryLog
from analyzer.execution.lanes import ALL_LANES, View
from analyzer.execution.program import CompiledKernel, Segment
from analyzer.execution.warps import Batch
from analyzer.ir.machine import WARP_LANES

IntArray = NDArray[np.int64]


class Tally(Struct, eq=False):
    """What was executed: per segment and warp, executions and active lanes; per memory instruction, its log.

    entries[loop, warp]: how often a warp comes to a loop from outside.
    hanging[row]: warp instructions that ran under the assumption made at that branch.
    """

    segments: IntArray
    lanes: IntArray
    memory: MemoryLog
    entries: IntArray
    hanging: dict[int, float] = field(default_factory=dict)
    doubted: set[int] = field(default_factory=set)

    def count(self, segment: Segment, view: View, batch: Batch) -> None:
        """A group runs a segment."""
        index, group = segment.index, view.group
        lanes = WARP_LANES if view.active is ALL_LANES else group.mask.sum(axis=1)
        if group.is_whole:
            self.segments[index] += 1
            self.lanes[index] += lanes
        else:
            self.segments[index, group.rows] += 1
            self.lanes[index, group.rows] += lanes
        for doubt in group.doubts:
            self.doubted.add(segment.block)
            weight = float(batch.weights[group.rows].sum()) * (segment.stop - segment.start)
            self.hanging[doubt.row] = self.hanging.get(doubt.row, 0.0) + weight


def new_tally(kernel: CompiledKernel, batch: Batch) -> Tally:
    """Nothing executed yet."""
    shape = (len(kernel.segments), batch.n_warps)
    return Tally(
        segments=np.zeros(shape, dtype=np.int64),
        lanes=np.zeros(shape, dtype=np.int64),
        memory=MemoryLog(batch),
        entries=np.zeros((len(kernel.nest.loops), batch.n_warps), dtype=np.int64),
    )
