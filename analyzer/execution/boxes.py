"""Boxes of CTAs that run alike, found by looking at their corners."""

from collections.abc import Callable, Iterator
from itertools import pairwise, product

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.launch import Dim3

IntArray = NDArray[np.int64]
Signatures = Callable[[IntArray], NDArray[np.uint64]]
Place = tuple[int, int, int]

AXES = 3
_MOST_BOXES = 1024
_MOST_PARTS = 8  # that a box is cut into: more CTAs are looked at than with halves, but in fewer goes
_WANTED_PARTS = 32
_MOST_SINGLE = 256  # CTAs along an axis that are looked at one by one: another look takes longer


class Box(Struct, frozen=True):
    """CTAs from low to high along each axis of the grid, ends included: every stride-th of them."""

    low: Place
    high: Place
    stride: Place = (1, 1, 1)

    @property
    def sizes(self) -> Place:
        """CTAs along each axis."""
        ends = zip(self.low, self.high, self.stride, strict=True)
        x, y, z = ((high - low) // stride + 1 for low, high, stride in ends)
        return x, y, z

    @property
    def count(self) -> int:
        x, y, z = self.sizes
        return x * y * z

    def corners(self) -> Iterator[Place]:
        x, y, z = ({low, high} for low, high in zip(self.low, self.high, strict=True))
        return product(x, y, z)

    def second(self) -> Iterator[Place]:
        """The next one to the first along each axis."""
        for axis in range(AXES):
            if self.sizes[axis] > 1:
                x, y, z = (at + self.stride[axis] * (axis == a) for a, at in enumerate(self.low))
                yield x, y, z

    def split(self, axis: int, n_parts: int) -> list["Box"]:
        """At most so many parts along an axis, alike as far as may be."""
        size, low, stride = self.sizes[axis], self.low[axis], self.stride[axis]
        edges = [low + size * part // n_parts * stride for part in range(n_parts + 1)]
        return [self.along(axis, first, last - stride) for first, last in pairwise(edges) if last > first]

    def along(self, axis: int, low: int, high: int) -> "Box":
        """The same along the other axes, [low, high] along this one."""
        lows, highs = list(self.low), list(self.high)
        lows[axis], highs[axis] = low, high
        return Box((lows[0], lows[1], lows[2]), (highs[0], highs[1], highs[2]), self.stride)

    def contains(self, x: IntArray, y: IntArray, z: IntArray) -> NDArray[np.bool_]:
        """Whether CTAs at these places are among them."""
        inside = np.ones(len(x), dtype=bool)
        for at, low, high, stride in zip((x, y, z), self.low, self.high, self.stride, strict=True):
            inside &= (at >= low) & (at <= high) & ((at - low) % stride == 0)
        return inside

    def meets(self, sizes: Place) -> bool:
        """Some of its CTAs are among the first so many along each axis."""
        return all(low < size for low, size in zip(self.low, sizes, strict=True))

    def within(self, sizes: Place) -> "Box":
        """Those of its CTAs that are among the first so many along each axis."""
        ends = zip(self.low, self.high, self.stride, sizes, strict=True)
        x, y, z = (low + (min(high, size - 1) - low) // stride * stride for low, high, stride, size in ends)
        return Box(self.low, (x, y, z), self.stride)

    def across(self, axis: int) -> tuple[tuple[int, int], ...]:
        """Its extent along the other axes."""
        spans = zip(self.low, self.high, strict=True)
        return tuple(span for place, span in enumerate(spans) if place != axis)


def whole_box(grid: Dim3) -> Box:
    """All CTAs of a grid."""
    return Box((0, 0, 0), (grid.x - 1, grid.y - 1, grid.z - 1))


def strided_boxes(grid: Dim3, stride: Place) -> list[Box]:
    """All CTAs of a grid, those in boxes of their own that are so far apart along each axis."""
    found = []
    for first in product(*(range(min(step, size)) for step, size in zip(stride, grid.sizes, strict=True))):
        ends = zip(first, stride, grid.sizes, strict=True)
        x, y, z = (low + (size - 1 - low) // step * step for low, step, size in ends)
        found.append(Box((first[0], first[1], first[2]), (x, y, z), stride))
    return found


def uniform_boxes(grid: Dim3, signatures: Signatures, stride: Place = (1, 1, 1)) -> list[Box] | None:
    """Boxes whose corners have equal signatures, which cover the grid; None where they would be too many.

    stride: between CTAs of one box.
    """
    known: dict[int, int] = {}
    open_boxes = _first_boxes(grid, stride)
    done: list[Box] = []
    while open_boxes:
        wanted = {cta_number(grid, corner) for box in open_boxes for corner in box.corners()} - known.keys()
        if wanted:
            numbers = np.array(sorted(wanted), dtype=np.int64)
            known.update(zip(numbers.tolist(), signatures(numbers).tolist(), strict=True))
        axes = [_differing_axis(grid, box, known) for box in open_boxes]
        done += [box for box, axis in zip(open_boxes, axes, strict=True) if axis is None]
        uneven = [(box, axis) for box, axis in zip(open_boxes, axes, strict=True) if axis is not None]
        n_parts = max(2, min(_MOST_PARTS, _WANTED_PARTS // max(1, len(uneven))))
        if sum(box.sizes[axis] for box, axis in uneven) <= _MOST_SINGLE:
            n_parts = _MOST_SINGLE
        open_boxes = [part for box, axis in uneven for part in box.split(axis, n_parts)]
        if len(done) + len(open_boxes) > _MOST_BOXES:
            return None
    for axis in range(AXES):
        done = _joined_along(axis, done, lambda box: known[cta_number(grid, box.low)])
    return done


def _joined_along(axis: int, boxes: list[Box], signature: Callable[[Box], int]) -> list[Box]:
    """Boxes that touch along an axis, and whose corners are alike, as one."""
    found: list[Box] = []
    for box in sorted(
        boxes, key=lambda box: (box.across(axis), box.low[axis] % box.stride[axis], box.low[axis])
    ):
        last = found[-1] if found else None
        if (
            last is not None
            and last.across(axis) == box.across(axis)
            and last.high[axis] + box.stride[axis] == box.low[axis]
            and signature(last) == signature(box)
        ):
            found[-1] = last.along(axis, last.low[axis], box.high[axis])
        else:
            found.append(box)
    return found


def _first_boxes(grid: Dim3, stride: Place) -> list[Box]:
    """Of each strided box the inside and the first and last CTAs along each axis, which often differ."""
    found = []
    for box in strided_boxes(grid, stride):
        x, y, z = map(_spans, box.low, box.high, box.stride)
        found += [Box((i[0], j[0], k[0]), (i[1], j[1], k[1]), stride) for i, j, k in product(x, y, z)]
    return found


def _spans(low: int, high: int, stride: int) -> list[tuple[int, int]]:
    if high - low <= stride:
        return [(place, place) for place in sorted({low, high})]
    return [(low, low), (low + stride, high - stride), (high, high)]


def _differing_axis(grid: Dim3, box: Box, known: dict[int, int]) -> int | None:
    """An axis along which corners differ, the longest of several; None where all corners are alike."""
    corners = list(box.corners())
    if len({known[cta_number(grid, corner)] for corner in corners}) == 1:
        return None
    for axis in sorted(range(AXES), key=lambda a: -box.sizes[a]):
        if box.sizes[axis] < 2:
            continue
        for corner in corners:
            other = list(corner)
            other[axis] = box.low[axis] + box.high[axis] - corner[axis]
            if known[cta_number(grid, corner)] != known[cta_number(grid, (other[0], other[1], other[2]))]:
                return axis
    return None


def cta_number(grid: Dim3, at: Place) -> int:
    return at[0] + grid.x * (at[1] + grid.y * at[2])


def cta_places(grid: Dim3, numbers: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Where CTAs lie along each axis, by their linear numbers."""
    rows = numbers // grid.x
    return numbers % grid.x, rows % grid.y, rows // grid.y
