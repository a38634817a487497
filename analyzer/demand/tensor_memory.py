"""Columns of tensor memory that a CTA takes: what tcgen05.alloc asks for.

They are handed out in blocks of 32 columns, and the code puts the number of blocks into a register (PTX ISA,
tcgen05.alloc; the unit as code that ptxas 13.0 writes for 32 to 512 columns has it).
"""

import numpy as np

from analyzer.execution.static_counts.integer_constants import find_constant_before
from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import Opcode

_ALLOC_OPCODE = "UTCATOMSWS"
_ALLOC_MODIFIER = "FIND_AND_SET"
_COLUMNS_PER_BLOCK = 32


def find_tensor_columns(cfg: Cfg) -> int:
    """The most that one allocation takes, 0 where there is none or the code does not say how many.

    An allocation stands twice in the code, as it is tried again until there is room.
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
