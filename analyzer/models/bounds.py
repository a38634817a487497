"""Throughput bounds: the cycles that each shared resource needs for the CTAs of one SM."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from analyzer.demand.tcgen05_tiles import has_cta_pair_mma
from analyzer.demand.warp_demand import WarpDemand
from analyzer.execution.profile.mbarrier_pipelines import find_mbarrier_uses
from analyzer.ir.opcode import Semantics
from analyzer.ir.scheduling import SM_LEVEL_PIPES, Pipe
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.l2_rate import compute_launch_l2_gbps
from analyzer.models.miss_rates import MissRates

ISSUE_BOUND = "issue"
SHARED_MEMORY_BOUND = "shared memory"
L1_BOUND = "L1"
L2_BOUND = "L2"
DRAM_BOUND = "DRAM"
LATENCY_BOUND = "latency"
# Resources that `sm` simulates.
ATOMICS_BOUND = "atomics"
LOAD_STORE_BOUND = "load/store path"
REGISTER_PORTS_BOUND = "register ports"

_MEGA = 1e6
_GIGA = 1e9


def compute_sm_bounds(
    model_input: ModelInput,
    ctas: float,
    miss_rates: MissRates,
    demand: WarpDemand,
    elected: Mapping[Pipe, float] = MappingProxyType({}),
    *,
    warp_share: float = 1.0,
) -> dict[str, float]:
    """Return the cycles that each resource of one SM needs for some CTAs.

    demand: of one warp.
    elected: how often that demand counts in a CTA, by pipe that elected threads drive; 1 for other pipes.
    warp_share: part of the warps that have the demand; pipes of elected threads are used once per CTA anyway.
    """
    arch = model_input.arch
    memory = arch.memory
    warps = ctas * model_input.occupancy.warps_per_cta * warp_share
    subcores = arch.limits.subcores_per_sm.value
    per_subcore = math.ceil(warps / subcores) if warps > subcores else 1
    bounds = {ISSUE_BOUND: per_subcore * demand.instructions}
    for pipe, use in demand.pipes.items():
        n_users = ctas * elected.get(pipe, 1.0) if pipe in SM_LEVEL_PIPES else per_subcore
        bounds[pipe.value] = n_users * use.cycles
    l1_bytes = (demand.global_bytes + demand.local_bytes) * warps
    bounds[SHARED_MEMORY_BOUND] = demand.shared_bytes * warps / memory.shared_bytes_per_cycle_per_sm.value
    bounds[L1_BOUND] = l1_bytes / memory.l1_bytes_per_cycle_per_sm.value
    return {name: cycles for name, cycles in bounds.items() if cycles > 0}


def count_elected_warps(model_input: ModelInput) -> dict[Pipe, float]:
    """Return how often the mean warp's demand counts in a CTA, for each pipe that elected threads drive.

    Executed counts are means over all warps, and over both CTAs of a pair, one of which issues the products
    of both. Counts that were not executed are taken to be those of the warp that drives the pipe.
    """
    if model_input.profile is None or not model_input.profile.warp_classes:
        return {}
    found = dict.fromkeys(SM_LEVEL_PIPES, float(model_input.occupancy.warps_per_cta))
    found[Pipe.TMA] *= _measure_copying_share(model_input)
    if has_cta_pair_mma(model_input.kernel):
        found[Pipe.TC] *= 2.0
    return found


def _measure_copying_share(model_input: ModelInput) -> float:
    """Return the share of the warps reaching a bulk copy that issue it: the others are predicated off."""
    uses = find_mbarrier_uses(model_input.mbarrier_pipelines)
    copies = [(row, use) for row, use in uses.items() if use.semantics is Semantics.MBARRIER_COPY]
    n_arrivals = sum(model_input.execution_counts[row] for row, _ in copies)
    return (
        float(sum(model_input.execution_counts[row] * use.warp_share for row, use in copies) / n_arrivals)
        if n_arrivals
        else 1.0
    )


def convert_to_bytes_per_cycle(rate_gbps: float, clock_mhz: float) -> float:
    """Return a rate of GB/s in bytes per SM cycle."""
    return rate_gbps * (_GIGA / (clock_mhz * _MEGA))


def compute_gpu_bounds(
    model_input: ModelInput,
    ctas: float,
    miss_rates: MissRates,
    clock_mhz: float,
    demand: WarpDemand,
) -> dict[str, float]:
    """Return the cycles that L2 and DRAM, which all SMs share, need for some CTAs; demand: of one warp."""
    gpu = model_input.gpu
    requested_bytes = demand.global_bytes * ctas * model_input.occupancy.warps_per_cta
    l2_gbps = compute_launch_l2_gbps(model_input, miss_rates, clock_mhz)
    moved = {
        DRAM_BOUND: (miss_rates.dram_share, gpu.peak_dram_gbps.value),
        L2_BOUND: (miss_rates.l1_miss_rate, l2_gbps),
    }
    bounds = {
        name: requested_bytes * share / convert_to_bytes_per_cycle(gbps, clock_mhz)
        for name, (share, gbps) in moved.items()
    }
    return {name: cycles for name, cycles in bounds.items() if cycles > 0}


def find_throttle_stall(bound: str) -> Stall:
    """Return the stall that warps show while they queue for a resource."""
    if bound == ISSUE_BOUND:
        return Stall.NOT_SELECTED
    if bound in {L2_BOUND, DRAM_BOUND}:
        return Stall.LONG_SCOREBOARD
    if bound == L1_BOUND:
        return Stall.LG_THROTTLE
    if bound in {SHARED_MEMORY_BOUND, Pipe.LSU.value, Pipe.ADU.value}:
        return Stall.MIO_THROTTLE
    if bound == Pipe.TEX.value:
        return Stall.TEX_THROTTLE
    if bound == Pipe.CBU.value:
        return Stall.BRANCH_RESOLVING
    return Stall.MATH_PIPE_THROTTLE
