"""Layouts against an enumeration of the elements that each thread holds."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.ir.tile_operations import DenseAttribute, IntegerAttribute, Layout, ScalarType, TensorType
from analyzer.tiles.layouts import compute_replication

powers = st.sampled_from((1, 2, 4, 8))


def make_layout(kind: str, **fields: object) -> Layout:
    def convert(value: object) -> object:
        if isinstance(value, int):
            return IntegerAttribute(value)
        if isinstance(value, list):
            return DenseAttribute(tuple(convert(each) for each in value))  # type: ignore[misc]
        return value

    return Layout(kind, tuple((name, convert(value)) for name, value in fields.items()))  # type: ignore[misc]


@given(
    st.tuples(powers, powers),
    st.sampled_from(((1, 32), (2, 16), (4, 8), (8, 4), (32, 1))),
    st.sampled_from(((1, 4), (2, 2), (4, 1))),
    st.sampled_from(((0, 1), (1, 0))),
    st.tuples(st.sampled_from((1, 4, 16, 64)), st.sampled_from((1, 8, 32, 128))),
)
@settings(max_examples=80, deadline=None)
def test_blocked_layout_holds_each_element_so_often(
    per_thread: tuple[int, int],
    lanes: tuple[int, int],
    warps: tuple[int, int],
    order: tuple[int, int],
    shape: tuple[int, int],
) -> None:
    layout = make_layout(
        "blocked",
        sizePerThread=list(per_thread),
        threadsPerWarp=list(lanes),
        warpsPerCTA=list(warps),
        order=list(order),
    )
    holders: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for thread in product(*(range(lanes[axis] * warps[axis]) for axis in (0, 1))):
        for register in product(*(range(per_thread[axis]) for axis in (0, 1))):
            # Elements beyond the tile wrap around to its beginning.
            place = tuple((thread[axis] * per_thread[axis] + register[axis]) % shape[axis] for axis in (0, 1))
            holders.setdefault(place, set()).add(thread)  # type: ignore[arg-type]
    expected = {len(threads) for threads in holders.values()}
    tile = TensorType(shape, ScalarType("f32"), layout)
    assert expected == {compute_replication(tile, 4)}


MMA = make_layout("nvidia_mma", versionMajor=3, versionMinor=0, warpsPerCTA=[4, 1], instrShape=[16, 64, 16])


@pytest.mark.parametrize(
    ("layout", "shape", "replication"),
    [
        (MMA, (64, 128), 1),
        (make_layout("slice", dim=1, parent=MMA), (64,), 4),  # four lanes share a row
        (make_layout("slice", dim=0, parent=MMA), (128,), 32),  # 8 rows of lanes, 4 warps
        (make_layout("dot_op", opIdx=0, parent=MMA, kWidth=2), (64, 32), 1),
        (make_layout("linear", register=[[1]], lane=[[2], [4], [8], [0], [0]], warp=[[16], [0]]), (32,), 8),
    ],
)
def test_layouts_of_products_repeat_what_they_reduce(
    layout: Layout, shape: tuple[int, ...], replication: int
) -> None:
    assert compute_replication(TensorType(shape, ScalarType("f32"), layout), 4) == replication


def test_unknown_layout_counts_each_element_once() -> None:
    tile = TensorType((128,), ScalarType("f32"), make_layout("future", size=3))
    assert compute_replication(tile, 4) == 1
