"""Find the CTAs of a grid that have work, where others leave at once, without executing their work.

Idea: a CTA without work returns before any loop; what decides it, a tile's number or a word that it loads,
comes before the loops. So all CTAs are executed together, but only up to the first loop that each warp comes
to. That is some tens of instructions for a batch of thousands of CTAs, wherever in the grid idle ones lie.

Invariant: a CTA that is said to be idle has been executed to its end.

Example: of 18,304 CTAs of a fused mixture-of-experts product the first 16,896 have tiles of tokens. These
enter the loop along the products' depth; the others load the number of tokens and return.
"""

import numpy as np
from msgspec import Struct

from analyzer.execution.lowering.segments import Segment
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.access_log import AccessLog, reject_all
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch, limit_ctas_by_memory
from analyzer.execution.machine.register_state import LockstepGroup
from analyzer.execution.sampling.execution_task import ExecutionTask
from analyzer.ir.arrays import IntArray

_MAX_CHECKED_WARPS = 16384  # of larger grids, CTAs at even distances: their share says how many have work


class WorkingCtas(Struct, frozen=True, eq=False):
    """CTAs of a grid by whether they have work; both kinds are there."""

    working: IntArray  # linear numbers, ascending
    idle: IntArray  # the same; both together are fewer than the grid if not all were looked at


def find_working_ctas(task: ExecutionTask, budget: Budget) -> WorkingCtas | None:
    """Return which CTAs have work; None where all have, none enters a loop, or the budget is not enough."""
    if not task.kernel.loop_forest.loops:
        return None
    grid = task.shape.grid
    most = limit_ctas_by_memory(task.kernel, task.shape, _MAX_CHECKED_WARPS // task.shape.warps_per_cta)
    numbers = _choose_ctas(grid.count, most)
    batch = CtaBatch(task.kernel, task.image, task.shape, numbers, np.ones(len(numbers)))
    log = AccessLog(batch, access_filter=reject_all)
    machine = _LoopEntryMachine(task.kernel, batch, task.options.branch_decider, budget, (), log)
    try:
        machine.start()
        machine.run()
    except StopExecution:
        return None
    works = machine.has_entered_loop.reshape(len(numbers), -1).any(axis=1)
    if works.all() or not works.any():
        return None
    return WorkingCtas(numbers[works], numbers[~works])


def _choose_ctas(n_ctas: int, most: int) -> IntArray:
    """Return all CTAs, or so many, one at a random place of each of equal parts of the grid."""
    if n_ctas <= most:
        return np.arange(n_ctas, dtype=np.int64)
    places = np.arange(most) + np.random.default_rng(n_ctas).random(most)
    return (places * (n_ctas / most)).astype(np.int64)


class _LoopEntryMachine(AbstractMachine):
    """A machine whose warps end at the first loop that they come to."""

    def start(self) -> None:
        """Enqueue all warps at the entry of the kernel; none has entered a loop."""
        self.has_entered_loop = np.zeros(self.batch.n_warps, dtype=np.bool_)
        super().start()

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """Record that warps have work, and end them."""
        self.has_entered_loop[group.warp_indices] = True
        self.retire_lanes(group, group.mask)
        return True
