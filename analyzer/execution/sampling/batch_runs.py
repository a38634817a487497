"""Runs of a batch of CTAs, with the listeners that its sample needs."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from analyzer.execution.acceleration.accelerated_machine import AcceleratedMachine
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.budget import Budget, EndlessLoop, StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.execution_listener import ExecutionListener
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierRecorder
from analyzer.execution.sampling.affinity_checks import AffinityCheckListener, AffinityChecks
from analyzer.execution.sampling.execution_task import ExecutionTask
from analyzer.execution.sampling.grid_axes import MIN_CTAS_TO_SPLIT, GridAxesFinder, GridAxesFound


class BatchRun(Struct, frozen=True, eq=False):
    """Result of one batch."""

    machine: AbstractMachine
    stop_reason: str  # empty if all warps exited
    is_endless: bool  # stopped in a loop without an end
    mbarrier_recorder: MbarrierRecorder | None  # of the grid's first CTA, if the slice has mbarriers


def make_machine(
    task: ExecutionTask,
    batch: CtaBatch,
    budget: Budget,
    listeners: Iterable[ExecutionListener],
    log: AccessLog,
) -> AbstractMachine:
    """Return a machine, which accelerates loops unless the options say otherwise."""
    make = AcceleratedMachine if task.options.accelerates_loops else AbstractMachine
    return make(task.kernel, batch, task.options.branch_decider, budget, listeners, log)


def run_batch(
    task: ExecutionTask,
    batch: CtaBatch,
    budget: Budget,
    make_log: Callable[[CtaBatch], AccessLog],
    affinity_checks: AffinityChecks | None,
) -> BatchRun:
    """Run a batch; once more, in their order, if its CTAs turn out to form rows and columns."""
    listeners: list[ExecutionListener] = []
    recorder: MbarrierRecorder | None = None
    if affinity_checks is not None:
        listeners.append(AffinityCheckListener(affinity_checks, batch))
    if task.kernel.slice.tracks_mbarriers and batch.cta_numbers[0] == 0:
        recorder = MbarrierRecorder()
        listeners.append(recorder)
    if not batch.neighbor_ctas and batch.cta_shape[0] >= MIN_CTAS_TO_SPLIT and batch.cta_shape[1] == 1:
        listeners.append(GridAxesFinder(batch.cta_shape[0]))
    machine = make_machine(task, batch, budget, listeners, make_log(batch))
    machine.start()
    stop_reason, is_endless = "", False
    try:
        machine.run()
    except GridAxesFound as found:
        reordered = batch.reorder_ctas(found.cta_order, found.shape)
        return run_batch(task, reordered, budget, make_log, affinity_checks)
    except StopExecution as stop:
        stop_reason, is_endless = str(stop), isinstance(stop, EndlessLoop)
    machine.counters.memory_log.sum_entries()
    return BatchRun(machine, stop_reason, is_endless, recorder)
