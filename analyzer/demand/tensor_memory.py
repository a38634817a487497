"""Columns of tensor memory that a CTA takes: what tcgen05.alloc asks for.

They are handed out in blocks of 32 columns, and the code puts the number of blocks into a register (PTX ISA,
tcgen05.alloc; the unit as code that ptxas 13.0 writes for 32 to 512 columns has it).
"""

import numpy as np

from analyzer.execution.constants import constant_before
from analyzer.flow.cfg import Cfg

_ALLOCATES = "UTCATOMSWS"
_TAKES = "FIND_AND_SET"
_COLUMNS_PER_BLOCK = 32


def tensor_columns(cfg: Cfg) -> int:
    """The most that one allocation takes, 0 where there is none or the code does not say how many.

    An allocation stands twice in the code, as it is tried again until there is room.
    """
    kernel = cfg.kernel
    takes = kernel.vocabulary.mask(lambda opcode: opcode.name == _ALLOCATES and _TAKES in opcode.modifiers)
    rows = np.flatnonzero(takes[kernel.opcode_ids[: len(cfg.block_of)]]).tolist()
    blocks = (constant_before(cfg, cfg.block_of[row], row, kernel.form(row).operands[-1]) for row in rows)
    return _COLUMNS_PER_BLOCK * max((number or 0 for number in blocks), default=0)
