"""How often each warp of a trace ran each block, in how many lanes, and how often it came to each loop."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from analyzer.execution.traced_runs import Runs, split_runs
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopNest
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.trace import IntArray, MaskArray, Trace, active_lanes

_CELLS_AT_ONCE = 1 << 22


class WarpCounts(Struct, frozen=True, eq=False):
    """Some warps: executions of blocks and lanes in them [n_warp, n_block], entries into loops [n_loop]."""

    warps: IntArray
    blocks: IntArray
    lanes: IntArray
    entries: IntArray


def count_warps(trace: Trace, cfg: Cfg, nest: LoopNest, rows: IntArray) -> Iterator[WarpCounts]:
    """Counts of all traced warps, some warps at a time; rows: the kernel's row of each traced instruction.

    A block ran as often as that instruction of it which was traced most often.
    """
    n_rows = cfg.blocks[-1].stop
    for first, last in _batches(trace, n_rows):
        own = slice(int(trace.starts[first]), int(trace.starts[last]))
        row = rows[trace.ids[own]]
        warp = np.repeat(np.arange(last - first), np.diff(trace.starts[first : last + 1]))
        kept = (row >= 0) & (row < n_rows)
        yield _counted(cfg, nest, trace.warps[first:last], row[kept], warp[kept], trace.masks[own][kept])


def _counted(
    cfg: Cfg, nest: LoopNest, warps: IntArray, row: IntArray, warp: IntArray, masks: MaskArray
) -> WarpCounts:
    shape = (len(warps), len(cfg.blocks))
    if not len(row):
        none = np.zeros(shape, dtype=np.int64)
        return WarpCounts(warps, none, none, np.zeros(len(nest.loops), dtype=np.int64))
    runs = split_runs(cfg, row, warp, masks)
    blocks = _per_block(cfg, len(warps), warp, row, None)
    fullest = _per_block(cfg, len(warps), warp, row, _popcount(masks))
    cell = runs.warp * shape[1] + runs.block
    n_runs = np.bincount(cell, minlength=blocks.size).reshape(shape)
    either = np.bincount(cell, weights=_popcount(runs.masks), minlength=blocks.size).reshape(shape)
    lanes = np.where(n_runs == blocks, either.astype(np.int64), fullest)
    return WarpCounts(warps, blocks, lanes, _entries(nest, shape[1], runs))


def _per_block(cfg: Cfg, n_warps: int, warp: IntArray, row: IntArray, weights: IntArray | None) -> IntArray:
    """The largest sum among the instructions of each block, [n_warp, n_block]."""
    n_rows = cfg.blocks[-1].stop
    sums = np.bincount(warp * n_rows + row, weights=weights, minlength=n_warps * n_rows)
    begins = np.array([block.start for block in cfg.blocks])
    return np.maximum.reduceat(sums.reshape(n_warps, n_rows), begins, axis=1).astype(np.int64)


def _entries(nest: LoopNest, n_blocks: int, runs: Runs) -> IntArray:
    """Runs of each loop's header all of whose lanes came from outside of the loop."""
    n_loops = len(nest.loops)
    if not n_loops:
        return np.zeros(0, dtype=np.int64)
    loop_of = np.full(n_blocks, -1, dtype=np.int64)
    inside = np.zeros((n_loops, n_blocks), dtype=bool)
    for loop in nest.loops:
        loop_of[loop.header] = loop.index
        inside[loop.index, sorted(loop.blocks)] = True
    headed = loop_of[runs.block]
    stayed = np.zeros(len(headed), dtype=bool)
    for lane in range(WARP_LANES):
        at = np.flatnonzero(runs.masks >> np.uint32(lane) & 1)
        before, now = at[:-1], at[1:]
        same = (runs.warp[before] == runs.warp[now]) & (headed[now] >= 0)
        before, now = before[same], now[same]
        stayed[now] |= inside[headed[now], runs.block[before]]
    return np.bincount(headed[(headed >= 0) & ~stayed], minlength=n_loops).astype(np.int64)


def _batches(trace: Trace, n_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of warps with not too many instructions and counters each, at least one warp."""
    first, n_warps = 0, len(trace.warps)
    most_warps = max(1, _CELLS_AT_ONCE // max(n_rows, 1))
    while first < n_warps:
        limit = int(trace.starts[first]) + _CELLS_AT_ONCE
        last = int(np.searchsorted(trace.starts, limit, side="right")) - 1
        last = min(max(last, first + 1), first + most_warps, n_warps)
        yield first, last
        first = last


def _popcount(masks: MaskArray) -> IntArray:
    lanes: IntArray = active_lanes(masks).sum(axis=1, dtype=np.int64)
    return lanes
