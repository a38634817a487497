"""Which warps make up a CTA, and how many CTAs of the grid have work at all."""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.costs import FloatArray
from analyzer.execution.profile import WarpClass
from analyzer.ir.opcode import MEMORY_KINDS
from analyzer.models.base import Situation
from analyzer.models.roles import MOST_ROLES, group_by_loops, mean_weights

_IDLE_SHARE = 0.1
_FEW = 0.05


class Crew(Struct, frozen=True, eq=False):
    """weights: executions of each instruction by the mean warp of each role, [n]; roles: of each warp of a
    CTA; working_ctas: CTAs of the grid that do more than look whether there is work.
    """

    weights: tuple[FloatArray, ...]
    roles: tuple[int, ...]
    working_ctas: float


def find_crew(situation: Situation) -> Crew:
    """The mean working CTA.

    Warps that reach no memory instruction, or execute less than a tenth of what the busiest do, are idle.
    Whole CTAs of them find no work, where they are more than a few: the grid is larger than the work.
    """
    n_warps = max(1, situation.occupancy.warps_per_cta)
    profile = situation.profile
    grid = float(situation.grid_ctas)
    if profile is None or not profile.classes:
        return Crew((situation.weights,), (0,) * n_warps, grid)
    lengths = np.array([len(block) for block in situation.cfg.blocks])
    work = [float(one.block_counts @ lengths) for one in profile.classes]
    least = _IDLE_SHARE * max(work)
    reach = _memory_blocks(situation)
    if not any((one.block_counts[reach] > 0).any() for one in profile.classes):
        reach = np.ones(len(lengths), dtype=np.bool_)
    busy = [
        one
        for one, size in zip(profile.classes, work, strict=True)
        if size >= least and (one.block_counts[reach] > 0).any()
    ]
    idle = [one for one in profile.classes if one not in busy]
    alone = sum(one.n_warps - one.n_beside for one in idle) / max(1, sum(c.n_warps for c in profile.classes))
    share = 1.0 if alone < _FEW else 1.0 - alone
    busy += [replace(one, n_warps=one.n_beside) if alone >= _FEW else one for one in idle]
    groups = group_by_loops(situation, [one for one in busy if one.n_warps])
    sizes = [sum(one.n_warps for one in group) / max(1.0, grid * share) for group in groups]
    keep = [place for place, size in enumerate(sizes) if size >= 0.5][:MOST_ROLES] or [0]
    main = max(keep, key=lambda place: sizes[place])
    for place, group in enumerate(groups):
        if place not in keep:
            groups[main] = groups[main] + group
    chosen = [groups[place] for place in keep]
    wanted = {number: max(1, round(sizes[place])) for number, place in enumerate(keep) if place != main}
    roles = _seats(n_warps, keep.index(main), wanted, [_by_sub_core(group) for group in chosen])
    return Crew(tuple(mean_weights(situation, group) for group in chosen), roles, grid * share)


def _by_sub_core(group: list[WarpClass]) -> FloatArray:
    """Warps of some classes on each sub-core."""
    found: FloatArray = np.sum([one.sub_cores for one in group], axis=0, dtype=np.float64)
    return found


def _seats(n_warps: int, main: int, wanted: dict[int, int], sub_cores: list[FloatArray]) -> tuple[int, ...]:
    """The role of each warp, so many of each that is wanted, on the sub-cores where its warps are."""
    roles = [main] * n_warps
    free = set(range(n_warps))
    for number, count in wanted.items():
        left = sub_cores[number] / max(1.0, float(sub_cores[number].sum())) * count
        for _ in range(min(count, len(free) - 1)):
            seat = max(free, key=lambda warp: (left[warp % len(left)], warp))
            left[seat % len(left)] -= 1.0
            roles[seat] = number
            free.discard(seat)
    return tuple(roles)


def _memory_blocks(situation: Situation) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Blocks that hold a memory instruction, [block]."""
    kernel, cfg = situation.kernel, situation.cfg
    rows = kernel.vocabulary.mask(lambda opcode: opcode.kind in MEMORY_KINDS)[kernel.opcode_ids]
    return np.array([bool(rows[block.start : block.stop].any()) for block in cfg.blocks])
