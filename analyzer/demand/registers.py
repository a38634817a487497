"""Register count of a kernel whose dump does not state it: the highest register that the code names."""

import re

import numpy as np
from msgspec.structs import replace

from analyzer.ir.opcode import Opcode, Space
from analyzer.ir.program import Kernel
from analyzer.isa.roles import UNIFORM_BASE

_REGISTER = re.compile(r"(?<![A-Za-z0-9_.])R(\d+)")
# Registers of the widest operand that is no matrix fragment: 256 bits.
_MAX_WIDTH = 8


def with_registers(kernel: Kernel) -> Kernel:
    """The kernel with its register count, read off the code where nothing states it."""
    if kernel.resources.registers is not None:
        return kernel
    return replace(kernel, resources=replace(kernel.resources, registers=_highest_register(kernel) + 1))


def _highest_register(kernel: Kernel) -> int:
    """Texts are taken in descending order of the registers they print, until none can reach higher."""
    vocabulary = kernel.vocabulary
    printed: list[tuple[int, int]] = []
    for text_id in np.unique(kernel.text_ids).tolist():
        numbers = _REGISTER.findall(vocabulary.texts[text_id])
        if numbers:
            wide = _is_wide(vocabulary.opcodes[vocabulary.opcode_ids[text_id]])
            top = max(map(int, numbers))
            printed.append((UNIFORM_BASE if wide else top + _MAX_WIDTH - 1, text_id))
    highest = -1
    for reach, text_id in sorted(printed, reverse=True):
        if reach <= highest:
            break
        form = vocabulary.form(text_id)
        named = [n for n in (*form.written, *form.read) if n < UNIFORM_BASE]
        highest = max([highest, *named])
    return highest


def _is_wide(opcode: Opcode) -> bool:
    return opcode.mma is not None or opcode.space is Space.TENSOR
