"""Counts that depend on the assumption made at a branch with an unknown condition."""

from analyzer.execution.lowering.call_returns import find_blocks_after
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.execution_counters import ExecutionCounters
from analyzer.execution.machine.register_state import Speculation


class SpeculationTracker:
    """Records in the counters which instructions and blocks run on an assumption."""

    def __init__(self, kernel: CompiledKernel, batch: CtaBatch, counters: ExecutionCounters) -> None:
        self.kernel, self.batch, self.counters = kernel, batch, counters

    def add_branch(
        self, row: int, origin: int, speculations: tuple[Speculation, ...]
    ) -> tuple[Speculation, ...]:
        """Return a group's speculations with that of the branch at `row`.

        origin: what the branch's condition depends on (see `RegisterState`).
        """
        block = self.batch.find_reconvergence_block(row)
        cfg = self.kernel.cfg
        if block is None and row not in self.counters.speculative_instructions and cfg.calling_blocks:
            # the speculation lasts longer than the function that it is in
            self.counters.speculative_blocks |= find_blocks_after(cfg, cfg.block_of[row])
        self.counters.speculative_instructions.setdefault(row, 0.0)
        self.batch.record_branch_origin(row, origin)
        if any(speculation.branch_row == row for speculation in speculations):
            return speculations
        return (*speculations, Speculation(row, block, origin))

    def add_jump(
        self, row: int, origin: int, speculations: tuple[Speculation, ...]
    ) -> tuple[Speculation, ...]:
        """Return a group's speculations with that of an indirect jump whose target is unknown.

        Any block may run more often, or less often, than it does here.
        """
        self.counters.speculative_blocks.update(range(len(self.kernel.cfg.blocks)))
        return self.add_branch(row, origin, speculations)

    def mark_all_blocks(self, row: int, origin: int = 0) -> None:
        """Trust no count: how execution continues from this instruction is unknown.

        origin: what that depends on (see `RegisterState`), 0 for the instruction itself.
        """
        self.counters.speculative_blocks.update(range(len(self.kernel.cfg.blocks)))
        self.counters.speculative_instructions.setdefault(row, 0.0)
        self.batch.record_branch_origin(row, origin or row + 1)
