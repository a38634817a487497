"""What a launch does, in terms that its Triton IR, its PTX and its SASS have in common.

The same function serves SASS and virtual code lowered from PTX, as both are kernels of the target's opcodes
with an execution profile. What is counted is work, which compilers keep, not instructions, which they change:

- An MMA instruction counts M times N times K multiply-adds, however many of them make up one tile.
- Global memory counts the bytes that lanes ask for, and those of bulk copies; atomics count as stored.
- `xu_operations` are MUFU operations by active lanes. A division, a reciprocal or a root counts its seed, so
  `a / b` is one. Conversions run on the same pipe and are left out, and so are the seeds of integer
  divisions where their converted divisor comes from (I2F before MUFU), which PTX does not name.
"""

import numpy as np
from msgspec import Struct

from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import CountArray
from analyzer.ir.opcode import ATOMIC_KINDS, AddressSpace, Opcode, OpKind
from analyzer.ir.scheduling import WARP_SIZE, SchedClass

_GLOBAL = frozenset({AddressSpace.GLOBAL, AddressSpace.GENERIC})
_SHARED = frozenset({AddressSpace.SHARED, AddressSpace.DISTRIBUTED_SHARED})


class LevelCounts(Struct, frozen=True, kw_only=True):
    """Work of one launch."""

    mma_fma: int  # multiply-adds of matrix instructions, sparse ones as if dense
    global_loaded_bytes: int
    global_stored_bytes: int
    shared_bytes: int  # that lanes load and store
    barriers: float  # CTA barriers, summed over CTAs; one that some warps skip counts their share
    xu_operations: int  # by active lanes


def count_level(cfg: Cfg, profile: ExecutionProfile) -> LevelCounts:
    """Count the work of a launch that was executed.

    profile: of this kernel.
    """
    executions, lanes = count_rows(cfg, profile)
    kernel = cfg.kernel
    n = len(executions)
    ids = kernel.opcode_ids[:n]
    fmas = np.array([_count_fmas(opcode) for opcode in kernel.form_table.opcodes], dtype=np.float64)
    is_barrier = kernel.form_table.make_opcode_mask(_is_cta_barrier)[ids]
    is_function = kernel.form_table.make_opcode_mask(_is_function)[ids] & ~_find_division_seeds(cfg, n)
    loaded, stored, shared = _sum_bytes(profile, kernel.find_opcode)
    block = profile.launch.block
    warps_per_cta = 1 if block is None else -(-block.count // WARP_SIZE)
    return LevelCounts(
        mma_fma=round(float((executions * fmas[ids]).sum())),
        global_loaded_bytes=loaded,
        global_stored_bytes=stored,
        shared_bytes=shared,
        barriers=float(executions[is_barrier].sum()) / warps_per_cta,
        xu_operations=int(lanes[is_function].sum()),
    )


def count_rows(cfg: Cfg, profile: ExecutionProfile) -> tuple[CountArray, CountArray]:
    """Return warp executions and active lanes of each instruction, [n], summed over the grid."""
    lengths = [len(block) for block in cfg.blocks]
    executions = np.repeat(np.asarray(profile.block_executions), lengths)
    lanes = np.repeat(np.asarray(profile.block_active_lanes), lengths)
    for part in profile.block_parts:
        executions[part.start : part.stop] = part.executions
        lanes[part.start : part.stop] = part.active_lanes
    return executions, lanes


def _count_fmas(opcode: Opcode) -> float:
    shape = opcode.mma_shape
    return 0.0 if shape is None else shape.n_fmas / shape.n_warps


def _is_cta_barrier(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.CTA_BARRIER


def _is_function(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.SPECIAL_FUNCTION


def _is_conversion_of_divisor(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.CONVERT and opcode.name in ("I2F", "UI2F") and "RP" in opcode.modifiers


def _find_division_seeds(cfg: Cfg, n: int) -> np.ndarray:
    """Return which instructions are reciprocals of integer divisors, [n]: of a word that I2F.RP made."""
    kernel = cfg.kernel
    mask = np.zeros(n, dtype=bool)
    makers = kernel.form_table.make_opcode_mask(_is_conversion_of_divisor)[kernel.opcode_ids[:n]]
    if not makers.any():
        return mask
    functions = kernel.form_table.make_opcode_mask(_is_function)[kernel.opcode_ids[:n]]
    made: set[int] = set()
    for row in range(n):  # in the order of the code: both may stand in different blocks
        form = kernel.decode_form(row)
        mask[row] = functions[row] and not made.isdisjoint(form.uses)
        made -= set(form.defs)
        if makers[row]:
            made |= set(form.defs)
    return mask


def _sum_bytes(profile: ExecutionProfile, find_opcode: "object") -> tuple[int, int, int]:
    loaded = stored = shared = 0
    for access in profile.accesses:
        if access.space in _SHARED:
            shared += access.bytes
        elif access.space in _GLOBAL:
            is_atomic = find_opcode(access.row).kind in ATOMIC_KINDS  # type: ignore[operator]
            if access.is_store or is_atomic or _is_bulk_store(access, find_opcode):
                stored += access.bytes
            else:
                loaded += access.bytes
    return loaded, stored, shared


def _is_bulk_store(access: MemoryAccess, find_opcode: "object") -> bool:
    opcode = find_opcode(access.row)  # type: ignore[operator]
    return opcode.kind is OpKind.BULK_COPY and access.is_store
