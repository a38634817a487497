"""Stack frame of spilled registers: the slice tracks its words like registers.

This holds where every local access is `[R1+offset]` and only the entry block sets R1. Word i of the frame
then has storage number N_REGISTER_UNITS + i, and a spill or fill is a copy between storage numbers.
"""

from functools import lru_cache

from analyzer.flow.cfg import Cfg
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import MEMORY_KINDS, AddressSpace, OpKind, accesses_local_memory
from analyzer.ir.operand import Address
from analyzer.isa.register_operands import N_REGISTER_UNITS

SPILL_KINDS = frozenset({OpKind.LOAD, OpKind.STORE})
_STACK_POINTER = 1
_WORD_BYTES = 4


@lru_cache(maxsize=2)
def has_fixed_stack_frame(cfg: Cfg) -> bool:
    """Return whether all local accesses go through a stack pointer that only the entry block sets."""
    kernel = cfg.kernel
    pointer_writes: list[int] = []
    accesses: list[int] = []
    for row in range(len(cfg.block_of)):
        opcode = kernel.find_opcode(row)
        if opcode.kind in MEMORY_KINDS and opcode.space is AddressSpace.GENERIC:
            return False
        form = kernel.decode_form(row)
        if accesses_local_memory(opcode):
            if _find_stack_address(form) is None or opcode.kind not in SPILL_KINDS:
                return False
            accesses.append(row)
        if _STACK_POINTER in form.defs:
            pointer_writes.append(row)
    if not accesses:
        return False
    return all(row < accesses[0] and cfg.block_of[row] == 0 for row in pointer_writes)


def _find_stack_address(form: InstructionForm) -> Address | None:
    """Return an address of the form `[R1+0x8]`, None for any other."""
    found = [operand for operand in form.operands if isinstance(operand, Address)]
    if len(found) != 1 or len(found[0].bases) != 1:
        return None
    base = found[0].bases[0]
    is_plain = base.file == "R" and base.index == _STACK_POINTER and found[0].offset >= 0
    return found[0] if is_plain else None


def fills_whole_words(form: InstructionForm) -> bool:
    """Return whether a spill writes whole words of the frame, no parts of words."""
    address = _find_stack_address(form)
    assert address is not None
    return not address.offset % _WORD_BYTES and not form.opcode.width_bytes % _WORD_BYTES


def make_spill_slot_mask(form: InstructionForm) -> int:
    """Return the mask of frame words that a spill or fill accesses, by storage number."""
    address = _find_stack_address(form)
    assert address is not None
    n_words = max(1, -(-(address.offset % _WORD_BYTES + form.opcode.width_bytes) // _WORD_BYTES))
    return ((1 << n_words) - 1) << find_first_spill_slot(form)


def find_first_spill_slot(form: InstructionForm) -> int:
    """Return the storage number of the first frame word that a spill or fill accesses."""
    address = _find_stack_address(form)
    assert address is not None
    return N_REGISTER_UNITS + address.offset // _WORD_BYTES
