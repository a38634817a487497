"""Branches that lanes of a warp take differently, so that the warp executes both ways one after the other."""

import numpy as np
from msgspec.structs import replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site
from analyzer.demand.access_bytes import AccessBytes
from analyzer.demand.warp_demand import count_instruction_executions
from analyzer.ir.arrays import FloatArray, make_read_only
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "warp-divergence"
ACTION = (
    "let the lanes of a warp go the same way: sort or regroup the work so that whole warps take a branch, or "
    "replace short branches by selects"
)
_MIN_LOST_SHARE = 0.05  # of the issue slots
_MIN_LOST_SHARE_OF_BLOCK = 0.01  # likewise, lost in one block


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the first instructions of blocks that run with few lanes, those that lose most slots first."""
    model_input = result.model_input
    active = _compute_active_shares(model_input)
    lengths = np.array([len(block) for block in model_input.cfg.blocks], dtype=np.float64)
    slots = np.array(model_input.block_counts.per_warp) * lengths
    lost = slots * (1.0 - active)
    total = float(slots.sum())
    if not total or lost.sum() < _MIN_LOST_SHARE * total:
        return ()
    ordered = np.argsort(-lost.round(3), kind="stable").tolist()
    chosen = [block for block in ordered if lost[block] >= _MIN_LOST_SHARE_OF_BLOCK * total]
    return tuple(
        Site(
            model_input.cfg.blocks[block].start,
            f"divergence: {WARP_SIZE * active[block]:.3g} of 32 lanes active from here to the end of the "
            f"block; {lost.sum() / total:.0%} of the kernel's issue slots serve inactive lanes",
        )
        for block in chosen
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which full warps execute these blocks, as much less often."""
    model_input, profile = result.model_input, result.model_input.profile
    if profile is None:
        return None
    chosen = {model_input.cfg.block_of[site.row] for site in sites if site.row is not None}
    active = _compute_active_shares(model_input)
    kept = np.array([active[block] if block in chosen else 1.0 for block in range(len(active))])
    counts = tuple((np.array(model_input.block_counts.per_warp) * kept).tolist())
    edited = edit_input(
        model_input,
        block_counts=replace(model_input.block_counts, per_warp=counts),
        execution_counts=count_instruction_executions(model_input.cfg, counts),
        access_bytes=_divide_access_bytes(
            model_input.access_bytes, count_instruction_executions(model_input.cfg, tuple(kept.tolist()))
        ),
        profile=replace(
            profile,
            block_executions=np.maximum(
                np.rint(profile.block_executions * kept), profile.block_executions > 0
            ),
            warp_classes=(),
        ),
    )
    return Edit(edited, note="full warps take these blocks, and every warp does the mean work")


def _compute_active_shares(model_input: ModelInput) -> FloatArray:
    """Compute the share of active lanes in the executions of each block, [block]; 1 where it is not known.

    Lanes that the block of threads does not fill do not count as lost.
    """
    profile = model_input.profile
    if profile is None or model_input.block_threads % WARP_SIZE:
        return np.ones(len(model_input.cfg.blocks))
    executions = np.maximum(profile.block_executions, 1)
    shares = np.minimum(1.0, profile.block_active_lanes / (executions * WARP_SIZE))
    found: FloatArray = np.where(profile.block_executions > 0, shares, 1.0)
    return found


def _divide_access_bytes(moved: AccessBytes, kept: FloatArray) -> AccessBytes:
    """Return bytes per execution where executions are fewer and the bytes of the grid are the same."""
    factors = 1.0 / np.where(kept > 0, kept, 1.0)
    columns = {
        name: getattr(moved, name) * factors
        for name in ("global_bytes", "shared_bytes", "local_bytes", "tma_requests")
    }
    make_read_only(*columns.values())
    return replace(moved, **columns)
