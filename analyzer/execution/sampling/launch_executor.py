"""Abstract execution of a launch: choose CTAs, execute them, and build the profile of the grid.

The first of these that the budget allows:

1. A small grid: all CTAs.
2. A large grid whose CTAs are proven equivalent in boxes (`EquivalenceProver`): some CTAs of each box.
3. A large grid, not too large: all CTAs.
4. CTAs spread over the grid; each represents as many others. Where a part of the grid leaves at once, CTAs
   that have work represent those that have, whose number is known (`working_ctas`).

A run that exceeds the budget, or fails a check of its proof, is replaced by a later choice.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.kernel_compiler import compile_kernel
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.budget import Budget, StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch, LaunchShape, limit_ctas_by_memory
from analyzer.execution.machine.shared_memory import SharedMemoryTooLargeError
from analyzer.execution.machine.unknown_words import AddressConfidence
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierRecorder
from analyzer.execution.profile.cta_boxes import CtaBox
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.sampling.batch_runs import BatchRun, make_machine, run_batch
from analyzer.execution.sampling.cta_equivalence import EquivalenceProver, make_batch, make_partial_budget
from analyzer.execution.sampling.cta_samples import (
    HARD_MAX_EXHAUSTIVE_WARPS,
    MAX_EXHAUSTIVE_WARPS,
    CtaSample,
    find_busy_strata,
    make_box_sample,
    make_exhaustive_sample,
    make_grid_prefix,
    make_scattered_sample,
    make_working_sample,
    stratify_sample,
)
from analyzer.execution.sampling.execution_task import ExecutionOptions, ExecutionTask
from analyzer.execution.sampling.gathers import find_gathers
from analyzer.execution.sampling.launch_sums import LaunchSums, collect_batch
from analyzer.execution.sampling.profile_builder import ProfileBuilder
from analyzer.execution.sampling.working_ctas import find_working_ctas
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.ir.launch import Launch
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.execution.sampling.gather_estimate import InstructionKey


_EXHAUSTIVE_BUDGET_DIVISOR = (
    4  # part of it to execute a large grid exhaustively whose CTAs can be proven equivalent
)
_FALLBACK_BUDGET_DIVISOR = 2  # part of it to execute some CTAs if all were too many
_ROW_SHARES_BUDGET_DIVISOR = 4  # part of it to find which rows neighbor CTAs share
_MOST_CTAS_DIVISOR = 4  # some CTAs are at most this part of a grid
_N_FALLBACK_CTAS = 16
_WORK_CHECK_DIVISOR = 2  # part of the budget to find out which CTAs leave at once
_N_ADJACENT_WARPS = 2048  # of neighbor CTAs, executed beside CTAs spread over the grid
_MAX_EXPECTED_BUDGET_SHARE = (
    0.7  # of the budget that a grid may be expected to take: CTAs that diverge take more
)
_MIN_STEPS_WORTH_PROOF = 5000  # fewer are never worth a proof
_PROOF_COST_RUNS = 8  # of a few CTAs, about the cost of a proof and of executing some CTAs of each box
_BUSY_CHECK_STEPS = 400
_MAX_BATCH_WARPS = 16384


class ExecutionResult(Struct, frozen=True, eq=False):
    """Result of the execution of a launch."""

    profile: ExecutionProfile
    # accesses of all CTAs, or of some that represent all in proven boxes; None if too many to keep
    memory_log: AccessLog | None
    mbarrier_recorder: MbarrierRecorder | None  # of the first CTA; None if it has to run once more
    is_endless: bool  # stopped in a loop without an end


def execute_launch(
    cfg: Cfg,
    loop_forest: LoopForest,
    launch: Launch,
    shape: LaunchShape,
    image: ConstantImage,
    options: ExecutionOptions | None = None,
    compiled: CompiledKernel | None = None,
) -> ExecutionResult:
    """Execute a launch abstractly, up to the step limit; the profile holds what is known then.

    Raises UsageError if the launch would fault: at a trap, or at an address that is not aligned.
    """
    kernel = compiled or compile_kernel(
        cfg, loop_forest, knows_memory=image.has_contents, knows_tensors=bool(image.tensors)
    )
    task = ExecutionTask(
        kernel, image, shape, options or ExecutionOptions(branch_decider=BranchDecider(kernel))
    )
    executor = LaunchExecutor(task)
    sample, sums = executor.run()
    _check_traps(kernel, sums)
    _check_alignment(kernel, sums)
    is_rough = task.options.rough_boxes is not None
    shares = {} if is_rough else _find_distinct_row_shares(task, launch, sample, sums)
    gathers = {} if is_rough else find_gathers(task, sample, sums)
    profile = ProfileBuilder(task, launch, sample, sums, gathers, shares).build()
    return ExecutionResult(
        profile, _find_complete_log(sample, sums), sums.mbarrier_recorder, executor.is_endless
    )


def _find_distinct_row_shares(
    task: ExecutionTask, launch: Launch, sample: CtaSample, sums: LaunchSums
) -> "Mapping[InstructionKey, float]":
    """Return the share of distinct bytes in reads of rows that unknown words select, by instruction.

    From the first CTAs of the grid: CTAs spread over it do not show which rows neighbor CTAs share.
    """
    names_rows = any(totals.trust is AddressConfidence.INDEXED_ROW for totals in sums.access_totals.values())
    if sample.has_affine_accesses or sums.stop_reason or not names_rows:
        return {}
    first = make_grid_prefix(task.shape.grid, _N_ADJACENT_WARPS // task.shape.warps_per_cta)
    part = task.with_step_limit(task.options.step_limit // _ROW_SHARES_BUDGET_DIVISOR)
    part = replace(part, shape=replace(task.shape, grid=first))
    return ProfileBuilder(part, launch, *LaunchExecutor(part).run()).compute_distinct_row_shares()


def _find_complete_log(sample: CtaSample, sums: LaunchSums) -> AccessLog | None:
    """Return the log if it represents all accesses of the grid."""
    log = sums.memory_log
    is_all = sample.is_exhaustive or (sample.is_proven and sample.has_affine_accesses)
    return (
        log
        if is_all and log is not None and log.global_records is not None and not sums.stop_reason
        else None
    )


def _check_traps(kernel: CompiledKernel, sums: LaunchSums) -> None:
    """Raise UsageError if a thread surely runs into a trap."""
    code = kernel.cfg.kernel
    for row, (cta, warp) in sorted(sums.traps.items()):
        line = code.find_source_line(row)
        raise UsageError(
            f"{code.name} would fault: warp {warp} of CTA {cta} runs into {code.decode_form(row).text} at "
            f"{int(code.addresses[row]):#06x}{f' ({line})' if line else ''}",
            hint="check the arguments: a trap or a failed assertion ends the launch with an error",
        )


def _check_alignment(kernel: CompiledKernel, sums: LaunchSums) -> None:
    """Raise UsageError if an access that surely runs would fault."""
    code = kernel.cfg.kernel
    for totals in sums.access_totals.values():
        row = totals.access.row
        is_sure = (
            totals.trust is AddressConfidence.EXACT
            and not totals.is_speculative
            and not sums.speculative_instructions
        )
        if totals.misaligned_address is not None and is_sure:
            raise UsageError(
                f"{code.name} would fault: {code.decode_form(row).text} at {int(code.addresses[row]):#06x} "
                f"has an address that is no multiple of {totals.access.width_bytes}, "
                f"as {totals.misaligned_address:#x}",
                hint="check the pointers, strides and offsets among the arguments",
            )


class _ProbeRun(Struct, frozen=True, eq=False):
    """Run of a few CTAs by which the cost of the grid was estimated, and the budget that it spent."""

    sums: LaunchSums
    budget: Budget

    def is_valid_within(self, budget: Budget) -> bool:
        """Return whether it would give the same result with another budget."""
        is_done = not self.sums.stop_reason and self.budget.spent_steps <= budget.step_limit
        return is_done or self.budget.step_limit == budget.step_limit


class LaunchExecutor:
    """Chooses CTAs, executes them within the budget, and falls back on fewer if they are too many.

    make_log: returns the log of accesses of a batch.
    """

    def __init__(self, task: ExecutionTask, make_log: Callable[[CtaBatch], AccessLog] = AccessLog) -> None:
        self.task, self.make_log = task, make_log
        self.budget = Budget(task.options.step_limit)
        self.is_endless = False
        self.prover = EquivalenceProver(task)
        self._probe_run: _ProbeRun | None = None

    def run(self) -> tuple[CtaSample, LaunchSums]:
        """Execute the launch; return the sample that was executed in the end, and its sums."""
        if self.task.options.rough_boxes is not None:
            sample = self._make_rough_sample(self.task.options.rough_boxes)
            return sample, self._execute_sample(sample)
        samples = self._choose_samples()
        sample = samples[0]
        if sample.is_exhaustive and self._count_warps() > MAX_EXHAUSTIVE_WARPS // 4:
            if self.prover.has_affine_control_flow:
                self.budget = make_partial_budget(self.task, _EXHAUSTIVE_BUDGET_DIVISOR)
            if (
                not (self.prover.is_affine and self.task.options.max_exhaustive_warps)
                and self._exceeds_budget()
            ):
                return self._execute_fallback()
        sums = self._execute_sample(sample)
        if not sample.is_proof_intact and self.prover.try_affine_strides(sample.affinity_checks):
            samples = self._make_reduced_samples()
            sample = samples[0]
            sums = self._execute_sample(sample)
        if not sample.is_proof_intact:
            samples = (self._make_unproven_sample(),)
            sample = samples[0]
            sums = self._execute_sample(sample)
        if sums.stop_reason and len(sample.cta_numbers) > 2 * _N_FALLBACK_CTAS and not sample.neighbor_ctas:
            # The limit is spent, perhaps in a loop without an end, which fewer CTAs do not end either.
            self.task = self.prover.task = self.task.with_step_limit(self.task.options.step_limit // 4)
            return self._execute_fallback()
        return self._add_memory_accesses(samples, sums)

    def _exceeds_budget(self) -> bool:
        """Return whether the grid, estimated from some CTAs, takes more steps than may be spent.

        If boxes of CTAs can represent it: more steps than their proof is estimated to cost.
        """
        grid, some, limit = self.task.shape.grid, self._fallback_sample, self.budget.step_limit
        if len(some.cta_numbers) > grid.count // _MOST_CTAS_DIVISOR:
            return False
        self._probe_run = _ProbeRun(self._execute_sample(some), self.budget)
        spent, expected = (
            self.budget.spent_steps,
            self.budget.estimate_steps(grid.count / len(some.cta_numbers)),
        )
        self.budget = Budget(limit)
        most = _MAX_EXPECTED_BUDGET_SHARE * limit
        if self.prover.is_affine:
            most = min(most, max(_MIN_STEPS_WORTH_PROOF, _PROOF_COST_RUNS * spent))
        return expected > most

    def _execute_fallback(self) -> tuple[CtaSample, LaunchSums]:
        """Execute some CTAs; return the first sample that is not stopped, or the last."""
        for samples in self._iter_fallback_samples():
            self.budget = make_partial_budget(self.task, _FALLBACK_BUDGET_DIVISOR)
            sums = self._execute_or_reuse(samples[0])
            if not samples[0].is_proof_intact:
                self.prover.try_affine_strides(samples[0].affinity_checks)
                continue
            sample = samples[0]
            if not sums.stop_reason:
                self.budget = make_partial_budget(self.task, _FALLBACK_BUDGET_DIVISOR)
                sample, sums = self._add_memory_accesses(samples, sums)
            if not sums.stop_reason:
                break
        return sample, sums

    def _execute_or_reuse(self, sample: CtaSample) -> LaunchSums:
        """Execute a sample, or reuse the run by which the grid's cost was estimated."""
        probe_run = self._probe_run
        if (
            sample is not self._fallback_sample
            or probe_run is None
            or not probe_run.is_valid_within(self.budget)
        ):
            return self._execute_sample(sample)
        self._probe_run, self.budget = None, probe_run.budget
        return probe_run.sums

    @cached_property
    def _fallback_sample(self) -> CtaSample:
        """A few CTAs spread over the grid."""
        return make_scattered_sample(self.task.shape.grid, _N_FALLBACK_CTAS)

    def _add_memory_accesses(
        self, samples: tuple[CtaSample, ...], sums: LaunchSums
    ) -> tuple[CtaSample, LaunchSums]:
        """Return the first sample and its sums, with the memory accesses of a second one if there is one."""
        if len(samples) == 1:
            return samples[0], sums
        more = self._execute_sample(samples[1])
        sums.access_totals, sums.stop_reason, sums.memory_log = (
            more.access_totals,
            sums.stop_reason or more.stop_reason,
            None,
        )
        n_sampled, n_ctas = len(samples[1].cta_numbers), self.task.shape.grid.count
        note = (
            f"addresses are those of {n_sampled:,} of {n_ctas:,} CTAs: the others are assumed to be like "
            "them there; which instructions run how often is proven for all"
        )
        notes = () if samples[1].is_exhaustive else (note,)
        return replace(samples[0], has_affine_accesses=False, notes=notes), sums

    def _make_rough_sample(self, boxes: tuple[CtaBox, ...]) -> CtaSample:
        """Return a CTA of each box, without boxes some CTAs of the grid."""
        grid = self.task.shape.grid
        if boxes:
            return make_box_sample(grid, boxes)
        return make_exhaustive_sample(grid) if grid.count <= _N_FALLBACK_CTAS else self._fallback_sample

    # ---- which CTAs ------------------------------------------------------------------------------

    def _choose_samples(self) -> tuple[CtaSample, ...]:
        """Return the samples to try first."""
        if self._count_warps() <= (self.task.options.max_exhaustive_warps or MAX_EXHAUSTIVE_WARPS):
            return (make_exhaustive_sample(self.task.shape.grid),)
        return self._make_reduced_samples()

    def _count_warps(self) -> int:
        """Count the warps of the grid."""
        return self.task.shape.grid.count * self.task.shape.warps_per_cta

    def _make_unproven_sample(self) -> CtaSample:
        """Return all CTAs if they are not too many, else CTAs spread over the grid."""
        grid = self.task.shape.grid
        if self._count_warps() <= HARD_MAX_EXHAUSTIVE_WARPS:
            return make_exhaustive_sample(grid)
        sample, strata = make_scattered_sample(grid), find_busy_strata(grid, self._is_busy)
        return self._stratify_by_work(sample) if strata is None else stratify_sample(sample, grid, strata)

    def _stratify_by_work(self, sample: CtaSample) -> CtaSample:
        """Return a sample of CTAs that have work and of few others; the same one where all have work."""
        budget = make_partial_budget(self.task, _WORK_CHECK_DIVISOR)
        found = find_working_ctas(self.task, budget)
        if found is None:
            return sample
        n_ctas = min(len(sample.cta_numbers), _N_FALLBACK_CTAS)
        return make_working_sample(found.working, found.idle, self.task.shape.grid, n_ctas)

    def _is_busy(self, number: int) -> bool:
        """Return whether a CTA still runs after a few steps; those beyond the work exit at once."""
        numbers = np.array([number], dtype=np.int64)
        batch = CtaBatch(self.task.kernel, self.task.image, self.task.shape, numbers, np.ones(1))
        machine = make_machine(self.task, batch, Budget(_BUSY_CHECK_STEPS), (), self.make_log(batch))
        machine.start()
        with suppress(StopExecution):
            machine.run()
        return bool(machine.groups.live_lanes.any())

    def _make_reduced_samples(self) -> tuple[CtaSample, ...]:
        """Return samples of a large grid; a second one is for memory accesses.

        Boxes of CTAs that are proven equivalent if branches allow it, else all CTAs if they are not too many,
        else CTAs spread over the grid.
        """
        affords_whole = self._count_warps() <= HARD_MAX_EXHAUSTIVE_WARPS
        proven = None if affords_whole and not self.prover.is_affine else self.prover.prove()
        if proven is None:
            return (self._make_unproven_sample(),)
        return (proven,) if self.prover.is_affine else (proven, self._make_unproven_sample())

    def _iter_fallback_samples(self) -> Iterator[tuple[CtaSample, ...]]:
        """Yield samples to execute if all CTAs were too many: proven boxes, then CTAs spread over the grid.

        Memory accesses of boxes are taken from CTAs spread over the grid, which represent their box.
        """
        grid = self.task.shape.grid
        few, stride = self._fallback_sample, None
        while stride != self.prover.cta_stride:
            stride = self.prover.cta_stride
            proven = self.prover.prove()
            if proven is not None and len(proven.cta_numbers) <= grid.count // _MOST_CTAS_DIVISOR:
                spread = stratify_sample(few, grid, list(proven.boxes))
                yield (proven,) if self.prover.is_affine else (proven, spread)
        yield (self._stratify_by_work(few),)

    # ---- execution -------------------------------------------------------------------------------

    def _execute_sample(self, sample: CtaSample) -> LaunchSums:
        """Execute a sample and add up its batches."""
        n_segments, n_loops = len(self.task.kernel.segments), len(self.task.kernel.loop_forest.loops)
        sums = LaunchSums(np.zeros(n_segments), np.zeros(n_segments), np.zeros(n_loops))
        for run in self.run_batches(sample):
            machine, recorder = run.machine, run.mbarrier_recorder
            collect_batch(machine, run.stop_reason, sums)
            is_all = len(machine.batch.cta_numbers) == len(sample.cta_numbers)
            sums.memory_log = machine.counters.memory_log if is_all else None
            if recorder is not None and not recorder.has_missed_groups and not run.stop_reason:
                sums.mbarrier_recorder = recorder
        return sums

    def run_batches(self, sample: CtaSample) -> Iterator[BatchRun]:
        """Run a sample's CTAs batch by batch; a run that was stopped is the last."""
        first, size = 0, self._choose_batch_size(sample)
        while first < len(sample.cta_numbers):
            batch = make_batch(self.task, sample, first, size)
            try:
                run = run_batch(self.task, batch, self.budget, self.make_log, sample.affinity_checks)
            except SharedMemoryTooLargeError:
                if sample.affinity_checks is not None:  # neighbors in different batches would prove nothing
                    sample.affinity_checks.reject_proof()
                    return
                size = self._shrink_batch_size(sample, size)
                continue
            if run.stop_reason:
                self.is_endless = run.is_endless
            yield run
            if run.stop_reason:
                break
            first += size

    def _choose_batch_size(self, sample: CtaSample) -> int:
        """Return how many CTAs of a sample to execute together."""
        if not sample.is_exhaustive:
            return len(sample.cta_numbers)  # neighbors stay together
        return self._align_batch_size(sample, max(1, _MAX_BATCH_WARPS // self.task.shape.warps_per_cta))

    def _shrink_batch_size(self, sample: CtaSample, size: int) -> int:
        """Return how many CTAs to execute together so that their shared memory can be tracked."""
        size = limit_ctas_by_memory(self.task.kernel, self.task.shape, size)
        return self._align_batch_size(sample, size) if sample.is_exhaustive else size

    def _align_batch_size(self, sample: CtaSample, size: int) -> int:
        """Round a batch size down to whole rows of the grid, else to a power of two (groups of tiles)."""
        if size >= len(sample.cta_numbers):
            return size
        width = self.task.shape.grid.x
        return size // width * width if 1 < width <= size else 1 << size.bit_length() - 1
