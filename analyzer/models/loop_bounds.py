"""Lower bounds of a loop iteration: recurrence, pipes, issue slots, memory, and one warp's latency.

The warps that count are those of this launch: CTAs that one SM holds of the grid, and of their warps those
that enter the loop. Where warps hand work to each other, a warp's latency is what it takes beside the others
in the simulation. Example: a matrix product takes 128 cycles of its pipe and 384 until the next one can
start. One warp alone is bound by latency, 384 cycles, with the pipe 33 % busy; four warps on a sub-core keep
it busy.
"""

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from analyzer.demand.warp_demand import WarpDemand, compute_warp_demand
from analyzer.flow.loops import Loop
from analyzer.ir.arrays import FloatArray
from analyzer.isa.register_operands import N_REGISTER_UNITS
from analyzer.models.bounds import ISSUE_BOUND, LATENCY_BOUND, compute_gpu_bounds, compute_sm_bounds
from analyzer.models.interface import Stall, sort_largest_first
from analyzer.models.miss_rates import compute_memory_latency_cycles, estimate_miss_rates
from analyzer.models.model_result import ModelResult

RECURRENCE_BOUND = "recurrence"
_MAX_RECURRENCE_INSTRUCTIONS = 4000
_RECURRENCE_ITERATIONS = 4
_MIN_RECURRENCE_SHARE = 0.9


class LoopBounds(Struct, frozen=True, kw_only=True):
    """Bounds of one loop on one GPU, per iteration, with the launch's warps that one SM holds at a time."""

    loop: Loop
    cycles_per_iteration: float  # the longest of the bounds
    bound: str
    bounds_cycles: Mapping[str, float]
    cpi_stack: Mapping[Stall, float]  # cycles of one warp alone
    demand: WarpDemand  # of one warp and iteration
    warp_share: float  # of the grid's warps, those that enter it

    @property
    def is_limited_by_recurrence(self) -> bool:
        """Return whether the latency that binds is that from one iteration to the next, a recurrence."""
        recurrence = self.bounds_cycles.get(RECURRENCE_BOUND, 0.0)
        return (
            self.bound == LATENCY_BOUND
            and recurrence >= _MIN_RECURRENCE_SHARE * self.cycles_per_iteration > 0
        )

    @property
    def busiest_resource(self) -> str:
        """Resource that an iteration needs longest, "" if it needs none."""
        needed = self._select_resource_cycles()
        return max(needed, key=lambda name: needed[name], default="")

    @property
    def busiest_resource_share(self) -> float:
        """Part of an iteration in which the busiest resource works."""
        needed = self._select_resource_cycles()
        return max(needed.values(), default=0.0) / self.cycles_per_iteration if needed else 0.0

    def _select_resource_cycles(self) -> dict[str, float]:
        waits = (LATENCY_BOUND, RECURRENCE_BOUND)
        return {name: cycles for name, cycles in self.bounds_cycles.items() if name not in waits}


def compute_loop_bounds(result: ModelResult) -> tuple[LoopBounds, ...]:
    """Compute the bounds of all loops, in order; inner loops count with their trips.

    result: of the launch, whose clock and share of data in the L2 hold for the loops too. Without a timeline
    a warp's latency is its issue slots.
    """
    analyzer = _LoopAnalyzer(result)
    return tuple(map(analyzer.analyze, result.model_input.loop_forest.loops))


class _LoopAnalyzer:
    """Figures that the bounds of all loops of a kernel share."""

    def __init__(self, result: ModelResult) -> None:
        self.model_input, self.timeline = result.model_input, result.role_timeline or result.timeline
        model_input = result.model_input
        self.miss_rates = estimate_miss_rates(model_input).with_scaled_dram_share(result.cold_share)
        self.clock_mhz = result.prediction.clock_mhz
        latency = compute_memory_latency_cycles(model_input, self.miss_rates)
        costs = model_input.costs
        self.latency_by_opcode_cycles = np.where(costs.is_memory_load, latency, costs.latency_cycles)
        self.enclosing_loops = {loop.parent for loop in model_input.loop_forest.loops}
        sms, slots = model_input.gpu.sm_count, model_input.occupancy.ctas_per_sm
        self.resident_ctas_per_sm = min(slots, math.ceil(model_input.grid_ctas / sms))
        self.resident_ctas = min(model_input.grid_ctas, slots * sms)

    def analyze(self, loop: Loop) -> LoopBounds:
        """Compute the bounds of one loop."""
        model_input, miss_rates = self.model_input, self.miss_rates
        rows, weights = self._count_per_iteration(loop)
        demand = compute_warp_demand(
            model_input.kernel.opcode_ids, weights, model_input.costs, model_input.access_bytes, rows
        )
        warp_share = self._find_entering_warp_share(loop)
        bounds = compute_sm_bounds(
            model_input, self.resident_ctas_per_sm, miss_rates, demand, warp_share=warp_share
        )
        shared = compute_gpu_bounds(
            model_input, self.resident_ctas * warp_share, miss_rates, self.clock_mhz, demand
        )
        bounds |= {name: max(cycles, bounds.get(name, 0.0)) for name, cycles in shared.items()}
        stack = self._sum_warp_cycles(rows, weights)
        bounds[LATENCY_BOUND] = sum(stack.values())
        recurrence = self._compute_recurrence_cycles(loop)
        if recurrence:
            bounds[RECURRENCE_BOUND] = recurrence
        candidates = {name: cycles for name, cycles in bounds.items() if name != RECURRENCE_BOUND}
        bound = max(candidates, key=lambda name: candidates[name], default=ISSUE_BOUND)
        return LoopBounds(
            loop=loop,
            cycles_per_iteration=candidates.get(bound, 0.0),
            bound=bound,
            bounds_cycles=sort_largest_first(bounds),
            cpi_stack=sort_largest_first(stack),
            demand=demand,
            warp_share=warp_share,
        )

    def _find_entering_warp_share(self, loop: Loop) -> float:
        """Return the share of the grid's warps that enter the loop; 1 where that is not known."""
        classes = () if self.model_input.profile is None else self.model_input.profile.warp_classes
        n_warps = sum(one.n_warps for one in classes)
        entering = sum(one.n_warps for one in classes if one.block_counts[loop.header])
        return entering / n_warps if entering else 1.0

    def _count_per_iteration(self, loop: Loop) -> tuple[slice, FloatArray]:
        """Return the rows from the loop's first to its last, and executions of each per iteration.

        Rows in between that do not belong to the loop count 0.
        """
        counts, blocks = self.model_input.block_counts.per_warp, self.model_input.cfg.blocks
        first, last = blocks[min(loop.blocks)].start, blocks[max(loop.blocks)].stop
        iterations = counts[loop.header]
        weights = np.zeros(last - first)
        for number in loop.blocks:
            block = blocks[number]
            weights[block.start - first : block.stop - first] = (
                counts[number] / iterations if iterations else 1.0
            )
        return slice(first, last), weights

    def _sum_warp_cycles(self, rows: slice, weights: FloatArray) -> dict[Stall, float]:
        """Return one warp's cycles by stall; without a timeline those in which it issues."""
        if self.timeline is not None:
            return self.timeline.sum_by_stall(weights, rows)
        issued = float(weights.sum())
        return {Stall.SELECTED: issued} if issued > 0 else {}

    def _compute_recurrence_cycles(self, loop: Loop) -> float:
        """Return the length of the longest dependence cycle through registers (the recurrence bound).

        The body is evaluated as pure data flow, iteration after iteration, until the time of its latest
        result grows by the same amount. Bodies with inner loops or thousands of instructions give 0.
        """
        kernel, blocks = self.model_input.kernel, self.model_input.cfg.blocks
        body = [blocks[number] for number in sorted(loop.blocks)]
        if loop.index in self.enclosing_loops or sum(map(len, body)) > _MAX_RECURRENCE_INSTRUCTIONS:
            return 0.0
        forms = [form for block in body for form in kernel.decode_forms(block.start, block.stop)]
        ids = np.concatenate([kernel.opcode_ids[block.start : block.stop] for block in body])
        # Registers that the loop never writes are always ready.
        written_registers = {number for form in forms for number in form.defs}
        data_flow = [
            (tuple(filter(written_registers.__contains__, form.uses)), form.defs, cycles)
            for form, cycles in zip(forms, self.latency_by_opcode_cycles[ids].tolist(), strict=True)
            if form.defs
        ]
        ready = [0.0] * N_REGISTER_UNITS
        growth = before = 0.0
        for _ in range(_RECURRENCE_ITERATIONS):
            for read, written, cycles in data_flow:
                done = cycles
                for number in read:
                    if ready[number] + cycles > done:
                        done = ready[number] + cycles
                for number in written:
                    ready[number] = done
            latest = max((ready[place] for place in written_registers), default=0.0)
            growth, before = latest - before, latest
        return growth
