"""Stack frame of a kernel and the registers that it spills, told apart as `ptxas -v` does.

The frame holds spilled registers and local objects: arrays that are indexed, arguments of printf, what
callees get by pointer. The code moves the stack pointer R1 down by the frame:

    IADD3 R1, R1, -0x110, RZ        frame of 272 bytes
    STL [R1+0x70], R18              4 bytes of spill stores ...
    LDL.LU R18, [R1+0x70]           ... and of spill loads

An address other than `[R1+offset]`, or a copy of R1 in another register, shows that there is a local object.
If there is none, all accesses are spills, and their bytes are those of ptxas. If there is one, spills are the
words that some load of last use (.LU) reads: ptxas sets it on most loads of spilled registers and on no
others; its sums are met to a few percent then. Bytes are sums over the instructions of the code, of one
thread.
"""

import re
from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.module import FormTable, InstructionForm, Kernel
from analyzer.ir.opcode import AddressSpace, Opcode, OpKind, Semantics
from analyzer.ir.operand import Address, Immediate, RegisterFile

_STACK_POINTER = 1
_WORD_BYTES = 4
_LAST_USE_MODIFIER = "LU"
_STACK_POINTER_TEXT = re.compile(r"(?<![A-Z])R1(?![0-9])")


class StackUse(Struct, frozen=True, kw_only=True):
    """Bytes of one thread."""

    frame_bytes: int
    spilled_words: frozenset[int]  # of the frame that hold spilled registers, offsets from R1 in words
    spill_slot_bytes: int  # of the frame
    spill_store_bytes: int  # of all instructions
    spill_load_bytes: int
    is_estimate: bool  # of the spills, where local objects lie in the frame as well


class _SlotAccess(Struct, frozen=True):
    """An access to `[R1+offset]`, by so many instructions of the code."""

    offset: int
    width_bytes: int
    n_instructions: int
    is_store: bool
    is_last_use: bool

    def list_words(self) -> range:
        """Return the offsets of its words."""
        return range(self.offset // _WORD_BYTES, -(-(self.offset + self.width_bytes) // _WORD_BYTES))


def measure_stack_use(kernel: Kernel) -> StackUse:
    """Return the stack frame and the spills of a kernel."""
    wanted = _mask_stack_texts(kernel.form_table)[kernel.text_ids]
    text_ids, counts = np.unique(kernel.text_ids[wanted], return_counts=True)
    frame_bytes, has_objects = 0, False
    accesses: list[_SlotAccess] = []
    for text_id, count in zip(text_ids.tolist(), counts.tolist(), strict=True):
        form = kernel.form_table.decode_form(text_id)
        if _is_local_access(form.opcode):
            access = _read_slot_access(form, count)
            has_objects |= access is None
            accesses += [] if access is None else [access]
        elif _STACK_POINTER in form.defs:
            frame_bytes = max(frame_bytes, _read_frame_bytes(form))
        elif _STACK_POINTER in form.uses:
            has_objects = True
    spilled = _find_spilled_words(accesses, has_objects=has_objects)
    spills = [one for one in accesses if spilled.issuperset(one.list_words())]
    return StackUse(
        frame_bytes=max(frame_bytes, kernel.resources.stack_bytes or 0),
        spilled_words=spilled,
        spill_slot_bytes=_WORD_BYTES * len(spilled),
        spill_store_bytes=sum(one.width_bytes * one.n_instructions for one in spills if one.is_store),
        spill_load_bytes=sum(one.width_bytes * one.n_instructions for one in spills if not one.is_store),
        is_estimate=has_objects and bool(spilled),
    )


def list_slot_words(form: InstructionForm) -> range | None:
    """Return the words of the frame that an access to `[R1+offset]` touches; None for any other address."""
    access = _read_slot_access(form, 1)
    return None if access is None else access.list_words()


def _find_spilled_words(accesses: list[_SlotAccess], *, has_objects: bool) -> frozenset[int]:
    """Return the words of the frame that hold spilled registers."""
    return frozenset(
        word for one in accesses if one.is_last_use or not has_objects for word in one.list_words()
    )


@lru_cache(maxsize=1)
def _mask_stack_texts(form_table: FormTable) -> NDArray[np.bool_]:
    """Mark the texts that access local memory or name R1, [n_text]."""
    is_local = form_table.make_opcode_mask(_is_local_access)[form_table.opcode_ids]
    code = "\n".join(form_table.texts)
    ends = np.cumsum([len(text) + 1 for text in form_table.texts])
    places = [match.start() for match in _STACK_POINTER_TEXT.finditer(code)]
    marked: NDArray[np.bool_] = is_local.copy()
    marked[np.searchsorted(ends, places, side="right")] = True
    return marked


def _is_local_access(opcode: Opcode) -> bool:
    return opcode.kind in (OpKind.LOAD, OpKind.STORE) and opcode.space is AddressSpace.LOCAL


def _read_slot_access(form: InstructionForm, count: int) -> _SlotAccess | None:
    """Return an access to `[R1+offset]`, None for any other address."""
    address = next((operand for operand in form.operands if isinstance(operand, Address)), None)
    if address is None or len(address.bases) != 1 or address.offset < 0:
        return None
    base = address.bases[0]
    if base.file is not RegisterFile.GENERAL or base.index != _STACK_POINTER:
        return None
    return _SlotAccess(
        offset=address.offset,
        width_bytes=form.opcode.width_bytes,
        n_instructions=count,
        is_store=form.opcode.kind is OpKind.STORE,
        is_last_use=_LAST_USE_MODIFIER in form.opcode.modifiers,
    )


def _read_frame_bytes(form: InstructionForm) -> int:
    """Return the bytes by which an instruction moves R1 down; 0 for one that does something else to it."""
    if form.opcode.semantics is not Semantics.INT_ADD:
        return 0
    values = [operand.value for operand in form.operands if isinstance(operand, Immediate)]
    if len(values) != 1 or not isinstance(values[0], int):
        return 0
    signed = (values[0] + (1 << 31)) % (1 << 32) - (1 << 31)
    return max(0, -signed)
