"""Timeline of the warps of one sub-core: where they wait, for how long, and for which producer.

The warps are simulated through the code in order. Blocks run in address order. An innermost loop is simulated
until an iteration takes as long as the one before; the rest of its iterations are taken to take as long.
Several warps run in lockstep, one instruction after another, so that they queue for the pipes and wait for
each other at barriers.

Invariant: the order of events is fixed, so every time is a sum or a maximum of hardware figures. A figure
that improves never makes a timeline longer.

Example, one warp, a load whose result takes 400 cycles and an add that uses it 10 cycles later:

    LDG R0, [R2]      issues at cycle 0
    ...               10 cycles of other instructions
    IADD3 R1, R0, 1   waits 390 cycles for LONG_SCOREBOARD; its producer is the LDG
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from analyzer.demand.opcode_costs import PIPE_INDEX, OpcodeCosts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.ir.arrays import FloatArray, make_read_only
from analyzer.ir.module import Kernel
from analyzer.isa.control_encoding import ControlCodeColumns
from analyzer.models.block_sequences import split_into_block_sequences
from analyzer.models.interface import Stall
from analyzer.models.timeline_warp import InstructionTiming, TimelineWarp
from analyzer.models.wait_causes import STALL_BY_CAUSE, WaitCause

_PERIODIC_TOLERANCE_CYCLES = 1e-6
# Simulated iterations after which a loop is taken to be periodic, if it is not sooner.
MAX_LOOP_ITERATIONS = 12


class WarpTimeline(Struct, frozen=True, eq=False):
    """Waits of each instruction before it issues, in cycles, the mean of its executions."""

    waits: FloatArray  # [n, cause], read-only
    producers: "np.ndarray[tuple[int], np.dtype[np.int32]]"  # [n], row whose scoreboard it waits for, or -1

    def __post_init__(self) -> None:
        make_read_only(self.waits, self.producers)

    def sum_by_stall(self, weights: FloatArray, rows: slice = slice(None)) -> dict[Stall, float]:
        """Return the cycles of one warp by stall.

        weights: executions of each instruction, [n], or of those that `rows` selects.
        """
        totals = weights @ self.waits[rows]
        stack = {Stall.SELECTED: float(weights.sum())}
        for cause, stall in STALL_BY_CAUSE.items():
            stack[stall] = float(totals[cause])
        return {stall: cycles for stall, cycles in stack.items() if cycles > 0}


class TimelineOptions(Struct, frozen=True, kw_only=True):
    """Parameters of a timeline."""

    execution_counts: FloatArray  # [n], of one warp
    memory_latency_cycles: float  # of loads from global memory
    read_release_cycles: float  # from issue of a memory instruction until its source registers are free
    row_latencies: Mapping[int, float] = field(default_factory=dict)  # of loads of known latency, by row
    constant_passes: FloatArray | None = None  # [n], see `AccessBytes`; None: one each
    n_lockstep_warps: int = 1
    max_loop_iterations: int = 2  # simulated iterations of an innermost loop, at most
    early_waits: Mapping[int, int] = field(default_factory=dict)  # see `ModelInput`


def simulate_warp_issue(
    cfg: Cfg,
    loop_forest: LoopForest,
    costs: OpcodeCosts,
    control_codes: ControlCodeColumns,
    options: TimelineOptions,
) -> WarpTimeline:
    """Simulate the warps and return the mean of their waits.

    A block that runs in a part of its loop's iterations takes that part of its time in each. So the waits,
    weighted by executions, sum to the issue time of the last instruction.
    """
    latencies = compute_result_latencies(cfg.kernel, costs, options)
    timing = InstructionTiming(
        cfg.kernel,
        costs,
        control_codes,
        latencies,
        options.read_release_cycles,
        constant_passes=options.constant_passes,
        early_waits=options.early_waits,
    )
    pipe_free = [0.0] * len(PIPE_INDEX)
    warps = [TimelineWarp(timing, pipe_free) for _ in range(options.n_lockstep_warps)]
    blocks, weights = cfg.blocks, options.execution_counts.tolist()
    for sequence in split_into_block_sequences(cfg, loop_forest):
        executions = [weights[blocks[b].start] for b in sequence.blocks]
        times = max(executions)
        if times <= 0:
            continue
        n_iterations = 1 if sequence.loop is None else max(1, min(options.max_loop_iterations, int(times)))
        shares = [count / max(times, 1.0) for count in executions]
        ranges = [
            _BlockRange(blocks[b].start, blocks[b].stop, share)
            for b, share in zip(sequence.blocks, shares, strict=True)
            if share > 0
        ]
        _run_iterations(warps, ranges, n_iterations, max(times, 1.0))
    waits: FloatArray = np.mean([warp.average_waits(options.execution_counts) for warp in warps], axis=0)
    return WarpTimeline(waits, np.array(warps[0].producers, dtype=np.int32))


def compute_result_latencies(kernel: Kernel, costs: OpcodeCosts, options: TimelineOptions) -> FloatArray:
    """Return the cycles from issue to use of each instruction's result, [n]."""
    ids = kernel.opcode_ids
    loads = costs.is_memory_load[ids]
    latency: FloatArray = np.where(loads, options.memory_latency_cycles, costs.latency_cycles[ids])
    if options.constant_passes is not None:
        latency += (options.constant_passes - 1.0) * costs.issue_cycles[ids]
    fences = costs.fence_cycles[ids]
    latency[fences > 0] = fences[fences > 0]
    for row, cycles in options.row_latencies.items():
        if loads[row]:
            latency[row] = cycles
    return latency


class _BlockRange(Struct, frozen=True):
    """Rows [start, stop) of a block."""

    start: int
    stop: int
    share: float  # part of the loop's iterations in which the block runs


def _run_iterations(
    warps: list[TimelineWarp], blocks: list[_BlockRange], n_iterations: int, times: float
) -> None:
    """Simulate blocks n_iterations times; the rest of `times` iterations take as long as the last one."""
    previous_cycles = 0.0
    for iteration in range(1, n_iterations + 1):
        start = warps[0].time
        _run_once(warps, blocks)
        iteration_cycles = warps[0].time - start
        is_last = (
            iteration == n_iterations or abs(iteration_cycles - previous_cycles) < _PERIODIC_TOLERANCE_CYCLES
        )
        remaining_iterations = times - iteration if is_last else 0.0
        for warp in warps:
            warp.accumulate_waits(1.0 + remaining_iterations)
        if is_last:
            return  # all clocks would advance by the same amount
        previous_cycles = iteration_cycles


def _run_once(warps: list[TimelineWarp], blocks: list[_BlockRange]) -> None:
    for block in blocks:
        for warp in warps:
            warp.block_share = block.share
        if len(warps) == 1:
            warps[0].run_block(block.start, block.stop)
            continue
        for row in range(block.start, block.stop):
            for warp in warps:
                warp.run_block(row, row + 1)
            if row in warps[0].timing.barrier_rows:
                _synchronize_at_barrier(warps, row)


def _synchronize_at_barrier(warps: list[TimelineWarp], row: int) -> None:
    """Let all warps leave a barrier when the last one arrives; its latency has been waited for already."""
    last_arrival = max(warp.time for warp in warps)
    for warp in warps:
        wait_cycles = last_arrival - warp.time
        warp.row_waits[row][WaitCause.BARRIER] += wait_cycles
        warp.time += warp.block_share * wait_cycles
