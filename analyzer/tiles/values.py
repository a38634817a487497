"""Values of tile-level evaluation: integers, masks and pointers of many programs at once.

A tile of integers is kept as what makes it up, for all programs of a launch together:

    value[p, i, j] = base[p] + stride_0[p] · i + stride_1[p] · j + Σ parts[p, i, j]

`base` and strides have one entry per program, or one where all programs agree; parts are arrays that may
have length 1 along any axis. `pid * 128 + arange(0, 128)` of 100,000 programs is so 100,001 numbers, not 12.8
million. A mask is a conjunction of a flag, of intervals of one axis, and of arrays:

    mask[p, i, j] = flag[p] and lo_0[p] <= i < hi_0[p] and lo_1[p] <= j < hi_1[p] and parts[p, i, j] …

An affine tile of one axis compared with a scalar is an interval, so that ragged edges are counted in closed
form. What has no such form becomes an array; where that would be too large `TileTooLarge` is raised, and the
evaluator takes fewer programs at a time.
"""

from collections.abc import Callable
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Shape = tuple[int, ...]

MAX_ARRAY_ELEMENTS = 1 << 24

_ONE: IntArray = np.ones(1, dtype=np.int64)
_ZERO: IntArray = np.zeros(1, dtype=np.int64)
TRUE: BoolArray = np.ones(1, dtype=np.bool_)
FALSE: BoolArray = np.zeros(1, dtype=np.bool_)


class TileTooLarge(Exception):
    """An array of so many programs and elements is too large: take fewer programs at a time."""


class Unknown(Struct, frozen=True):
    """A value that the launch does not give."""

    reason: str = ""  # for people: `loaded from ids_ptr at line 12`
    hint: str = ""  # the option that would give it


class TileInteger(Struct, frozen=True, eq=False):
    """Integers of a tile, or one number (shape ()); numbers of floating point too, always as splats."""

    shape: Shape
    base: NDArray[np.int64] | NDArray[np.float64]
    strides: tuple[tuple[int, IntArray], ...] = ()  # (axis, stride); no axis of length 1, none twice
    parts: tuple[IntArray, ...] = ()  # each [programs or 1, then each axis or 1]

    @property
    def is_splat(self) -> bool:
        """True if all elements of a program's tile are equal."""
        return not self.strides and not self.parts


class TileMask(Struct, frozen=True, eq=False):
    """Truth values of a tile, or one (shape ())."""

    shape: Shape
    flag: BoolArray
    intervals: tuple[tuple[int, IntArray, IntArray], ...] = ()  # (axis, first, end); none of an axis twice
    parts: tuple[BoolArray, ...] = ()

    @property
    def is_splat(self) -> bool:
        """True if all elements of a program's tile are equal."""
        return not self.intervals and not self.parts


class TilePointer(Struct, frozen=True, eq=False):
    """Addresses: bytes into the allocation that an argument points to; None if it is not known which."""

    argument: int | None
    offset: TileInteger | Unknown
    shape: Shape


class TensorDescriptor(Struct, frozen=True, eq=False):
    """A tensor descriptor, or a pointer to a block: where it points, and the extents that cut boxes off."""

    pointer: "TilePointer | Unknown"
    extents: "tuple[TileInteger | Unknown, ...]"
    strides: "tuple[TileInteger | Unknown, ...]" = ()
    offsets: "tuple[TileInteger | Unknown, ...]" = ()  # of the block in the tensor; a descriptor has none


TileValue = TileInteger | TileMask | TilePointer | TensorDescriptor | Unknown


def make_integer(number: int, shape: Shape = ()) -> TileInteger:
    """Return one number in all programs and elements."""
    return TileInteger(shape, np.array([number], dtype=np.int64))


def make_range(start: int, length: int) -> TileInteger:
    """Return start, start + 1, … along one axis."""
    strides = ((0, _ONE),) if length > 1 else ()
    return TileInteger((length,), np.array([start], dtype=np.int64), strides)


def make_flag(flag: bool, shape: Shape = ()) -> TileMask:
    """Return one truth value everywhere."""
    return TileMask(shape, TRUE if flag else FALSE)


def add(a: TileInteger, b: TileInteger, sign: int = 1) -> TileInteger:
    """Return a + sign · b."""
    shape = a.shape or b.shape
    if sign != 1:
        b = scale(b, np.array([sign], dtype=np.int64))
    strides = dict(a.strides)
    for axis, stride in b.strides:
        strides[axis] = strides[axis] + stride if axis in strides else stride
    kept = tuple((axis, stride) for axis, stride in strides.items() if stride.any())
    return TileInteger(shape, a.base + b.base, kept, a.parts + b.parts)


def scale(a: TileInteger, factor: NDArray[np.int64]) -> TileInteger:
    """Return a · factor, where the factor has one entry per program or one for all."""
    strides = tuple((axis, stride * factor) for axis, stride in a.strides)
    parts = tuple(part * align(factor, part.ndim) for part in a.parts)
    return TileInteger(a.shape, a.base * factor, strides, parts)


def multiply(a: TileInteger, b: TileInteger) -> TileInteger:
    """Return a · b."""
    if b.is_splat:
        return with_shape(scale(a, b.base.astype(np.int64)), a.shape or b.shape)
    if a.is_splat:
        return with_shape(scale(b, a.base.astype(np.int64)), b.shape or a.shape)
    return apply(np.multiply, a, b)


def with_shape(a: TileInteger, shape: Shape) -> TileInteger:
    """Return the same numbers as a tile of another shape, to which they are broadcast."""
    return a if a.shape == shape else TileInteger(shape, a.base, a.strides, a.parts)


def align(per_program: NDArray[np.int64], ndim: int) -> NDArray[np.int64]:
    """Return values per program with axes of length 1 behind, `ndim` in all."""
    return per_program.reshape(per_program.shape[0], *[1] * (ndim - 1))


def check_size(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast. Raises TileTooLarge."""
    shape = np.broadcast_shapes(*shapes)
    if prod(shape) > MAX_ARRAY_ELEMENTS:
        raise TileTooLarge
    return shape


def materialize(a: TileInteger) -> NDArray[np.int64]:
    """Return the numbers as an array [programs or 1, each axis or 1]. Raises TileTooLarge."""
    ndim = 1 + len(a.shape)
    ramps = []
    for axis, stride in a.strides:
        check_size((a.shape[axis],))
        along = [1] * ndim
        along[axis + 1] = a.shape[axis]
        ramps.append((align(stride, ndim), np.arange(a.shape[axis], dtype=np.int64).reshape(along)))
    base = align(a.base.astype(np.int64, copy=False), ndim)
    shapes = [np.broadcast_shapes(stride.shape, ramp.shape) for stride, ramp in ramps]
    check_size(base.shape, *shapes, *(part.shape for part in a.parts))
    total = base
    for part in a.parts:
        total = total + part
    for stride, ramp in ramps:
        total = total + stride * ramp
    return total


def find_extremes(a: TileInteger) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return bounds of each program's elements (least, most); exact without parts."""
    low = high = a.base
    for axis, stride in a.strides:
        reach = stride * (a.shape[axis] - 1)
        low, high = low + np.minimum(reach, 0), high + np.maximum(reach, 0)
    for part in a.parts:
        axes = tuple(range(1, part.ndim))
        low, high = low + part.min(axis=axes), high + part.max(axis=axes)
    return low, high  # type: ignore[return-value]


def apply(
    function: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]],
    a: TileInteger,
    b: TileInteger,
) -> TileInteger:
    """Return a function of two integers element by element. Raises TileTooLarge."""
    shape = a.shape or b.shape
    if a.is_splat and b.is_splat:
        return TileInteger(shape, function(a.base.astype(np.int64), b.base.astype(np.int64)))
    left, right = (materialize(with_shape(each, shape)) for each in (a, b))
    check_size(left.shape, right.shape)
    return TileInteger(shape, _ZERO, (), (function(left, right),))


def conjoin(a: TileMask, b: TileMask) -> TileMask:
    """Return a and b."""
    shape = a.shape or b.shape
    intervals = {axis: (first, end) for axis, first, end in a.intervals}
    for axis, first, end in b.intervals:
        if axis in intervals:
            earlier = intervals[axis]
            intervals[axis] = (np.maximum(earlier[0], first), np.minimum(earlier[1], end))
        else:
            intervals[axis] = (first, end)
    kept = tuple((axis, first, end) for axis, (first, end) in intervals.items())
    parts = a.parts + tuple(part for part in b.parts if not any(part is each for each in a.parts))
    return TileMask(shape, a.flag & b.flag, kept, parts)


def materialize_mask(a: TileMask) -> BoolArray:
    """Return the truth values as an array [programs or 1, each axis or 1]. Raises TileTooLarge."""
    ndim = 1 + len(a.shape)
    arrays = [_align_flag(a.flag, ndim), *a.parts, *(_expand_interval(each, a.shape) for each in a.intervals)]
    check_size(*(each.shape for each in arrays))
    total = arrays[0]
    for each in arrays[1:]:
        total = total & each
    return total


def _align_flag(flag: BoolArray, ndim: int) -> BoolArray:
    return flag.reshape(flag.shape[0], *[1] * (ndim - 1))


def _expand_interval(interval: tuple[int, IntArray, IntArray], shape: Shape) -> BoolArray:
    axis, first, end = interval
    ndim = 1 + len(shape)
    check_size((shape[axis],))
    along = [1] * ndim
    along[axis + 1] = shape[axis]
    places = np.arange(shape[axis], dtype=np.int64).reshape(along)
    check_size(np.broadcast_shapes(align(first, ndim).shape, along), align(end, ndim).shape)
    inside: BoolArray = (places >= align(first, ndim)) & (places < align(end, ndim))
    return inside


def negate(a: TileMask) -> TileMask:
    """Return not a. Raises TileTooLarge."""
    if a.is_splat:
        return TileMask(a.shape, ~a.flag)
    return TileMask(a.shape, TRUE, (), (~materialize_mask(a),))


def combine_masks(
    function: Callable[[BoolArray, BoolArray], BoolArray], a: TileMask, b: TileMask
) -> TileMask:
    """Return a function of two masks element by element. Raises TileTooLarge."""
    shape = a.shape or b.shape
    if a.is_splat and b.is_splat:
        return TileMask(shape, function(a.flag, b.flag))
    left = materialize_mask(TileMask(shape, a.flag, a.intervals, a.parts))
    right = materialize_mask(TileMask(shape, b.flag, b.intervals, b.parts))
    check_size(left.shape, right.shape)
    return TileMask(shape, TRUE, (), (function(left, right),))


def count_true(a: TileMask) -> IntArray:
    """Return how many elements of the tile are true, [programs or 1].

    Axes that no array joins are counted apart: the count of a product of conditions on different axes is the
    product of their counts.
    """
    count = a.flag.astype(np.int64)
    intervals = {axis: (first, end) for axis, first, end in a.intervals}
    remaining = set(range(len(a.shape)))
    for axes, parts in _group_parts(a.parts):
        joined = parts[0]
        for part in parts[1:]:
            check_size(joined.shape, part.shape)
            joined = joined & part
        for axis in axes & set(intervals):
            inside = _expand_interval((axis, *intervals[axis]), a.shape)
            check_size(joined.shape, inside.shape)
            joined = joined & inside
        count = count * np.count_nonzero(joined, axis=tuple(range(1, joined.ndim))).astype(np.int64)
        remaining -= axes
    for axis in remaining:
        if axis in intervals:
            first, end = intervals[axis]
            count = count * np.maximum(end - first, 0)
        else:
            count = count * a.shape[axis]
    return count


def _group_parts(parts: tuple[BoolArray, ...]) -> list[tuple[set[int], list[BoolArray]]]:
    """Return parts in groups that share no axis, each with its axes."""
    groups: list[tuple[set[int], list[BoolArray]]] = []
    for part in parts:
        axes = {axis - 1 for axis in range(1, part.ndim) if part.shape[axis] > 1}
        members = [part]
        rest = []
        for other_axes, other_members in groups:
            if axes & other_axes:
                axes, members = axes | other_axes, members + other_members
            else:
                rest.append((other_axes, other_members))
        groups = [*rest, (axes, members)]
    return groups
