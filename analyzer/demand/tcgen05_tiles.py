"""Tiles of tcgen05 matrix instructions, decoded from the descriptor that the code puts in a register.

PTX ISA, tcgen05 instruction descriptor: N / 8 in bits 17 to 22, M / 16 in bits 24 to 28.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.execution.lowering.slicing import find_mma_descriptor
from analyzer.execution.static_counts.integer_constants import find_constant_before
from analyzer.flow.cfg import Cfg
from analyzer.hardware.schema import Arch, Tcgen05MmaTiming
from analyzer.ir.module import Kernel
from analyzer.ir.opcode import Opcode
from analyzer.ir.operand import DescriptorOperand
from analyzer.ir.scheduling import SchedClass
from analyzer.isa.mma_shapes import DEFAULT_TCGEN05_TILE_M, DEFAULT_TCGEN05_TILE_N

_SHARED_DESCRIPTOR_KIND = "gdesc"
_CTA_PAIR_MODIFIER = "2CTA"


class Tcgen05TileCosts(Struct, frozen=True, eq=False):
    """Costs of a kernel's own tiles."""

    costs: OpcodeCosts
    n_guessed: int  # instructions whose descriptor is no constant


class _Tile(Struct, frozen=True):
    """Tile of one matrix instruction."""

    area: float  # M times N
    busy_area: float  # part of it that takes an SM's time
    n_columns: int  # N
    product: Tcgen05MmaTiming | None  # measured timing of its kind, if known


def has_cta_pair_mma(kernel: Kernel) -> bool:
    """Return whether one CTA of a pair issues products for the tensor cores of both SMs."""
    return any(
        is_tcgen05_mma(opcode) and _CTA_PAIR_MODIFIER in opcode.modifiers
        for opcode in kernel.form_table.opcodes
    )


def add_tcgen05_tiles(
    cfg: Cfg, costs: OpcodeCosts, arch: Arch, descriptors: Mapping[int, int]
) -> Tcgen05TileCosts:
    """Return costs in which each tcgen05 opcode has the mean work and time of its tiles.

    descriptors: those that execution found, by row; others are searched for in the code.
    """
    kernel = cfg.kernel
    wanted = kernel.form_table.make_opcode_mask(is_tcgen05_mma)
    if not wanted.any():
        return Tcgen05TileCosts(costs, 0)
    ids = kernel.opcode_ids
    tiles: dict[int, list[_Tile]] = {}
    guessed = 0
    for row in np.flatnonzero(wanted[ids[: len(cfg.block_of)]]).tolist():
        tile = _find_tile(cfg, row, arch, descriptors.get(row))
        guessed += tile is None
        tiles.setdefault(int(ids[row]), []).append(tile or _make_unknown_tile(_count_ctas(cfg.kernel, row)))
    work, time = np.ones(len(wanted)), np.ones(len(wanted))
    issue, latency = costs.issue_cycles.copy(), costs.latency_cycles.copy()
    unknown = _make_unknown_tile(1).area  # that costs count
    for number, found in tiles.items():
        work[number] = np.mean([tile.area for tile in found]) / unknown
        time[number] = np.mean([tile.busy_area for tile in found]) / unknown
        whole = float(issue[number])
        issue[number] = np.mean(
            [_compute_issue_cycles(tile, whole * tile.busy_area / unknown) for tile in found]
        )
        latency[number] = np.mean([_compute_latency_cycles(tile, float(latency[number])) for tile in found])
    tiled = replace(
        costs,
        issue_cycles=issue,
        latency_cycles=latency,
        tensor_cycles=costs.tensor_cycles * time,
        tensor_fma=costs.tensor_fma * work,
        flops=costs.flops * work,
    )
    return Tcgen05TileCosts(tiled, guessed)


def is_tcgen05_mma(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.MMA_TENSOR_CORE


def _make_unknown_tile(ctas: int) -> _Tile:
    """Return the largest tile of so many CTAs: each of their SMs multiplies its rows of it."""
    area = float(DEFAULT_TCGEN05_TILE_M * DEFAULT_TCGEN05_TILE_N)
    return _Tile(area * ctas, area, DEFAULT_TCGEN05_TILE_N, None)


def _count_ctas(kernel: Kernel, row: int) -> int:
    """Return the CTAs whose tensor cores work on a product."""
    return 2 if _CTA_PAIR_MODIFIER in kernel.find_opcode(row).modifiers else 1


def count_tile_fmas(cfg: Cfg, row: int, executed: int | None, k: int) -> float:
    """Return the multiply-adds of one tcgen05 product, those of both CTAs of a pair.

    executed: as of `find_tile_extents`; where its tile is not known, the largest one.
    """
    extents = find_tile_extents(cfg, row, executed)
    if extents is None:
        return _make_unknown_tile(_count_ctas(cfg.kernel, row)).area * k
    return float(extents[0] * extents[1] * k)


def _compute_issue_cycles(tile: _Tile, cycles: float) -> float:
    product = tile.product
    if product is None:
        return cycles
    return max(cycles, product.operand_cycles + product.operand_column_cycles * tile.n_columns)


def _compute_latency_cycles(tile: _Tile, cycles: float) -> float:
    product = tile.product
    if product is None:
        return cycles
    return product.latency_cycles + product.latency_column_cycles * tile.n_columns


def find_tile_extents(cfg: Cfg, row: int, executed: int | None) -> tuple[int, int] | None:
    """Return M and N of a tcgen05 product; None if its descriptor is no constant.

    executed: the descriptor as execution found it, None if it did not.
    """
    descriptor = find_mma_descriptor(cfg.kernel.decode_form(row))
    if descriptor is None:
        return None
    value = executed or find_constant_before(cfg, cfg.block_of[row], row, descriptor)
    if value is None:
        return None
    m, n = (value >> 24 & 0x1F) * 16, (value >> 17 & 0x3F) * 8
    return (m, n) if m and n else None


def _find_tile(cfg: Cfg, row: int, arch: Arch, executed: int | None) -> _Tile | None:
    extents = find_tile_extents(cfg, row, executed)
    if extents is None:
        return None
    (m, n), form = extents, cfg.kernel.decode_form(row)
    first = next(operand for operand in form.operands if isinstance(operand, DescriptorOperand))
    a = "shared" if first.kind == _SHARED_DESCRIPTOR_KIND else "tensor"
    ctas = _count_ctas(cfg.kernel, row)
    product = next((p for p in arch.tensor_core_product if (p.a, p.ctas, p.m) == (a, ctas, m)), None)
    rows = m / ctas if product is None else product.rows
    return _Tile(float(m * n), float(rows * n), n, product)
