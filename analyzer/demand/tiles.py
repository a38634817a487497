"""Tiles of tcgen05 matrix instructions, read from the constant descriptor that the code puts in a register.

M and N stand in bits of the instruction descriptor (PTX ISA, tcgen05 instruction descriptor): N / 8 in
bits 17 to 22, M / 16 in bits 24 to 28.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.costs import OpcodeCosts
from analyzer.execution.constants import constant_before
from analyzer.execution.slicing import product_descriptor
from analyzer.flow.cfg import Cfg
from analyzer.hardware.schema import Arch, TensorCoreProduct
from analyzer.ir.machine import SchedClass
from analyzer.ir.opcode import Opcode
from analyzer.ir.operand import Described
from analyzer.ir.program import Kernel
from analyzer.isa.mma import UNKNOWN_TILE_M, UNKNOWN_TILE_N

_SHARED_OPERAND = "gdesc"
_PAIR = "2CTA"


class TiledCosts(Struct, frozen=True, eq=False):
    """Costs with a kernel's own tiles in them; guessed: instructions whose descriptor is no constant."""

    costs: OpcodeCosts
    guessed: int


class _Tile(Struct, frozen=True):
    """area: M times N; busy: the part of it that takes an SM's time; the figures of its kind, if known."""

    area: float
    busy: float
    columns: int
    product: TensorCoreProduct | None


def makes_pairs(kernel: Kernel) -> bool:
    """Whether one CTA of two makes products for the tensor cores of both SMs."""
    return any(_has_tile(opcode) and _PAIR in opcode.modifiers for opcode in kernel.vocabulary.opcodes)


def with_known_tiles(cfg: Cfg, costs: OpcodeCosts, arch: Arch, descriptors: Mapping[int, int]) -> TiledCosts:
    """Work and time of each tcgen05 opcode: those of the mean of the tiles found, not of the one assumed.

    descriptors: those that execution met, by row; others are looked for in the code.
    """
    kernel = cfg.kernel
    wanted = kernel.vocabulary.mask(_has_tile)
    if not wanted.any():
        return TiledCosts(costs, 0)
    ids = kernel.opcode_ids
    tiles: dict[int, list[_Tile]] = {}
    guessed = 0
    for row in np.flatnonzero(wanted[ids[: len(cfg.block_of)]]).tolist():
        tile = _tile(cfg, row, arch, descriptors.get(row))
        guessed += tile is None
        tiles.setdefault(int(ids[row]), []).append(tile or _unknown())
    work, time = np.ones(len(wanted)), np.ones(len(wanted))
    issue, latency = costs.issue_cycles.copy(), costs.latency_cycles.copy()
    for number, found in tiles.items():
        unknown = _unknown().area
        work[number] = np.mean([tile.area for tile in found]) / unknown
        time[number] = np.mean([tile.busy for tile in found]) / unknown
        whole = float(issue[number])
        issue[number] = np.mean([_interval(tile, whole * tile.busy / unknown) for tile in found])
        latency[number] = np.mean([_latency(tile, float(latency[number])) for tile in found])
    return TiledCosts(
        replace(
            costs,
            issue_cycles=issue,
            latency_cycles=latency,
            tensor_cycles=costs.tensor_cycles * time,
            tensor_fma=costs.tensor_fma * work,
            flops=costs.flops * work,
        ),
        guessed,
    )


def _has_tile(opcode: Opcode) -> bool:
    return opcode.sched is SchedClass.MMA_TENSOR_CORE


def _unknown() -> _Tile:
    area = float(UNKNOWN_TILE_M * UNKNOWN_TILE_N)
    return _Tile(area, area, UNKNOWN_TILE_N, None)


def _interval(tile: _Tile, cycles: float) -> float:
    product = tile.product
    if product is None:
        return cycles
    return max(cycles, product.operand_cycles + product.operand_column_cycles * tile.columns)


def _latency(tile: _Tile, cycles: float) -> float:
    product = tile.product
    if product is None:
        return cycles
    return product.latency_cycles + product.latency_column_cycles * tile.columns


def _tile(cfg: Cfg, row: int, arch: Arch, executed: int | None) -> _Tile | None:
    form = cfg.kernel.form(row)
    descriptor = product_descriptor(form)
    if descriptor is None:
        return None
    value = executed or constant_before(cfg, cfg.block_of[row], row, descriptor)
    if value is None:
        return None
    m, n = (value >> 24 & 0x1F) * 16, (value >> 17 & 0x3F) * 8
    first = next(operand for operand in form.operands if isinstance(operand, Described))
    a = "shared" if first.kind == _SHARED_OPERAND else "tensor"
    ctas = 2 if _PAIR in form.opcode.modifiers else 1
    product = next((p for p in arch.tensor_core_product if (p.a, p.ctas, p.m) == (a, ctas, m)), None)
    rows = m / ctas if product is None else product.rows
    return _Tile(float(m * n), float(rows * n), n, product) if m and n else None
