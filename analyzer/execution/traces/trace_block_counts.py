"""Counts of a trace, by warp: executions of blocks, active lanes in them, entries into loops."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from analyzer.execution.traces.trace_block_runs import TracedBlockRuns, split_block_runs
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.ir.arrays import IntArray, make_read_only
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.ir.trace import MaskArray, Trace, unpack_lane_masks

_MAX_BATCH_CELLS = 1 << 22


class WarpCounts(Struct, frozen=True, eq=False):
    """Counts of some warps."""

    warp_numbers: IntArray  # [n_warp], global
    block_executions: IntArray  # [n_warp, n_block]
    block_active_lanes: IntArray  # [n_warp, n_block], summed over the executions
    loop_entries: IntArray  # [n_loop], summed over the warps

    def __post_init__(self) -> None:
        make_read_only(self.warp_numbers, self.block_executions, self.block_active_lanes, self.loop_entries)


def count_warp_executions(
    trace: Trace, cfg: Cfg, loop_forest: LoopForest, rows: IntArray
) -> Iterator[WarpCounts]:
    """Yield the counts of all traced warps, some warps at a time.

    A block counts as executed as often as that instruction of it which was traced most often.

    rows: the kernel's row of each traced instruction, negative if it has none.
    """
    n_rows = cfg.blocks[-1].stop
    for first, last in _split_batches(trace, n_rows):
        own = slice(int(trace.warp_starts[first]), int(trace.warp_starts[last]))
        row = rows[trace.instruction_ids[own]]
        warp = np.repeat(np.arange(last - first), np.diff(trace.warp_starts[first : last + 1]))
        kept = (row >= 0) & (row < n_rows)
        yield _count_batch(
            cfg, loop_forest, trace.warp_ids[first:last], row[kept], warp[kept], trace.masks[own][kept]
        )


def _count_batch(
    cfg: Cfg, loop_forest: LoopForest, warps: IntArray, row: IntArray, warp: IntArray, masks: MaskArray
) -> WarpCounts:
    """Count the executions of some warps.

    row, warp, masks: kernel row, index in `warps` and active lanes of each traced instruction.
    """
    shape = (len(warps), len(cfg.blocks))
    if not len(row):
        none = np.zeros(shape, dtype=np.int64)
        return WarpCounts(warps, none, none, np.zeros(len(loop_forest.loops), dtype=np.int64))
    runs = split_block_runs(cfg, row, warp, masks)
    blocks = _find_block_maxima(cfg, len(warps), warp, row, None)
    fullest = _find_block_maxima(cfg, len(warps), warp, row, _popcount(masks))
    cell = runs.warp * shape[1] + runs.block
    n_runs = np.bincount(cell, minlength=blocks.size).reshape(shape)
    either = np.bincount(cell, weights=_popcount(runs.masks), minlength=blocks.size).reshape(shape)
    lanes = np.where(n_runs == blocks, either.astype(np.int64), fullest)
    return WarpCounts(warps, blocks, lanes, _count_loop_entries(loop_forest, shape[1], runs))


def _find_block_maxima(
    cfg: Cfg, n_warps: int, warp: IntArray, row: IntArray, weights: IntArray | None
) -> IntArray:
    """Return the largest sum of weights among the instructions of each block, [n_warp, n_block]."""
    n_rows = cfg.blocks[-1].stop
    sums = np.bincount(warp * n_rows + row, weights=weights, minlength=n_warps * n_rows)
    begins = np.array([block.start for block in cfg.blocks])
    return np.maximum.reduceat(sums.reshape(n_warps, n_rows), begins, axis=1).astype(np.int64)


def _count_loop_entries(loop_forest: LoopForest, n_blocks: int, runs: TracedBlockRuns) -> IntArray:
    """Count the runs of each loop's header in which no lane came from inside the loop."""
    n_loops = len(loop_forest.loops)
    if not n_loops:
        return np.zeros(0, dtype=np.int64)
    loop_of = np.full(n_blocks, -1, dtype=np.int64)
    inside = np.zeros((n_loops, n_blocks), dtype=bool)
    for loop in loop_forest.loops:
        loop_of[loop.header] = loop.index
        inside[loop.index, sorted(loop.blocks)] = True
    headed = loop_of[runs.block]
    stayed = np.zeros(len(headed), dtype=bool)
    for lane in range(WARP_SIZE):
        at = np.flatnonzero(runs.masks >> np.uint32(lane) & 1)
        before, now = at[:-1], at[1:]
        same = (runs.warp[before] == runs.warp[now]) & (headed[now] >= 0)
        before, now = before[same], now[same]
        stayed[now] |= inside[headed[now], runs.block[before]]
    return np.bincount(headed[(headed >= 0) & ~stayed], minlength=n_loops).astype(np.int64)


def _split_batches(trace: Trace, n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of warps of limited size (instructions, and counters), at least one warp each."""
    first, n_warps = 0, len(trace.warp_ids)
    most_warps = max(1, _MAX_BATCH_CELLS // max(n_rows, 1))
    while first < n_warps:
        limit = int(trace.warp_starts[first]) + _MAX_BATCH_CELLS
        last = int(np.searchsorted(trace.warp_starts, limit, side="right")) - 1
        last = min(max(last, first + 1), first + most_warps, n_warps)
        yield first, last
        first = last


def _popcount(masks: MaskArray) -> IntArray:
    lanes: IntArray = unpack_lane_masks(masks).sum(axis=1, dtype=np.int64)
    return lanes
