"""Tiles of tcgen05 matrix instructions, read from the constant descriptor that the code puts in a register.

M and N stand in bits of the instruction descriptor (PTX ISA, tcgen05 instruction descriptor): N / 8 in
bits 17 to 22, M / 16 in bits 24 to 28.
"""

from dataclasses import dataclass, replace

import numpy as np

from analyzer.demand.costs import OpcodeCosts
from analyzer.execution.constants import constant_before
from analyzer.flow.cfg import Cfg
from analyzer.ir.machine import SchedClass
from analyzer.ir.opcode import Opcode
from analyzer.ir.operand import Described
from analyzer.isa.mma import UNKNOWN_TILE_M, UNKNOWN_TILE_N

_DESCRIPTOR = "idesc"


@dataclass(frozen=True, slots=True, eq=False)
class TiledCosts:
    """Costs with a kernel's own tiles in them; guessed: instructions whose descriptor is no constant."""

    costs: OpcodeCosts
    guessed: int


def with_known_tiles(cfg: Cfg, costs: OpcodeCosts) -> TiledCosts:
    """Scale each tcgen05 opcode's work from the tile assumed for it to the mean of the tiles found."""
    kernel = cfg.kernel
    wanted = kernel.vocabulary.mask(_has_tile)
    if not wanted.any():
        return TiledCosts(costs, 0)
    ids = kernel.opcode_ids
    areas: dict[int, list[float]] = {}
    guessed = 0
    for row in np.flatnonzero(wanted[ids[: len(cfg.block_of)]]).tolist():
        area = _tile_area(cfg, row)
        guessed += area is None
        areas.setdefault(int(ids[row]), []).append(area or float(UNKNOWN_TILE_M * UNKNOWN_TILE_N))
    scale = np.ones(len(wanted))
    for number, found in areas.items():
        scale[number] = sum(found) / len(found) / (UNKNOWN_TILE_M * UNKNOWN_TILE_N)
    return TiledCosts(
        replace(
            costs,
            issue_cycles=costs.issue_cycles * scale,
            tensor_cycles=costs.tensor_cycles * scale,
            tensor_fma=costs.tensor_fma * scale,
            flops=costs.flops * scale,
        ),
        guessed,
    )


def _has_tile(opcode: Opcode) -> bool:
    return opcode.sched is SchedClass.MMA_TENSOR_CORE


def _tile_area(cfg: Cfg, row: int) -> float | None:
    operands = cfg.kernel.form(row).operands
    for operand in operands:
        if isinstance(operand, Described) and operand.kind == _DESCRIPTOR and operand.descriptor.bases:
            value = constant_before(cfg, cfg.block_of[row], row, operand.descriptor.bases[0])
            if value is None:
                return None
            m, n = (value >> 24 & 0x1F) * 16, (value >> 17 & 0x3F) * 8
            return float(m * n) if m and n else None
    return None
