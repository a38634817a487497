"""CTAs that do unequal work, so that the GPU waits for the longest one."""

import numpy as np
from msgspec.structs import replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site
from analyzer.execution.profile.execution_profile import WarpClass
from analyzer.ir.arrays import FloatArray
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "cta-imbalance"
ACTION = (
    "divide the long CTAs (split-K, CTAs that take the next piece of work from a counter), or launch them "
    "first"
)
_MIN_EXCESS = 1.2


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the launch if its busiest CTA executes a fifth more instructions than the mean one, or more."""
    work, warps = _count_work(result.model_input)
    if not warps.any():
        return ()
    busiest = float(np.where(warps > 0, work[:, None], 0.0).max(axis=0).sum())
    mean = float((work @ warps / np.maximum(warps.sum(axis=0), 1e-9)).sum())
    if busiest < _MIN_EXCESS * mean:
        return ()
    message = (
        f"workload imbalance among CTAs: the busiest one executes {busiest / mean:.3g} times as many "
        "instructions as the mean one, and SMs without work wait for it"
    )
    return (Site(None, message),)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which warps at the same place of a CTA do the mean work of these."""
    profile = result.model_input.profile
    if profile is None:
        return None
    edited = edit_input(
        result.model_input, profile=replace(profile, warp_classes=_average_by_place(profile.warp_classes))
    )
    return Edit(edited, note="every CTA does the mean work")


def _count_work(model_input: ModelInput) -> tuple[FloatArray, FloatArray]:
    """Count the instructions of one warp of each class, [class], and its warps by place, [class, place]."""
    profile = model_input.profile
    if profile is None or not profile.warp_classes:
        return np.zeros(0), np.zeros((0, 0))
    lengths = np.array([len(block) for block in model_input.cfg.blocks], dtype=np.float64)
    work = np.array([float(one.block_counts @ lengths) for one in profile.warp_classes])
    return work, _count_warps_by_place(profile.warp_classes)


def _count_warps_by_place(classes: tuple[WarpClass, ...]) -> FloatArray:
    """Return the warps of each class at each place of a CTA, [class, place]."""
    found = np.zeros((len(classes), max(len(one.warp_slot_counts) for one in classes)))
    for number, one in enumerate(classes):
        found[number, : len(one.warp_slot_counts)] = one.warp_slot_counts
    return found


def _average_by_place(classes: tuple[WarpClass, ...]) -> tuple[WarpClass, ...]:
    """Return one class for each place of a CTA, with the mean counts of the warps there."""
    warps = _count_warps_by_place(classes)
    counts = np.stack([one.block_counts for one in classes]).astype(np.float64)
    lanes = np.stack([one.block_active_lanes for one in classes]).astype(np.float64)
    found = []
    for place in np.flatnonzero(warps.sum(axis=0) > 0).tolist():
        shares = warps[:, place] / warps[:, place].sum()
        slot_counts = np.zeros(warps.shape[1])
        slot_counts[place] = warps[:, place].sum()
        found.append(
            WarpClass(
                n_warps=max(1, round(float(slot_counts[place]))),
                # At least one where some ran: else blocks that fewer than half of the CTAs run would be free.
                block_counts=np.maximum(np.rint(shares @ counts), shares @ counts > 0).astype(np.int64),
                block_active_lanes=np.rint(shares @ lanes),
                example_warp=classes[int(shares.argmax())].example_warp,
                warp_slot_counts=tuple(slot_counts.tolist()),
                n_beside_busier_warp=0,
            )
        )
    return tuple(found)
