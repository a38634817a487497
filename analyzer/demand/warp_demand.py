"""Demand of one warp: operations per pipe and bytes per memory level, of a kernel or a loop iteration."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.access_bytes import AccessBytes
from analyzer.demand.opcode_costs import PIPES, OpcodeCosts
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import FloatArray, IdArray, make_read_only, order_by_first_place
from analyzer.ir.scheduling import Pipe


class PipeDemand(Struct, frozen=True):
    """Warp instructions that one warp issues to a pipe, and the cycles for which they hold it."""

    operations: float
    cycles: float


class WarpDemand(Struct, frozen=True, kw_only=True):
    """Demand of one warp; bytes are requested ones, before any cache (see `AccessBytes`)."""

    instructions: float  # issue slots
    pipes: Mapping[Pipe, PipeDemand]  # in order of `Pipe`, without unused ones
    tensor_fma: float
    global_bytes: float
    shared_bytes: float
    local_bytes: float


def count_instruction_executions(cfg: Cfg, block_counts: tuple[float, ...]) -> FloatArray:
    """Count the executions of each instruction, [n], read-only; 0 for padding behind the code."""
    weights = np.zeros(len(cfg.kernel))
    lengths = np.array([len(block) for block in cfg.blocks])
    total = int(lengths.sum())
    weights[:total] = np.repeat(np.array(block_counts, dtype=np.float64), lengths)
    make_read_only(weights)
    return weights


def compute_warp_demand(
    opcode_ids: IdArray,
    weights: FloatArray,
    costs: OpcodeCosts,
    moved: AccessBytes,
    rows: slice = slice(None),
) -> WarpDemand:
    """Compute the demand of one warp.

    opcode_ids, moved: of a kernel's instructions, [n].
    weights: executions of each of them, or of those that `rows` selects.
    """
    ids, n_opcodes = opcode_ids[rows], len(costs.pipe)
    # Opcodes are numbered through the module: in their own order, sums are the kernel's own to the last bit.
    used = order_by_first_place(ids, n_opcodes)
    executed = _sum_by_id(ids, weights, n_opcodes)[used]
    cycles = executed * costs.issue_cycles[used]
    repeated = weights * (moved.constant_passes[rows] - 1.0)
    if repeated.any():
        cycles += _sum_by_id(ids, repeated, n_opcodes)[used] * costs.issue_cycles[used]
    n_pipes = len(PIPES)
    pipe, alternate_pipe = costs.pipe[used], costs.alternate_pipe[used]
    operations = _sum_by_id(pipe, executed, n_pipes)
    busy = _sum_by_id(pipe, cycles, n_pipes)
    shared = alternate_pipe >= 0
    if shared.any():
        _balance_alternate_pipes(pipe, alternate_pipe, shared, executed, cycles, operations, busy)
    return WarpDemand(
        instructions=float(executed.sum()),
        pipes={
            pipe: PipeDemand(float(operations[i]), float(busy[i]))
            for i, pipe in enumerate(PIPES)
            if operations[i] > 0 and pipe is not Pipe.FRONTEND
        },
        tensor_fma=float(executed @ costs.tensor_fma[used]),
        global_bytes=float(weights @ moved.global_bytes[rows]),
        shared_bytes=float(weights @ moved.shared_bytes[rows]),
        local_bytes=float(weights @ moved.local_bytes[rows]),
    )


def _sum_by_id(ids: NDArray[np.integer[Any]], weights: FloatArray, n: int) -> FloatArray:
    return np.bincount(ids, weights=weights, minlength=n).astype(np.float64)


def _balance_alternate_pipes(
    pipe: NDArray[np.int8],
    alternate_pipe: NDArray[np.int8],
    shared: NDArray[np.bool_],
    executed: FloatArray,
    cycles: FloatArray,
    operations: FloatArray,
    busy: FloatArray,
) -> None:
    """Move instructions that two pipes take to the less busy one, as the scheduler would; in place."""
    pairs = {(int(a), int(b)) for a, b in zip(pipe[shared], alternate_pipe[shared], strict=True)}
    for main, other in sorted(pairs):
        movable = shared & (pipe == main) & (alternate_pipe == other)
        movable_cycles, movable_operations = float(cycles[movable].sum()), float(executed[movable].sum())
        moved = min(movable_cycles, max(0.0, (busy[main] - busy[other]) / 2))
        if movable_cycles <= 0 or moved <= 0:
            continue
        share = moved / movable_cycles
        busy[main] -= moved
        busy[other] += moved
        operations[main] -= movable_operations * share
        operations[other] += movable_operations * share
