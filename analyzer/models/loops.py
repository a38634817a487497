"""Bounds of a loop's iteration: recurrence, pipes, issue, memory, and what one warp's walk says."""

import numpy as np
from msgspec import Struct

from analyzer.demand.costs import FloatArray
from analyzer.demand.demand import PipelineDemand, measure_demand
from analyzer.flow.loops import Loop
from analyzer.isa.roles import STORAGE_SIZE
from analyzer.models.base import Situation, Stall, largest_first
from analyzer.models.bounds import ISSUE, LATENCY, gpu_bounds, sm_bounds
from analyzer.models.placement import assumed_placement, memory_latency_cycles
from analyzer.models.verdict import clock_mhz
from analyzer.models.walk import WarpWalk

RECURRENCE = "recurrence"
_MAX_RECURRENCE_ROWS = 4000
_ROUNDS = 4


class LoopVerdict(Struct, frozen=True, kw_only=True):
    """One loop on one GPU, per iteration and with the resident warps of a full SM.

    cycles_per_iteration: the longest of the bounds; stack: where one warp alone spends its cycles;
    demand: of one warp and iteration.
    """

    loop: Loop
    cycles_per_iteration: float
    bound: str
    bounds_cycles: dict[str, float]
    stack: dict[Stall, float]
    demand: PipelineDemand

    @property
    def busiest(self) -> str:
        """The resource that an iteration needs longest, empty where it needs none."""
        needed = self._resources()
        return max(needed, key=lambda name: needed[name], default="")

    @property
    def busiest_share(self) -> float:
        """Part of an iteration for which that resource works."""
        needed = self._resources()
        return max(needed.values(), default=0.0) / self.cycles_per_iteration if needed else 0.0

    def _resources(self) -> dict[str, float]:
        waits = (LATENCY, RECURRENCE)
        return {name: cycles for name, cycles in self.bounds_cycles.items() if name not in waits}


def judge_loop(situation: Situation, walk: WarpWalk, loop: Loop) -> LoopVerdict:
    """Bounds of one loop; inner loops count with their trips."""
    weights = _per_iteration(situation, loop)
    demand = measure_demand(situation.kernel, weights, situation.costs, situation.moved)
    placement = assumed_placement(situation)
    ctas = situation.occupancy.ctas_per_sm
    bounds = sm_bounds(situation, ctas, placement, demand)
    shared = gpu_bounds(situation, ctas * situation.gpu.sm_count, placement, clock_mhz(situation), demand)
    bounds |= {name: max(cycles, bounds.get(name, 0.0)) for name, cycles in shared.items()}
    stack = walk.stack(weights)
    bounds[LATENCY] = sum(stack.values())
    recurrence = _recurrence(situation, loop, memory_latency_cycles(situation, placement))
    if recurrence:
        bounds[RECURRENCE] = recurrence
    candidates = {name: cycles for name, cycles in bounds.items() if name != RECURRENCE}
    bound = max(candidates, key=lambda name: candidates[name], default=ISSUE)
    cycles = candidates.get(bound, 0.0)
    if bound == LATENCY and recurrence >= 0.9 * cycles:
        bound = RECURRENCE
    return LoopVerdict(
        loop=loop,
        cycles_per_iteration=cycles,
        bound=bound,
        bounds_cycles=largest_first(bounds),
        stack=largest_first(stack),
        demand=demand,
    )


def _per_iteration(situation: Situation, loop: Loop) -> FloatArray:
    """Executions of each instruction in one iteration; blocks outside count nothing."""
    counts = situation.counts.per_warp
    iterations = counts[loop.header]
    weights = np.zeros(len(situation.kernel))
    for number in loop.blocks:
        block = situation.cfg.blocks[number]
        weights[block.start : block.stop] = counts[number] / iterations if iterations else 1.0
    return weights


def _recurrence(situation: Situation, loop: Loop, memory_latency: float) -> float:
    """Longest dependence cycle through registers, with nothing else in the way.

    The body is run as pure data flow until the time of its latest result grows evenly. Bodies with inner
    loops or of thousands of instructions give 0: not computed.
    """
    blocks = [situation.cfg.blocks[b] for b in sorted(loop.blocks)]
    rows = [row for block in blocks for row in range(block.start, block.stop)]
    is_inner = all(other.parent != loop.index for other in situation.nest.loops)
    if not is_inner or len(rows) > _MAX_RECURRENCE_ROWS:
        return 0.0
    kernel = situation.kernel
    ids = kernel.opcode_ids[rows]
    costs = situation.costs
    latency = np.where(costs.is_memory_load, memory_latency, costs.latency_cycles)[ids].tolist()
    forms = [kernel.form(row) for row in rows]
    flow = [(f.read, f.written, cycles) for f, cycles in zip(forms, latency, strict=True) if f.written]
    places = {number for _, written, _ in flow for number in written}
    ready = [0.0] * STORAGE_SIZE
    before = 0.0
    growth = 0.0
    for _ in range(_ROUNDS):
        for read, written, cycles in flow:
            done = cycles
            for number in read:
                if ready[number] + cycles > done:
                    done = ready[number] + cycles
            for number in written:
                ready[number] = done
        latest = max((ready[place] for place in places), default=0.0)
        growth, before = latest - before, latest
    return growth
