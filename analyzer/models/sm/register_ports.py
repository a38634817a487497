"""Count cycles of the register file's ports.

Each bank of a sub-core's register file reads one operand of a warp per cycle. A register's bank is its number
modulo the number of banks. An operand that the instruction before has left in the reuse cache of its slot is
not read again. Instructions of a fixed latency read all operands at once, so the bank with most reads decides
(Huerta et al., MICRO 2025, find one port for each of two banks on Ampere).

Example with two banks: `FFMA R0, R2, R4, R6` reads three registers of bank 0, which takes 3 cycles; 2 cycles
where the instruction before has `R2.reuse` in the same slot.

On Hopper an instruction reads its registers within two cycles, so that one with a conflict costs nothing
where others leave the bank free. Stall samples of 14 FP32 products on an H100 say so: their FFMA are held
back .066 to .31 cycles each (`dispatch stall`), .11 in the mean; by a window of two cycles .11, of three .09,
all at once .23. The sums agree; which instruction is held back does not.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from analyzer.demand.opcode_costs import PIPE_INDEX
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import FloatArray
from analyzer.ir.module import InstructionForm
from analyzer.ir.operand import Operand, Predicate, Register, RegisterFile
from analyzer.ir.scheduling import Pipe
from analyzer.isa.register_operands import UNIFORM_REGISTER_BASE

_FIXED_LATENCY_PIPES = frozenset(PIPE_INDEX[pipe] for pipe in (Pipe.ALU, Pipe.FMA, Pipe.FMALITE, Pipe.FP16))
_REUSE_SUFFIX = "reuse"


def count_port_cycles(cfg: Cfg, pipes: Sequence[int], n_banks: int, window: int | None = None) -> FloatArray:
    """Count the cycles of the busiest bank for each instruction, [n]; 0 for those without a fixed latency.

    pipes: of each instruction, as an index.
    window: cycles in which an instruction reads its registers; None where it reads them all at once.
    """
    kernel = cfg.kernel
    text_ids = kernel.text_ids.tolist()
    known: dict[int, _RegisterReads] = {}
    cycles = np.zeros(len(kernel))
    for block in cfg.blocks:
        cached_registers: Mapping[int, int] = {}
        ports = None if window is None else _PortQueue(n_banks, window)
        for row in range(block.start, block.stop):
            if pipes[row] not in _FIXED_LATENCY_PIPES:
                continue
            reads = known.get(text_ids[row])
            if reads is None:
                reads = known[text_ids[row]] = _find_register_reads(kernel.decode_form(row))
            reads_per_bank = [0] * n_banks
            for slot, number in reads.by_operand_slot.items():
                reads_per_bank[number % n_banks] += cached_registers.get(slot) != number
            for number in reads.others:
                reads_per_bank[number % n_banks] += 1
            cycles[row] = max(reads_per_bank) if ports is None else ports.read(row, reads_per_bank)
            cached_registers = reads.reused_by_slot
    return cycles


class _PortQueue:
    """Reads that instructions of one warp leave to the cycles after their issue, by bank."""

    def __init__(self, n_banks: int, window: int) -> None:
        self._free, self._window = [0] * n_banks, window
        self._late = 0  # cycles that instructions so far were held back

    def read(self, row: int, reads_per_bank: Sequence[int]) -> int:
        """Return the cycles of an instruction in its row, one where nothing holds it back."""
        if not any(reads_per_bank):
            return 0
        time = begin = row + self._late
        for bank, count in enumerate(reads_per_bank):
            if count:
                begin = max(begin, self._free[bank] + count - max(self._window, count))
        for bank, count in enumerate(reads_per_bank):
            self._free[bank] = max(self._free[bank], begin) + count
        self._late += begin - time
        return 1 + begin - time


class _RegisterReads(Struct, frozen=True):
    """Registers that an instruction reads."""

    by_operand_slot: Mapping[int, int]
    reused_by_slot: Mapping[int, int]  # left in the reuse cache for the next instruction
    others: tuple[int, ...]  # without a slot: further registers of wide operands


def _find_register_reads(form: InstructionForm) -> _RegisterReads:
    registers = {
        slot: operand
        for slot, operand in enumerate(_select_source_operands(form.operands))
        if isinstance(operand, Register) and operand.file is RegisterFile.GENERAL
    }
    slots = {slot: register.index for slot, register in registers.items() if register.index is not None}
    named = set(slots.values())
    return _RegisterReads(
        by_operand_slot=slots,
        reused_by_slot={
            slot: number for slot, number in slots.items() if _REUSE_SUFFIX in registers[slot].suffixes
        },
        others=tuple(
            number for number in form.uses if number < UNIFORM_REGISTER_BASE and number not in named
        ),
    )


def _select_source_operands(operands: Sequence[Operand]) -> Sequence[Operand]:
    """Return the operands after the result, without predicates, which have no slot.

    A comparison writes two predicates and has no other result.
    """
    is_comparison = len(operands) > 1 and all(isinstance(one, Predicate) for one in operands[:2])
    values = [operand for operand in operands if not isinstance(operand, Predicate)]
    return values if is_comparison else values[1:]
