"""The stack frame of spilled registers, whose words the slice follows as it follows registers."""

from functools import lru_cache

from analyzer.flow.cfg import Cfg
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import MEMORY_KINDS, AddressSpace, OpKind
from analyzer.ir.operand import Address
from analyzer.isa.register_operands import N_REGISTER_UNITS

SPILL_KINDS = frozenset({OpKind.LOAD, OpKind.STORE})
_STACK_POINTER = 1
_WORD_BYTES = 4


@lru_cache(maxsize=2)
def has_fixed_stack_frame(cfg: Cfg) -> bool:
    """Local memory is reached through the stack pointer alone, which the entry block sets and nobody else."""
    kernel = cfg.kernel
    moves: list[int] = []
    reaches: list[int] = []
    for row in range(len(cfg.block_of)):
        opcode = kernel.find_opcode(row)
        if opcode.kind in MEMORY_KINDS and opcode.space is AddressSpace.GENERIC:
            return False
        form = kernel.decode_form(row)
        if opcode.kind in MEMORY_KINDS and opcode.space is AddressSpace.LOCAL:
            if _find_stack_address(form) is None or opcode.kind not in SPILL_KINDS:
                return False
            reaches.append(row)
        if _STACK_POINTER in form.defs:
            moves.append(row)
    if not reaches:
        return False
    return all(row < reaches[0] and cfg.block_of[row] == 0 for row in moves)


def _find_stack_address(form: InstructionForm) -> Address | None:
    """`[R1+0x8]`, None for any other address."""
    found = [operand for operand in form.operands if isinstance(operand, Address)]
    if len(found) != 1 or len(found[0].bases) != 1:
        return None
    base = found[0].bases[0]
    is_plain = base.file == "R" and base.index == _STACK_POINTER and found[0].offset >= 0
    return found[0] if is_plain else None


def make_spill_slot_mask(form: InstructionForm) -> int:
    """Mask of the words that a spill or fill touches, numbered behind the registers."""
    n_words = max(1, -(-form.opcode.width_bytes // _WORD_BYTES))
    return ((1 << n_words) - 1) << find_first_spill_slot(form)


def find_first_spill_slot(form: InstructionForm) -> int:
    """Number of the first word of the frame that a spill or fill touches, behind those of the registers."""
    address = _find_stack_address(form)
    assert address is not None
    return N_REGISTER_UNITS + address.offset // _WORD_BYTES
