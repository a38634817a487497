"""Instruction mix: static counts of opcodes."""

from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct

from analyzer.ir.arrays import BoolArray
from analyzer.ir.module import FormTable, Kernel
from analyzer.ir.opcode import AddressSpace, Opcode


class InstructionMix(Struct, frozen=True, eq=False, dict=True):
    """Static instruction counts of a kernel.

    >>> mix["FFMA"], mix["LDG.E.128"]                   # doctest: +SKIP
    """

    kernel: Kernel

    @cached_property
    def counts_by_opcode_id(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Count by index into the opcodes of the form table, [n_opcode]."""
        ids = self.kernel.opcode_ids
        return np.bincount(ids, minlength=len(self.kernel.form_table.opcodes)).astype(np.int64)

    @cached_property
    def counts_by_opcode(self) -> dict[str, int]:
        """Count by opcode name, most frequent first."""
        totals: dict[str, int] = {}
        for number in np.flatnonzero(self.counts_by_opcode_id):
            name = self.kernel.form_table.opcodes[number].name
            totals[name] = totals.get(name, 0) + int(self.counts_by_opcode_id[number])
        return _sort_by_frequency(totals)

    @cached_property
    def counts_by_mnemonic(self) -> dict[str, int]:
        """Count by opcode with modifiers, most frequent first."""
        opcodes = self.kernel.form_table.opcodes
        totals = {
            opcodes[n].mnemonic: int(self.counts_by_opcode_id[n])
            for n in np.flatnonzero(self.counts_by_opcode_id)
        }
        return _sort_by_frequency(totals)

    @cached_property
    def n_constant_operand_reads(self) -> int:
        """Number of instructions with an operand in a constant bank; loads of constants do not count."""
        form_table = self.kernel.form_table
        loads = form_table.make_opcode_mask(_is_constant_load)[self.kernel.opcode_ids]
        return int((_mask_constant_operands(form_table)[self.kernel.text_ids] & ~loads).sum())

    @property
    def total(self) -> int:
        """Number of instructions."""
        return len(self.kernel)

    @cached_property
    def coverage(self) -> float:
        """Share of instructions with known opcodes, so that their pipe is known, and with known operands."""
        known = self.kernel.form_table.make_opcode_mask(_is_known)
        unparsed = sum(known[self.kernel.opcode_ids[row]] for row in self.kernel.unparsed_rows)
        return float(self.counts_by_opcode_id[known].sum() - unparsed) / max(1, self.total)

    def __getitem__(self, name: str) -> int:
        """Return the count of an opcode (`FFMA`) or of one with modifiers (`LDG.E.128`); 0 if absent."""
        return self.counts_by_opcode.get(name, 0) or self.counts_by_mnemonic.get(name, 0)


@lru_cache(maxsize=1)
def _mask_constant_operands(form_table: FormTable) -> BoolArray:
    """Return a mask of the texts with an operand in a constant bank, [n_text]."""
    return np.array(["c[" in text for text in form_table.texts], dtype=np.bool_)


def _is_constant_load(opcode: Opcode) -> bool:
    return opcode.space is AddressSpace.CONSTANT


def _is_known(opcode: Opcode) -> bool:
    return opcode.is_known


def _sort_by_frequency(totals: dict[str, int]) -> dict[str, int]:
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
