"""Our own: one sub-core's warps of a CTA in lockstep, each loop walked until it is periodic.

Warps that barriers hold together queue for pipes and wait for each other (`walk.py`). CTAs that share an SM
are independent of each other: the code takes the longer of one CTA's lockstep time and of what every shared
resource needs for all resident CTAs; where an SM holds but one CTA, each hot loop does. Warps with different
roles run at the same time: the role that takes longest counts.
"""

import numpy as np
from msgspec import Struct

from analyzer.demand.costs import FloatArray
from analyzer.demand.demand import measure_demand
from analyzer.models.base import Situation
from analyzer.models.block_runs import BlockRun, block_runs
from analyzer.models.composition import Part, compose
from analyzer.models.placement import assumed_placement
from analyzer.models.roles import Role, find_roles
from analyzer.models.verdict import Verdict
from analyzer.models.walk import WarpWalk
from analyzer.models.walking import walk_situation

NAME = "steady"
_LEAST_SHARE = 0.02


def predict(situation: Situation) -> Verdict:
    """Cycles, stack and time of one kernel on one GPU."""
    found = max((_walk_role(situation, role) for role in find_roles(situation)), key=lambda one: one.cycles)
    notes = (f"warps in lockstep on a sub-core: {found.role.lockstep}",) if found.role.lockstep > 1 else ()
    parts = _parts(situation, found.role)
    return compose(situation, NAME, found.walk, parts, assumed_placement(situation), notes)


class _Walked(Struct, frozen=True, eq=False):
    role: Role
    walk: WarpWalk
    cycles: float


def _walk_role(situation: Situation, role: Role) -> _Walked:
    walk = walk_situation(situation, role.weights, assumed_placement(situation), warps=role.lockstep)
    return _Walked(role, walk, sum(walk.stack(role.weights).values()))


def _parts(situation: Situation, role: Role) -> tuple[Part, ...]:
    """Of one CTA on an SM: loops that matter, each a part of its own, and all the rest together.

    Several CTAs drift apart, so that the waits of one part hide behind the work of another.
    """
    if situation.occupancy.ctas_per_sm > 1:
        return (Part(situation.weights, situation.demand, role.weights),)
    rest = np.ones(len(situation.kernel), dtype=bool)
    parts = []
    total = float(situation.weights.sum())
    for run in block_runs(situation.cfg, situation.nest):
        if run.loop is None:
            continue
        inside = _rows(situation, run)
        if float(situation.weights[inside].sum()) >= _LEAST_SHARE * total:
            parts.append(_part(situation, role, inside))
            rest &= ~inside
    return (*parts, _part(situation, role, rest))


def _rows(situation: Situation, run: BlockRun) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    inside = np.zeros(len(situation.kernel), dtype=bool)
    for number in run.blocks:
        block = situation.cfg.blocks[number]
        inside[block.start : block.stop] = True
    return inside


def _part(situation: Situation, role: Role, inside: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Part:
    mean: FloatArray = np.where(inside, situation.weights, 0.0)
    demand = measure_demand(situation.kernel.opcode_ids, mean, situation.costs, situation.moved)
    return Part(mean, demand, np.where(inside, role.weights, 0.0))
