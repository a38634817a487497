"""Events of an execution, and the base class of those that listen to them.

As stages and views in llvm-mca: the machine raises events and knows no listener; a listener knows no other
listener. Listeners do not change the execution; they may only raise an exception, which ends the run.
"""

from collections.abc import Iterable

from analyzer.execution.lowering.segments import LoweredAccess, MbarrierOperation, Segment
from analyzer.execution.lowering.step import Step, Value
from analyzer.execution.machine.execution_counters import ExecutionCounters
from analyzer.execution.machine.register_state import RegisterView, WarpIndices
from analyzer.ir.arrays import Addresses, BoolArray, IntArray


class ExecutionListener:
    """Base of all listeners; an event that a class does not override does nothing and costs nothing."""

    __slots__ = ()

    def on_segment(self, segment: Segment, view: RegisterView) -> None:
        """A group begins to run a segment."""

    def on_step(self, step: Step, words: list[Value], results: tuple[Value, ...], view: RegisterView) -> None:
        """A group has computed a step's results from `words`; steps that combine lanes raise no event."""

    def on_access(self, access: LoweredAccess, active: BoolArray, addresses: Addresses | None) -> None:
        """Active lanes access memory; addresses: None where there are none or some are unknown."""

    def on_mbarrier(self, operation: MbarrierOperation, view: RegisterView, lanes: BoolArray | None) -> None:
        """A group executes an mbarrier operation in `lanes`, in all lanes where None."""

    def on_accelerated_loop(self, warps: WarpIndices, repeats: IntArray, counters: ExecutionCounters) -> None:
        """Loop iterations were taken at once: `repeats[warp]` times what `counters` hold for one of them."""


class EventListeners:
    """For each event the methods of the listeners that override it, in the order of the listeners."""

    __slots__ = ("on_accelerated_loop", "on_access", "on_mbarrier", "on_segment", "on_step")

    def __init__(self, listeners: Iterable[ExecutionListener]) -> None:
        base, found = ExecutionListener, tuple(listeners)
        self.on_segment = tuple(o.on_segment for o in found if type(o).on_segment is not base.on_segment)
        self.on_step = tuple(o.on_step for o in found if type(o).on_step is not base.on_step)
        self.on_access = tuple(o.on_access for o in found if type(o).on_access is not base.on_access)
        self.on_mbarrier = tuple(o.on_mbarrier for o in found if type(o).on_mbarrier is not base.on_mbarrier)
        self.on_accelerated_loop = tuple(
            o.on_accelerated_loop
            for o in found
            if type(o).on_accelerated_loop is not base.on_accelerated_loop
        )
