"""Register count of a kernel whose dump does not state it: the highest register of the code plus 1.

Decoding all operands would be slow, so texts are scanned as bytes first: the highest printed register bounds
which texts can reach it (a wide operand `R4` may be R4 to R7), and only these are decoded.
"""

from functools import lru_cache
from string import ascii_letters, digits

import numpy as np
from msgspec.structs import replace

from analyzer.ir.arrays import IdArray
from analyzer.ir.module import FormTable, Kernel
from analyzer.ir.opcode import AddressSpace, Opcode
from analyzer.isa.register_operands import UNIFORM_REGISTER_BASE

_MAX_REGISTER_DIGITS = 3
_ABOVE_ANY_REGISTER = np.int32(1 << 16)
# Masks of the bytes that are digits, and of those that may be part of a longer name, [256].
_IS_DIGIT_BYTE = np.isin(np.arange(256), list(digits.encode()))
_IS_NAME_BYTE = np.isin(np.arange(256), list(f"{ascii_letters}{digits}_.".encode()))


def with_register_count(kernel: Kernel) -> Kernel:
    """Return the kernel with its register count, from its code if nothing states it."""
    if kernel.resources.registers is not None:
        return kernel
    return replace(kernel, resources=replace(kernel.resources, registers=_find_highest_register(kernel) + 1))


def _find_highest_register(kernel: Kernel) -> int:
    """Return the highest register of the code; only texts that may reach it are decoded."""
    form_table = kernel.form_table
    printed, reached = _bound_registers_by_text(form_table)
    text_ids = np.unique(kernel.text_ids)
    highest_printed = int(printed[text_ids].max(initial=-1))
    highest = _find_highest_named_register(form_table, text_ids[reached[text_ids] >= highest_printed])
    return highest if highest >= highest_printed else _find_highest_named_register(form_table, text_ids)


@lru_cache(maxsize=1)
def _bound_registers_by_text(form_table: FormTable) -> tuple[IdArray, IdArray]:
    """Return the highest register that each text prints, -1 for none, and that it may reach, [n_text]."""
    padding = "\n" + " " * _MAX_REGISTER_DIGITS  # so that a register at the end can be followed by digits
    code = np.frombuffer(("\n".join(form_table.texts) + padding).encode(), dtype=np.uint8)
    places = np.flatnonzero(code == ord("R"))
    places = places[_IS_DIGIT_BYTE[code[places + 1]] & ~_IS_NAME_BYTE[code[places - 1]]]
    numbers = np.zeros(len(places), dtype=np.int32)
    goes_on = np.ones(len(places), dtype=np.bool_)
    for place in range(1, _MAX_REGISTER_DIGITS + 1):
        digit = code[places + place]
        goes_on &= _IS_DIGIT_BYTE[digit]
        numbers = np.where(goes_on, numbers * 10 + digit - ord("0"), numbers)
    printed = np.full(len(form_table.texts), -1, dtype=np.int32)
    np.maximum.at(printed, np.searchsorted(np.flatnonzero(code == ord("\n")), places), numbers)
    widths = np.array([_count_operand_registers(opcode) for opcode in form_table.opcodes], dtype=np.int32)
    reached = printed + widths[form_table.opcode_ids] - 1
    return printed, np.where(
        form_table.make_opcode_mask(_has_unbounded_operands)[form_table.opcode_ids],
        _ABOVE_ANY_REGISTER,
        reached,
    )


def _find_highest_named_register(form_table: FormTable, text_ids: IdArray) -> int:
    """Return the highest register that these texts read or write, -1 for none."""
    forms = (form_table.decode_form(text_id) for text_id in text_ids.tolist())
    return max(
        (n for form in forms for n in (*form.defs, *form.uses) if n < UNIFORM_REGISTER_BASE), default=-1
    )


def _count_operand_registers(opcode: Opcode) -> int:
    """Return the registers of the widest operand; 2 at least, as an address may be a pair."""
    return max(2, opcode.operand_registers, *opcode.registers_by_operand, opcode.width_bytes // 4)


def _has_unbounded_operands(opcode: Opcode) -> bool:
    return opcode.mma_shape is not None or opcode.space is AddressSpace.TENSOR
