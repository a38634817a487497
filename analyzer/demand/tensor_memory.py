"""Columns of tensor memory that a CTA allocates with tcgen05.alloc.

They are allocated in blocks of 32 columns (PTX ISA, tcgen05.alloc). The code puts the number of blocks into a
register, as ptxas 13.0 compiles allocations of 32 to 512 columns.
"""

import numpy as np

from analyzer.execution.static_counts.integer_constants import find_constant_before
from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import Opcode

_ALLOC_OPCODE = "UTCATOMSWS"
_ALLOC_MODIFIER = "FIND_AND_SET"
_COLUMNS_PER_BLOCK = 32


def find_tensor_columns(cfg: Cfg) -> int:
    """Return the columns of the largest allocation, 0 without any or if the code does not tell.

    The largest, not the sum: an allocation appears twice in the code, as it is retried until there is room.
    """
    kernel = cfg.kernel
    takes = kernel.form_table.make_opcode_mask(_is_tensor_memory_alloc)
    rows = np.flatnonzero(takes[kernel.opcode_ids[: len(cfg.block_of)]]).tolist()
    blocks = (
        find_constant_before(cfg, cfg.block_of[row], row, kernel.decode_form(row).operands[-1])
        for row in rows
    )
    return _COLUMNS_PER_BLOCK * max((number or 0 for number in blocks), default=0)


def _is_tensor_memory_alloc(opcode: Opcode) -> bool:
    return opcode.name == _ALLOC_OPCODE and _ALLOC_MODIFIER in opcode.modifiers
