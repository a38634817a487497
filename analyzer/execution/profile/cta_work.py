"""Work of each CTA of a grid, in the order in which CTAs are handed out, where CTAs have unequal work.

Example: with causal attention over four tiles of queries the CTAs of a head look at 1, 2, 3 and 4 tiles of
keys; with two heads, and blockIdx.x the tile of queries, the work goes as 1, 2, 3, 4, 1, 2, 3, 4.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from analyzer.execution.profile.cta_boxes import CtaBox, linearize_cta
from analyzer.ir.arrays import FloatArray, IntArray
from analyzer.ir.launch import Dim3

MAX_KEPT_CTAS = 1 << 17  # in larger grids no single CTA decides when the last one ends
_MIN_WORK_DIFFERENCE = 0.02


class SampledWork(Struct, frozen=True, eq=False):
    """Work of the CTAs of a batch."""

    cta_numbers: IntArray  # [n]
    instructions: FloatArray  # [n], of all warps of each


def build_cta_work(grid: Dim3, parts: Sequence[SampledWork], boxes: Sequence[CtaBox]) -> FloatArray | None:
    """Return the instructions of each CTA of the grid, [grid]; None if not all are known, or all are alike.

    parts: of the executed CTAs; boxes: of CTAs that do what their first one does, none if all were executed.
    """
    if grid.count > MAX_KEPT_CTAS or not parts:
        return None
    found = np.full(grid.count, np.nan)
    for part in parts:
        found[part.cta_numbers] = part.instructions
    if boxes:
        _fill_boxes(grid, found, boxes)
    if np.isnan(found).any() or found.max() - found.min() <= _MIN_WORK_DIFFERENCE * found.max():
        return None
    return found


def _fill_boxes(grid: Dim3, found: FloatArray, boxes: Sequence[CtaBox]) -> None:
    """Give all CTAs of each box the work of its first one."""
    table = found.reshape(grid.z, grid.y, grid.x)
    for box in boxes:
        ranges = zip(box.low, box.high, box.stride, strict=True)
        x, y, z = (slice(low, high + 1, step) for low, high, step in ranges)
        table[z, y, x] = found[linearize_cta(grid, box.low)]
