"""Accesses to local memory, told apart: spilled registers, and arrays that no register can hold.

The stack frame of a thread begins at R1, the stack pointer of the CUDA ABI. Evidence:

- a register that the compiler spills has a slot of its own at a constant offset, `[R1+0x10]`, to which the
  code both stores and loads;
- an array whose index is not a constant is accessed through a computed address, `[R7]`. Words that are only
  stored, or only loaded, at constant offsets belong to such an array (its initial values, its results), or to
  the arguments of a call where the code computes no address.

Limits: words of an array that the code both stores and loads at constant offsets look like spills.
"""

from collections.abc import Collection

import numpy as np
from msgspec import Struct

from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import MEMORY_KINDS, AddressSpace, Opcode, OpKind
from analyzer.ir.operand import Address, DescriptorOperand, RegisterFile
from analyzer.models.interface import ModelInput

WORD_BYTES = 4
_STACK_POINTER_INDEX = 1


class FrameAccesses(Struct, frozen=True, eq=False):
    """Rows of executed accesses to local memory by what they access."""

    spill_rows: tuple[int, ...]
    array_rows: tuple[int, ...]
    slots_by_row: dict[int, frozenset[int]]  # offsets of the words that a row accesses at constant offsets

    def count_words(self, rows: Collection[int]) -> int:
        """Count the distinct words of the frame at constant offsets that some rows access."""
        return len(frozenset[int]().union(*(self.slots_by_row.get(row, frozenset()) for row in rows)))


def find_frame_accesses(model_input: ModelInput) -> FrameAccesses:
    """Find spills and arrays among the executed accesses to local memory."""
    kernel = model_input.kernel
    is_local = kernel.form_table.make_opcode_mask(_accesses_local_memory)[kernel.opcode_ids]
    rows = np.flatnonzero(is_local & (model_input.execution_counts > 0)).tolist()
    slots = {row: _find_slots(kernel.decode_form(row)) for row in rows}
    constant = {row: found for row, found in slots.items() if found is not None}
    stored, loaded = (
        frozenset[int]().union(
            *(found for row, found in constant.items() if _is_store(model_input, row) is side)
        )
        for side in (True, False)
    )
    spilled = stored & loaded
    spill_rows = tuple(row for row, found in constant.items() if found & spilled)
    has_array = len(constant) < len(rows)
    return FrameAccesses(
        spill_rows=spill_rows,
        array_rows=tuple(row for row in rows if row not in spill_rows) if has_array else (),
        slots_by_row=constant,
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
                slots = accesses.slots_by_row[row]
                live = live - slots if _is_store(model_input, row) else live | slots
                most = max(most, len(live))
            if live != live_in[block]:
                live_in[block], changed = live, True
    return most


def _is_store(model_input: ModelInput, row: int) -> bool:
    return model_input.kernel.find_opcode(row).kind is OpKind.STORE


def _find_slots(form: InstructionForm) -> frozenset[int] | None:
    """Return the offsets of the words at a constant distance from the stack pointer; None if computed."""
    address = next((found for operand in form.operands if (found := _get_address(operand)) is not None), None)
    if address is None or len(address.bases) != 1:
        return None
    base = address.bases[0]
    if base.file is not RegisterFile.GENERAL or base.index != _STACK_POINTER_INDEX:
        return None
    n_bytes = max(WORD_BYTES, form.opcode.width_bytes)
    first = address.offset // WORD_BYTES * WORD_BYTES
    return frozenset(range(first, first + n_bytes, WORD_BYTES))


def _get_address(operand: object) -> Address | None:
    if isinstance(operand, DescriptorOperand):
        return operand.address
    return operand if isinstance(operand, Address) else None


def _accesses_local_memory(opcode: Opcode) -> bool:
    return opcode.kind in MEMORY_KINDS and opcode.space is AddressSpace.LOCAL
