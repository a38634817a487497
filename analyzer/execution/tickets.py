"""Numbers that atomics hand out as they count: a grid's last CTA is told by its own.

Of many CTAs or threads one gets a certain number, as the one that is to add up what all have left. The others
stand for the grid: a ticket is taken to be unlike the number that it is asked to equal.
"""

from collections.abc import Mapping

from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import GLOBAL_SPACES, Opcode, OpKind, Semantics

MANY = 16  # what one of so many does is neglected
_COUNTING = frozenset({"ADD", "INC"})
_EQUALITIES = frozenset({"EQ", "NE"})


def counts_up(opcode: Opcode) -> bool:
    """Whether an instruction hands out numbers of a counter in global memory."""
    is_atomic = opcode.kind is OpKind.ATOMIC and opcode.space in GLOBAL_SPACES
    return is_atomic and not _COUNTING.isdisjoint(opcode.modifiers)


def asked_tickets(cfg: Cfg) -> Mapping[int, tuple[int, ...]]:
    """Comparisons with a ticket that was handed out in the same block, with the registers that hold it."""
    kernel = cfg.kernel
    if not kernel.vocabulary.mask(counts_up)[kernel.opcode_ids].any():
        return {}
    found: dict[int, tuple[int, ...]] = {}
    for block in cfg.blocks:
        tickets: set[int] = set()
        for row in range(block.start, block.stop):
            form = kernel.form(row)
            if _is_equality(form.opcode) and (asked := tickets.intersection(form.read)):
                found[row] = tuple(asked)
            tickets.difference_update(form.written)
            if counts_up(form.opcode):
                tickets.update(form.written)
    return found


def _is_equality(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.INT_COMPARE and not _EQUALITIES.isdisjoint(opcode.modifiers)
