"""Executed accesses to local memory, told apart: spilled registers, and arrays that no register can hold.

Which words of the stack frame hold spilled registers, `analyzer/demand/stack_use.py` says. Where the code
computes the address of some executed access, all accesses but those of spills belong to an array whose index
is not a constant: its initial values and its results lie at constant offsets.
"""

from collections.abc import Collection

import numpy as np
from msgspec import Struct

from analyzer.demand.stack_use import list_slot_words, measure_stack_use
from analyzer.ir.opcode import OpKind, accesses_local_memory
from analyzer.models.interface import ModelInput


class FrameAccesses(Struct, frozen=True, eq=False):
    """Rows of executed accesses to local memory by what they access."""

    spill_rows: tuple[int, ...]
    array_rows: tuple[int, ...]
    words_by_row: dict[int, frozenset[int]]  # of accesses at constant offsets

    def count_words(self, rows: Collection[int]) -> int:
        """Count the distinct words of the frame at constant offsets that some rows access."""
        return len(frozenset[int]().union(*(self.words_by_row.get(row, frozenset()) for row in rows)))


def find_frame_accesses(model_input: ModelInput) -> FrameAccesses:
    """Find spills and arrays among the executed accesses to local memory."""
    kernel = model_input.kernel
    is_local = kernel.form_table.make_opcode_mask(accesses_local_memory)[kernel.opcode_ids]
    rows = np.flatnonzero(is_local & (model_input.execution_counts > 0)).tolist()
    if not rows:
        return FrameAccesses((), (), {})
    words = {row: list_slot_words(kernel.decode_form(row)) for row in rows}
    constant = {row: frozenset(found) for row, found in words.items() if found is not None}
    spilled = measure_stack_use(kernel).spilled_words
    spill_rows = tuple(row for row, found in constant.items() if found <= spilled)
    has_array = len(constant) < len(rows)
    return FrameAccesses(
        spill_rows=spill_rows,
        array_rows=tuple(row for row in rows if row not in spill_rows) if has_array else (),
        words_by_row=constant,
    )


def count_live_words(model_input: ModelInput, accesses: FrameAccesses) -> int:
    """Count the spilled words that are alive at a time, at most: registers that the code lacks.

    A word is alive from a store to the last load before the next store; backwards over the blocks until
    nothing changes (Aho, Lam, Sethi and Ullman, Compilers, section 9.2.5).
    """
    cfg = model_input.cfg
    by_block: list[list[int]] = [[] for _ in cfg.blocks]
    for row in sorted(accesses.spill_rows):
        by_block[cfg.block_of[row]].append(row)
    live_in: list[frozenset[int]] = [frozenset()] * len(cfg.blocks)
    most, changed = 0, True
    while changed:
        changed = False
        for block in reversed(range(len(cfg.blocks))):
            live = frozenset[int]().union(*(live_in[after] for after in cfg.successors[block]))
            most = max(most, len(live))
            for row in reversed(by_block[block]):
                words = accesses.words_by_row[row]
                live = live - words if _is_store(model_input, row) else live | words
                most = max(most, len(live))
            if live != live_in[block]:
                live_in[block], changed = live, True
    return most


def _is_store(model_input: ModelInput, row: int) -> bool:
    return model_input.kernel.find_opcode(row).kind is OpKind.STORE
