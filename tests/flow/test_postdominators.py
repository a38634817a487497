"""Immediate postdominators against networkx: dominators of the reversed graph from one common end."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st
from random_cfgs import BlockTargets, random_graphs

from analyzer.flow.postdominators import compute_immediate_postdominators, find_blocks_between


def reverse_from_end(targets: BlockTargets, may_end: frozenset[int]) -> "nx.DiGraph[int]":
    """Return the reversed graph, whose entry, one more block, is where all paths end."""
    end = len(targets)
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(end + 1))
    for block, ways in enumerate(targets):
        graph.add_edges_from((way, block) for way in ways)
        if not ways or block in may_end:
            graph.add_edge(end, block)
    return graph


@given(random_graphs(), st.sets(st.integers(0, 8)))
def test_random_graphs_equal_networkx(targets: BlockTargets, ends: set[int]) -> None:
    end, may_end = len(targets), frozenset(ends)
    wanted = nx.immediate_dominators(reverse_from_end(targets, may_end), end)
    found = compute_immediate_postdominators(targets, may_end)
    for block in range(end):
        above = wanted.get(block)
        assert found[block] == (None if above == end else above)


@given(random_graphs())
def test_blocks_between_are_those_reached_without_the_last(targets: BlockTargets) -> None:
    graph: nx.DiGraph[int] = nx.DiGraph((b, t) for b, ways in enumerate(targets) for t in ways)
    graph.add_nodes_from(range(len(targets)))
    for stop in range(len(targets)):
        inside = graph.copy()
        inside.remove_node(stop)
        starts = [way for way in targets[0] if way != stop]
        wanted = {block for start in starts for block in (start, *nx.descendants(inside, start))}
        assert find_blocks_between(targets, 0, stop) == wanted


def test_paths_of_a_branch_meet_after_both_arms() -> None:
    """0 goes to 1 or 2, both to 3; the end alone is common to what follows 3."""
    assert compute_immediate_postdominators(((1, 2), (3,), (3,), ())) == (3, 3, 3, None)
