"""Abstract execution of a whole launch: which CTAs are executed, and the profile that they add up to."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.access_log import MemoryLog
from analyzer.execution.axes import LEAST_CTAS, AxesFinder, AxesFound
from analyzer.execution.budget import Budget, EndlessLoop, StopExecution
from analyzer.execution.closing import Closer
from analyzer.execution.compiling import compile_kernel
from analyzer.execution.evenness import Evenness
from analyzer.execution.guesses import Guesser
from analyzer.execution.hearing import Ears
from analyzer.execution.image import ConstantImage
from analyzer.execution.machine import Machine
from analyzer.execution.profile import ExecutionProfile
from analyzer.execution.profiling import ProfileBuilder
from analyzer.execution.program import CompiledKernel
from analyzer.execution.proving import Proofs, batch_of, part_of_budget
from analyzer.execution.sampling import (
    MOST_WHOLE_WARPS,
    WHOLE_WARPS,
    Sample,
    busy_strata,
    first_ctas,
    scattered,
    stratified,
    whole_grid,
)
from analyzer.execution.shared_memory import SharedTooLarge
from analyzer.execution.stand_ins import tables_of
from analyzer.execution.sums import LaunchSums, collect
from analyzer.execution.task import ExecutionOptions, Task
from analyzer.execution.unknown_words import Trust
from analyzer.execution.warps import Batch, Shape, within_memory
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.ir.launch import Launch
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.execution.surmise import Key, Surmise

IntArray = NDArray[np.int64]

_WHOLE_SHARE = 4  # part of it to execute a large grid whole where boxes of its CTAs can be proven alike
_FEW_SHARE = 4  # part of it to execute some where all were too many
_FEW_CTAS = 16
_STRETCH_WARPS = 2048  # of neighbouring CTAs, where others that lie apart were executed
_EXPECTED_PART = 0.7  # of the budget that a grid may be expected to take: CTAs that part ways take more
_FEW_STEPS = 5000  # that are never worth a proof
_RUNS_OF_PROOF = 8  # that it takes to prove CTAs alike, and to execute some of each box
_LOOK_STEPS = 400
_CHUNK_WARPS = 16384


class Execution(Struct, frozen=True, eq=False):
    """What a launch came to.

    log: requests of all CTAs, or of some that others are proven to go on from; None where there are more than
    are kept. ears: what the first CTA said to its mbarriers, None where that is to be heard apart.
    is_endless: it was given up in a loop without an end.
    """

    profile: ExecutionProfile
    log: MemoryLog | None
    ears: Ears | None
    is_endless: bool


def execute(
    cfg: Cfg,
    nest: LoopNest,
    launch: Launch,
    shape: Shape,
    image: ConstantImage,
    options: ExecutionOptions | None = None,
    compiled: CompiledKernel | None = None,
) -> Execution:
    """Execute a launch abstractly. Never runs past the step limit: what was known then is in the profile.

    Raises UsageError where an address is not aligned to its access, which no launch that works has.
    """
    kernel = compiled or compile_kernel(
        cfg, nest, knows_memory=image.has_contents, knows_tensors=bool(image.tensors)
    )
    task = Task(kernel, image, shape, options or ExecutionOptions(guesser=Guesser(kernel)))
    executor = Executor(task)
    sample, sums = executor.run()
    _check_alignment(kernel, sums)
    shares = _row_shares(task, launch, sample, sums)
    profile = ProfileBuilder(task, launch, sample, sums, _surmised(task, sums), shares).build()
    return Execution(profile, _log(sample, sums), sums.ears, executor.is_endless)


def _surmised(task: Task, sums: LaunchSums) -> "Mapping[Key, Surmise]":
    """What addresses come to that hang on words that nobody knows; nothing where there are none."""
    wanted = {
        (totals.access.row, totals.access.space): totals
        for totals in sums.accesses.values()
        if totals.trust < Trust.PATTERN and totals.access.address is not None and totals.access.bulk is None
    }
    if not wanted:
        return {}
    from analyzer.execution.surmise import surmise

    return surmise(task, wanted, tables_of(task.image, ((t.access.row, t.base) for t in wanted.values())))


def _row_shares(task: Task, launch: Launch, sample: Sample, sums: LaunchSums) -> "Mapping[Key, float]":
    """Distinct part of what is read of rows that unknown words name, as far as the grid's first CTAs tell.

    CTAs spread over the grid do not meet in the rows that they share with their neighbours.
    """
    names_rows = any(totals.trust is Trust.ROW for totals in sums.accesses.values())
    if sample.has_even_accesses or sums.stopped or not names_rows:
        return {}
    options = replace(task.options, step_limit=task.options.step_limit // _FEW_SHARE)
    first = first_ctas(task.shape.grid, _STRETCH_WARPS // task.shape.warps_per_cta)
    part = Task(task.kernel, task.image, replace(task.shape, grid=first), options)
    return ProfileBuilder(part, launch, *Executor(part).run()).shares_of_rows()


def _log(sample: Sample, sums: LaunchSums) -> MemoryLog | None:
    log = sums.log
    is_all = sample.is_whole or (sample.is_proven and sample.has_even_accesses)
    return log if is_all and log is not None and log.kept is not None and not sums.stopped else None


def _check_alignment(kernel: CompiledKernel, sums: LaunchSums) -> None:
    """Raises UsageError where an access that surely runs would fault."""
    code = kernel.cfg.kernel
    for totals in sums.accesses.values():
        row = totals.access.row
        is_sure = totals.trust is Trust.ALL and not totals.is_doubtful and not sums.hanging
        if totals.misaligned is not None and is_sure:
            raise UsageError(
                f"{code.name} would fault: {code.form(row).text} at {int(code.addresses[row]):#06x} has an "
                f"address that is no multiple of {totals.access.width_bytes}, as {totals.misaligned:#x}",
                hint="check the pointers, strides and offsets among the arguments",
            )


class _Tried(Struct, frozen=True, eq=False):
    """What some CTAs came to, by which a grid was judged, and the budget of which that was paid."""

    sums: LaunchSums
    budget: Budget

    def is_same_within(self, budget: Budget) -> bool:
        """Whether it would come to the same with another budget."""
        is_done = not self.sums.stopped and self.budget.spent <= budget.limit
        return is_done or self.budget.limit == budget.limit


class Executor:
    """Chooses CTAs, executes them within the budget, and falls back on fewer where that was too much."""

    def __init__(self, task: Task, log_for: Callable[[Batch], MemoryLog] = MemoryLog) -> None:
        self.task, self.log_for = task, log_for
        self.budget = Budget(task.options.step_limit)
        self.is_endless = False
        self.proofs = Proofs(task, self._machine)
        self._tried: _Tried | None = None

    def run(self) -> tuple[Sample, LaunchSums]:
        """What was executed in the end, and what it came to."""
        samples = self._samples()
        sample = samples[0]
        if sample.is_whole and self._n_warps() > WHOLE_WARPS // 4:
            if self.proofs.has_even_ways:
                self.budget = part_of_budget(self.task, _WHOLE_SHARE)
            if not (self.proofs.is_even and self.task.options.max_warps) and self._exceeds_budget():
                return self._execute_fewer()
        sums = self._execute(sample)
        if not sample.holds and self.proofs.move_apart(sample.evenness):
            samples = self._stand_ins()
            sample = samples[0]
            sums = self._execute(sample)
        if not sample.holds:
            samples = (self._unproven(),)
            sample = samples[0]
            sums = self._execute(sample)
        if sums.stopped and len(sample.numbers) > 2 * _FEW_CTAS and not sample.neighbours:
            return self._execute_fewer()
        return self._with_memory(samples, sums)

    def _exceeds_budget(self) -> bool:
        """Whether the whole grid takes more than may be spent, to judge by some of its CTAs.

        Where boxes of CTAs stand for all of it, no more than their proof is taken to cost.
        """
        grid, some, limit = self.task.shape.grid, self._few, self.budget.limit
        if len(some.numbers) > grid.count // _FEW_SHARE:
            return False
        self._tried = _Tried(self._execute(some), self.budget)
        spent, expected = self.budget.spent, self.budget.steps_for(grid.count / len(some.numbers))
        self.budget = Budget(limit)
        most = _EXPECTED_PART * limit
        if self.proofs.is_even:
            most = min(most, max(_FEW_STEPS, _RUNS_OF_PROOF * spent))
        return expected > most

    def _execute_fewer(self) -> tuple[Sample, LaunchSums]:
        """What some CTAs come to."""
        for samples in self._fewer():
            self.budget = part_of_budget(self.task, _FEW_SHARE)
            sums = self._executed(samples[0])
            if not samples[0].holds:
                self.proofs.move_apart(samples[0].evenness)
                continue
            self.budget = part_of_budget(self.task, _FEW_SHARE)
            sample, sums = self._with_memory(samples, sums)
            if not sums.stopped:
                break
        return sample, sums

    def _executed(self, sample: Sample) -> LaunchSums:
        """What a sample comes to; that by which the grid was judged is not executed once more."""
        tried = self._tried
        if sample is not self._few or tried is None or not tried.is_same_within(self.budget):
            return self._execute(sample)
        self._tried, self.budget = None, tried.budget
        return tried.sums

    @cached_property
    def _few(self) -> Sample:
        """CTAs spread over the grid."""
        return scattered(self.task.shape.grid, _FEW_CTAS)

    def _with_memory(self, samples: tuple[Sample, ...], sums: LaunchSums) -> tuple[Sample, LaunchSums]:
        """What the first sample came to, with the memory accesses of a second one where there is one."""
        if len(samples) == 1:
            return samples[0], sums
        more = self._execute(samples[1])
        sums.accesses, sums.stopped, sums.log = more.accesses, sums.stopped or more.stopped, None
        return replace(samples[0], has_even_accesses=False, notes=samples[1].notes), sums

    # ---- which CTAs ------------------------------------------------------------------------------

    def _samples(self) -> tuple[Sample, ...]:
        if self._n_warps() <= (self.task.options.max_warps or WHOLE_WARPS):
            return (whole_grid(self.task.shape.grid),)
        return self._stand_ins()

    def _n_warps(self) -> int:
        return self.task.shape.grid.count * self.task.shape.warps_per_cta

    def _unproven(self) -> Sample:
        """The whole grid where that can be afforded, else a sample."""
        grid = self.task.shape.grid
        if self._n_warps() <= MOST_WHOLE_WARPS:
            return whole_grid(grid)
        sample, strata = scattered(grid), busy_strata(grid, self._is_busy)
        return sample if strata is None else stratified(sample, grid, strata)

    def _is_busy(self, number: int) -> bool:
        """A CTA has not ended after a few steps: those of a grid larger than the work end at once."""
        numbers = np.array([number], dtype=np.int64)
        batch = Batch(self.task.kernel, self.task.image, self.task.shape, numbers, np.ones(1))
        machine = self._machine(batch, Budget(_LOOK_STEPS))
        machine.start()
        with suppress(StopExecution):
            machine.run()
        return bool(machine.live.any())

    def _stand_ins(self) -> tuple[Sample, ...]:
        """CTAs for a grid too large to be executed whole; a second sample is for memory, if need be.

        Boxes of CTAs that are proven alike where branches allow it, else the whole grid if it can be
        afforded, else CTAs spread over it.
        """
        affords_whole = self._n_warps() <= MOST_WHOLE_WARPS
        proven = None if affords_whole and not self.proofs.is_even else self.proofs.prove()
        if proven is None:
            return (self._unproven(),)
        return (proven,) if self.proofs.is_even else (proven, self._unproven())

    def _fewer(self) -> Iterator[tuple[Sample, ...]]:
        """CTAs to execute where all were too many: of boxes of CTAs proven alike, where there are some; where
        these are too many as well, CTAs spread over the grid.

        Memory of boxes is looked at in CTAs spread over the grid, each of which stands for its box.
        """
        grid = self.task.shape.grid
        few, stride = self._few, None
        while stride != self.proofs.stride:
            stride = self.proofs.stride
            proven = self.proofs.prove()
            if proven is not None and len(proven.numbers) <= grid.count // _FEW_SHARE:
                spread = stratified(few, grid, list(proven.boxes))
                yield (proven,) if self.proofs.is_even else (proven, spread)
        yield (few,)

    # ---- execution -------------------------------------------------------------------------------

    def _execute(self, sample: Sample) -> LaunchSums:
        n_segments, n_loops = len(self.task.kernel.segments), len(self.task.kernel.nest.loops)
        sums = LaunchSums(np.zeros(n_segments), np.zeros(n_segments), np.zeros(n_loops))
        for machine, stopped in self.runs(sample):
            collect(machine, stopped, sums)
            is_all = len(machine.batch.cta_numbers) == len(sample.numbers)
            sums.log = machine.tally.memory if is_all else None
            if machine.ears is not None and not machine.ears.has_missed and not stopped:
                sums.ears = machine.ears
        return sums

    def runs(self, sample: Sample) -> Iterator[tuple[Machine, str]]:
        """Machines that have run, and why the last was stopped, if it was."""
        first, size = 0, self._batch_size(sample)
        while first < len(sample.numbers):
            batch = batch_of(self.task, sample, first, size)
            try:
                machine, stopped = self._run(batch, sample.evenness)
            except SharedTooLarge:
                if sample.evenness is not None:  # neighbours that are apart would prove nothing
                    sample.evenness.give_up()
                    return
                size = self._small_size(sample, size)
                continue
            yield machine, stopped
            if stopped:
                break
            first += size

    def _batch_size(self, sample: Sample) -> int:
        if not sample.is_whole:
            return len(sample.numbers)  # neighbours stay together
        return self._evenly(sample, max(1, _CHUNK_WARPS // self.task.shape.warps_per_cta))

    def _small_size(self, sample: Sample, size: int) -> int:
        """So many CTAs at once that all of their shared memories can be kept."""
        size = within_memory(self.task.kernel, self.task.shape, size)
        return self._evenly(sample, size) if sample.is_whole else size

    def _evenly(self, sample: Sample, size: int) -> int:
        """At most so many CTAs: whole rows of the grid, else a power of two, as groups of tiles are."""
        if size >= len(sample.numbers):
            return size
        width = self.task.shape.grid.x
        return size // width * width if 1 < width <= size else 1 << size.bit_length() - 1

    def _machine(self, batch: Batch, budget: Budget) -> Machine:
        machine = Machine(self.task.kernel, batch, self.task.options.guesser, budget)
        machine.tally.memory = self.log_for(batch)
        if self.task.options.closes_loops:
            machine.on_header = Closer(machine)
        return machine

    def _run(self, batch: Batch, evenness: Evenness | None) -> tuple[Machine, str]:
        """A machine that has run, and why it was stopped."""
        machine = self._machine(batch, self.budget)
        machine.evenness = evenness
        if self.task.kernel.slice.has_mbarriers and batch.cta_numbers[0] == 0:
            machine.ears = Ears()
        if not batch.neighbours and batch.cta_shape[0] >= LEAST_CTAS and batch.cta_shape[1] == 1:
            machine.axes_finder = AxesFinder(batch.cta_shape[0])
        machine.start()
        stopped = ""
        try:
            machine.run()
        except AxesFound as found:
            return self._run(batch.rearranged(found.order, found.shape), evenness)
        except StopExecution as stop:
            stopped, self.is_endless = str(stop), isinstance(stop, EndlessLoop)
        machine.tally.memory.finish()
        return machine, stopped
