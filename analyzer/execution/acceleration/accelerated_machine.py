"""A machine that takes many iterations of a loop at once where its registers grow evenly."""

from collections.abc import Iterable

from analyzer.execution.acceleration.loop_acceleration import LoopAccelerator
from analyzer.execution.lowering.segments import CompiledKernel, Segment
from analyzer.execution.machine.abstract_machine import AbstractMachine, DecideBranch
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.budget import Budget
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.machine.register_state import LockstepGroup


class AcceleratedMachine(AbstractMachine):
    """An `AbstractMachine` with a `LoopAccelerator`."""

    def __init__(
        self,
        kernel: CompiledKernel,
        batch: CtaBatch,
        decide_branch: DecideBranch,
        budget: Budget,
        listeners: Iterable[ExecutionListener] = (),
        memory_log: AccessLog | None = None,
    ) -> None:
        super().__init__(kernel, batch, decide_branch, budget, listeners, memory_log)
        self.accelerator = LoopAccelerator(self)

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """Take iterations at once before the group runs the header."""
        self.accelerator.accelerate(segment, group)
        return False
