"""A machine that accelerates the iterations of a loop where its registers grow evenly."""

from functools import cached_property

from analyzer.execution.acceleration.loop_acceleration import LoopAccelerator
from analyzer.execution.lowering.segments import Segment
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.register_state import LockstepGroup


class AcceleratedMachine(AbstractMachine):
    """An `AbstractMachine` with a `LoopAccelerator`."""

    @cached_property
    def accelerator(self) -> LoopAccelerator:
        """The accelerator of this machine, made when a group first arrives at a loop."""
        return LoopAccelerator(self)

    def handle_loop_header(self, segment: Segment, group: LockstepGroup) -> bool:
        """Accelerate iterations before the group runs the header."""
        self.accelerator.accelerate(segment, group)
        return False
