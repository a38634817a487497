"""Instruction mix: how often each opcode stands in the code."""

from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct

from analyzer.ir.opcode import Opcode, Space
from analyzer.ir.program import BoolArray, Kernel, Vocabulary


class Mix(Struct, frozen=True, eq=False, dict=True):
    """Static counts; `counts[i]` belongs to opcode i of the kernel's vocabulary.

    >>> mix["FFMA"], mix["LDG.E.128"]                   # doctest: +SKIP
    """

    kernel: Kernel

    @cached_property
    def counts(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        ids = self.kernel.opcode_ids
        return np.bincount(ids, minlength=len(self.kernel.vocabulary.opcodes)).astype(np.int64)

    @cached_property
    def opcodes(self) -> dict[str, int]:
        """Count by opcode name, most frequent first."""
        totals: dict[str, int] = {}
        for number in np.flatnonzero(self.counts):
            name = self.kernel.vocabulary.opcodes[number].name
            totals[name] = totals.get(name, 0) + int(self.counts[number])
        return _by_frequency(totals)

    @cached_property
    def mnemonics(self) -> dict[str, int]:
        """Count by opcode with modifiers, most frequent first."""
        opcodes = self.kernel.vocabulary.opcodes
        totals = {opcodes[n].mnemonic: int(self.counts[n]) for n in np.flatnonzero(self.counts)}
        return _by_frequency(totals)

    @cached_property
    def constant_operands(self) -> int:
        """Instructions that read a constant bank in place of a register; loads of constants aside."""
        vocabulary = self.kernel.vocabulary
        loads = vocabulary.mask(_loads_constant)[self.kernel.opcode_ids]
        return int((_name_constants(vocabulary)[self.kernel.text_ids] & ~loads).sum())

    @property
    def total(self) -> int:
        return len(self.kernel)

    @cached_property
    def coverage(self) -> float:
        """Share of instructions whose opcode is in the table, so whose pipe is known."""
        known = self.kernel.vocabulary.mask(_is_known)
        return float(self.counts[known].sum()) / max(1, self.total)

    def __getitem__(self, name: str) -> int:
        """Count of an opcode (`FFMA`) or of an opcode with modifiers (`LDG.E.128`); 0 where absent."""
        return self.opcodes.get(name, 0) or self.mnemonics.get(name, 0)


@lru_cache(maxsize=1)
def _name_constants(vocabulary: Vocabulary) -> BoolArray:
    """Whether each text names a place in a constant bank, [n_text]."""
    return np.array(["c[" in text for text in vocabulary.texts], dtype=np.bool_)


def _loads_constant(opcode: Opcode) -> bool:
    return opcode.space is Space.CONSTANT


def _is_known(opcode: Opcode) -> bool:
    return opcode.known


def _by_frequency(totals: dict[str, int]) -> dict[str, int]:
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
