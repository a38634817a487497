"""Recognition of atomic counters in global memory and of the compares that test their values.

In a grid-wide reduction each CTA increments a counter, and the CTA that gets the last value adds up the
partial results of all. One CTA of many takes that path, so it is neglected: the value of a counter counts as
unequal to the number that the code compares it with.

    ATOMG.ADD R4, [R2], 1       # an atomic counter
    ISETP.EQ P0, R4, R6         # a compare of its value: taken as false
"""

from collections.abc import Mapping

from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import GLOBAL_SPACES, Opcode, OpKind, Semantics

MIN_COUNTER_PARTICIPANTS = 16  # with so many, the path that only one of them takes is neglected
_COUNTING_MODIFIERS = frozenset({"ADD", "INC"})
_EQUALITY_MODIFIERS = frozenset({"EQ", "NE"})


def is_atomic_counter(opcode: Opcode) -> bool:
    """Return whether an instruction increments a counter in global memory."""
    is_atomic = opcode.kind is OpKind.ATOMIC and opcode.space in GLOBAL_SPACES
    return is_atomic and not _COUNTING_MODIFIERS.isdisjoint(opcode.modifiers)


def find_counter_compares(cfg: Cfg) -> Mapping[int, tuple[int, ...]]:
    """Find equality compares of a counter value read in the same block: {row: registers with that value}."""
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
