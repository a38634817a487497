"""Our own model: one sub-core's warps of a CTA in lockstep, each loop simulated until it is periodic.

Warps that barriers synchronize queue for pipes and wait for each other (`timeline.py`). CTAs that share an SM
are independent: the code takes the longer of one CTA's lockstep time and the time that every shared resource
needs for all resident CTAs. If an SM holds one CTA only, that is done for each hot loop by itself. Warps with
different roles run at the same time, so the role that takes longest counts.
"""

import numpy as np
from msgspec import Struct

from analyzer.demand.warp_demand import compute_warp_demand
from analyzer.ir.arrays import FloatArray
from analyzer.models.block_sequences import BlockSequence, split_into_block_sequences
from analyzer.models.composition import CodePart, compose_result
from analyzer.models.interface import ModelInput
from analyzer.models.lockstep_roles import LockstepRole, find_lockstep_roles
from analyzer.models.miss_rates import estimate_miss_rates
from analyzer.models.model_result import ModelResult
from analyzer.models.timeline import WarpTimeline
from analyzer.models.timeline_builder import build_warp_timeline

NAME = "steady"
_MIN_LOOP_SHARE = 0.02


def predict(model_input: ModelInput) -> ModelResult:
    """Predict cycles, CPI stack and time of one kernel on one GPU."""
    found = max(
        (_build_role_timeline(model_input, role) for role in find_lockstep_roles(model_input)),
        key=lambda one: one.cycles,
    )
    notes = (
        (f"warps in lockstep on a sub-core: {found.role.n_lockstep_warps}",)
        if found.role.n_lockstep_warps > 1
        else ()
    )
    parts = _split_into_parts(model_input, found.role)
    return compose_result(model_input, NAME, found.timeline, parts, estimate_miss_rates(model_input), notes)


class _RoleTimeline(Struct, frozen=True, eq=False):
    """A role with its timeline and the cycles that it takes."""

    role: LockstepRole
    timeline: WarpTimeline
    cycles: float


def _build_role_timeline(model_input: ModelInput, role: LockstepRole) -> _RoleTimeline:
    timeline = build_warp_timeline(
        model_input,
        role.execution_counts,
        estimate_miss_rates(model_input),
        n_lockstep_warps=role.n_lockstep_warps,
    )
    return _RoleTimeline(role, timeline, sum(timeline.sum_by_stall(role.execution_counts).values()))


def _split_into_parts(model_input: ModelInput, role: LockstepRole) -> tuple[CodePart, ...]:
    """Split the code into its hot loops and the rest, for one CTA on an SM; else into one part.

    Several CTAs drift apart, so that waits of one part hide behind the work of another.
    """
    if model_input.occupancy.ctas_per_sm > 1:
        return (CodePart(model_input.execution_counts, model_input.demand, role.execution_counts),)
    rest = np.ones(len(model_input.kernel), dtype=bool)
    parts = []
    total = float(model_input.execution_counts.sum())
    for sequence in split_into_block_sequences(model_input.cfg, model_input.loop_forest):
        if sequence.loop is None:
            continue
        inside = _mask_rows(model_input, sequence)
        if float(model_input.execution_counts[inside].sum()) >= _MIN_LOOP_SHARE * total:
            parts.append(_make_part(model_input, role, inside))
            rest &= ~inside
    return (*parts, _make_part(model_input, role, rest))


def _mask_rows(
    model_input: ModelInput, sequence: BlockSequence
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    inside = np.zeros(len(model_input.kernel), dtype=bool)
    for number in sequence.blocks:
        block = model_input.cfg.blocks[number]
        inside[block.start : block.stop] = True
    return inside


def _make_part(
    model_input: ModelInput, role: LockstepRole, inside: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> CodePart:
    mean: FloatArray = np.where(inside, model_input.execution_counts, 0.0)
    demand = compute_warp_demand(
        model_input.kernel.opcode_ids, mean, model_input.costs, model_input.access_bytes
    )
    return CodePart(mean, demand, np.where(inside, role.execution_counts, 0.0))
