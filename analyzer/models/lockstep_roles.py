"""Roles of the warps of a CTA: warp-specialized kernels run several roles at the same time."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.demand.warp_demand import count_instruction_executions
from analyzer.execution.profile.execution_profile import WarpClass
from analyzer.ir.arrays import FloatArray
from analyzer.ir.opcode import Opcode
from analyzer.ir.scheduling import SchedClass
from analyzer.models.interface import ModelInput

MAX_ROLES = 4
_MAX_LOCKSTEP_WARPS = 8
_SYNCHRONIZING_CLASSES = frozenset({SchedClass.CTA_BARRIER, SchedClass.MBARRIER})


class LockstepRole(Struct, frozen=True, eq=False):
    """One role of the warps of a CTA."""

    execution_counts: FloatArray  # [n], of the role's mean warp
    n_lockstep_warps: int  # warps of a CTA on one sub-core that barriers synchronize


def find_lockstep_roles(model_input: ModelInput) -> tuple[LockstepRole, ...]:
    """Find roles by the loops that warps enter, most instructions first; one role without warp classes."""
    profile = model_input.profile
    if profile is None or not profile.warp_classes:
        return (
            _make_role(model_input, model_input.execution_counts, float(model_input.occupancy.warps_per_cta)),
        )
    roles = []
    for group in group_warps_by_loops(model_input, profile.warp_classes):
        warps_per_cta = sum(one.n_warps for one in group) / max(1, model_input.grid_ctas)
        roles.append(_make_role(model_input, average_execution_counts(model_input, group), warps_per_cta))
    ordered = sorted(roles, key=lambda role: -float(role.execution_counts.sum()))
    return tuple(ordered[:MAX_ROLES])


def group_warps_by_loops(model_input: ModelInput, classes: Sequence[WarpClass]) -> list[list[WarpClass]]:
    """Group classes of warps that enter the same loops."""
    headers = [loop.header for loop in model_input.loop_forest.loops]
    groups: dict[tuple[bool, ...], list[WarpClass]] = {}
    for one in classes:
        key = tuple((one.block_counts[headers] > 0).tolist())
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def average_execution_counts(model_input: ModelInput, group: Sequence[WarpClass]) -> FloatArray:
    """Return the executions of each instruction by the mean warp of some classes, [n]."""
    n_warps = sum(one.n_warps for one in group)
    counts = np.sum([float(one.n_warps) * one.block_counts for one in group], axis=0) / max(1, n_warps)
    return count_instruction_executions(model_input.cfg, tuple(counts.tolist()))


def _make_role(model_input: ModelInput, weights: FloatArray, warps_per_cta: float) -> LockstepRole:
    kernel = model_input.kernel
    is_synchronizing = kernel.form_table.make_opcode_mask(_is_synchronizing)[kernel.opcode_ids]
    synchronizes = bool(np.any(weights[is_synchronizing] > 0))
    subcores = model_input.arch.limits.subcores_per_sm.value
    here = max(1, math.ceil(warps_per_cta / subcores))
    return LockstepRole(weights, min(_MAX_LOCKSTEP_WARPS, here) if synchronizes else 1)


def _is_synchronizing(opcode: Opcode) -> bool:
    return opcode.sched_class in _SYNCHRONIZING_CLASSES
