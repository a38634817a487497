"""Warps of one sub-core walked through the code in order: where they wait, for how long, and for whom.

Blocks are walked in address order; an innermost loop is walked until an iteration takes as long as the one
before, and the rest of its trips take as long. Several warps go in lockstep, one instruction after another,
so that they queue for the pipes and meet at barriers. Since that order is fixed, every time is a sum or a
maximum of figures: none that improves makes a walk longer.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from analyzer.demand.costs import PIPE_INDEX, FloatArray, OpcodeCosts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.ir.program import Kernel
from analyzer.models.base import Stall
from analyzer.models.block_runs import block_runs
from analyzer.models.causes import STALL_OF, Cause
from analyzer.models.warp_state import Code, Warp

_SETTLED_CYCLES = 1e-6
# Visits of a loop after which it is taken to repeat itself, where it does not sooner.
SETTLING_VISITS = 12


class WarpWalk(Struct, frozen=True, eq=False):
    """Cycles that each instruction waits before it issues, the mean of its executions: waits[n, cause];
    producer[n] is the row of the instruction whose scoreboard it waits for, -1 for none.
    """

    waits: FloatArray
    producer: "np.ndarray[tuple[int], np.dtype[np.int32]]"

    def stack(self, weights: FloatArray, rows: slice = slice(None)) -> dict[Stall, float]:
        """Cycles of one warp by stall, instructions weighted by how often they run; of some rows alone, whose
        weights are given, where `rows` names them.
        """
        totals = weights @ self.waits[rows]
        stack = {Stall.SELECTED: float(weights.sum())}
        for cause, stall in STALL_OF.items():
            stack[stall] = float(totals[cause])
        return {stall: cycles for stall, cycles in stack.items() if cycles > 0}


class WalkOptions(Struct, frozen=True, kw_only=True):
    """Latencies in cycles: of loads from global memory, and until a memory instruction has read its
    registers.

    weights[n]: how often each instruction runs; row_latencies: of loads whose own latency is known, by row;
    warps: how many go in lockstep; visits: how often an innermost loop is walked at most.
    """

    weights: FloatArray
    memory_latency_cycles: float
    read_release_cycles: float
    row_latencies: Mapping[int, float] = field(default_factory=dict)
    warps: int = 1
    visits: int = 2


def walk_warps(
    kernel: Kernel, cfg: Cfg, nest: LoopNest, costs: OpcodeCosts, options: WalkOptions
) -> WarpWalk:
    """Walk them; waits are the mean of all.

    A loop's iterations beyond those walked take as long as the last one. A block that runs in a part of its
    loop's iterations takes that part of its time in each. So the waits, each as often as its instruction
    runs, sum to the time of the last instruction.
    """
    code = Code(kernel, costs, latencies_of(kernel, costs, options), options.read_release_cycles)
    pipe_free = [0.0] * len(PIPE_INDEX)
    warps = [Warp(code, pipe_free) for _ in range(options.warps)]
    blocks, weights = cfg.blocks, options.weights.tolist()
    for run in block_runs(cfg, nest):
        runs = [weights[blocks[b].start] for b in run.blocks]
        times = max(runs)
        if times <= 0:
            continue
        visits = 1 if run.loop is None else max(1, min(options.visits, int(times)))
        shares = [count / max(times, 1.0) for count in runs]
        stretches = [
            _Stretch(blocks[b].start, blocks[b].stop, share)
            for b, share in zip(run.blocks, shares, strict=True)
            if share > 0
        ]
        _repeat(warps, stretches, visits, max(times, 1.0))
    waits: FloatArray = np.mean([warp.waits_of(options.weights) for warp in warps], axis=0)
    return WarpWalk(waits, np.array(warps[0].producer, dtype=np.int32))


def latencies_of(kernel: Kernel, costs: OpcodeCosts, options: WalkOptions) -> FloatArray:
    """Cycles from issue to use of each instruction's result, [n]."""
    ids = kernel.opcode_ids
    loads = costs.is_memory_load[ids]
    latency: FloatArray = np.where(loads, options.memory_latency_cycles, costs.latency_cycles[ids])
    for row, cycles in options.row_latencies.items():
        if loads[row]:
            latency[row] = cycles
    return latency


class _Stretch(Struct, frozen=True):
    """Rows [start, stop), and the part of the visits in which they run."""

    start: int
    stop: int
    share: float


def _repeat(warps: list[Warp], blocks: list[_Stretch], visits: int, times: float) -> None:
    """Walk blocks so often; the times that are left take as long as the last one."""
    before = 0.0
    for visit in range(1, visits + 1):
        start = warps[0].time
        _walk(warps, blocks)
        taken = warps[0].time - start
        is_last = visit == visits or abs(taken - before) < _SETTLED_CYCLES
        left = times - visit if is_last else 0.0
        for warp in warps:
            warp.account(1.0 + left)
        if is_last:
            return  # so much later all would stand as it does now
        before = taken


def _walk(warps: list[Warp], blocks: list[_Stretch]) -> None:
    for block in blocks:
        for warp in warps:
            warp.share = block.share
        if len(warps) == 1:
            warps[0].block(block.start, block.stop)
            continue
        for row in range(block.start, block.stop):
            for warp in warps:
                warp.block(row, row + 1)
            if row in warps[0].code.barriers:
                _meet(warps, row)


def _meet(warps: list[Warp], row: int) -> None:
    """All leave a barrier when the last has come; each has waited for its latency already."""
    last = max(warp.time for warp in warps)
    for warp in warps:
        late = last - warp.time
        warp.waits[row][Cause.BARRIER] += late
        warp.time += warp.share * late
