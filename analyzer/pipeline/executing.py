"""Abstract execution of a loaded kernel, where its launch is known."""

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.copies import copied_bytes
from analyzer.demand.demand import instruction_weights
from analyzer.execution.access_log import MemoryLog
from analyzer.execution.budget import STEP_LIMIT
from analyzer.execution.compiling import compile_kernel
from analyzer.execution.counts import BlockCounts, Trip, TripRule
from analyzer.execution.executor import execute
from analyzer.execution.guesses import Guesser
from analyzer.execution.hearing import Ears
from analyzer.execution.image import ConstantImage, build_image
from analyzer.execution.mbarriers import find_rings
from analyzer.execution.profile import ExecutionProfile
from analyzer.execution.program import CompiledKernel
from analyzer.execution.provenance import Provenance, worst
from analyzer.execution.rules import TakenRule
from analyzer.execution.staging import with_staged_boxes
from analyzer.execution.task import ExecutionOptions
from analyzer.execution.warps import Shape
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.hardware.load import load_arch
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.program import Resources
from analyzer.pipeline.program import LoadedKernel
from analyzer.text.errors import HardwareError, UsageError


class Executed(Struct, frozen=True, eq=False):
    """A profile, and the rules of the user that it used; ready: what was executed, None for a trace.

    log, ears: see `Execution`.
    """

    profile: ExecutionProfile
    used: frozenset[TripRule]
    ready: "Prepared | None" = None
    log: MemoryLog | None = None
    ears: Ears | None = None


def execute_kernel(
    loaded: LoadedKernel,
    launch: Launch,
    *,
    trips: tuple[TripRule, ...] = (),
    taken: tuple[TakenRule, ...] = (),
    closes_loops: bool = True,
    max_warps: int | None = None,
    step_limit: int = STEP_LIMIT,
) -> Executed | None:
    """Execute a kernel abstractly; None where grid, block or the architecture is not known.

    Raises UsageError for arguments that do not fit the kernel.
    """
    if launch.grid is None or launch.block is None:
        if launch.arguments:
            _check_arguments(loaded, launch)
        return None
    try:
        ready = prepare(loaded, launch)
    except HardwareError:
        return None
    guesser = Guesser(ready.compiled, trips, taken)
    options = ExecutionOptions(
        guesser=guesser, closes_loops=closes_loops, max_warps=max_warps, step_limit=step_limit
    )
    found = execute(loaded.cfg, loaded.loops, launch, ready.shape, ready.image, options, ready.compiled)
    if found.is_endless and ready.image.surmises:
        ready = replace(ready, image=_modest_image(loaded, launch))
        found = execute(loaded.cfg, loaded.loops, launch, ready.shape, ready.image, options, ready.compiled)
    profile = with_staged_boxes(
        found.profile, ready.compiled, ready.image, ready.shape, lambda: _brought(found.profile, ready)
    )
    return Executed(profile, frozenset(guesser.used), ready, found.log, found.ears)


def _brought(profile: ExecutionProfile, ready: "Prepared") -> dict[int, float]:
    """Bytes of one execution of each copy to shared memory, by row."""
    rings = find_rings(ready.compiled, ready.image, ready.shape, classes=profile.classes)
    cfg = ready.compiled.cfg
    counts = tuple((profile.block_warps / max(1, profile.n_warps)).tolist())
    return {} if rings is None else copied_bytes(rings, instruction_weights(cfg, counts))


def _modest_image(loaded: LoadedKernel, launch: Launch) -> ConstantImage:
    """Where what counted as a pointer bounds a loop, all that may be none is unknown."""
    image = build_image(loaded.kernel, launch, load_arch(loaded.kernel.arch), surmises=False)
    note = "8-byte arguments of which nothing is said are unknown: as pointers they would bound a loop"
    return replace(image, assumptions=(*image.assumptions, note))


def _check_arguments(loaded: LoadedKernel, launch: Launch) -> None:
    """Raises UsageError for arguments that do not fit, though nothing will be executed."""
    with suppress(HardwareError):
        build_image(loaded.kernel, launch, load_arch(loaded.kernel.arch))


class Prepared(Struct, frozen=True, eq=False):
    """What execution of a launch begins with."""

    compiled: CompiledKernel
    image: ConstantImage
    shape: Shape


def prepare(loaded: LoadedKernel, launch: Launch) -> Prepared:
    """A kernel and a launch ready to execute.

    Raises HardwareError where the architecture is not known, UsageError where grid or block are not, or
    arguments do not fit.
    """
    if launch.grid is None or launch.block is None:
        raise UsageError("grid and block of the launch are not known", hint="give --grid and --block")
    arch = load_arch(loaded.kernel.arch)
    image = build_image(loaded.kernel, launch, arch)
    start_bytes = 0 if arch.limits.shared_start_bytes is None else int(arch.limits.shared_start_bytes.value)
    shape = Shape(
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster or loaded.kernel.cluster or Dim3(1),
        shared_bytes=start_bytes + _shared_bytes(loaded.kernel.resources, launch),
        shared_start_bytes=start_bytes,
    )
    compiled = compile_kernel(
        loaded.cfg, loaded.loops, knows_memory=image.has_contents, knows_tensors=bool(image.tensors)
    )
    return Prepared(compiled, image, shape)


def _shared_bytes(resources: Resources, launch: Launch) -> int:
    """Of a CTA's own; all that any GPU has where the launch does not say."""
    if resources.shared_bytes is None or launch.dynamic_shared_bytes is None:
        return _MOST_SHARED_BYTES
    return resources.shared_bytes + launch.dynamic_shared_bytes


_MOST_SHARED_BYTES = 228 << 10


_REASONS = {Provenance.EXACT: "executed", Provenance.TRACED: "traced"}


def counts_of(executed: Executed, cfg: Cfg, nest: LoopNest) -> BlockCounts:
    """What models take: executions of each block by the mean warp, and trips of loops."""
    profile = executed.profile
    n_warps = max(1, profile.n_warps)
    trips = []
    for loop in nest.loops:
        entries = float(profile.loop_entries[loop.index])
        runs = float(profile.block_warps[loop.header])
        provenance = worst(profile.block_provenance[block] for block in loop.blocks)
        reason = _REASONS.get(provenance, "assumed: see unknown branches")
        if provenance is Provenance.ASSUMED and not profile.unknown_branches:
            reason = "assumed from a part of the grid"
        trips.append(Trip(loop.index, runs / entries if entries else 0.0, provenance, reason))
    notes = [
        f"branch at {int(cfg.kernel.addresses[branch.row]):#06x}: {branch.rule}; it hangs on {branch.origin}"
        for branch in profile.unknown_branches
    ]
    return BlockCounts(
        per_warp=tuple((profile.block_warps / n_warps).tolist()),
        trips=tuple(trips),
        provenance=profile.provenance,
        assumptions=(*notes, *profile.assumptions),
    )
