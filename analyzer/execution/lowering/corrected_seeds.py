"""Approximations that code corrects: what comes out does not depend on their last bits.

Division of integers makes the reciprocal too small by one or two units in the last place, and corrects it:

    MUFU.RCP R3, R3
    IADD3 R4, R3, 0xffffffe, RZ    and times 2^32
    F2I.FTZ.U32.TRUNC.NTZ R4, R4   steps of Newton and corrections follow, which lead to the quotient

A correctly rounded square root first checks the range of its argument; its steps of Newton stand behind the
branch to the slow path:

    IADD3 R2, R0, -0xd000000, RZ
    MUFU.RSQ R3, R0
"""

from analyzer.flow.cfg import Cfg
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import OpKind, Semantics
from analyzer.ir.operand import Immediate

_WORD = 0xFFFFFFFF
_SCALING_ADDENDS = frozenset({0xFFFFFFE, 0x1FFFFFFE})  # of 32 bits, of 64
_RANGE_ADDENDS = frozenset({0xF3000000})


def is_corrected_seed(cfg: Cfg, row: int) -> bool:
    """Return whether an approximation is the seed of a division of integers or of a rounded square root."""
    kernel = cfg.kernel
    form, block = kernel.decode_form(row), cfg.blocks[cfg.block_of[row]]
    results, sources = frozenset(form.defs), frozenset(form.uses)
    near = [kernel.decode_form(other) for other in range(block.start, block.stop)]
    if any(sources.intersection(one.uses) and _adds(one, _RANGE_ADDENDS) for one in near):
        return True
    for later in near[row + 1 - block.start :]:
        if results.intersection(later.uses) and later.opcode.kind is not OpKind.MOVE:
            return _adds(later, _SCALING_ADDENDS)
        if results.intersection((*later.uses, *later.defs)):
            break
    return _is_only_scaled(find_def_use_chains(cfg), row)


def _is_only_scaled(chains: DefUseChains, row: int) -> bool:
    """Return whether all that reads a result, or a copy of it, scales it for a division."""
    readers, seen = [*chains.consumers(row)], {row}
    for reader in readers:  # grows meanwhile
        form = chains.cfg.kernel.decode_form(reader)
        if form.opcode.kind is OpKind.MOVE and reader not in seen:
            seen.add(reader)
            readers += chains.consumers(reader)
        elif form.opcode.kind is not OpKind.MOVE and not _adds(form, _SCALING_ADDENDS):
            return False
    return bool(readers)


def _adds(form: InstructionForm, addends: frozenset[int]) -> bool:
    """Return whether an instruction adds one of these words."""
    values = (operand.value for operand in form.operands if isinstance(operand, Immediate))
    words = {value & _WORD for value in values if isinstance(value, int)}
    return form.opcode.semantics is Semantics.INT_ADD and not addends.isdisjoint(words)
