"""Abstract execution of a loaded kernel where its launch is known."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from analyzer.demand.tma_copies import count_copied_bytes
from analyzer.demand.warp_demand import count_instruction_executions
from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.budget import DEFAULT_STEP_LIMIT
from analyzer.execution.machine.prepared_launch import PreparedLaunch
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierRecorder
from analyzer.execution.mbarriers.pipeline_search import find_mbarrier_pipelines
from analyzer.execution.mbarriers.staged_boxes import add_staged_boxes
from analyzer.execution.profile.branch_rules import BranchTakenRule
from analyzer.execution.profile.cta_boxes import CtaBox
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.work_assumption import WorkAssumption
from analyzer.execution.sampling.execution_task import ExecutionOptions
from analyzer.execution.sampling.launch_executor import ExecutionResult, execute_launch
from analyzer.execution.sampling.launch_preparation import (
    check_arguments,
    prepare_launch,
    without_assumed_pointers,
)
from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.execution.static_counts.profile_counts import compute_mean_warp_counts
from analyzer.ir.launch import Launch
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.text.errors import HardwareError, UsageError


class ExecutedLaunch(Struct, frozen=True, eq=False):
    """The profile of a launch that was executed or traced."""

    profile: ExecutionProfile
    used_trip_rules: frozenset[TripCountRule]
    prepared: PreparedLaunch | None = None  # None for a trace
    memory_log: AccessLog | None = None  # as in `ExecutionResult`
    mbarrier_recorder: MbarrierRecorder | None = None  # as in `ExecutionResult`


@contextmanager
def explain_shared_arguments(n_kernels: int) -> Iterator[None]:
    """Add to a UsageError that arguments go to each of several kernels, and how to choose one."""
    try:
        yield
    except UsageError as error:
        if n_kernels <= 1:
            raise
        told = error.diagnostic
        hint = f"an argument goes to each of the {n_kernels:,} kernels: choose one with -k NAME"
        raise UsageError(
            told.message, location=told.location, hint=f"{told.hint}; {hint}" if told.hint else hint
        ) from None


def execute_kernel(
    loaded: LoadedKernel,
    launch: Launch,
    *,
    trips: tuple[TripCountRule, ...] = (),
    taken: tuple[BranchTakenRule, ...] = (),
    closes_loops: bool = True,
    max_warps: int | None = None,
    step_limit: int = DEFAULT_STEP_LIMIT,
    assumption: WorkAssumption = WorkAssumption.LIKELY,
    rough_boxes: tuple[CtaBox, ...] | None = None,
) -> ExecutedLaunch | None:
    """Execute a kernel abstractly; return None where grid, block or the architecture is not known.

    closes_loops, max_warps, rough_boxes: see `accelerates_loops`, `max_exhaustive_warps` and `rough_boxes`
        of `ExecutionOptions`.
    assumption: how much work waits behind branches that nothing decides.
    Raises UsageError for arguments that do not fit the kernel.
    """
    if launch.grid is None or launch.block is None:
        if launch.arguments:
            check_arguments(loaded.kernel, launch)
        return None
    try:
        prepared = prepare_launch(loaded.cfg, loaded.loops, launch)
    except HardwareError:
        return None
    branch_decider = BranchDecider(prepared.compiled, trips, taken, assumption)
    options = ExecutionOptions(
        branch_decider=branch_decider,
        accelerates_loops=closes_loops,
        max_exhaustive_warps=max_warps,
        step_limit=step_limit,
        rough_boxes=rough_boxes,
    )
    found = _execute_prepared(loaded, launch, prepared, options)
    if found.is_endless and prepared.image.assumes_pointers:
        prepared = without_assumed_pointers(prepared, launch)
        found = _execute_prepared(loaded, launch, prepared, options)
    profile = found.profile
    if rough_boxes is None:
        profile = add_staged_boxes(
            found.profile,
            prepared.compiled,
            prepared.image,
            prepared.shape,
            lambda: _count_copied_bytes(found.profile, prepared),
        )
    return ExecutedLaunch(
        profile,
        frozenset(branch_decider.used_trip_rules),
        prepared,
        found.memory_log,
        found.mbarrier_recorder,
    )


def _execute_prepared(
    loaded: LoadedKernel, launch: Launch, prepared: PreparedLaunch, options: ExecutionOptions
) -> ExecutionResult:
    return execute_launch(
        loaded.cfg, loaded.loops, launch, prepared.shape, prepared.image, options, prepared.compiled
    )


def _count_copied_bytes(profile: ExecutionProfile, prepared: PreparedLaunch) -> dict[int, float]:
    """Count the bytes of one execution of each copy to shared memory, by row."""
    mbarrier_pipelines = find_mbarrier_pipelines(
        prepared.compiled, prepared.image, prepared.shape, classes=profile.warp_classes
    )
    if mbarrier_pipelines is None:
        return {}
    counts = compute_mean_warp_counts(profile)
    return count_copied_bytes(mbarrier_pipelines, count_instruction_executions(prepared.compiled.cfg, counts))


def find_matrix_descriptors(
    loaded: LoadedKernel, profile: ExecutionProfile, prepared: PreparedLaunch | None
) -> Mapping[int, int]:
    """Return the descriptors of tcgen05 products by row, as the execution of their pipelines finds them."""
    if prepared is None or not any(opcode.mma_shape for opcode in loaded.kernel.form_table.opcodes):
        return {}
    pipelines = find_mbarrier_pipelines(
        prepared.compiled, prepared.image, prepared.shape, classes=profile.warp_classes
    )
    return {} if pipelines is None else dict(pipelines.matrix_descriptors)
