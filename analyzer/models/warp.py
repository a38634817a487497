"""The first verdict: one warp's walk, resident warps that hide its waits, and throughput bounds.

Per wave of CTAs an SM takes the longest of one warp's own time and what each resource needs for all
resident warps; waves follow each other, the last one with what is left. A warp's stack comes from its
walk; cycles beyond it are queueing for the bound. This is the reading of AMALI's S_I and S_IP that
design/MODELS.md gives (equations 16 to 24), without its cache and launch terms.
"""

import math
from dataclasses import dataclass

from analyzer.ir.machine import WARP_LANES, Basis
from analyzer.isa.mma import UNKNOWN_TILE_M, UNKNOWN_TILE_N
from analyzer.models.base import Prediction, Situation, Stall, largest_first, weakest
from analyzer.models.bounds import LATENCY, Placement, SmShare, bound_cycles, throttle_of
from analyzer.models.walk import WarpWalk, walk_warp

NAME = "warp"
# Share of global bytes that DRAM serves where addresses are unknown: all for code that touches data once,
# a part where shared memory or tensor cores show that tiles are used again by neighbours.
STREAMING_DRAM_SHARE = 1.0
TILED_DRAM_SHARE = 0.25
# What the model itself may be off by on top of memory placement: not yet measured, so wide.
MODEL_ERROR = 0.35


@dataclass(frozen=True, slots=True)
class _Outcome:
    cycles: float
    bound: str
    stack: dict[Stall, float]
    bounds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A prediction with the situation and the walk that it rests on."""

    situation: Situation
    prediction: Prediction
    walk: WarpWalk


def predict(situation: Situation) -> Verdict:
    """Cycles, stack and time of one kernel on one GPU.

    The interval spans from all of memory's requests hitting L1 to all of them going to DRAM, widened by
    what the model itself may be off.
    """
    uses_tensor = situation.demand.tensor_fma > 0
    clock = situation.gpu.clock(tensor=uses_tensor)
    placement = assumed_placement(situation)
    walk = _walk(situation, placement)
    outcome = _outcome(situation, walk.stack(situation.weights), placement, clock.value)
    best, worst = (
        _outcome(situation, _shifted(situation, walk, placement, extreme), extreme, clock.value)
        for extreme in (Placement(0.0, 0.0), Placement(1.0, 1.0))
    )
    time_us = outcome.cycles / clock.value
    occupancy = situation.occupancy
    return Verdict(
        situation,
        Prediction(
            gpu=situation.gpu.key,
            model=NAME,
            cycles=outcome.cycles,
            time_us=time_us,
            time_us_low=min(best.cycles, outcome.cycles) / clock.value * (1 - MODEL_ERROR),
            time_us_high=max(worst.cycles, outcome.cycles) / clock.value * (1 + MODEL_ERROR),
            bound=outcome.bound,
            occupancy=occupancy.share,
            occupancy_limiter=occupancy.limiter.value,
            ctas_per_sm=occupancy.ctas_per_sm,
            waves=situation.grid_ctas / (situation.gpu.sm_count * occupancy.ctas_per_sm),
            clock_mhz=clock.value,
            cpi_stack=outcome.stack,
            bounds_cycles=outcome.bounds,
            basis=weakest(clock.basis, situation.gpu.dram.basis, Basis.ASSUMED),
            assumptions=_assumptions(situation, placement),
        ),
        walk,
    )


def memory_latency_cycles(situation: Situation, placement: Placement) -> float:
    """Latency of a global load: the mix of L1, L2 and DRAM by the shares served there."""
    memory, path = situation.gpu.file.memory, situation.arch.memory
    l1 = path.l1_latency_cycles.value
    l2 = (memory.l2_latency_cycles or path.l2_latency_cycles).value
    dram = (memory.dram_latency_cycles or path.dram_latency_cycles).value
    return l1 + (l2 - l1) * placement.l2_share + (dram - l2) * placement.dram_share


def _walk(situation: Situation, placement: Placement) -> WarpWalk:
    latency = memory_latency_cycles(situation, placement)
    return walk_warp(situation.kernel, situation.cfg, situation.nest, situation.costs, latency)


def _shifted(
    situation: Situation, walk: WarpWalk, walked: Placement, placement: Placement
) -> dict[Stall, float]:
    """The walk's stack had the latency of memory been another: each long wait moves by the difference."""
    longer = memory_latency_cycles(situation, placement) - memory_latency_cycles(situation, walked)
    return walk.stack(situation.weights, longer)


def _outcome(
    situation: Situation, stack: dict[Stall, float], placement: Placement, clock_mhz: float
) -> _Outcome:
    gpu, occupancy = situation.gpu, situation.occupancy
    slots = occupancy.ctas_per_sm
    full_waves = int(situation.grid_ctas // (gpu.sm_count * slots))
    rest = situation.grid_ctas - full_waves * gpu.sm_count * slots
    total: dict[Stall, float] = {}
    bounds: dict[str, float] = {}
    bound = LATENCY
    for waves, ctas in ((full_waves, float(slots)), (1 if rest else 0, math.ceil(rest / gpu.sm_count))):
        if not waves:
            continue
        share = SmShare(ctas, occupancy.warps_per_cta, min(float(gpu.sm_count), situation.grid_ctas))
        wave_bounds = bound_cycles(situation, share, placement, clock_mhz)
        wave_bound = _add_wave(total, stack, wave_bounds, waves)
        if not bounds:
            bound = wave_bound
        for name, cycles in wave_bounds.items():
            bounds[name] = bounds.get(name, 0.0) + cycles * waves
        bounds[LATENCY] = bounds.get(LATENCY, 0.0) + sum(stack.values()) * waves
    launch = gpu.file.launch
    total[Stall.LAUNCH] = launch.overhead_us.value * clock_mhz
    dispatch = situation.grid_ctas / launch.ctas_per_us.value * clock_mhz
    busy = sum(total.values())
    if dispatch > busy:
        total[Stall.LAUNCH] += dispatch - busy
        bound = "launch"
    elif total[Stall.LAUNCH] > busy / 2:
        bound = "launch"
    return _Outcome(sum(total.values()), bound, largest_first(total), bounds)


def _add_wave(
    total: dict[Stall, float], stack: dict[Stall, float], bounds: dict[str, float], waves: int
) -> str:
    """Add the cycles of equal waves to the stack; returns what bounds them."""
    own = sum(stack.values())
    name = max(bounds, key=lambda which: bounds[which], default=LATENCY)
    for stall, cycles in stack.items():
        total[stall] = total.get(stall, 0.0) + cycles * waves
    extra = bounds.get(name, 0.0) - own
    if extra <= 0:
        return LATENCY
    stall = throttle_of(name)
    total[stall] = total.get(stall, 0.0) + extra * waves
    return name


def assumed_placement(situation: Situation) -> Placement:
    """Where requests are served: beyond L1 always, beyond L2 by distinct bytes, or by kind of code.

    What the L2 holds comes from DRAM once; code without tiles reads its neighbours' bytes while they are
    there.
    """
    demand = situation.demand
    tiled = demand.tensor_fma > 0 or demand.shared_bytes > demand.global_bytes
    assumed = TILED_DRAM_SHARE if tiled else STREAMING_DRAM_SHARE
    distinct = _distinct_share(situation)
    if distinct is None:
        return Placement(1.0, assumed)
    fits = (situation.moved.unique_bytes or 0.0) <= situation.gpu.file.l2.size_bytes.value
    return Placement(1.0, distinct if fits or not tiled else max(distinct, assumed))


def _distinct_share(situation: Situation) -> float | None:
    """Distinct bytes of the grid over all that it asks for; None where addresses are not known."""
    unique, block = situation.moved.unique_bytes, situation.block
    if unique is None or block is None or situation.grid is None:
        return None
    warps = situation.grid.count * -(-block.count // WARP_LANES)
    asked = situation.demand.global_bytes * warps
    return min(1.0, unique / asked) if asked else None


def _placement_note(situation: Situation, share: str) -> str:
    if situation.moved.is_known:
        return (
            f"sectors and bank conflicts from executed addresses; none hits L1, {share} of global bytes come "
            "from DRAM; atomics on one address lie outside the interval"
        )
    return (
        f"addresses unknown: accesses coalesced, none hits L1, {share} of global bytes come from DRAM; "
        "scattered accesses, bank conflicts and atomics on one address lie outside the interval"
    )


def _assumptions(situation: Situation, placement: Placement) -> tuple[str, ...]:
    notes = list(situation.counts.assumptions)
    if situation.grid is None:
        notes.append(f"grid not given: one full wave, {situation.grid_ctas} CTAs")
    resources = situation.kernel.resources
    if situation.block is None:
        notes.append(f"block size not given: {situation.block_threads} threads")
    if not resources.registers_exact:
        notes.append("registers read off the code; add -res-usage text for the exact number")
    if resources.shared_bytes is None:
        notes.append("static shared memory not given: none assumed")
    if situation.demand.global_bytes:
        share = f"{placement.dram_share:.0%}"
        notes.append(_placement_note(situation, share))
    if situation.kernel.control_words is None:
        notes.append("no hex words in the dump: waits follow from register latencies, not control codes")
    if situation.demand.bulk_copies:
        notes.append("bulk copies (TMA): their bytes do not stand in the code and are left out")
    if situation.guessed_tiles:
        tile = f"{UNKNOWN_TILE_M}x{UNKNOWN_TILE_N}"
        notes.append(
            f"tcgen05 instructions whose tile is not a constant: {situation.guessed_tiles}, {tile} taken"
        )
    return tuple(notes)
