"""Boxes of equivalent CTAs of a grid, found by executing their corners.

If every condition of a kernel is monotone along each axis of the grid (see `cta_affinity`), then all CTAs of
a box are equivalent as soon as its corners are. The search starts from the whole grid and splits each box
whose corners differ, along an axis along which they differ, until no box is left to split. Boxes that touch
and have equal corners are merged at the end.

Invariant: at any time the finished and the open boxes together cover each CTA of the grid exactly once.

A kernel that leaves early where ctaid.x * 128 >= n, on a grid of 10 CTAs with n = 1000, yields one box of
CTAs 0 to 7 and one of CTAs 8 and 9.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, product

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.arrays import IntArray
from analyzer.ir.launch import Dim3

ComputeSignatures = Callable[[IntArray], NDArray[np.uint64]]
GridVector = tuple[int, int, int]

N_AXES = 3
_MAX_BOXES = 1024
_MAX_PARTS_PER_BOX = 8  # more CTAs are executed than with halves, but in fewer batches
_TARGET_OPEN_BOXES = 32
_MAX_SINGLE_CTAS = 256  # CTAs along an axis that are executed one by one: another batch would take longer


class CtaBox(Struct, frozen=True):
    """CTAs from `low` to `high` along each axis of the grid, every `stride`-th of them."""

    low: GridVector
    high: GridVector  # included
    stride: GridVector = (1, 1, 1)

    @property
    def sizes(self) -> GridVector:
        """Number of CTAs along each axis."""
        ends = zip(self.low, self.high, self.stride, strict=True)
        x, y, z = ((high - low) // stride + 1 for low, high, stride in ends)
        return x, y, z

    @property
    def n_ctas(self) -> int:
        x, y, z = self.sizes
        return x * y * z

    def iter_corners(self) -> Iterator[GridVector]:
        x, y, z = ({low, high} for low, high in zip(self.low, self.high, strict=True))
        return product(x, y, z)

    def iter_axis_neighbors(self) -> Iterator[GridVector]:
        """Yield the second CTA along each axis that has one; the first CTA is `low`."""
        for axis in range(N_AXES):
            if self.sizes[axis] > 1:
                x, y, z = (at + self.stride[axis] * (axis == a) for a, at in enumerate(self.low))
                yield x, y, z

    def split(self, axis: int, n_parts: int) -> list["CtaBox"]:
        """Split along an axis into at most `n_parts` parts of nearly equal size."""
        size, low, stride = self.sizes[axis], self.low[axis], self.stride[axis]
        edges = [low + size * part // n_parts * stride for part in range(n_parts + 1)]
        return [
            self.with_axis_range(axis, first, last - stride)
            for first, last in pairwise(edges)
            if last > first
        ]

    def with_axis_range(self, axis: int, low: int, high: int) -> "CtaBox":
        """Return a copy that extends from `low` to `high` along one axis."""
        lows, highs = list(self.low), list(self.high)
        lows[axis], highs[axis] = low, high
        return CtaBox((lows[0], lows[1], lows[2]), (highs[0], highs[1], highs[2]), self.stride)

    def contains(self, x: IntArray, y: IntArray, z: IntArray) -> NDArray[np.bool_]:
        """Return for each CTA at these coordinates whether it is in the box."""
        inside = np.ones(len(x), dtype=bool)
        for at, low, high, stride in zip((x, y, z), self.low, self.high, self.stride, strict=True):
            inside &= (at >= low) & (at <= high) & ((at - low) % stride == 0)
        return inside

    def contains_ctas_of_window(self, sizes: GridVector) -> bool:
        """Return whether some of its CTAs are among the first `sizes` along each axis."""
        return all(low < size for low, size in zip(self.low, sizes, strict=True))

    def clip_to_window(self, sizes: GridVector) -> "CtaBox":
        """Return the box of those CTAs that are among the first `sizes` along each axis."""
        ends = zip(self.low, self.high, self.stride, sizes, strict=True)
        x, y, z = (low + (min(high, size - 1) - low) // stride * stride for low, high, stride, size in ends)
        return CtaBox(self.low, (x, y, z), self.stride)

    def find_cross_section(self, axis: int) -> tuple[tuple[int, int], ...]:
        """Return the ranges along the other axes."""
        spans = zip(self.low, self.high, strict=True)
        return tuple(span for place, span in enumerate(spans) if place != axis)


def split_by_stride(grid: Dim3, stride: GridVector) -> list[CtaBox]:
    """Split a grid into boxes of CTAs that are `stride` apart along each axis."""
    found = []
    for first in product(*(range(min(step, size)) for step, size in zip(stride, grid.sizes, strict=True))):
        ends = zip(first, stride, grid.sizes, strict=True)
        x, y, z = (low + (size - 1 - low) // step * step for low, step, size in ends)
        found.append(CtaBox((first[0], first[1], first[2]), (x, y, z), stride))
    return found


def find_uniform_boxes(
    grid: Dim3, signatures: ComputeSignatures, stride: GridVector = (1, 1, 1)
) -> list[CtaBox] | None:
    """Find boxes that cover the grid and whose corners have equal signatures; None if there are too many.

    signatures: executes CTAs, given by their linear numbers, and returns a hash of each one's execution.
    stride: distance between the CTAs of one box along each axis.
    """
    known: dict[int, int] = {}
    open_boxes = _make_initial_boxes(grid, stride)
    done: list[CtaBox] = []
    while open_boxes:
        wanted = {
            linearize_cta(grid, corner) for box in open_boxes for corner in box.iter_corners()
        } - known.keys()
        if wanted:
            numbers = np.array(sorted(wanted), dtype=np.int64)
            known.update(zip(numbers.tolist(), signatures(numbers).tolist(), strict=True))
        axes = [_find_differing_axis(grid, box, known) for box in open_boxes]
        done += [box for box, axis in zip(open_boxes, axes, strict=True) if axis is None]
        uneven = [(box, axis) for box, axis in zip(open_boxes, axes, strict=True) if axis is not None]
        n_parts = max(2, min(_MAX_PARTS_PER_BOX, _TARGET_OPEN_BOXES // max(1, len(uneven))))
        if sum(box.sizes[axis] for box, axis in uneven) <= _MAX_SINGLE_CTAS:
            n_parts = _MAX_SINGLE_CTAS
        open_boxes = [part for box, axis in uneven for part in box.split(axis, n_parts)]
        if len(done) + len(open_boxes) > _MAX_BOXES:
            return None
    for axis in range(N_AXES):
        done = _merge_along_axis(axis, done, lambda box: known[linearize_cta(grid, box.low)])
    return done


def _merge_along_axis(axis: int, boxes: list[CtaBox], signature: Callable[[CtaBox], int]) -> list[CtaBox]:
    """Merge boxes that touch along an axis and have equal signatures."""
    found: list[CtaBox] = []
    for box in sorted(
        boxes, key=lambda box: (box.find_cross_section(axis), box.low[axis] % box.stride[axis], box.low[axis])
    ):
        last = found[-1] if found else None
        if (
            last is not None
            and last.find_cross_section(axis) == box.find_cross_section(axis)
            and last.high[axis] + box.stride[axis] == box.low[axis]
            and signature(last) == signature(box)
        ):
            found[-1] = last.with_axis_range(axis, last.low[axis], box.high[axis])
        else:
            found.append(box)
    return found


def _make_initial_boxes(grid: Dim3, stride: GridVector) -> list[CtaBox]:
    """Split each strided box into its inside and its first and last CTAs along each axis.

    CTAs at the edges of the grid often run differently.
    """
    found = []
    for box in split_by_stride(grid, stride):
        x, y, z = map(_split_extent, box.low, box.high, box.stride)
        found += [CtaBox((i[0], j[0], k[0]), (i[1], j[1], k[1]), stride) for i, j, k in product(x, y, z)]
    return found


def _split_extent(low: int, high: int, stride: int) -> list[tuple[int, int]]:
    if high - low <= stride:
        return [(place, place) for place in sorted({low, high})]
    return [(low, low), (low + stride, high - stride), (high, high)]


def _find_differing_axis(grid: Dim3, box: CtaBox, known: dict[int, int]) -> int | None:
    """Return the longest axis along which corners differ; None if all corners are the same."""
    corners = list(box.iter_corners())
    if len({known[linearize_cta(grid, corner)] for corner in corners}) == 1:
        return None
    for axis in sorted(range(N_AXES), key=lambda a: -box.sizes[a]):
        if box.sizes[axis] < 2:
            continue
        for corner in corners:
            other = list(corner)
            other[axis] = box.low[axis] + box.high[axis] - corner[axis]
            if (
                known[linearize_cta(grid, corner)]
                != known[linearize_cta(grid, (other[0], other[1], other[2]))]
            ):
                return axis
    return None


def linearize_cta(grid: Dim3, at: GridVector) -> int:
    """Return the linear number of the CTA at these coordinates; x varies fastest."""
    return at[0] + grid.x * (at[1] + grid.y * at[2])


def delinearize_ctas(grid: Dim3, numbers: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the coordinates of CTAs along each axis, by their linear numbers."""
    rows = numbers // grid.x
    return numbers % grid.x, rows % grid.y, rows // grid.y
