"""Work of an executed launch, in terms that Triton IR, PTX and SASS of a kernel have in common.

The same function serves SASS and virtual code lowered from PTX: both are kernels of the target's opcodes with
an execution profile. Work is counted, which compilers keep, not instructions, which they change:

- A matrix instruction counts M times N times K multiply-adds, however many of them make up one tile.
- Memory counts the bytes that active lanes ask for, and those of bulk copies; atomics are counted apart.
- `XU_OPERATIONS` are MUFU operations by active lanes: a division, a reciprocal or a root counts its seed, so
  `a / b` is one. Left out are conversions, which run on the same pipe, and the seeds of integer divisions,
  which only SASS names: a MUFU.RCP of what I2F.RP made.
- Barriers count passes of CTAs: executions of CTA barriers by their warps over the warps.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.tcgen05_tiles import count_tile_fmas, is_tcgen05_mma
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import BoolArray
from analyzer.ir.opcode import (
    ATOMIC_KINDS,
    GLOBAL_SPACES,
    SHARED_SPACES,
    Opcode,
    OpKind,
    Semantics,
    is_cta_barrier,
)
from analyzer.ir.scheduling import WARP_SIZE

Amounts = NDArray[np.float64]
_FLOAT_KINDS = frozenset((OpKind.FLOAT, OpKind.HALF, OpKind.DOUBLE))
_BULK_STORES = frozenset((Semantics.BULK_STORE, Semantics.BULK_REDUCTION))
_INTEGER_TO_FLOAT = frozenset(("I2F", "UI2F"))


class Work(IntEnum):
    """What is counted."""

    MMA_FMA = 0  # multiply-adds of tensor cores, sparse ones as if dense
    XU_OPERATIONS = 1  # lane executions of special functions
    FMA_OPERATIONS = 2  # lane executions of additions, multiplications and multiply-adds of floating point
    GLOBAL_LOADED_BYTES = 3  # that active lanes asked for
    GLOBAL_STORED_BYTES = 4
    SHARED_BYTES = 5  # read and written by lanes in shared memory
    ATOMICS = 6  # lanes of atomics in global memory
    BARRIERS = 7  # arrivals of CTAs at CTA barriers


class LaunchWork(Struct, frozen=True):
    """What a launch did, summed over its grid; fields as in `Work`."""

    mma_fma: int
    xu_operations: int
    fma_operations: int
    global_loaded_bytes: int
    global_stored_bytes: int
    shared_bytes: int
    atomics: int
    barriers: int


def count_launch_work(
    cfg: Cfg, profile: ExecutionProfile, matrix_descriptors: Mapping[int, int] | None = None
) -> LaunchWork:
    """Return the work of a launch; arguments as of `measure_instruction_work`."""
    totals = measure_instruction_work(cfg, profile, matrix_descriptors).sum(axis=1)
    return LaunchWork(*(round(float(total)) for total in totals))


def measure_instruction_work(
    cfg: Cfg, profile: ExecutionProfile, matrix_descriptors: Mapping[int, int] | None = None
) -> Amounts:
    """Return the work of each instruction, [`Work`, row], summed over the grid.

    matrix_descriptors: of tcgen05 products, by row, as execution found them.
    """
    executions, lanes = _spread_over_rows(cfg, profile)
    kernel = cfg.kernel
    ids = kernel.opcode_ids[: len(executions)]
    found = np.zeros((len(Work), len(executions)))

    def select(test: Callable[[Opcode], bool]) -> BoolArray:
        return kernel.form_table.make_opcode_mask(test)[ids]

    functions = select(_is_special_function) & ~_find_division_seeds(cfg, len(executions))
    found[Work.XU_OPERATIONS] = np.where(functions, lanes, 0.0)
    found[Work.FMA_OPERATIONS] = np.where(select(_is_float_arithmetic), lanes, 0.0)
    for row in np.flatnonzero(select(_is_product)).tolist():
        found[Work.MMA_FMA, row] = executions[row] * _count_fmas(cfg, row, matrix_descriptors or {})
    for access in profile.accesses:
        column = _find_column(kernel.find_opcode(access.row), access)
        if column is not None:
            found[column, access.row] += access.lanes if column is Work.ATOMICS else access.bytes
    grid, block = profile.launch.grid, profile.launch.block
    warps_per_cta = 1.0
    if block is not None:
        warps_per_cta = -(-block.count // WARP_SIZE)
    elif grid is not None:
        warps_per_cta = profile.n_warps / grid.count
    found[Work.BARRIERS] = np.where(select(is_cta_barrier), executions / max(1.0, warps_per_cta), 0.0)
    return found


def find_unmeasured_work(cfg: Cfg, profile: ExecutionProfile) -> frozenset[Work]:
    """Return which bytes are not all counted: the boxes of tensor copies that were executed are not known.

    A box stands in its tensor map, which may lie in memory that nobody gave.
    """
    executions, _ = _spread_over_rows(cfg, profile)
    kernel = cfg.kernel
    is_copy = kernel.form_table.make_opcode_mask(_is_bulk_copy)[kernel.opcode_ids[: len(executions)]]
    measured = {access.row for access in profile.accesses if access.bytes}
    rows = [row for row in np.flatnonzero(is_copy & (executions > 0)).tolist() if row not in measured]
    return frozenset(
        Work.GLOBAL_STORED_BYTES
        if kernel.find_opcode(row).semantics in _BULK_STORES
        else Work.GLOBAL_LOADED_BYTES
        for row in rows
    )


def _is_bulk_copy(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.BULK_COPY and opcode.space in GLOBAL_SPACES


def _spread_over_rows(cfg: Cfg, profile: ExecutionProfile) -> tuple[Amounts, Amounts]:
    """Return warp executions and active lanes of each instruction."""
    lengths = np.array([len(block) for block in cfg.blocks])
    executions = np.repeat(profile.block_executions.astype(np.float64), lengths)
    lanes = np.repeat(profile.block_active_lanes.astype(np.float64), lengths)
    for part in profile.block_parts:
        executions[part.start : part.stop] = part.executions
        lanes[part.start : part.stop] = part.active_lanes
    return executions, lanes


def _is_special_function(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.SPECIAL_FUNCTION


def _is_float_arithmetic(opcode: Opcode) -> bool:
    return opcode.kind in _FLOAT_KINDS and opcode.flops > 0 and opcode.mma_shape is None


def _is_product(opcode: Opcode) -> bool:
    return opcode.mma_shape is not None


def _is_divisor_conversion(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.CONVERT and opcode.name in _INTEGER_TO_FLOAT and "RP" in opcode.modifiers


def _find_division_seeds(cfg: Cfg, n_rows: int) -> BoolArray:
    """Return which instructions are reciprocals of integer divisors."""
    kernel = cfg.kernel
    ids = kernel.opcode_ids[:n_rows]
    is_seed = np.zeros(n_rows, dtype=bool)
    converts = kernel.form_table.make_opcode_mask(_is_divisor_conversion)[ids]
    if not converts.any():
        return is_seed
    functions = kernel.form_table.make_opcode_mask(_is_special_function)[ids]
    converted: set[int] = set()
    for row in range(n_rows):  # in the order of the code: both may stand in different blocks
        form = kernel.decode_form(row)
        is_seed[row] = functions[row] and not converted.isdisjoint(form.uses)
        converted -= set(form.defs)
        if converts[row]:
            converted |= set(form.defs)
    return is_seed


def _count_fmas(cfg: Cfg, row: int, matrix_descriptors: Mapping[int, int]) -> float:
    """Return the multiply-adds of one execution by a warp; a warpgroup's are shared by its warps."""
    opcode = cfg.kernel.find_opcode(row)
    shape = opcode.mma_shape
    assert shape is not None
    if is_tcgen05_mma(opcode):
        return count_tile_fmas(cfg, row, matrix_descriptors.get(row), shape.k)
    return float(shape.n_fmas) / shape.n_warps


def _find_column(opcode: Opcode, access: MemoryAccess) -> Work | None:
    if opcode.kind in ATOMIC_KINDS:
        return Work.ATOMICS if access.space in GLOBAL_SPACES else None
    if access.space in SHARED_SPACES:
        return Work.SHARED_BYTES
    if access.space in GLOBAL_SPACES:
        return Work.GLOBAL_STORED_BYTES if access.is_store else Work.GLOBAL_LOADED_BYTES
    return None
