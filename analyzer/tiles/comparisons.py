"""Comparisons of tiles: where they are affine in one axis, their truth is an interval of that axis.

`base + stride · i < 0` holds for i below ceil(-base / stride) where the stride is positive, and for i above
floor(base / -stride) where it is negative. Signed comparisons are all brought to that form:
a <= b is a - b - 1 < 0, a > b is b - a < 0. What depends on several axes is decided by its bounds where
these have one sign in every program, else element by element.
"""

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.tiles.values import (
    TRUE,
    BoolArray,
    IntArray,
    Shape,
    TileInteger,
    TileMask,
    add,
    check_size,
    find_extremes,
    make_integer,
    materialize,
    materialize_mask,
    negate,
    with_shape,
)


class Relation(StrEnum):
    """Predicates of `arith.cmpi`, in the order of their numbers in the generic form."""

    EQ = "eq"
    NE = "ne"
    SLT = "slt"
    SLE = "sle"
    SGT = "sgt"
    SGE = "sge"
    ULT = "ult"
    ULE = "ule"
    UGT = "ugt"
    UGE = "uge"


_SIGNED = {
    Relation.ULT: Relation.SLT,
    Relation.ULE: Relation.SLE,
    Relation.UGT: Relation.SGT,
    Relation.UGE: Relation.SGE,
}
_MOST_UNSIGNED_BITS = 63  # of numbers that an int64 holds as they are


def compare(relation: Relation, a: TileInteger, b: TileInteger, bits: int) -> TileMask | None:
    """Return where a relation holds, None where it cannot be told (unsigned numbers of 64 bits).

    bits: of the numbers compared, which are given as signed ones. Raises TileTooLarge.
    """
    shape = a.shape or b.shape
    if relation in _SIGNED:
        left, right = reinterpret_unsigned(a, bits), reinterpret_unsigned(b, bits)
        if left is None or right is None:
            return None
        return compare(_SIGNED[relation], left, right, bits)
    if relation is Relation.NE:
        return negate(find_zeros(add(a, b, -1), shape))
    if relation is Relation.EQ:
        return find_zeros(add(a, b, -1), shape)
    if relation in (Relation.SGT, Relation.SGE):
        a, b = b, a
    difference = add(a, b, -1)
    if relation in (Relation.SLE, Relation.SGE):
        difference = add(difference, make_integer(-1))
    return find_negatives(difference, shape)


def reinterpret_unsigned(a: TileInteger, bits: int) -> TileInteger | None:
    """Return signed numbers as unsigned ones; None where an int64 does not hold them."""
    low, _ = find_extremes(a)
    if (low >= 0).all():
        return a
    if bits > _MOST_UNSIGNED_BITS:
        return None
    wrapped = materialize(a) & ((1 << bits) - 1)
    if a.is_splat:
        return TileInteger(a.shape, wrapped.reshape(-1))
    return TileInteger(a.shape, np.zeros(1, dtype=np.int64), (), (wrapped,))


def find_negatives(difference: TileInteger, shape: Shape) -> TileMask:
    """Return where a tile is below zero."""
    if difference.is_splat:
        return TileMask(shape, difference.base < 0)
    if not difference.parts and len(difference.strides) == 1:
        return _find_negative_interval(difference, shape)
    decided = _decide_by_bounds(difference)
    if decided is not None:
        return TileMask(shape, decided)
    return TileMask(shape, TRUE, (), (materialize(with_shape(difference, shape)) < 0,))


def _decide_by_bounds(difference: TileInteger) -> BoolArray | None:
    """Return per program whether a tile is below zero, None unless each is wholly so or wholly not."""
    low, high = find_extremes(difference)
    below = high < 0
    return below if (below | (low >= 0)).all() else None


def _find_negative_interval(difference: TileInteger, shape: Shape) -> TileMask:
    axis, stride = difference.strides[0]
    base = difference.base.astype(np.int64)
    base, stride = np.broadcast_arrays(base, stride)
    length = shape[axis]
    divisor = np.where(stride == 0, 1, np.abs(stride))
    rising_end = -(base // divisor)  # ceil(-base / stride)
    falling_first = base // divisor + 1
    # Without a stride the sign of the base decides.
    first = np.where(stride < 0, falling_first, 0)
    end = np.where(stride > 0, rising_end, np.where((stride < 0) | (base < 0), length, 0))
    return _make_interval(shape, axis, first, end)


def _make_interval(shape: Shape, axis: int, first: IntArray, end: IntArray) -> TileMask:
    """Return a mask that is an interval; one that is whole or empty in each program is a flag."""
    length = shape[axis]
    first, end = np.clip(first, 0, length), np.clip(end, 0, length)
    counts = np.maximum(end - first, 0)
    whole = counts == length
    if (whole | (counts == 0)).all():
        return TileMask(shape, whole)
    return TileMask(shape, TRUE, ((axis, first, end),))


def find_zeros(difference: TileInteger, shape: Shape) -> TileMask:
    """Return where a tile is zero."""
    if difference.is_splat:
        return TileMask(shape, difference.base == 0)
    low, high = find_extremes(difference)
    if ((low > 0) | (high < 0)).all():
        return TileMask(shape, np.zeros(1, dtype=np.bool_))
    return TileMask(shape, TRUE, (), (materialize(with_shape(difference, shape)) == 0,))


def select(flag: TileMask, a: TileInteger, b: TileInteger) -> TileInteger:
    """Return a where a mask holds, else b. Raises TileTooLarge."""
    shape = a.shape or b.shape
    if flag.is_splat and flag.flag.shape[0] == 1:
        return with_shape(a if flag.flag[0] else b, shape)
    if flag.is_splat and not a.parts and not b.parts:
        # base and strides of one or the other, per program
        offset = _choose(flag.flag, a.base, b.base)
        ours, theirs = dict(a.strides), dict(b.strides)
        none = np.zeros(1, dtype=np.int64)
        strides = tuple(
            (axis, _choose(flag.flag, ours.get(axis, none), theirs.get(axis, none)))
            for axis in sorted(set(ours) | set(theirs))
        )
        return TileInteger(shape, offset, strides)
    condition = materialize_mask(TileMask(flag.shape or shape, flag.flag, flag.intervals, flag.parts))
    if condition.ndim != 1 + len(shape):
        condition = condition.reshape(condition.shape[0], *[1] * len(shape))
    left, right = materialize(with_shape(a, shape)), materialize(with_shape(b, shape))
    check_size(condition.shape, left.shape, right.shape)
    return TileInteger(shape, np.zeros(1, dtype=np.int64), (), (np.where(condition, left, right),))


def _choose(flag: BoolArray, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.where(flag, a, b)


def wrap(a: TileInteger, bits: int) -> TileInteger:
    """Return numbers modulo 2^bits as signed ones: themselves where they fit."""
    if bits >= 64 or a.base.dtype != np.int64:
        return a
    low, high = find_extremes(a)
    half = 1 << bits - 1
    if (low >= -half).all() and (high < half).all():
        return a
    numbers = materialize(a)
    wrapped = ((numbers + half) & ((1 << bits) - 1)) - half
    if a.is_splat:
        return TileInteger(a.shape, wrapped.reshape(-1))
    return TileInteger(a.shape, np.zeros(1, dtype=np.int64), (), (wrapped,))
