"""What the warps of a CTA do: kernels that specialize their warps have several roles at the same time."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.demand.costs import FloatArray
from analyzer.demand.demand import instruction_weights
from analyzer.execution.profile import WarpClass
from analyzer.ir.machine import SchedClass
from analyzer.models.base import Situation

MOST_ROLES = 4
_MOST_LOCKSTEP = 8
_COUPLING = frozenset({SchedClass.CTA_BARRIER, SchedClass.MBARRIER})


class Role(Struct, frozen=True, eq=False):
    """weights[n]: executions of each instruction by the role's mean warp; lockstep: how many warps of a CTA
    on one sub-core are held together by barriers.
    """

    weights: FloatArray
    lockstep: int


def find_roles(situation: Situation) -> tuple[Role, ...]:
    """Roles by the loops that warps enter, most instructions first; one role where no classes are known."""
    profile = situation.profile
    if profile is None or not profile.classes:
        return (_role(situation, situation.weights, float(situation.occupancy.warps_per_cta)),)
    roles = []
    for group in group_by_loops(situation, profile.classes):
        warps_per_cta = sum(one.n_warps for one in group) / max(1, situation.grid_ctas)
        roles.append(_role(situation, mean_weights(situation, group), warps_per_cta))
    ordered = sorted(roles, key=lambda role: -float(role.weights.sum()))
    return tuple(ordered[:MOST_ROLES])


def group_by_loops(situation: Situation, classes: Sequence[WarpClass]) -> list[list[WarpClass]]:
    """Classes of warps that enter the same loops."""
    headers = [loop.header for loop in situation.nest.loops]
    groups: dict[tuple[bool, ...], list[WarpClass]] = {}
    for one in classes:
        key = tuple((one.block_counts[headers] > 0).tolist())
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def mean_weights(situation: Situation, group: Sequence[WarpClass]) -> FloatArray:
    """Executions of each instruction by the mean warp of some classes, [n]."""
    n_warps = sum(one.n_warps for one in group)
    counts = np.sum([one.n_warps * one.block_counts for one in group], axis=0) / max(1, n_warps)
    return instruction_weights(situation.cfg, tuple(counts.tolist()))


def _role(situation: Situation, weights: FloatArray, warps_per_cta: float) -> Role:
    kernel = situation.kernel
    coupling = kernel.vocabulary.mask(lambda opcode: opcode.sched in _COUPLING)[kernel.opcode_ids]
    meets = bool(np.any(weights[coupling] > 0))
    subcores = situation.arch.limits.subcores_per_sm.value
    here = max(1, math.ceil(warps_per_cta / subcores))
    return Role(weights, min(_MOST_LOCKSTEP, here) if meets else 1)
