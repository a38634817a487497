"""Code on the two sides of a branch that nothing decides: which way is the less or the more work."""

from analyzer.execution.lowering.segments import CompiledKernel, Terminator
from analyzer.execution.machine.cta_batch import BranchRegions
from analyzer.execution.profile.work_assumption import WorkAssumption
from analyzer.flow.postdominators import find_blocks_between


class WorkSides:
    """Compares the code on the two sides of a branch."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self._regions = BranchRegions(kernel)

    def find_taken_share(self, end: Terminator, assumption: WorkAssumption) -> float | None:
        """Return 1.0 where taking a branch is the less or the more work, else 0.0; None if it is the same."""
        taken, passed = (self._count_instructions(end, side) for side in (end.target, end.fall_through))
        if taken == passed:
            return None
        return float((taken > passed) is (assumption is WorkAssumption.MOST))

    def _count_instructions(self, end: Terminator, side: int | None) -> int:
        """Count the instructions on one side of a branch, up to where the paths meet; 0 for an exit."""
        if side is None:
            return 0
        cfg = self.kernel.cfg
        first, stop = self.kernel.segments[side].block, self._regions.find_reconvergence_block(end.row)
        if first == stop:
            return 0
        between = find_blocks_between(cfg.interprocedural_successors, first, stop)
        return sum(len(cfg.blocks[block]) for block in {first, *between})
