"""Warps and CTAs that find no work: they do hardly more than test whether there is some.

An idle warp reaches no memory instruction, or executes less than a tenth of what the busiest does. A CTA is
idle if all of its warps are. Example: 90 CTAs of 4 warps make a product, 10 load the number of tiles and
return: 40 warps are idle, a tenth of the CTAs.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.execution.profile.execution_profile import WarpClass
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import BoolArray, FloatArray, IntArray
from analyzer.ir.opcode import MEMORY_KINDS, Opcode

_MAX_IDLE_WORK_SHARE = 0.1
_MIN_IDLE_CTA_SHARE = 0.05


class WorkSplit(Struct, frozen=True, eq=False):
    """Classes of warps by whether they have work."""

    busy: tuple[WarpClass, ...]
    idle: tuple[WarpClass, ...]
    idle_cta_share: float  # of the CTAs, those without work; 0 if they are only a few


def split_by_work(cfg: Cfg, classes: Sequence[WarpClass], n_warps: int) -> WorkSplit:
    """Divide warps into busy and idle ones; n_warps: of a CTA.

    Where idle ones are more than a few, whole CTAs of them find no work: the grid is larger than the work.
    """
    lengths, reach = count_block_instructions(cfg), _mask_memory_blocks(cfg)
    least = _MAX_IDLE_WORK_SHARE * max((float(one.block_counts @ lengths) for one in classes), default=0.0)
    if not any((one.block_counts[reach] > 0).any() for one in classes):
        reach = np.ones(len(lengths), dtype=np.bool_)
    busy = tuple(
        one for one in classes if one.block_counts @ lengths >= least and one.block_counts[reach].any()
    )
    idle = tuple(one for one in classes if one not in busy)
    in_all = max(1, sum(one.n_warps for one in classes))
    share = sum(one.n_warps - one.n_beside_busier_warp for one in idle) / in_all
    # no CTA is without work where a warp at the same place of each has some
    share = min(share, 1.0 - float(count_warps_by_slot(busy, n_warps).max()) * n_warps / in_all)
    return WorkSplit(busy, idle, share if share >= _MIN_IDLE_CTA_SHARE else 0.0)


def count_block_instructions(cfg: Cfg) -> IntArray:
    """Return the number of instructions of each block, [block]."""
    return np.array([len(block) for block in cfg.blocks], dtype=np.int64)


def count_warps_by_slot(group: Sequence[WarpClass], n_warps: int) -> FloatArray:
    """Count the warps of some classes at each slot of a CTA, [n_warps]."""
    found: FloatArray = np.zeros(n_warps)
    for one in group:
        found[: len(one.warp_slot_counts)] += one.warp_slot_counts[:n_warps]
    return found


def _mask_memory_blocks(cfg: Cfg) -> BoolArray:
    """Mark blocks that have a memory instruction, [block]."""
    kernel = cfg.kernel
    rows = kernel.form_table.make_opcode_mask(_accesses_memory)[kernel.opcode_ids]
    return np.array([bool(rows[block.start : block.stop].any()) for block in cfg.blocks], dtype=np.bool_)


def _accesses_memory(opcode: Opcode) -> bool:
    return opcode.kind in MEMORY_KINDS
