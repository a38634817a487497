"""Throughput bounds: the cycles that each shared resource needs for the CTAs of one SM."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from analyzer.demand.demand import PipelineDemand
from analyzer.demand.tiles import makes_pairs
from analyzer.hardware.schema import Figure
from analyzer.ir.machine import SHARED_PIPES, Pipe
from analyzer.ir.opcode import Semantics
from analyzer.models.base import Situation, Stall
from analyzer.models.placement import Placement

ISSUE = "issue"
SHARED = "shared memory"
L1 = "L1"
L2 = "L2"
DRAM = "DRAM"
LATENCY = "latency"

_MEGA = 1e6
_GIGA = 1e9


def sm_bounds(
    situation: Situation,
    ctas: float,
    placement: Placement,
    demand: PipelineDemand,
    elected: Mapping[Pipe, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Cycles that each resource of one SM needs for so many CTAs.

    Its port to the L2 counts where the rate of the whole L2 is not known, of which that figure is a share.
    demand: of one warp; elected: how often it counts in a CTA on a pipe that elected threads drive, once
    where nothing is said.
    """
    arch = situation.arch
    memory = arch.memory
    warps = ctas * situation.occupancy.warps_per_cta
    subcores = arch.limits.subcores_per_sm.value
    per_subcore = math.ceil(warps / subcores) if warps > subcores else 1
    bounds = {ISSUE: per_subcore * demand.instructions}
    for pipe, use in demand.pipes.items():
        users = ctas * elected.get(pipe, 1.0) if pipe in SHARED_PIPES else per_subcore
        bounds[pipe.value] = users * use.cycles
    cached = (demand.global_bytes + demand.local_bytes) * warps
    beyond = demand.global_bytes * warps * placement.l2_share
    bounds[SHARED] = demand.shared_bytes * warps / memory.shared_bytes_per_cycle_per_sm.value
    bounds[L1] = cached / memory.l1_bytes_per_cycle_per_sm.value
    if situation.gpu.file.l2.bandwidth_gbps is None:
        bounds[L2] = beyond / memory.l2_bytes_per_cycle_per_sm.value
    return {name: cycles for name, cycles in bounds.items() if cycles > 0}


def elected_warps(situation: Situation) -> dict[Pipe, float]:
    """What the mean warp's demand stands for in a CTA, on pipes that elected threads drive.

    Executed counts are means over all warps, and over both CTAs of a pair, of which one makes the products of
    both; others are taken for those of the warp that drives them.
    """
    if situation.profile is None or not situation.profile.classes:
        return {}
    found = dict.fromkeys(SHARED_PIPES, float(situation.occupancy.warps_per_cta))
    found[Pipe.TMA] *= _copying_share(situation)
    if makes_pairs(situation.kernel):
        found[Pipe.TC] *= 2.0
    return found


def _copying_share(situation: Situation) -> float:
    """Of the warps that come to a copy, those that are elected for it: others are predicated off there."""
    uses = {} if situation.rings is None else situation.rings.uses
    copies = [(row, use) for row, use in uses.items() if use.meaning is Semantics.MBARRIER_COPY]
    came = sum(situation.weights[row] for row, _ in copies)
    return float(sum(situation.weights[row] * use.share for row, use in copies) / came) if came else 1.0


def bytes_per_cycle(rate_gbps: Figure, clock_mhz: float) -> float:
    """A rate in GB/s, per cycle of the SMs."""
    return rate_gbps.value * (_GIGA / (clock_mhz * _MEGA))


def gpu_bounds(
    situation: Situation,
    ctas: float,
    placement: Placement,
    clock_mhz: float,
    demand: PipelineDemand,
) -> dict[str, float]:
    """Cycles that what all SMs share needs for so many CTAs: L2 and device memory; demand: of one warp."""
    gpu = situation.gpu
    asked = demand.global_bytes * ctas * situation.occupancy.warps_per_cta
    bounds = {DRAM: asked * placement.dram_share / bytes_per_cycle(gpu.dram, clock_mhz)}
    l2 = gpu.file.l2.bandwidth_gbps
    if l2 is not None:
        bounds[L2] = asked * placement.l2_share / bytes_per_cycle(l2, clock_mhz)
    return {name: cycles for name, cycles in bounds.items() if cycles > 0}


def throttle_of(bound: str) -> Stall:
    """The stall that warps show while they queue for a resource."""
    if bound == ISSUE:
        return Stall.NOT_SELECTED
    if bound in {L2, DRAM}:
        return Stall.LONG_SCOREBOARD
    if bound == L1:
        return Stall.LG_THROTTLE
    if bound in {SHARED, Pipe.LSU.value, Pipe.ADU.value}:
        return Stall.MIO_THROTTLE
    if bound == Pipe.TEX.value:
        return Stall.TEX_THROTTLE
    if bound == Pipe.CBU.value:
        return Stall.BRANCH_RESOLVING
    return Stall.MATH_PIPE_THROTTLE
