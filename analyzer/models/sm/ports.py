"""Register ports: each bank of a sub-core's register file gives one operand of a warp a cycle.

Registers lie in banks by their number. An operand that the instruction before has left in the reuse cache of
its slot is not read again. Instructions of a fixed latency read all operands at once, so the bank that is
asked for most decides (Huerta et al., MICRO 2025, find one port for each of two banks on Ampere).
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.demand.costs import PIPE_INDEX, FloatArray
from analyzer.flow.cfg import Cfg
from analyzer.ir.machine import Pipe
from analyzer.ir.operand import Operand, Predicate, Register, RegisterFile
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import UNIFORM_BASE

_READING = frozenset(PIPE_INDEX[pipe] for pipe in (Pipe.ALU, Pipe.FMA, Pipe.FMALITE, Pipe.FP16))
_REUSE = "reuse"


def port_cycles(cfg: Cfg, pipes: Sequence[int], n_banks: int) -> FloatArray:
    """Cycles of the busiest bank for each instruction, [n]; 0 for those that do not read at a fixed time.

    pipes: of each instruction.
    """
    kernel = cfg.kernel
    text_ids = kernel.text_ids.tolist()
    known: dict[int, _Reads] = {}
    cycles = np.zeros(len(kernel))
    for block in cfg.blocks:
        held: dict[int, int] = {}
        for row in range(block.start, block.stop):
            if pipes[row] not in _READING:
                continue
            reads = known.get(text_ids[row])
            if reads is None:
                reads = known[text_ids[row]] = _reads_of(kernel.form(row))
            asked = [0] * n_banks
            for slot, number in reads.slots.items():
                asked[number % n_banks] += held.get(slot) != number
            for number in reads.others:
                asked[number % n_banks] += 1
            cycles[row] = max(asked)
            held = reads.kept
    return cycles


class _Reads(Struct, frozen=True):
    """Registers that an instruction reads by slot, those that stay in the reuse cache, and second halves."""

    slots: dict[int, int]
    kept: dict[int, int]
    others: tuple[int, ...]


def _reads_of(form: InstructionForm) -> _Reads:
    registers = {
        slot: operand
        for slot, operand in enumerate(_sources(form.operands))
        if isinstance(operand, Register) and operand.file is RegisterFile.GENERAL
    }
    slots = {slot: register.index for slot, register in registers.items() if register.index is not None}
    named = set(slots.values())
    return _Reads(
        slots=slots,
        kept={slot: number for slot, number in slots.items() if _REUSE in registers[slot].suffixes},
        others=tuple(number for number in form.read if number < UNIFORM_BASE and number not in named),
    )


def _sources(operands: Sequence[Operand]) -> Sequence[Operand]:
    """Operands behind the result, without predicates: these have no slot.

    A comparison writes two predicates and has no other result.
    """
    is_comparison = len(operands) > 1 and all(isinstance(one, Predicate) for one in operands[:2])
    values = [operand for operand in operands if not isinstance(operand, Predicate)]
    return values if is_comparison else values[1:]
