"""AMALI's composition of a kernel's cycles, with the switches that make GCoM and MDM of it.

C = S_I + S_IP + KLL + ID (equation 16). What the paper leaves open is how one warp's S_I relates to many
resident warps and to several waves of CTAs. The reading here, after design/MODELS.md: per wave the longer
of the representative warp's S_I and of the issue slots of all resident warps, plus S_IP of those warps;
waves follow each other. `Overlap.NONE` takes S_I and all issue slots one after the other.
"""

from enum import Enum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.costs import FloatArray, OpcodeCosts
from analyzer.ir.machine import WARP_LANES
from analyzer.models.base import Situation, Stall
from analyzer.models.bounds import LATENCY
from analyzer.models.causes import STALL_OF
from analyzer.models.contention import (
    ISSUE_RATE,
    Crowd,
    add_memory_contention,
    add_structural,
    issue_cycles,
)
from analyzer.models.intervals import DATA_CAUSES, cut_intervals
from analyzer.models.launching import launch_latency_cycles, miss_shares
from analyzer.models.placement import ALL_IN_DRAM, ALL_IN_L1, Placement, assumed_placement
from analyzer.models.representative import Representative, divergence_instructions, representative
from analyzer.models.stalls import StallLedger, StallProfile
from analyzer.models.verdict import Range, Verdict, clock_mhz, make_prediction
from analyzer.models.walk import WarpWalk
from analyzer.models.walking import walk_situation
from analyzer.models.waves import Wave, split_waves


class Overlap(Enum):
    """How a warp's own stalls relate to the issue of the others."""

    LONGER = "longer"
    NONE = "none"


class Interval(Enum):
    """Initiation interval of matrix instructions: from their modifiers (equation 25), or from lanes (14)."""

    MODIFIERS = "modifiers"
    LANES = "lanes"


class Reading(Struct, frozen=True, kw_only=True):
    """Which terms a model has."""

    name: str
    tensor: Interval
    structural: bool
    launch_latency: bool
    divergence: bool
    overlap: Overlap = Overlap.LONGER


class Terms(Struct, frozen=True, kw_only=True):
    """Cycles of equation 16's terms in the whole launch; issue: slots of other warps beyond S_I."""

    own: float
    issue: float
    structural: float
    memory: float
    launch: float
    divergence: float


class _Result(Struct, frozen=True, eq=False):
    stalls: StallProfile
    terms: Terms


def predict_intervals(situation: Situation, reading: Reading) -> Verdict:
    """Cycles by interval analysis, as far as the reading goes."""
    chosen = representative(situation)
    placement = assumed_placement(situation)
    costs = _costs(situation, reading)
    walk = _walk(situation, chosen, costs, placement)
    found = _compose(situation, reading, chosen, walk, costs, placement)
    low, high = (
        _compose(situation, reading, chosen, _walk(situation, chosen, costs, extreme), costs, extreme)
        for extreme in (ALL_IN_L1, ALL_IN_DRAM)
    )
    terms = found.terms
    bounds = {
        LATENCY: terms.own,
        "issue": terms.issue,
        "functional units and L1": terms.structural,
        "NoC and DRAM": terms.memory,
        "launch": terms.launch,
        "divergence": terms.divergence,
    }
    bounds = {name: cycles for name, cycles in bounds.items() if cycles > 0}
    prediction = make_prediction(
        situation,
        reading.name,
        found.stalls,
        bound=max(bounds, key=lambda name: bounds[name], default=LATENCY),
        bounds_cycles=bounds,
        span=Range(low.stalls.total_cycles, high.stalls.total_cycles),
        placement=placement,
        notes=chosen.notes,
    )
    return Verdict(situation=situation, prediction=prediction, stalls=found.stalls, walk=walk)


def _costs(situation: Situation, reading: Reading) -> OpcodeCosts:
    """Costs with the reading's matrix intervals; a matrix instruction's latency is its interval (26)."""
    costs = situation.costs
    if reading.tensor is Interval.MODIFIERS:
        is_matrix = costs.tensor_cycles > 0
        return replace(costs, latency_cycles=np.where(is_matrix, costs.tensor_cycles, costs.latency_cycles))
    arch = situation.arch
    lanes = arch.tensor_cores_per_sm.value / arch.limits.subcores_per_sm.value
    interval = WARP_LANES / lanes

    def by_lanes(cycles: FloatArray) -> FloatArray:
        return np.where(costs.tensor_cycles > 0, interval, cycles)

    return replace(
        costs,
        issue_cycles=by_lanes(costs.issue_cycles),
        latency_cycles=by_lanes(costs.latency_cycles),
        matrix_cycles=np.where(costs.matrix_cycles > 0, interval, 0.0),
    )


def _walk(situation: Situation, chosen: Representative, costs: OpcodeCosts, placement: Placement) -> WarpWalk:
    """One warp whose pipes are always free: waiting for those is the interval parser's part."""
    free = replace(costs, issue_cycles=np.minimum(costs.issue_cycles, 1.0))
    return walk_situation(situation, chosen.weights, placement, costs=free)


def _compose(
    situation: Situation,
    reading: Reading,
    chosen: Representative,
    walk: WarpWalk,
    costs: OpcodeCosts,
    placement: Placement,
) -> _Result:
    ledger = StallLedger(len(situation.kernel))
    clock = clock_mhz(situation)
    per_row = costs.issue_cycles[situation.kernel.opcode_ids]
    intervals = cut_intervals(situation, walk, chosen.weights, per_row)
    own = issue = structural = memory = 0.0
    for wave in split_waves(situation):
        warps = float(wave.ctas_of_sm * situation.occupancy.warps_per_cta)
        own += _add_own(ledger, walk, chosen.weights, wave)
        issued = issue_cycles(situation, intervals, warps)
        issue += _add_issue(ledger, reading, chosen, walk, float(issued.base @ intervals.runs), wave)
        if reading.structural:
            structural += add_structural(ledger, situation, intervals, issued, wave.count)
        crowd = Crowd(
            warps=wave.ctas / wave.busy_sms * situation.occupancy.warps_per_cta,
            busy_sms=wave.busy_sms,
            times=wave.count,
        )
        covered = intervals.instructions / ISSUE_RATE
        if reading.structural:
            covered = covered + issued.most - issued.base
        memory += add_memory_contention(ledger, situation, intervals, placement, clock, crowd, covered)
    return _Result(
        ledger.close(),
        Terms(
            own=own,
            issue=issue,
            structural=structural,
            memory=memory,
            launch=_add_launch(ledger, situation, clock) if reading.launch_latency else 0.0,
            divergence=_add_divergence(ledger, situation, chosen) if reading.divergence else 0.0,
        ),
    )


def _add_own(ledger: StallLedger, walk: WarpWalk, weights: FloatArray, wave: Wave) -> float:
    """S_I (equations 17 to 20) of one wave after another; barriers and matrix groups beside the paper's."""
    ledger.add_rows(Stall.SELECTED, weights / ISSUE_RATE * wave.count)
    total = float(weights.sum()) / ISSUE_RATE * wave.count
    for cause, stall in STALL_OF.items():
        if cause not in DATA_CAUSES:
            continue
        cycles = weights * walk.waits[:, cause] * wave.count
        ledger.add_rows(stall, cycles)
        total += float(cycles.sum())
    return total


def _add_issue(
    ledger: StallLedger, reading: Reading, chosen: Representative, walk: WarpWalk, slots: float, wave: Wave
) -> float:
    """Issue slots of the other resident warps, as far as they outlast the representative one."""
    data = walk.waits[:, DATA_CAUSES].sum(axis=1)
    selected = float(chosen.weights.sum()) / ISSUE_RATE
    own = selected + float(chosen.weights @ data)
    beyond = slots - selected if reading.overlap is Overlap.NONE else slots - own
    cycles = max(0.0, beyond) * wave.count
    ledger.add_shared(Stall.NOT_SELECTED, cycles, chosen.weights)
    return cycles


def _add_launch(ledger: StallLedger, situation: Situation, clock: float) -> float:
    """KLL, the stalls of cold constant and instruction caches (equation 27)."""
    cycles = launch_latency_cycles(situation, clock)
    for stall, share in miss_shares(situation).items():
        ledger.add_outside(stall, cycles * share)
    return cycles


def _add_divergence(ledger: StallLedger, situation: Situation, chosen: Representative) -> float:
    """ID (equation 29)."""
    cycles = divergence_instructions(situation, chosen) / ISSUE_RATE
    ledger.add_outside(Stall.IDLE, cycles)
    return cycles
