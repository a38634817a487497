"""Warps of a CTA that do unequal work and wait for each other at barriers.

Kernels whose warps hand buffers to each other through mbarriers are left out: their roles differ by design.
"""

import numpy as np
from msgspec.structs import replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site
from analyzer.ir.arrays import FloatArray
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.stalls import STALL_INDEX

NAME = "barrier-imbalance"
ACTION = (
    "divide the work between two barriers evenly among the warps of the CTA, or let fewer warps meet there"
)
_MIN_EXCESS = 1.2
_MIN_STALL_SHARE = 0.01


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the barriers at which warps wait, where some warps of a CTA execute more than the mean one."""
    model_input, stalls = result.model_input, result.stalls
    if model_input.mbarrier_pipelines is not None or stalls is None:
        return ()
    work = _count_work_by_slot(model_input)
    if not len(work) or work.max() < _MIN_EXCESS * work.mean():
        return ()
    waits, total = stalls.cycles[:, STALL_INDEX[Stall.BARRIER]], result.prediction.cycles
    share = float(waits.sum()) / total if total else 0.0
    rows = sorted(np.flatnonzero(waits > 0).tolist(), key=lambda row: (-round(float(waits[row]), 3), row))
    if share < _MIN_STALL_SHARE:
        return ()
    message = (
        f"stall barrier {share:.0%}: the busiest warp of a CTA executes {work.max() / work.mean():.3g} times "
        "as many instructions as the mean one, and the others wait for it; the gain is less than the stall, "
        "since evenly spread work takes its time too"
    )
    return tuple(Site(row, message) for row in rows)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which every warp does the work of the mean one."""
    profile = result.model_input.profile
    if profile is None:
        return None
    edited = edit_input(result.model_input, profile=replace(profile, warp_classes=()))
    return Edit(edited, note="every warp does the mean work")


def _count_work_by_slot(model_input: ModelInput) -> FloatArray:
    """Count the instructions of the mean warp at each place of a CTA, [warps]; empty where not executed."""
    profile = model_input.profile
    if profile is None or not profile.warp_classes:
        return np.zeros(0)
    lengths = np.array([len(block) for block in model_input.cfg.blocks], dtype=np.float64)
    n_slots = max(len(one.warp_slot_counts) for one in profile.warp_classes)
    work, warps = np.zeros(n_slots), np.zeros(n_slots)
    for one in profile.warp_classes:
        counts = np.zeros(n_slots)
        counts[: len(one.warp_slot_counts)] = one.warp_slot_counts
        work += counts * float(one.block_counts @ lengths)
        warps += counts
    found: FloatArray = work[warps > 0] / warps[warps > 0]
    return found
