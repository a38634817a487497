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
from analyzer.ir.scheduling import WARP_SIZE


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
        if all(group.common_warp_ids is not None for group in groups):
            whole = self._merge_common_warps(
                [group.common_warp_ids for group in groups if group.common_warp_ids is not None], groups
            )
            return ([whole], []) if whole is not None else (groups[:1], groups[1:])
        rows = np.concatenate([group.warp_indices for group in groups])
        order = np.argsort(rows, kind="stable")
        if not (np.diff(rows[order]) > 0).all():
            return groups[:1], groups[1:]
        mask = np.concatenate([group.mask for group in groups])[order]
        full = all(group.has_all_lanes for group in groups)
        return [self.make_group(rows[order], mask, groups[0].speculations, has_all_lanes=full)], []

    def _merge_common_warps(
        self, warps: list[WarpIndices], groups: list[LockstepGroup]
    ) -> LockstepGroup | None:
        """Merge groups of these warps of every CTA; None where they share some."""
        every = np.concatenate(warps)
        order = np.argsort(every)
        numbers = every[order]
        if bool((numbers[1:] == numbers[:-1]).any()):
            return None
        n_ctas, per_cta = len(self.batch.cta_numbers), self.batch.launch_shape.warps_per_cta
        rows = (np.arange(n_ctas, dtype=np.int64)[:, None] * per_cta + numbers).reshape(-1)
        full = all(group.has_all_lanes for group in groups)
        if full:
            mask = self.live_lanes[rows]
        else:
            masks = [group.mask.reshape(n_ctas, -1, WARP_SIZE) for group in groups]
            mask = np.concatenate(masks, axis=1)[:, order].reshape(-1, WARP_SIZE)
        return self.make_group(
            rows, mask, groups[0].speculations, has_all_lanes=full, common_warp_ids=numbers
        )
