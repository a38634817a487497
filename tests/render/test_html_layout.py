"""Drawings of control flow: nothing overlaps, edges join their ends, loops go back on their own lanes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.render.html.layered_layout import Layout, Sizes, lay_out

SIZES = Sizes(node_width=100, node_height=40, waypoint_width=8, gap_x=20, gap_y=30)


@st.composite
def draw_graph(draw: st.DrawFn) -> list[list[int]]:
    """Draw the successors of up to 20 nodes."""
    n = draw(st.integers(1, 20))
    return [list(dict.fromkeys(draw(st.lists(st.integers(0, n - 1), max_size=3)))) for _ in range(n)]


def check_drawing(successors: list[list[int]], layout: Layout) -> None:
    for (x, y), (other_x, other_y) in pairwise(sorted(layout.corners, key=lambda one: (one[1], one[0]))):
        assert y != other_y or other_x >= x + SIZES.node_width
    for x, y in layout.corners:
        assert 0 <= x <= layout.width - SIZES.node_width
        assert 0 <= y <= layout.height - SIZES.node_height
    found = sorted((edge.source, edge.target) for edge in layout.edges)
    assert found == sorted((node, target) for node, targets in enumerate(successors) for target in targets)
    for edge in layout.edges:
        (start_x, start_y), (end_x, end_y) = edge.points[0], edge.points[-1]
        source_x, source_y = layout.corners[edge.source]
        target_x, target_y = layout.corners[edge.target]
        assert start_y == source_y + SIZES.node_height
        assert end_y == target_y
        assert source_x <= start_x <= source_x + SIZES.node_width
        assert target_x <= end_x <= target_x + SIZES.node_width
        assert edge.is_back == (target_y <= source_y)


@given(draw_graph())
def test_any_graph(successors: list[list[int]]) -> None:
    layout = lay_out(successors, SIZES)
    check_drawing(successors, layout)
    assert lay_out(successors, SIZES) == layout


@given(draw_graph())
def test_edges_go_around_nodes(successors: list[list[int]]) -> None:
    layout = lay_out(successors, SIZES)
    for edge in layout.edges:
        for x, y in edge.points[1:-1]:
            for node, (left, top) in enumerate(layout.corners):
                if node == edge.source == edge.target:
                    continue
                inside = left < x < left + SIZES.node_width and top <= y <= top + SIZES.node_height
                assert not inside, (edge, node)


def test_sequence_is_straight() -> None:
    layout = lay_out([[1], [2], [3], []], SIZES)
    assert len({x for x, _ in layout.corners}) == 1
    assert [y for _, y in layout.corners] == sorted(y for _, y in layout.corners)


def test_diamond_has_no_crossing_and_is_symmetric() -> None:
    layout = lay_out([[1, 2], [3], [3], []], SIZES)
    (top, _), (left, y), (right, other_y), (bottom, _) = layout.corners
    assert y == other_y
    assert top == pytest.approx((left + right) / 2)
    assert bottom == pytest.approx(top)


def test_loop_goes_back_beside_its_body() -> None:
    layout = lay_out([[1], [2], [1, 3], []], SIZES)
    back = next(edge for edge in layout.edges if edge.is_back)
    assert (back.source, back.target) == (2, 1)
    lane = {x for x, _ in back.points[1:-1]}
    assert len(lane) == 1
    assert not layout.corners[1][0] <= lane.pop() <= layout.corners[1][0] + SIZES.node_width


def test_crossings_are_undone() -> None:
    # 1 and 2 lead to the last nodes crosswise: in the order of their numbers the two edges would cross.
    layout = lay_out([[1, 2], [4], [3], [], []], SIZES)
    assert (layout.corners[1][0] < layout.corners[2][0]) == (layout.corners[4][0] < layout.corners[3][0])


def test_long_sequence_needs_no_recursion() -> None:
    n = 3000
    layout = lay_out([[node + 1] if node + 1 < n else [0] for node in range(n)], SIZES)
    assert len(layout.edges) == n
