"""Numbers that atomics hand out as they count: a grid's last CTA is told by its own.

Of many CTAs or threads one gets a certain number, as the one that is to add up what all have left. The others
stand for the grid: a ticket is taken to be unlike the number that it is asked to equal.
"""

from collections.abc import Mapping

from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import GLOBAL_SPACES, Opcode, OpKind, Semantics

MIN_COUNTER_PARTICIPANTS = 16  # what one of so many does is neglected
_COUNTING_MODIFIERS = frozenset({"ADD", "INC"})
_EQUALITY_MODIFIERS = frozenset({"EQ", "NE"})


def is_atomic_counter(opcode: Opcode) -> bool:
    """Whether an instruction hands out numbers of a counter in global memory."""
    is_atomic = opcode.kind is OpKind.ATOMIC and opcode.space in GLOBAL_SPACES
    return is_atomic and not _COUNTING_MODIFIERS.isdisjoint(opcode.modifiers)


def find_counter_compares(cfg: Cfg) -> Mapping[int, tuple[int, ...]]:
    """Comparisons with a ticket that was handed out in the same block, with the registers that hold it."""
    kernel = cfg.kernel
    if not kernel.form_table.make_opcode_mask(is_atomic_counter)[kernel.opcode_ids].any():
        return {}
    found: dict[int, tuple[int, ...]] = {}
    for block in cfg.blocks:
        counter_registers: set[int] = set()
        for row in range(block.start, block.stop):
            form = kernel.decode_form(row)
            if _is_equality_compare(form.opcode) and (
                compared_registers := counter_registers.intersection(form.uses)
            ):
                found[row] = tuple(compared_registers)
            counter_registers.difference_update(form.defs)
            if is_atomic_counter(form.opcode):
                counter_registers.update(form.defs)
    return found


def _is_equality_compare(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.INT_COMPARE and not _EQUALITY_MODIFIERS.isdisjoint(opcode.modifiers)
