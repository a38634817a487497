"""Abstract execution of a loaded kernel, where its launch is known."""

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.tma_copies import count_copied_bytes
from analyzer.demand.warp_demand import count_instruction_executions
from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.binding.image_builder import ConstantImage, build_constant_image
from analyzer.execution.lowering.kernel_compiler import compile_kernel
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.budget import DEFAULT_STEP_LIMIT
from analyzer.execution.machine.cta_batch import LaunchShape
from analyzer.execution.machine.prepared_launch import PreparedLaunch
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierRecorder
from analyzer.execution.mbarriers.pipeline_search import find_mbarrier_pipelines
from analyzer.execution.mbarriers.staged_boxes import add_staged_boxes
from analyzer.execution.profile.branch_rules import BranchTakenRule
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance, find_worst_provenance
from analyzer.execution.sampling.execution_task import ExecutionOptions
from analyzer.execution.sampling.launch_executor import execute_launch
from analyzer.execution.static_counts.block_counts import BlockCounts, LoopTripCount, TripCountRule
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.module import KernelResources
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.text.errors import HardwareError, UsageError


class ExecutedLaunch(Struct, frozen=True, eq=False):
    """A profile, and the rules of the user that it used; ready: what was executed, None for a trace.

    log, ears: see `ExecutionResult`.
    """

    profile: ExecutionProfile
    used_trip_rules: frozenset[TripCountRule]
    prepared: PreparedLaunch | None = None
    memory_log: AccessLog | None = None
    mbarrier_recorder: MbarrierRecorder | None = None


def execute_kernel(
    loaded: LoadedKernel,
    launch: Launch,
    *,
    trips: tuple[TripCountRule, ...] = (),
    taken: tuple[BranchTakenRule, ...] = (),
    closes_loops: bool = True,
    max_warps: int | None = None,
    step_limit: int = DEFAULT_STEP_LIMIT,
) -> ExecutedLaunch | None:
    """Execute a kernel abstractly; None where grid, block or the architecture is not known.

    Raises UsageError for arguments that do not fit the kernel.
    """
    if launch.grid is None or launch.block is None:
        if launch.arguments:
            _check_arguments(loaded, launch)
        return None
    try:
        prepared = prepare_launch(loaded, launch)
    except HardwareError:
        return None
    branch_decider = BranchDecider(prepared.compiled, trips, taken)
    options = ExecutionOptions(
        branch_decider=branch_decider,
        accelerates_loops=closes_loops,
        max_exhaustive_warps=max_warps,
        step_limit=step_limit,
    )
    found = execute_launch(
        loaded.cfg, loaded.loops, launch, prepared.shape, prepared.image, options, prepared.compiled
    )
    if found.is_endless and prepared.image.assumes_pointers:
        prepared = replace(prepared, image=_build_conservative_image(loaded, launch))
        found = execute_launch(
            loaded.cfg, loaded.loops, launch, prepared.shape, prepared.image, options, prepared.compiled
        )
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


def _count_copied_bytes(profile: ExecutionProfile, prepared: PreparedLaunch) -> dict[int, float]:
    """Bytes of one execution of each copy to shared memory, by row."""
    mbarrier_pipelines = find_mbarrier_pipelines(
        prepared.compiled, prepared.image, prepared.shape, classes=profile.warp_classes
    )
    cfg = prepared.compiled.cfg
    counts = tuple((profile.block_executions / max(1, profile.n_warps)).tolist())
    return (
        {}
        if mbarrier_pipelines is None
        else count_copied_bytes(mbarrier_pipelines, count_instruction_executions(cfg, counts))
    )


def _build_conservative_image(loaded: LoadedKernel, launch: Launch) -> ConstantImage:
    """Where what counted as a pointer bounds a loop, all that may be none is unknown."""
    image = build_constant_image(loaded.kernel, launch, load_arch(loaded.kernel.arch), assumes_pointers=False)
    note = "8-byte arguments of which nothing is said are unknown: as pointers they would bound a loop"
    return replace(image, assumptions=(*image.assumptions, note))


def _check_arguments(loaded: LoadedKernel, launch: Launch) -> None:
    """Raises UsageError for arguments that do not fit, though nothing will be executed."""
    with suppress(HardwareError):
        build_constant_image(loaded.kernel, launch, load_arch(loaded.kernel.arch))


def prepare_launch(loaded: LoadedKernel, launch: Launch) -> PreparedLaunch:
    """A kernel and a launch ready to execute.

    Raises HardwareError where the architecture is not known, UsageError where grid or block are not, or
    arguments do not fit.
    """
    if launch.grid is None or launch.block is None:
        raise UsageError("grid and block of the launch are not known", hint="give --grid and --block")
    arch = load_arch(loaded.kernel.arch)
    image = build_constant_image(loaded.kernel, launch, arch)
    start_bytes = 0 if arch.limits.shared_start_bytes is None else int(arch.limits.shared_start_bytes.value)
    shape = LaunchShape(
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster or loaded.kernel.cluster or Dim3(1),
        shared_bytes=start_bytes + _bound_shared_bytes(loaded.kernel.resources, launch),
        reserved_shared_bytes=start_bytes,
    )
    compiled = compile_kernel(
        loaded.cfg, loaded.loops, knows_memory=image.has_contents, knows_tensors=bool(image.tensors)
    )
    return PreparedLaunch(compiled, image, shape)


def _bound_shared_bytes(resources: KernelResources, launch: Launch) -> int:
    """Of a CTA's own; all that any GPU has where the launch does not say."""
    if resources.shared_bytes is None or launch.dynamic_shared_bytes is None:
        return _MAX_SHARED_BYTES
    return resources.shared_bytes + launch.dynamic_shared_bytes


_MAX_SHARED_BYTES = 228 << 10


_TRIP_REASONS = {Provenance.EXACT: "executed", Provenance.TRACED: "traced"}


def make_block_counts(executed: ExecutedLaunch, cfg: Cfg, loop_forest: LoopForest) -> BlockCounts:
    """What models take: executions of each block by the mean warp, and trips of loops."""
    profile = executed.profile
    n_warps = max(1, profile.n_warps)
    trips = []
    for loop in loop_forest.loops:
        entries = float(profile.loop_entries[loop.index])
        runs = float(profile.block_executions[loop.header])
        provenance = find_worst_provenance(profile.block_provenance[block] for block in loop.blocks)
        reason = _TRIP_REASONS.get(provenance, "assumed: see unknown branches")
        if provenance is Provenance.ASSUMED and not profile.unknown_branches:
            reason = "assumed from a part of the grid"
        trips.append(LoopTripCount(loop.index, runs / entries if entries else 0.0, provenance, reason))
    notes = [
        f"branch at {int(cfg.kernel.addresses[branch.row]):#06x}: {branch.rule}; it hangs on {branch.origin}"
        for branch in profile.unknown_branches
    ]
    return BlockCounts(
        per_warp=tuple((profile.block_executions / n_warps).tolist()),
        trips=tuple(trips),
        provenance=profile.provenance,
        assumptions=(*notes, *profile.assumptions),
    )
