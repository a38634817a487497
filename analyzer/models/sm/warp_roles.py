"""Find the roles of the warps of a CTA, and how many CTAs of the grid have work.

The profile gives classes of warps with equal block counts. Warps that enter the same loops are one group, and
groups of enough warps are roles of the simulated CTA. A role is divided where its warps do different amounts
of work, since the others wait for the slowest one. Warps and CTAs that do hardly more than test whether there
is work are idle (`idle_warps`), and are left out.

Example: in 90 of 100 CTAs of 4 warps, one warp loads and three compute; 10 CTAs end at once. There are two
roles, (1, 0, 0, 0) or another order, and 90 busy CTAs.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.demand.tcgen05_tiles import has_cta_pair_mma
from analyzer.demand.warp_demand import count_instruction_executions
from analyzer.execution.profile.execution_profile import WarpClass
from analyzer.execution.profile.idle_warps import (
    count_block_instructions,
    count_warps_by_slot,
    split_by_work,
)
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import Opcode, OpKind
from analyzer.models.interface import ModelInput
from analyzer.models.lockstep_roles import MAX_ROLES, average_execution_counts, group_warps_by_loops

_MAX_IDLE_WORK_SHARE = 0.1
_SIMILAR_WORK_TOLERANCE = 0.03
_MAX_KINDS_PER_ROLE = 6
_LOAD_COST_INSTRUCTIONS = 20.0  # of a load, which waits for memory


class WarpRoles(Struct, frozen=True, eq=False):
    """Roles of the warps of a CTA: warps that enter the same loops and do nearly the same work."""

    execution_counts: tuple[FloatArray, ...]  # by role: of each instruction by the mean warp, [n]
    role_by_warp: tuple[int, ...]
    n_busy_ctas: float  # of the grid: CTAs that do more than test whether there is work
    mean_work_share: float = 1.0  # instructions of the mean CTA over those of this one
    merged_by_loops: "WarpRoles | None" = None  # one role for all warps in the same loops; None if the same
    busiest_cta: "WarpRoles | None" = (
        None  # the CTA with most work; None if it has hardly more, or is this one
    )


def find_warp_roles(model_input: ModelInput) -> WarpRoles:
    """Return the roles of the mean busy CTA, or of the busiest one where each CTA has an SM of its own."""
    n_warps = max(1, model_input.occupancy.warps_per_cta)
    profile = model_input.profile
    grid = float(model_input.grid_ctas)
    if profile is None or not profile.warp_classes:
        return WarpRoles((model_input.execution_counts,), (0,) * n_warps, grid)
    is_pipelined = model_input.mbarrier_pipelines is not None  # then it matters which warps make up one CTA
    found = _split_by_work(model_input, profile.warp_classes, n_warps, is_pipelined=is_pipelined)
    busy, idle, ctas = found.busy, found.idle, grid * found.busy_cta_share
    groups = group_warps_by_loops(model_input, [one for one in busy + idle if one.n_warps])
    if is_pipelined:
        groups = _merge_groups_by_slot(groups, idle, n_warps)
    free = count_warps_by_slot(busy, n_warps) < _MAX_IDLE_WORK_SHARE * ctas
    sizes = [_count_warps_per_cta(group, ctas, free if group[0] in idle else None) for group in groups]
    kept_groups = [place for place, size in enumerate(sizes) if size >= 0.5][:MAX_ROLES] or [0]
    main_group = max(kept_groups, key=lambda place: sizes[place])
    n_warps_by_role = {
        number: max(1, round(sizes[place])) for number, place in enumerate(kept_groups) if place != main_group
    }

    def make_roles(simulated: list[list[WarpClass]], mean_work_share: float) -> WarpRoles:
        roles = _assign_roles(
            n_warps,
            kept_groups.index(main_group),
            n_warps_by_role,
            [count_warps_by_slot(group, n_warps) for group in simulated],
        )
        return replace(
            _split_roles_by_work(model_input, simulated, roles, ctas), mean_work_share=mean_work_share
        )

    lengths, chosen = (
        count_block_instructions(model_input.cfg),
        _reassign_small_groups(model_input, groups, kept_groups, main_group, n_warps),
    )
    busiest_classes = [_select_busiest_classes(group, lengths, n_warps) for group in chosen]
    mean_work_share = _count_mean_instructions(chosen, lengths) / max(
        1.0, _count_mean_instructions(busiest_classes, lengths)
    )
    if grid <= model_input.gpu.sm_count:
        return make_roles(busiest_classes, mean_work_share)
    mean = make_roles(chosen, 1.0)
    return (
        replace(mean, busiest_cta=make_roles(busiest_classes, mean_work_share))
        if mean_work_share < 1.0 - _SIMILAR_WORK_TOLERANCE
        else mean
    )


class _WorkSplit(Struct, frozen=True, eq=False):
    """Classes of warps that compute and access memory, and of idle ones, see `_split_by_work`."""

    busy: tuple[WarpClass, ...]
    idle: tuple[WarpClass, ...]  # of CTAs that have work
    busy_cta_share: float  # of the grid's CTAs, those that have work


def _split_by_work(
    model_input: ModelInput, classes: Sequence[WarpClass], n_warps: int, *, is_pipelined: bool
) -> _WorkSplit:
    """Divide warps into busy ones and the idle ones of CTAs that have work."""
    found = split_by_work(model_input.cfg, classes, n_warps)
    if not found.idle_cta_share:
        return _WorkSplit(found.busy, found.idle, 1.0)
    in_all = max(1, sum(one.n_warps for one in classes))
    ctas = found.idle_cta_share * in_all / n_warps if is_pipelined else math.inf
    idle = _remove_idle_ctas(list(found.idle), ctas, n_warps)
    return _WorkSplit(found.busy, tuple(idle), 1.0 - found.idle_cta_share)


def _reassign_small_groups(
    model_input: ModelInput,
    groups: list[list[WarpClass]],
    kept_groups: list[int],
    main_group: int,
    n_warps: int,
) -> list[list[WarpClass]]:
    """Return the groups that are kept, with small groups merged into one at the same slots or the main one.

    For CTA pairs small groups are left out: the second CTA leaves products to the first, and yet its tensor
    core works as long.
    """
    chosen = {place: groups[place] for place in kept_groups}
    for place, group in enumerate(groups):
        if place not in chosen and not has_cta_pair_mma(model_input.kernel):
            shares = {other: _measure_slot_overlap(groups[other], group, n_warps) for other in kept_groups}
            nearest = max(kept_groups, key=lambda other: (shares[other], other == main_group))
            chosen[nearest] = chosen[nearest] + group
    return list(chosen.values())


def _remove_idle_ctas(idle: list[WarpClass], n_idle_ctas: float, n_warps: int) -> list[WarpClass]:
    """Remove the idle warps of so many CTAs without work.

    Warps in whose CTA others execute much more stay; of the rest, one per CTA is removed at each slot.
    """
    beside = np.array([one.n_beside_busier_warp / max(1, one.n_warps) for one in idle])
    warps_by_slot = np.stack([count_warps_by_slot([one], n_warps) for one in idle])
    others = (1.0 - beside) @ warps_by_slot
    kept = np.maximum(0.0, 1.0 - n_idle_ctas / np.maximum(others, 1.0))
    warps_by_slot *= beside[:, None] + (1.0 - beside[:, None]) * kept
    return [
        replace(one, n_warps=round(left.sum()), warp_slot_counts=tuple(left.tolist()))
        for one, left in zip(idle, warps_by_slot, strict=True)
    ]


def _merge_groups_by_slot(
    groups: list[list[WarpClass]], idle: Sequence[WarpClass], n_warps: int
) -> list[list[WarpClass]]:
    """Merge groups at the same slots: their warps do another part of the work in other CTAs."""
    found: dict[tuple[bool, ...], list[WarpClass]] = {}
    for group in groups:
        places = (count_warps_by_slot(group, n_warps) > 0).tolist()
        found.setdefault((group[0] in idle, *places), []).extend(group)
    return list(found.values())


def _measure_slot_overlap(one: list[WarpClass], other: list[WarpClass], n_warps: int) -> float:
    """Return the share of the warps of `other` that are at slots of `one`."""
    here = count_warps_by_slot(other, n_warps)
    return float(here[count_warps_by_slot(one, n_warps) > 0].sum() / max(1.0, here.sum()))


def _count_warps_per_cta(group: list[WarpClass], ctas: float, free_slots: NDArray[np.bool_] | None) -> float:
    """Return the warps of a CTA that belong to a group.

    free_slots: for idle warps, slots at which hardly any busy CTA has a warp with work. Idle warps at other
    slots are those of CTAs at the edge of the grid, or of the second CTA of a pair.
    """
    size = sum(one.n_warps for one in group) / ctas
    if free_slots is None:
        return size
    return (
        min(size, float(free_slots.sum()))
        if count_warps_by_slot(group, len(free_slots))[free_slots].any()
        else 0.0
    )


def _select_busiest_classes(
    group: list[WarpClass], lengths: NDArray[np.int64], n_warps: int
) -> list[WarpClass]:
    """Select at each slot the warps that execute most."""
    warps_by_slot = np.stack([count_warps_by_slot([one], n_warps) for one in group])
    work = np.where(warps_by_slot > 0, np.array([[float(one.block_counts @ lengths)] for one in group]), -1.0)
    warps_by_slot = np.where(work >= work.max(axis=0), warps_by_slot, 0.0)
    return [
        replace(one, n_warps=max(1, round(slot_counts.sum())), warp_slot_counts=tuple(slot_counts.tolist()))
        for one, slot_counts in zip(group, warps_by_slot, strict=True)
        if slot_counts.any()
    ]


def _count_mean_instructions(groups: list[list[WarpClass]], lengths: NDArray[np.int64]) -> float:
    """Count the instructions of one mean warp of each group together."""
    return sum(
        float(
            sum(float(one.n_warps) * float(one.block_counts @ lengths) for one in group)
            / sum(one.n_warps for one in group)
        )
        for group in groups
    )


def _assign_roles(
    n_warps: int, main_role: int, n_warps_by_role: dict[int, int], warps_by_slot: list[FloatArray]
) -> tuple[int, ...]:
    """Assign a role to each warp: the given number to each role, at the slots of most of its warps."""
    roles = [main_role] * n_warps
    free = set(range(n_warps))
    for number, count in n_warps_by_role.items():
        for _ in range(min(count, len(free) - 1)):
            warp_slot = max(free, key=lambda warp: (warps_by_slot[number][warp], warp))
            roles[warp_slot] = number
            free.discard(warp_slot)
    return tuple(roles)


class _WarpKind(Struct, eq=False):
    """Warps of a role that do nearly the same work."""

    warp_slots: list[int]
    block_counts: FloatArray  # executions of each block by one of them

    def merge(self, other: "_WarpKind") -> None:
        """Add the warps of another kind, with the mean of all as counts."""
        n, m = len(self.warp_slots), len(other.warp_slots)
        self.block_counts = (n * self.block_counts + m * other.block_counts) / (n + m)
        self.warp_slots += other.warp_slots


def _split_roles_by_work(
    model_input: ModelInput, groups: list[list[WarpClass]], roles: tuple[int, ...], ctas: float
) -> WarpRoles:
    """Divide roles by the work of their warps: others wait for the slowest warp, not for the mean."""
    block_costs = _estimate_block_costs(model_input)
    kinds: list[_WarpKind] = []
    for number, group in enumerate(groups):
        if warp_slots := [slot for slot, role in enumerate(roles) if role == number]:
            kinds += _merge_similar_kinds(_make_kinds(group, warp_slots), block_costs)
    merged = WarpRoles(tuple(average_execution_counts(model_input, group) for group in groups), roles, ctas)
    if len(kinds) == len(groups):
        return merged
    role_by_warp = [
        next(n for n, kind in enumerate(kinds) if slot in kind.warp_slots) for slot in range(len(roles))
    ]
    weights = (
        count_instruction_executions(model_input.cfg, tuple(kind.block_counts.tolist())) for kind in kinds
    )
    return WarpRoles(tuple(weights), tuple(role_by_warp), ctas, merged_by_loops=merged)


def _make_kinds(group: list[WarpClass], warp_slots: list[int]) -> list[_WarpKind]:
    """Return the mean warp at each slot."""
    counts = np.array([one.block_counts for one in group], dtype=np.float64)
    table = np.stack([count_warps_by_slot([one], max(warp_slots) + 1) for one in group])[:, warp_slots]
    table[:, table.sum(axis=0) == 0] = np.array([[float(one.n_warps)] for one in group])
    means = (table / table.sum(axis=0)).T @ counts
    return [_WarpKind([slot], mean) for slot, mean in zip(warp_slots, means, strict=True)]


def _merge_similar_kinds(kinds: list[_WarpKind], block_costs: FloatArray) -> list[_WarpKind]:
    """Merge kinds that do nearly the same work, and the most similar ones until few are left."""
    found: list[_WarpKind] = []
    for kind in kinds:
        alike = next(
            (
                known
                for known in found
                if _measure_work_difference(known, kind, block_costs) < _SIMILAR_WORK_TOLERANCE
            ),
            None,
        )
        if alike is None:
            found.append(kind)
        else:
            alike.merge(kind)
    while len(found) > _MAX_KINDS_PER_ROLE:
        one, other = min(
            combinations(found, 2), key=lambda pair: _measure_work_difference(pair[0], pair[1], block_costs)
        )
        one.merge(other)
        found.remove(other)
    return found


def _estimate_block_costs(model_input: ModelInput) -> FloatArray:
    """Estimate the cost of each block: its instructions, with an extra cost for each load, [block]."""
    kernel = model_input.kernel
    ids = kernel.opcode_ids
    costs = 1.0 + _LOAD_COST_INSTRUCTIONS * kernel.form_table.make_opcode_mask(_is_load)[ids]
    return np.array([float(costs[block.start : block.stop].sum()) for block in model_input.cfg.blocks])


def _measure_work_difference(one: _WarpKind, other: _WarpKind, block_costs: FloatArray) -> float:
    """Return the difference of two kinds as a share of the work of the larger one."""
    most = max(float(one.block_counts @ block_costs), float(other.block_counts @ block_costs), 1.0)
    return float(np.abs(one.block_counts - other.block_counts) @ block_costs) / most


def _is_load(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.LOAD
