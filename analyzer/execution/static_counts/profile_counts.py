"""Block counts and trip counts of a profile: what models read, whether a launch was executed or traced."""

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance, find_worst_provenance
from analyzer.execution.static_counts.block_counts import BlockCounts, LoopTripCount
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest

_TRIP_REASONS = {Provenance.EXACT: "executed", Provenance.TRACED: "traced"}


def compute_mean_warp_counts(profile: ExecutionProfile) -> tuple[float, ...]:
    """Return the executions of each block by the mean warp of the launch."""
    return tuple((profile.block_executions / max(1, profile.n_warps)).tolist())


def make_block_counts(profile: ExecutionProfile, cfg: Cfg, loop_forest: LoopForest) -> BlockCounts:
    """Return the executions of each block by the mean warp, and the trips of loops."""
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
        f"branch at {int(cfg.kernel.addresses[branch.row]):#06x}: {branch.rule}; "
        f"it depends on {branch.origin}"
        for branch in profile.unknown_branches
    ]
    return BlockCounts(
        per_warp=compute_mean_warp_counts(profile),
        trips=tuple(trips),
        provenance=profile.provenance,
        assumptions=(*notes, *profile.assumptions),
    )
