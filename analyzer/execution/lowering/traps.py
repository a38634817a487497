"""Instructions that end a launch with an error: traps, and calls of what a failed assertion calls.

LDC.64 R2, c[0x4][R0]      R0 = 0x18, where the loader writes the address of __assertfail
CALL.ABS.NOINC R2
"""

import numpy as np

from analyzer.flow.cfg import Cfg
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.module import Relocation
from analyzer.ir.opcode import Opcode, Semantics
from analyzer.ir.operand import Immediate
from analyzer.isa.register_operands import find_constant_index

_FAILED_ASSERTION = "__assertfail"


def find_trap_rows(cfg: Cfg) -> frozenset[int]:
    """Return the rows at which a thread ends the launch with an error."""
    kernel = cfg.kernel
    is_own = kernel.form_table.make_opcode_mask(is_trap)[kernel.opcode_ids[: len(cfg.block_of)]]
    places = {
        (bank.number, relocation.offset)
        for bank in kernel.constant_banks or ()
        for relocation in bank.relocations
        if _names_assertion(relocation)
    }
    rows = frozenset(np.flatnonzero(is_own).tolist())
    if not places or not cfg.external_call_rows:
        return rows
    chains = find_def_use_chains(cfg)
    return rows | {row for row in cfg.external_call_rows if _find_loaded_words(chains, row) & places}


def is_trap(opcode: Opcode) -> bool:
    """Return whether an instruction ends the launch with an error."""
    return opcode.semantics is Semantics.TRAP


def _names_assertion(relocation: Relocation) -> bool:
    return relocation.symbol == _FAILED_ASSERTION and relocation.object_bytes is None


def _find_loaded_words(chains: DefUseChains, call: int) -> set[tuple[int, int]]:
    """Return the words of constant banks, (bank, offset), in which the target of a call may be."""
    found = set()
    for load in chains.producers(call):
        form = chains.cfg.kernel.decode_form(load)
        operand = find_constant_index(form.opcode, form.operands)
        if operand is None or operand.base is None or not isinstance(operand.bank, int):
            continue
        for source in chains.producers(load):
            values = [
                o.value for o in chains.cfg.kernel.decode_form(source).operands if isinstance(o, Immediate)
            ]
            found |= {(operand.bank, operand.offset + v) for v in values if isinstance(v, int)}
    return found
