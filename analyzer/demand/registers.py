"""Register count of a kernel whose dump does not state it: the highest register that the code names."""

from functools import lru_cache
from string import ascii_letters, digits

import numpy as np
from msgspec.structs import replace

from analyzer.ir.opcode import Opcode, Space
from analyzer.ir.program import IdArray, Kernel, Vocabulary
from analyzer.isa.roles import UNIFORM_BASE

_MAX_DIGITS = 3
_ANY = np.int32(1 << 16)  # above any register
# Whether a byte is a digit, and whether a name that a register's would be a part of goes on with it, [256].
_DIGITS = np.isin(np.arange(256), list(digits.encode()))
_WORD = np.isin(np.arange(256), list(f"{ascii_letters}{digits}_.".encode()))


def with_registers(kernel: Kernel) -> Kernel:
    """The kernel with its register count, read off the code where nothing states it."""
    if kernel.resources.registers is not None:
        return kernel
    return replace(kernel, resources=replace(kernel.resources, registers=_highest_register(kernel) + 1))


def _highest_register(kernel: Kernel) -> int:
    """Texts are decoded only where their operands may reach the highest register that any of them prints."""
    vocabulary = kernel.vocabulary
    printed, reached = _by_text(vocabulary)
    text_ids = np.unique(kernel.text_ids)
    highest_printed = int(printed[text_ids].max(initial=-1))
    highest = _named(vocabulary, text_ids[reached[text_ids] >= highest_printed])
    return highest if highest >= highest_printed else _named(vocabulary, text_ids)


@lru_cache(maxsize=1)
def _by_text(vocabulary: Vocabulary) -> tuple[IdArray, IdArray]:
    """Of each text the highest register that it prints, -1 for none, and the highest that its operands may
    reach from there, [n_text].
    """
    padding = "\n" + " " * _MAX_DIGITS  # so that digits may be looked for behind any letter
    code = np.frombuffer(("\n".join(vocabulary.texts) + padding).encode(), dtype=np.uint8)
    places = np.flatnonzero(code == ord("R"))
    places = places[_DIGITS[code[places + 1]] & ~_WORD[code[places - 1]]]
    numbers = np.zeros(len(places), dtype=np.int32)
    goes_on = np.ones(len(places), dtype=np.bool_)
    for place in range(1, _MAX_DIGITS + 1):
        digit = code[places + place]
        goes_on &= _DIGITS[digit]
        numbers = np.where(goes_on, numbers * 10 + digit - ord("0"), numbers)
    printed = np.full(len(vocabulary.texts), -1, dtype=np.int32)
    np.maximum.at(printed, np.searchsorted(np.flatnonzero(code == ord("\n")), places), numbers)
    widths = np.array([_width(opcode) for opcode in vocabulary.opcodes], dtype=np.int32)
    reached = printed + widths[vocabulary.opcode_ids] - 1
    return printed, np.where(vocabulary.mask(_is_wide)[vocabulary.opcode_ids], _ANY, reached)


def _named(vocabulary: Vocabulary, text_ids: IdArray) -> int:
    """The highest register that these texts read or write, -1 where they name none."""
    forms = (vocabulary.form(text_id) for text_id in text_ids.tolist())
    return max((n for form in forms for n in (*form.written, *form.read) if n < UNIFORM_BASE), default=-1)


def _width(opcode: Opcode) -> int:
    """Registers of the widest operand; an address may be a pair whatever else the instruction takes."""
    return max(2, opcode.width, *opcode.widths, opcode.width_bytes // 4)


def _is_wide(opcode: Opcode) -> bool:
    return opcode.mma is not None or opcode.space is Space.TENSOR
