"""Register ports: each bank of a sub-core's register file gives one operand of a warp a cycle.

Registers lie in banks by their number. An operand that the instruction before has left in the reuse cache of
its slot is not read again. Instructions of a fixed latency read all operands at once, so the bank that is
asked for most decides (Huerta et al., MICRO 2025, find one port for each of two banks on Ampere).
"""

from collections.abc import Sequence

import numpy as np

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
    cycles = np.zeros(len(kernel))
    for block in cfg.blocks:
        held: dict[int, int] = {}
        for row in range(block.start, block.stop):
            if pipes[row] not in _READING:
                continue
            form = kernel.form(row)
            reads, kept = _reads(form, held)
            if reads:
                cycles[row] = max(np.bincount(np.array(reads) % n_banks))
            held = kept
    return cycles


def _reads(form: InstructionForm, held: dict[int, int]) -> tuple[list[int], dict[int, int]]:
    """Registers that are read from the banks, and those that stay in the reuse cache, by slot."""
    reads: list[int] = []
    kept: dict[int, int] = {}
    named: set[int] = set()
    for slot, operand in enumerate(_sources(form.operands)):
        if not isinstance(operand, Register) or operand.index is None:
            continue
        if operand.file is not RegisterFile.GENERAL:
            continue
        named.add(operand.index)
        if held.get(slot) != operand.index:
            reads.append(operand.index)
        if _REUSE in operand.suffixes:
            kept[slot] = operand.index
    others = (number for number in form.read if number < UNIFORM_BASE and number not in named)
    return [*reads, *others], kept


def _sources(operands: Sequence[Operand]) -> Sequence[Operand]:
    """Operands behind the result, without predicates: these have no slot.

    A comparison writes two predicates and has no other result.
    """
    is_comparison = len(operands) > 1 and all(isinstance(one, Predicate) for one in operands[:2])
    values = [operand for operand in operands if not isinstance(operand, Predicate)]
    return values if is_comparison else values[1:]
