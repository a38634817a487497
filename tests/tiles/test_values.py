"""Tiles of integers and masks against numpy's arrays of all programs and elements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.tiles.comparisons import Relation, compare, select, wrap
from analyzer.tiles.values import (
    TileInteger,
    TileMask,
    TileTooLarge,
    add,
    conjoin,
    count_true,
    find_extremes,
    make_range,
    materialize,
    materialize_mask,
    multiply,
    negate,
    scale,
)

PROGRAMS = 3
SHAPE = (4, 5)
small = st.integers(-40, 40)


@st.composite
def integers(draw: st.DrawFn) -> TileInteger:
    """Return a tile of SHAPE with any of base, strides and parts, per program or for all."""

    def draw_numbers() -> np.ndarray:
        count = draw(st.sampled_from((1, PROGRAMS)))
        return np.array(draw(st.lists(small, min_size=count, max_size=count)), dtype=np.int64)

    strides = tuple((axis, draw_numbers()) for axis in range(2) if draw(st.booleans()))
    parts: tuple[np.ndarray, ...] = ()
    if draw(st.booleans()):
        lengths = [draw(st.sampled_from((1, full))) for full in (PROGRAMS, *SHAPE)]
        count = int(np.prod(lengths))
        numbers = draw(st.lists(small, min_size=count, max_size=count))
        parts = (np.array(numbers, dtype=np.int64).reshape(lengths),)
    return TileInteger(SHAPE, draw_numbers(), strides, parts)


def expand(tile: TileInteger) -> np.ndarray:
    """Return all numbers, computed element by element from what the tile is made of."""
    numbers = np.zeros((PROGRAMS, *SHAPE), dtype=np.int64)
    for program, row, column in np.ndindex(numbers.shape):
        place = (row, column)
        total = int(np.broadcast_to(tile.base, (PROGRAMS,))[program])
        for axis, stride in tile.strides:
            total += int(np.broadcast_to(stride, (PROGRAMS,))[program]) * place[axis]
        for part in tile.parts:
            total += int(np.broadcast_to(part, numbers.shape)[program, row, column])
        numbers[program, row, column] = total
    return numbers


def expand_mask(mask: TileMask) -> np.ndarray:
    return np.broadcast_to(materialize_mask(mask), (PROGRAMS, *SHAPE))


@given(integers(), integers())
@settings(max_examples=60, deadline=None)
def test_arithmetic_is_numpys(a: TileInteger, b: TileInteger) -> None:
    whole_a, whole_b = expand(a), expand(b)
    shape = whole_a.shape
    assert (np.broadcast_to(materialize(a), shape) == whole_a).all()
    assert (np.broadcast_to(materialize(add(a, b)), shape) == whole_a + whole_b).all()
    assert (np.broadcast_to(materialize(add(a, b, -1)), shape) == whole_a - whole_b).all()
    assert (np.broadcast_to(materialize(multiply(a, b)), shape) == whole_a * whole_b).all()
    low, high = find_extremes(a)
    assert (np.broadcast_to(low, (PROGRAMS,)) <= whole_a.min(axis=(1, 2))).all()
    assert (np.broadcast_to(high, (PROGRAMS,)) >= whole_a.max(axis=(1, 2))).all()


@given(integers(), integers(), st.sampled_from(list(Relation)))
@settings(max_examples=120, deadline=None)
def test_comparisons_and_counts_are_numpys(a: TileInteger, b: TileInteger, relation: Relation) -> None:
    left, right = expand(a), expand(b)
    if relation.startswith("u"):
        left, right = left & 0xFFFFFFFF, right & 0xFFFFFFFF
    functions = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
    functions |= {"gt": np.greater, "ge": np.greater_equal}
    expected = functions[relation if relation in functions else relation[1:]](left, right)
    found = compare(relation, a, b, 32)
    assert found is not None
    assert (expand_mask(found) == expected).all()
    assert (np.broadcast_to(count_true(found), (PROGRAMS,)) == expected.sum(axis=(1, 2))).all()
    assert (expand_mask(negate(found)) == ~expected).all()


@given(integers(), integers(), integers())
@settings(max_examples=60, deadline=None)
def test_conjunctions_and_choices_are_numpys(a: TileInteger, b: TileInteger, c: TileInteger) -> None:
    first, second = compare(Relation.SLT, a, b, 32), compare(Relation.SGE, c, a, 32)
    assert first is not None
    assert second is not None
    expected = (expand(a) < expand(b)) & (expand(c) >= expand(a))
    both = conjoin(first, second)
    assert (expand_mask(both) == expected).all()
    assert (np.broadcast_to(count_true(both), (PROGRAMS,)) == expected.sum(axis=(1, 2))).all()
    chosen = np.where(expand_mask(first), expand(b), expand(c))
    assert (np.broadcast_to(materialize(select(first, b, c)), chosen.shape) == chosen).all()


def test_affine_edge_is_an_interval_of_any_number_of_programs() -> None:
    programs = np.arange(1_000_000, dtype=np.int64)
    places = add(make_range(0, 4096), TileInteger((), programs * 4096))
    inside = compare(Relation.SLT, places, TileInteger((4096,), np.array([10_000])), 64)
    assert inside is not None
    assert not inside.parts
    assert count_true(inside)[:4].tolist() == [4096, 4096, 1808, 0]


def test_numbers_wrap_as_registers_do() -> None:
    large = TileInteger((), np.array([2**31 - 1, -5]))
    assert wrap(add(large, TileInteger((), np.array([1]))), 32).base.tolist() == [-(2**31), -4]


def test_too_large_an_array_is_refused() -> None:
    ramp = make_range(0, 4096)
    programs = TileInteger((4096,), np.arange(100_000, dtype=np.int64))
    product = add(scale(ramp, np.array([3])), programs)
    with pytest.raises(TileTooLarge):
        materialize(product)
