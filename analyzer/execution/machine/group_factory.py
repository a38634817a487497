"""Creation and merging of groups of warps that run in lockstep."""

import numpy as np

from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.register_state import (
    LockstepGroup,
    Speculation,
    WarpIndices,
    find_common_warp_ids,
)
from analyzer.ir.arrays import BoolArray


class GroupFactory:
    """Makes and merges groups of a batch's warps."""

    def __init__(self, batch: CtaBatch) -> None:
        self.batch = batch
        self.live_lanes: BoolArray = batch.live_lanes.copy()  # [warp, 32], lanes that have not exited

    def make_group(
        self,
        rows: WarpIndices,
        mask: BoolArray,
        speculations: tuple[Speculation, ...],
        *,
        has_all_lanes: bool,
        common_warp_ids: WarpIndices | None = None,
    ) -> LockstepGroup:
        """Return a group of these warps and lanes.

        has_all_lanes: the mask holds all live lanes of these warps.
        common_warp_ids: warps of each CTA, if they are known to be the same in all CTAs.
        """
        if len(rows) == self.batch.n_warps:
            return LockstepGroup(
                rows, mask, has_all_warps=True, has_all_lanes=has_all_lanes, speculations=speculations
            )
        n_ctas = len(self.batch.cta_numbers)
        if common_warp_ids is None or n_ctas == 1:
            common_warp_ids = find_common_warp_ids(rows, n_ctas, self.batch.launch_shape.warps_per_cta)
        return LockstepGroup(
            rows,
            mask,
            has_all_warps=False,
            has_all_lanes=has_all_lanes,
            speculations=speculations,
            common_warp_ids=common_warp_ids,
        )

    def group_lanes(
        self, rows: WarpIndices, mask: BoolArray, speculations: tuple[Speculation, ...]
    ) -> LockstepGroup:
        """Return a group of these warps and lanes; compare the mask with the live lanes."""
        return self.make_group(
            rows, mask, speculations, has_all_lanes=bool((mask == self.live_lanes[rows]).all())
        )

    def make_subgroup(
        self, rows: WarpIndices, mask: BoolArray, group: LockstepGroup, speculations: tuple[Speculation, ...]
    ) -> LockstepGroup:
        """Return some warps and lanes of a group."""
        full = group.has_all_lanes and bool((mask == self.live_lanes[rows]).all())
        return self.make_group(rows, mask, speculations, has_all_lanes=full)

    def merge_groups(self, groups: list[LockstepGroup]) -> tuple[list[LockstepGroup], list[LockstepGroup]]:
        """Merge groups that wait at one segment: those to run now, and those to run after them.

        Groups of distinct warps with the same speculations become one; groups that share a warp run one
        after the other.
        """
        if len(groups) == 1:
            return groups, []
        by_speculation: dict[tuple[Speculation, ...], list[LockstepGroup]] = {}
        for group in groups:
            by_speculation.setdefault(group.speculations, []).append(group)
        if len(by_speculation) > 1:
            first, *others = by_speculation.values()
            now, later = self.merge_groups(first)
            return now, [*later, *(group for other in others for group in other)]
        whole = self._merge_disjoint(groups)
        return ([whole], []) if whole is not None else (groups[:1], groups[1:])

    def _merge_disjoint(self, groups: list[LockstepGroup]) -> LockstepGroup | None:
        """Merge groups with the same speculations; None where two of them share a warp."""
        rows = _unite([group.warp_indices for group in groups], self.batch.n_warps)
        if rows is None:
            return None
        is_common = all(group.common_warp_ids is not None for group in groups)
        common_warp_ids = rows[: len(rows) // len(self.batch.cta_numbers)] if is_common else None
        full = all(group.has_all_lanes for group in groups)
        mask = self.live_lanes[rows] if full else self._unite_lanes(groups)[rows]
        return self.make_group(
            rows, mask, groups[0].speculations, has_all_lanes=full, common_warp_ids=common_warp_ids
        )

    def _unite_lanes(self, groups: list[LockstepGroup]) -> BoolArray:
        """Return the lanes of groups of distinct warps, [warp, 32]; undefined for all other warps."""
        lanes = np.empty_like(self.live_lanes)
        for group in groups:
            lanes[group.warp_indices] = group.mask
        return lanes


def _unite(warps: list[WarpIndices], n_warps: int) -> WarpIndices | None:
    """Return the warps of disjoint sets, in order; None if two sets share a warp.

    Marks them: ten times faster than to sort thousands of them.
    """
    is_present = np.zeros(n_warps, dtype=bool)
    for numbers in warps:
        if is_present[numbers].any():
            return None
        is_present[numbers] = True
    return np.flatnonzero(is_present)
