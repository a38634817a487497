"""Work of an executed launch, as the levels of a kernel are compared by: products, bytes, special functions.

Counts are of lanes where lanes work (an `MUFU.EX2` of a whole warp is 32 operations), and of whole instructions where
a warp or a CTA does (a product, a barrier). All are sums over the grid.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from analyzer.demand.tcgen05_tiles import find_tile_extents, is_tcgen05_mma
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import (
    ATOMIC_KINDS,
    GLOBAL_SPACES,
    SHARED_SPACES,
    Opcode,
    OpKind,
)
from analyzer.ir.scheduling import SchedClass


class LaunchWork(Struct, frozen=True):
    """What a launch did, at the level of its instructions."""

    mma_fma: int  # multiply-adds of tensor cores
    xu_operations: int  # lane executions of special functions (MUFU)
    fma_operations: int  # lane executions of additions, multiplications and multiply-adds of floating point
    global_loaded_bytes: int  # that active lanes asked for
    global_stored_bytes: int
    shared_bytes: int  # read and written by lanes in shared memory
    atomics: int  # lanes of atomics in global memory
    barriers: int  # arrivals of CTAs at CTA barriers


_FLOAT_KINDS = frozenset((OpKind.FLOAT, OpKind.HALF, OpKind.DOUBLE))


def count_launch_work(
    cfg: Cfg, profile: ExecutionProfile, matrix_descriptors: Mapping[int, int] | None = None
) -> LaunchWork:
    """Return the work of a launch, summed over its grid.

    matrix_descriptors: of tcgen05 products, by row, as execution found them.
    """
    executions, lanes = _spread_over_rows(cfg, profile)
    opcodes = cfg.kernel.form_table.opcodes
    ids = cfg.kernel.opcode_ids[: len(executions)]
    per_opcode = np.bincount(ids, weights=lanes, minlength=len(opcodes))
    return LaunchWork(
        mma_fma=_count_products(cfg, executions, matrix_descriptors or {}),
        xu_operations=_sum_where(per_opcode, [_is_special_function(each) for each in opcodes]),
        fma_operations=_sum_where(per_opcode, [_is_float_arithmetic(each) for each in opcodes]),
        global_loaded_bytes=_sum_bytes(cfg, profile, is_shared=False, is_store=False),
        global_stored_bytes=_sum_bytes(cfg, profile, is_shared=False, is_store=True),
        shared_bytes=_sum_bytes(cfg, profile, is_shared=True, is_store=None),
        atomics=sum(each.lanes for each in profile.accesses if _is_global_atomic(cfg, each)),
        barriers=_count_barriers(cfg, profile, executions),
    )


def _spread_over_rows(
    cfg: Cfg, profile: ExecutionProfile
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Return warp executions and active lanes of each instruction."""
    lengths = np.array([len(block) for block in cfg.blocks])
    executions = np.repeat(profile.block_executions.astype(np.float64), lengths)
    lanes = np.repeat(profile.block_active_lanes.astype(np.float64), lengths)
    for part in profile.block_parts:
        executions[part.start : part.stop] = part.executions
        lanes[part.start : part.stop] = part.active_lanes
    return executions, lanes


def _sum_where(amounts: np.ndarray[tuple[int], np.dtype[np.float64]], wanted: list[bool]) -> int:
    return int(round(float(amounts[np.array(wanted, dtype=bool)].sum())))


def _is_special_function(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.SPECIAL_FUNCTION


def _is_float_arithmetic(opcode: Opcode) -> bool:
    return opcode.kind in _FLOAT_KINDS and opcode.flops > 0 and opcode.mma_shape is None


def _count_products(
    cfg: Cfg,
    executions: np.ndarray[tuple[int], np.dtype[np.float64]],
    matrix_descriptors: Mapping[int, int],
) -> int:
    """Return the multiply-adds of matrix instructions; a warpgroup's are shared by its warps."""
    total = 0.0
    wanted = cfg.kernel.form_table.make_opcode_mask(lambda opcode: opcode.mma_shape is not None)
    for row in np.flatnonzero(wanted[cfg.kernel.opcode_ids[: len(executions)]]).tolist():
        opcode = cfg.kernel.find_opcode(row)
        shape = opcode.mma_shape
        assert shape is not None
        n_fmas = float(shape.n_fmas)
        if is_tcgen05_mma(opcode):
            extents = find_tile_extents(cfg, row, matrix_descriptors.get(row))
            n_fmas = n_fmas if extents is None else float(extents[0] * extents[1] * shape.k)
        total += executions[row] * n_fmas / shape.n_warps
    return int(round(total))


def _is_global_atomic(cfg: Cfg, access: MemoryAccess) -> bool:
    return access.space in GLOBAL_SPACES and cfg.kernel.find_opcode(access.row).kind in ATOMIC_KINDS


def _sum_bytes(cfg: Cfg, profile: ExecutionProfile, *, is_shared: bool, is_store: bool | None) -> int:
    """Return the bytes of all accesses of a kind, without atomics."""
    spaces = SHARED_SPACES if is_shared else GLOBAL_SPACES
    return sum(
        each.bytes
        for each in profile.accesses
        if each.space in spaces
        and (is_store is None or each.is_store == is_store)
        and cfg.kernel.find_opcode(each.row).kind not in ATOMIC_KINDS
    )


def _count_barriers(
    cfg: Cfg, profile: ExecutionProfile, executions: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> int:
    """Return how often CTAs pass a CTA barrier: executions by their warps, divided by the warps."""
    grid = profile.launch.grid
    warps_per_cta = profile.n_warps / grid.count if grid is not None else 1.0
    wanted = cfg.kernel.form_table.make_opcode_mask(_is_cta_barrier)
    rows = wanted[cfg.kernel.opcode_ids[: len(executions)]]
    return int(round(float(executions[rows].sum()) / max(1.0, warps_per_cta)))


def _is_cta_barrier(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.CTA_BARRIER


