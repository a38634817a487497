"""The stack frame of spilled registers, whose words the slice follows as it follows registers."""

from functools import lru_cache

from analyzer.flow.cfg import Cfg
from analyzer.ir.opcode import MEMORY_KINDS, OpKind, Space
from analyzer.ir.operand import Address
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import STORAGE_SIZE

FRAME_KINDS = frozenset({OpKind.LOAD, OpKind.STORE})
_STACK_POINTER = 1
_WORD_BYTES = 4


@lru_cache(maxsize=2)
def has_plain_frame(cfg: Cfg) -> bool:
    """Local memory is reached through the stack pointer alone, which the entry block sets and nobody else."""
    kernel = cfg.kernel
    moves: list[int] = []
    reaches: list[int] = []
    for row in range(len(cfg.block_of)):
        opcode = kernel.opcode(row)
        if opcode.kind in MEMORY_KINDS and opcode.space is Space.GENERIC:
            return False
        form = kernel.form(row)
        if opcode.kind in MEMORY_KINDS and opcode.space is Space.LOCAL:
            if _frame_address(form) is None or opcode.kind not in FRAME_KINDS:
                return False
            reaches.append(row)
        if _STACK_POINTER in form.written:
            moves.append(row)
    if not reaches:
        return False
    return all(row < reaches[0] and cfg.block_of[row] == 0 for row in moves)


def _frame_address(form: InstructionForm) -> Address | None:
    """`[R1+0x8]`, None for any other address."""
    found = [operand for operand in form.operands if isinstance(operand, Address)]
    if len(found) != 1 or len(found[0].bases) != 1:
        return None
    base = found[0].bases[0]
    is_plain = base.file == "R" and base.index == _STACK_POINTER and found[0].offset >= 0
    return found[0] if is_plain else None


def frame_words(form: InstructionForm) -> int:
    """Mask of the words that a spill or fill touches, numbered behind the registers."""
    n_words = max(1, -(-form.opcode.width_bytes // _WORD_BYTES))
    return ((1 << n_words) - 1) << frame_storage(form)


def frame_storage(form: InstructionForm) -> int:
    """Number of the first word of the frame that a spill or fill touches, behind those of the registers."""
    address = _frame_address(form)
    assert address is not None
    return STORAGE_SIZE + address.offset // _WORD_BYTES
