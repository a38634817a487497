"""Throughput bounds: the cycles that each shared resource needs for the CTAs of one SM."""

import math
from dataclasses import dataclass

from analyzer.demand.demand import PipelineDemand
from analyzer.ir.machine import Pipe
from analyzer.models.base import Situation, Stall

ISSUE = "issue"
SHARED = "shared memory"
L1 = "L1"
L2 = "L2"
DRAM = "DRAM"
LATENCY = "latency"

_MEGA = 1e6
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Placement:
    """Where requests to global memory are served: the share that goes beyond L1, and beyond L2."""

    l2_share: float
    dram_share: float


@dataclass(frozen=True, slots=True)
class SmShare:
    """Work of one SM: how many CTAs it runs at a time, and how many of all SMs are busy."""

    ctas: float
    warps_per_cta: int
    busy_sms: float


def bound_cycles(
    situation: Situation,
    share: SmShare,
    placement: Placement,
    clock_mhz: float,
    demand: PipelineDemand | None = None,
) -> dict[str, float]:
    """Cycles by resource for `share.ctas` CTAs on one SM, its global bytes placed by `placement`.

    demand: of one warp, the whole kernel's where not given.
    """
    demand, arch = demand or situation.demand, situation.arch
    warps = share.ctas * share.warps_per_cta
    subcores = arch.limits.subcores_per_sm.value
    per_subcore = math.ceil(warps / subcores) if warps > subcores else 1
    bounds = {ISSUE: per_subcore * demand.instructions}
    for pipe, use in demand.pipes.items():
        users = share.ctas if pipe in _OF_ONE_THREAD else per_subcore
        bounds[pipe.value] = users * use.cycles
    bounds |= _memory_bounds(situation, demand, warps, share.busy_sms, placement, clock_mhz)
    return {name: cycles for name, cycles in bounds.items() if cycles > 0}


# Pipes of the whole SM that one elected thread of a CTA drives.
_OF_ONE_THREAD = frozenset({Pipe.TC, Pipe.TMA})


def _memory_bounds(
    situation: Situation,
    demand: PipelineDemand,
    warps: float,
    busy_sms: float,
    placement: Placement,
    clock_mhz: float,
) -> dict[str, float]:
    memory, gpu = situation.arch.memory, situation.gpu
    requested = demand.global_bytes * warps
    cached = (demand.global_bytes + demand.local_bytes) * warps
    cycle_s = 1.0 / (clock_mhz * _MEGA)
    l2 = gpu.file.l2.bandwidth_gbps
    l2_per_sm = memory.l2_bytes_per_cycle_per_sm.value
    if l2 is not None:
        l2_per_sm = l2.value * _GIGA * cycle_s / gpu.sm_count
    dram_per_sm = gpu.dram.value * _GIGA * cycle_s / max(1.0, busy_sms)
    return {
        SHARED: demand.shared_bytes * warps / memory.shared_bytes_per_cycle_per_sm.value,
        L1: cached / memory.l1_bytes_per_cycle_per_sm.value,
        L2: requested * placement.l2_share / l2_per_sm,
        DRAM: requested * placement.dram_share / dram_per_sm,
    }


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
    return Stall.MATH_PIPE_THROTTLE
