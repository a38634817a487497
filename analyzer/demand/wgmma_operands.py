"""Operand fetches of warpgroup products (wgmma) from shared memory, which may take longer than the product.

Each instruction fetches 32 bytes of a row of A and of a column of B for any type, and 64 of a column of B if
A is sparse (PTX ISA, wgmma shapes). Fetches of consecutive instructions do not overlap, so the interval of an
instruction is the longer of its product and its fetches:

    m64n32k16, A and B in shared memory: (64 + 32) * 32 bytes / 128 bytes per cycle = 24 cycles, product 16
"""

import numpy as np
from msgspec.structs import replace

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.flow.cfg import Cfg
from analyzer.hardware.schema import Arch
from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import MmaShape, is_warpgroup_mma
from analyzer.ir.operand import DescriptorOperand

_OPERAND_BYTES_PER_ROW = 32
_N_OPERANDS_UP_TO_A = 2  # printed operands: D, A (unless one descriptor names both), B


def add_wgmma_operand_fetches(cfg: Cfg, costs: OpcodeCosts, arch: Arch) -> OpcodeCosts:
    """Return costs in which a warpgroup opcode's interval is the mean of its instructions' intervals."""
    rate = arch.memory.warpgroup_operand_bytes_per_cycle
    kernel = cfg.kernel
    wanted = kernel.form_table.make_opcode_mask(is_warpgroup_mma)
    if rate is None or not wanted.any():
        return costs
    ids = kernel.opcode_ids
    found: dict[int, list[float]] = {}
    for row in np.flatnonzero(wanted[ids[: len(cfg.block_of)]]).tolist():
        number = int(ids[row])
        fetch = _count_fetched_bytes(kernel.decode_form(row)) / rate.value
        found.setdefault(number, []).append(max(fetch, float(costs.issue_cycles[number])))
    issue, matrix = costs.issue_cycles.copy(), costs.wgmma_cycles.copy()
    for number, cycles in found.items():
        issue[number] = matrix[number] = np.mean(cycles)
    return replace(costs, issue_cycles=issue, wgmma_cycles=matrix)


def _count_fetched_bytes(form: InstructionForm) -> float:
    """Count fetched bytes: B is always in shared memory, A if no register precedes the descriptors."""
    shape = form.opcode.mma_shape
    if shape is None:
        return 0.0
    shares_a = any(isinstance(operand, DescriptorOperand) for operand in form.operands[:_N_OPERANDS_UP_TO_A])
    return _OPERAND_BYTES_PER_ROW * (_count_b_columns(shape) + (shape.m if shares_a else 0))


def _count_b_columns(shape: MmaShape) -> int:
    return shape.n * (2 if shape.is_sparse else 1)
