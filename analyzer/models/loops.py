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


def judge_loops(situation: Situation, walk: WarpWalk) -> tuple[LoopVerdict, ...]:
    """Bounds of all loops, in order; inner ones count with their trips."""
    judge = _Judge(situation, walk)
    return tuple(map(judge.judge, situation.nest.loops))


class _Judge:
    """What all loops of a kernel are judged by."""

    def __init__(self, situation: Situation, walk: WarpWalk) -> None:
        self.situation, self.walk = situation, walk
        self.placement = assumed_placement(situation)
        self.clock_mhz = clock_mhz(situation)
        latency = memory_latency_cycles(situation, self.placement)
        costs = situation.costs
        self.latency_cycles = np.where(costs.is_memory_load, latency, costs.latency_cycles)
        self.around = {loop.parent for loop in situation.nest.loops}

    def judge(self, loop: Loop) -> LoopVerdict:
        """Bounds of one loop."""
        situation, placement = self.situation, self.placement
        rows, weights = self._per_iteration(loop)
        demand = measure_demand(situation.kernel.opcode_ids, weights, situation.costs, situation.moved, rows)
        ctas = situation.occupancy.ctas_per_sm
        bounds = sm_bounds(situation, ctas, placement, demand)
        shared = gpu_bounds(situation, ctas * situation.gpu.sm_count, placement, self.clock_mhz, demand)
        bounds |= {name: max(cycles, bounds.get(name, 0.0)) for name, cycles in shared.items()}
        stack = self.walk.stack(weights, rows)
        bounds[LATENCY] = sum(stack.values())
        recurrence = self._recurrence(loop)
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

    def _per_iteration(self, loop: Loop) -> tuple[slice, FloatArray]:
        """The rows from the loop's first to its last, and how often an iteration executes each; those of
        blocks in between that are none of the loop's count nothing.
        """
        counts, blocks = self.situation.counts.per_warp, self.situation.cfg.blocks
        first, last = blocks[min(loop.blocks)].start, blocks[max(loop.blocks)].stop
        iterations = counts[loop.header]
        weights = np.zeros(last - first)
        for number in loop.blocks:
            block = blocks[number]
            weights[block.start - first : block.stop - first] = (
                counts[number] / iterations if iterations else 1.0
            )
        return slice(first, last), weights

    def _recurrence(self, loop: Loop) -> float:
        """Longest dependence cycle through registers, with nothing else in the way.

        The body is run as pure data flow until the time of its latest result grows evenly. Bodies with inner
        loops or of thousands of instructions give 0: not computed.
        """
        kernel, blocks = self.situation.kernel, self.situation.cfg.blocks
        body = [blocks[number] for number in sorted(loop.blocks)]
        if loop.index in self.around or sum(map(len, body)) > _MAX_RECURRENCE_ROWS:
            return 0.0
        forms = [form for block in body for form in kernel.forms(block.start, block.stop)]
        ids = np.concatenate([kernel.opcode_ids[block.start : block.stop] for block in body])
        # What the loop never writes is ready all the time.
        places = {number for form in forms for number in form.written}
        flow = [
            (tuple(filter(places.__contains__, form.read)), form.written, cycles)
            for form, cycles in zip(forms, self.latency_cycles[ids].tolist(), strict=True)
            if form.written
        ]
        ready = [0.0] * STORAGE_SIZE
        growth = before = 0.0
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
