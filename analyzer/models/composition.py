"""Waves of CTAs composed of a walk and of throughput bounds, part of the code by part.

In each part an SM takes the longest of the walked warps' own time and of what each resource needs for all
resident CTAs; the excess over the warps' own time is queueing for that resource.
"""

import numpy as np
from msgspec import Struct

from analyzer.demand.costs import PIPES, FloatArray
from analyzer.demand.demand import PipelineDemand
from analyzer.models.base import Situation, Stall
from analyzer.models.bounds import (
    DRAM,
    L1,
    L2,
    LATENCY,
    SHARED,
    elected_warps,
    gpu_bounds,
    sm_bounds,
    throttle_of,
)
from analyzer.models.causes import STALL_OF, Cause
from analyzer.models.launching import dispatch_cycles, overhead_cycles
from analyzer.models.placement import ALL_IN_DRAM, ALL_IN_L1, Placement, memory_latency_cycles
from analyzer.models.stalls import StallLedger, StallProfile
from analyzer.models.verdict import Range, Verdict, clock_mhz, make_prediction
from analyzer.models.walk import WarpWalk
from analyzer.models.waves import split_waves

LAUNCH = "launch"


class Part(Struct, frozen=True, eq=False):
    """Instructions that are bounded together: executions by the walked warp [n], and by the mean warp.

    walked: None where the mean warp is the walked one.
    """

    weights: FloatArray
    demand: PipelineDemand
    walked: FloatArray | None = None

    @property
    def walked_weights(self) -> FloatArray:
        return self.weights if self.walked is None else self.walked


class _Composed(Struct, frozen=True, eq=False):
    stalls: StallProfile
    bound: str
    bounds: dict[str, float]


def compose(
    situation: Situation,
    model: str,
    walk: WarpWalk,
    parts: tuple[Part, ...],
    placement: Placement,
    notes: tuple[str, ...] = (),
) -> Verdict:
    """The verdict of a model whose cycles come from a walk and from bounds."""
    best = _compose(situation, walk, parts, placement)
    low, high = (
        _compose(situation, _shifted(situation, walk, placement, extreme), parts, extreme)
        for extreme in (ALL_IN_L1, ALL_IN_DRAM)
    )
    return Verdict(
        situation=situation,
        prediction=make_prediction(
            situation,
            model,
            best.stalls,
            bound=best.bound,
            bounds_cycles=best.bounds,
            span=Range(low.stalls.total_cycles, high.stalls.total_cycles),
            placement=placement,
            notes=notes,
        ),
        stalls=best.stalls,
        walk=walk,
    )


def _shifted(situation: Situation, walk: WarpWalk, walked: Placement, placement: Placement) -> WarpWalk:
    """The walk had the latency of memory been another: each long wait moves by the difference."""
    longer = memory_latency_cycles(situation, placement) - memory_latency_cycles(situation, walked)
    waits = walk.waits.copy()
    long_waits = waits[:, Cause.LONG]
    waits[:, Cause.LONG] = np.where(long_waits > 0, np.maximum(long_waits + longer, 0.0), 0.0)
    return WarpWalk(waits, walk.producer)


def _compose(
    situation: Situation, walk: WarpWalk, parts: tuple[Part, ...], placement: Placement
) -> _Composed:
    clock = clock_mhz(situation)
    ledger = StallLedger(len(situation.kernel))
    bounds: dict[str, float] = {}
    excess: dict[str, float] = {}
    for part in parts:
        found = _add_part(ledger, situation, walk, part, placement, clock)
        for name, cycles in found.bounds.items():
            bounds[name] = bounds.get(name, 0.0) + cycles
        excess[found.bound] = excess.get(found.bound, 0.0) + found.cycles
    bound = max(excess, key=lambda name: excess[name], default=LATENCY)
    return _Composed(ledger.close(), LAUNCH if _add_launch(ledger, situation, clock) else bound, bounds)


class _PartCycles(Struct, frozen=True):
    """What one part takes in all waves, and what binds it."""

    cycles: float
    bound: str
    bounds: dict[str, float]


def _add_part(
    ledger: StallLedger,
    situation: Situation,
    walk: WarpWalk,
    part: Part,
    placement: Placement,
    clock: float,
) -> _PartCycles:
    """SMs by waves; what all of them share over the whole launch, since waves run into each other there."""
    own = float((part.walked_weights * (1.0 + walk.waits.sum(axis=1))).sum())
    bounds: dict[str, float] = {LATENCY: 0.0}
    queues: dict[str, float] = {}
    waves, elected = split_waves(situation), elected_warps(situation)
    for wave in waves:
        local = sm_bounds(situation, wave.ctas_of_sm, placement, part.demand, elected)
        name = max(local, key=lambda which: local[which], default=LATENCY)
        longer = max(0.0, local.get(name, 0.0) - own) * wave.count
        queues[name] = queues.get(name, 0.0) + longer
        for key, cycles in {**local, LATENCY: own}.items():
            bounds[key] = bounds.get(key, 0.0) + cycles * wave.count
    shared = gpu_bounds(situation, situation.grid_ctas, placement, clock, part.demand)
    name = max(shared, key=lambda which: shared[which], default=LATENCY)
    n_waves = sum(wave.count for wave in waves)
    beyond = shared.get(name, 0.0) - own * n_waves
    if beyond > sum(queues.values()):
        queues = {name: beyond}
    for which, cycles in queues.items():
        _charge(ledger, situation, part, which, cycles)
    _add_walk(ledger, walk, part.walked_weights * n_waves)
    bounds |= {key: max(cycles, bounds.get(key, 0.0)) for key, cycles in shared.items()}
    return _PartCycles(own * n_waves + sum(queues.values()), _binding(queues), bounds)


def _binding(queues: dict[str, float]) -> str:
    """The resource with the longest queue, or the warps' own time where there is none."""
    name = max(queues, key=lambda which: queues[which], default=LATENCY)
    return name if queues.get(name, 0.0) > 0 else LATENCY


def _add_walk(ledger: StallLedger, walk: WarpWalk, weights: FloatArray) -> None:
    ledger.add_rows(Stall.SELECTED, weights)
    for cause, stall in STALL_OF.items():
        ledger.add_rows(stall, weights * walk.waits[:, cause])


def _charge(ledger: StallLedger, situation: Situation, part: Part, name: str, cycles: float) -> None:
    """Queueing for a resource, charged to the instructions that use it."""
    if cycles > 0:
        ledger.add_shared(throttle_of(name), cycles, _users(situation, name, part.weights))


def _users(situation: Situation, bound: str, weights: FloatArray) -> FloatArray:
    """How far each instruction uses the resource that binds, [n]."""
    ids = situation.kernel.opcode_ids
    names = np.array([pipe.value == bound for pipe in PIPES])
    if names.any():
        used: FloatArray = weights * situation.costs.issue_cycles[ids] * names[situation.costs.pipe[ids]]
        return used
    moved = situation.moved
    by_bytes = {SHARED: moved.shared_bytes, L1: moved.global_bytes + moved.local_bytes}
    by_bytes |= {L2: moved.global_bytes, DRAM: moved.global_bytes}
    return weights * by_bytes[bound] if bound in by_bytes else weights


def _add_launch(ledger: StallLedger, situation: Situation, clock: float) -> bool:
    """Overhead, and what handing out the CTAs takes longer than they run; whether that binds."""
    busy = float(ledger.cycles.sum()) + sum(ledger.outside.values())
    overhead = overhead_cycles(situation, clock)
    late = dispatch_cycles(situation, clock) - busy
    ledger.add_outside(Stall.LAUNCH, overhead + max(0.0, late))
    return late > 0 or overhead > busy / 2
