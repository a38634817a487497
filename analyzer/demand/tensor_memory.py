"""Columns of tensor memory that a CTA allocates with tcgen05.alloc, and how long it keeps others from that.

They are allocated in blocks of 32 columns (PTX ISA, tcgen05.alloc). The code puts the number of blocks into a
register, as ptxas 13.0 compiles allocations of 32 to 512 columns.

A CTA that allocates begins with the right to do so, of which an SM has one, and gives it up with
tcgen05.relinquish_alloc_permit or when it ends; until then no other such CTA starts there. Evidence:

- ptxas marks each such kernel with 0x80 of a resource that is counted when CTAs are launched
  (EIATTR_VRC_CTA_INIT_COUNT), and compiles the instruction to UVIRTCOUNT.DEALLOC.SMPOOL 0x80, however many
  columns there are.
- CUTLASS gives it up "so that the next CTA can rasterize" (sm100_gemm_tma_warpspecialized.hpp).
- Kernels of NVIDIA/tilus with one buffer and no such instruction (examples/blackwell_matmul, v0 and v1) take
  3.9 and 4.3 million cycles for 8192 x 8192 x 8192 on B200. In the simulation one CTA of 128 x 256 on an SM
  takes 3.3, two take 1.7.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.static_counts.integer_constants import find_constant_before
from analyzer.flow.cfg import Cfg
from analyzer.hardware.schema import SmLimits
from analyzer.ir.opcode import Opcode
from analyzer.ir.scheduling import SchedClass

_ALLOC_OPCODE = "UTCATOMSWS"
_ALLOC_MODIFIER = "FIND_AND_SET"
_COLUMNS_PER_BLOCK = 32
_RELINQUISH_OPCODE = "UVIRTCOUNT"
_RELINQUISH_MODIFIERS = frozenset(("DEALLOC", "SMPOOL"))
_WORK_CLASSES = frozenset((SchedClass.MMA_TENSOR_CORE, SchedClass.TENSOR_MEMORY_LOAD))


def find_occupied_columns(cfg: Cfg, limits: SmLimits) -> int:
    """Return the columns that no other CTA gets: all of an SM where this one keeps the right to allocate."""
    columns, of_sm = find_tensor_columns(cfg), limits.tensor_columns_per_sm
    if not columns or of_sm is None or not keeps_allocation_permit(cfg):
        return columns
    return int(of_sm.value)


def keeps_allocation_permit(cfg: Cfg) -> bool:
    """Return whether a CTA that allocates keeps the right to do so while it multiplies.

    It does unless the code gives it up behind an allocation, no product and no load of results in between.
    """
    allocations = _find_rows(cfg, _is_tensor_memory_alloc)
    work = _find_rows(cfg, _is_tensor_work)
    for row in _find_rows(cfg, _is_permit_release).tolist():
        start = allocations[allocations < row].max(initial=-1)
        if not ((work > start) & (work < row)).any():
            return False
    return bool(allocations.size)


def find_tensor_columns(cfg: Cfg) -> int:
    """Return the columns of the largest allocation, 0 without any or if the code does not tell.

    The largest, not the sum: an allocation appears twice in the code, as it is retried until there is room.
    """
    blocks = (
        find_constant_before(cfg, cfg.block_of[row], row, cfg.kernel.decode_form(row).operands[-1])
        for row in _find_rows(cfg, _is_tensor_memory_alloc).tolist()
    )
    return _COLUMNS_PER_BLOCK * max((number or 0 for number in blocks), default=0)


def _is_tensor_memory_alloc(opcode: Opcode) -> bool:
    return opcode.name == _ALLOC_OPCODE and _ALLOC_MODIFIER in opcode.modifiers


def _is_tensor_work(opcode: Opcode) -> bool:
    return opcode.sched_class in _WORK_CLASSES


def _is_permit_release(opcode: Opcode) -> bool:
    return opcode.name == _RELINQUISH_OPCODE and _RELINQUISH_MODIFIERS.issubset(opcode.modifiers)


def _find_rows(cfg: Cfg, test: Callable[[Opcode], bool]) -> NDArray[np.int64]:
    kernel = cfg.kernel
    chosen = kernel.form_table.make_opcode_mask(test)
    return np.flatnonzero(chosen[kernel.opcode_ids[: len(cfg.block_of)]])
