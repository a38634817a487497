"""Register count of a kernel whose dump does not state it: the highest register that the code names."""

import re
from bisect import bisect_right
from itertools import accumulate

import numpy as np
from msgspec.structs import replace

from analyzer.ir.opcode import Opcode, Space
from analyzer.ir.program import IdArray, Kernel, Vocabulary
from analyzer.isa.roles import UNIFORM_BASE

_NAME = r"R(?<![A-Za-z0-9_.]R)"  # the letter first: what stands before it is looked at only there
_REGISTER = re.compile(_NAME + r"(\d+)")
# Registers of the widest operand that is no matrix fragment: 256 bits.
_MAX_WIDTH = 8


def with_registers(kernel: Kernel) -> Kernel:
    """The kernel with its register count, read off the code where nothing states it."""
    if kernel.resources.registers is not None:
        return kernel
    return replace(kernel, resources=replace(kernel.resources, registers=_highest_register(kernel) + 1))


def _highest_register(kernel: Kernel) -> int:
    """Texts are decoded only where their operands may reach the highest register that any of them prints."""
    vocabulary = kernel.vocabulary
    text_ids = np.unique(kernel.text_ids)
    texts = [vocabulary.texts[text_id] for text_id in text_ids.tolist()]
    code = "\n".join(texts)
    printed = max(map(int, set(_REGISTER.findall(code))), default=-1)
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    may_reach = vocabulary.mask(_is_wide)[vocabulary.opcode_ids[text_ids]]
    for match in _near(printed).finditer(code):
        row = bisect_right(starts, match.start()) - 1
        opcode = vocabulary.opcodes[vocabulary.opcode_ids[text_ids[row]]]
        may_reach[row] |= int(match[1]) + _width(opcode) > printed
    highest = _named(vocabulary, text_ids[may_reach])
    return highest if highest >= printed else _named(vocabulary, text_ids)


def _near(printed: int) -> re.Pattern[str]:
    """Names of the registers from which an operand reaches the one printed last."""
    numbers = range(max(0, printed - _MAX_WIDTH + 1), printed + 1)
    return re.compile(rf"{_NAME}({'|'.join(map(str, numbers))})(?!\d)")


def _named(vocabulary: Vocabulary, text_ids: IdArray) -> int:
    """The highest register that these texts read or write, -1 where they name none."""
    forms = (vocabulary.form(text_id) for text_id in text_ids.tolist())
    return max((n for form in forms for n in (*form.written, *form.read) if n < UNIFORM_BASE), default=-1)


def _width(opcode: Opcode) -> int:
    """Registers of the widest operand; an address may be a pair whatever else the instruction takes."""
    return max(2, opcode.width, *opcode.widths, opcode.width_bytes // 4)


def _is_wide(opcode: Opcode) -> bool:
    return opcode.mma is not None or opcode.space is Space.TENSOR
