"""Find what waits for IMAD.WIDE while the tensor core works for a warpgroup.

IMAD.WIDE reads and writes register pairs. While products of a warpgroup run, the tensor core reads and writes
a register of its sums in every cycle, and goes first; an IMAD.WIDE beside it has its result many times later
than its stall count says. The hardware holds the first instruction that uses or overwrites the result at
dispatch. Stall samples of an H100 show this (traces/h100, docs/h100.md): of two products that copy the same
bytes by LDGSTS, only the one that forms addresses by IMAD.WIDE stands there.

Products run until the last one's sums are there, so the sums' latency is part of it.

The invariant: each instruction is held for the last IMAD.WIDE before it, in its block, on each register that
it touches.

Example: `HGMMA; IMAD.WIDE R2; IMAD.WIDE R4; LDGSTS [R2]; LDGSTS [R4]`: the first copy waits for the whole
latency, the second one hardly any more, since both multiplications run at the same time.
"""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.ir.opcode import Opcode
from analyzer.ir.scheduling import SchedClass
from analyzer.models.interface import ModelInput


class WideHazards(Struct, frozen=True):
    """Instructions IMAD.WIDE, by row, and rows that are held for them."""

    latency_cycles: float = 0.0
    products: frozenset[int] = frozenset()
    waits: Mapping[int, tuple[int, ...]] = {}


def find_wide_hazards(model_input: ModelInput) -> WideHazards:
    """Return the hazards of all blocks; none where the architecture or the code has no such products."""
    latency, kernel = model_input.arch.issue.wide_beside_warpgroup_cycles, model_input.kernel
    has_warpgroups = kernel.form_table.make_opcode_mask(_is_warpgroup_product).any()
    is_wide = kernel.form_table.make_opcode_mask(_is_wide)[kernel.opcode_ids]
    if latency is None or not has_warpgroups or not is_wide.any():
        return WideHazards()
    waits: dict[int, tuple[int, ...]] = {}
    for block in model_input.cfg.blocks:
        pending: dict[int, int] = {}  # by register: the last IMAD.WIDE on it
        for row in range(block.start, block.stop):
            form = kernel.decode_form(row) if pending or is_wide[row] else None
            if form is None:
                continue
            touched = (*form.uses, *form.defs) if pending else ()
            found = {pending[register] for register in touched if register in pending}
            if found:
                waits[row] = tuple(sorted(found))
                pending = {register: product for register, product in pending.items() if product not in found}
            if is_wide[row]:
                pending |= dict.fromkeys(form.defs, row)
    held = frozenset(product for products in waits.values() for product in products)
    return WideHazards(latency.value, held, waits)


def _is_wide(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.INT_MUL_WIDE


def _is_warpgroup_product(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.MMA_WARPGROUP
