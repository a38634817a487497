"""Dominators and natural loops against networkx and against their definitions by brute force."""

from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from paths import format_trace_name, list_sass_dumps, parse_lines, read_kernel, read_module
from random_cfgs import BlockTargets, make_cfg, random_graphs, structured_graphs

from analyzer.flow.cfg import Cfg, build_cfg
from analyzer.flow.loops import compute_immediate_dominators, compute_reverse_postorder, find_loops


def digraph(cfg: Cfg) -> "nx.DiGraph[int]":
    """Return the graph as networkx holds it, with calls followed as `find_loops` does."""
    graph = cfg.graph
    graph.add_edges_from(cfg.call_edges)
    return graph


def reachable_from(graph: "nx.DiGraph[int]", start: int, without: int | None = None) -> set[int]:
    if start == without:
        return set()
    view = graph if without is None else graph.subgraph(set(graph) - {without})
    return {start, *nx.descendants(view, start)}


def brute_dominates(graph: "nx.DiGraph[int]", a: int, b: int) -> bool:
    """By definition: with `a` taken away, `b` is out of reach."""
    return a == b or b not in reachable_from(graph, 0, without=a)


def brute_loops(graph: "nx.DiGraph[int]") -> dict[int, frozenset[int]]:
    """Header to body: what reaches a back edge's source without going through the header."""
    alive = reachable_from(graph, 0)
    bodies: dict[int, set[int]] = {}
    for source, header in graph.edges:
        if source in alive and brute_dominates(graph, header, source):
            inside = graph.subgraph(alive - {header})
            ends = {source} - {header}
            body = {header, *ends, *(n for end in ends for n in nx.ancestors(inside, end))}
            bodies.setdefault(header, set()).update(body)
    return {header: frozenset(body) for header, body in bodies.items()}


def check_graph(cfg: Cfg) -> None:
    graph, loop_forest = digraph(cfg), find_loops(cfg)
    alive = reachable_from(graph, 0)
    assert set(loop_forest.reverse_postorder) == alive
    wanted = nx.immediate_dominators(graph, 0)
    for block in alive - {0}:
        assert loop_forest.immediate_dominators[block] == wanted[block]
    assert loop_forest.immediate_dominators[0] == 0
    assert all(loop_forest.immediate_dominators[block] is None for block in set(graph) - alive)
    for a in alive:
        for b in alive:
            assert loop_forest.dominates(a, b) == brute_dominates(graph, a, b)
    bodies = brute_loops(graph)
    assert {loop.header: loop.blocks for loop in loop_forest.loops} == bodies
    check_nest(cfg)


def check_nest(cfg: Cfg) -> None:
    """What must hold of any nest: parents are the next larger loops, exits leave, latches come back."""
    loop_forest = find_loops(cfg)
    for place, loop in enumerate(loop_forest.loops):
        assert loop.index == place
        around = [other for other in loop_forest.loops if loop.blocks < other.blocks]
        assert loop.depth == len(around) + 1
        smallest = min(around, key=lambda other: len(other.blocks), default=None)
        assert loop.parent == (None if smallest is None else smallest.index)
        assert all(
            loop.header in cfg.interprocedural_successors[latch] and latch in loop.blocks
            for latch in loop.latches
        )
        wanted = {
            (b, t) for b in loop.blocks for t in cfg.interprocedural_successors[b] if t not in loop.blocks
        }
        assert set(loop.exit_edges) == wanted
        assert len(loop.exit_edges) == len(wanted)
    for block in range(len(cfg.blocks)):
        holding = [loop for loop in loop_forest.loops if block in loop.blocks]
        inner = sorted(holding, key=lambda loop: len(loop.blocks))
        assert list(loop_forest.find_enclosing_loops(block)) == [loop.index for loop in inner]
        assert loop_forest.loop_of[block] == (inner[0].index if inner else None)


@given(random_graphs())
def test_random_graphs_equal_networkx_and_brute_force(targets: BlockTargets) -> None:
    check_graph(make_cfg(targets))


@given(structured_graphs())
def test_structured_graphs_are_reducible(targets: BlockTargets) -> None:
    cfg = make_cfg(targets)
    assert find_loops(cfg).irreducible_edges == ()
    check_graph(cfg)


@given(structured_graphs())
def test_outermost_loops_are_the_strongly_connected_components(targets: BlockTargets) -> None:
    """Of a reducible graph; a component of one block counts only where the block branches to itself."""
    cfg = make_cfg(targets)
    graph, loop_forest = digraph(cfg), find_loops(cfg)
    graph.remove_nodes_from(set(graph) - set(loop_forest.reverse_postorder))
    components = nx.strongly_connected_components(graph)
    wanted = {frozenset(c) for c in components if len(c) > 1 or graph.has_edge(*[*c, *c])}
    assert {loop.blocks for loop in loop_forest.loops if loop.parent is None} == wanted


@given(random_graphs())
def test_irreducible_edges_are_those_that_keep_a_cycle(targets: BlockTargets) -> None:
    """Without back edges and irreducible edges nothing goes round; without the former alone it may."""
    cfg = make_cfg(targets)
    loop_forest, graph = find_loops(cfg), digraph(cfg)
    graph.remove_nodes_from(set(graph) - set(loop_forest.reverse_postorder))
    graph.remove_edges_from([(latch, loop.header) for loop in loop_forest.loops for latch in loop.latches])
    assert nx.is_directed_acyclic_graph(graph) == (not loop_forest.irreducible_edges)
    graph.remove_edges_from(loop_forest.irreducible_edges)
    assert nx.is_directed_acyclic_graph(graph)


@given(random_graphs())
def test_reverse_postorder_puts_dominators_first(targets: BlockTargets) -> None:
    order = compute_reverse_postorder(targets)
    rank = {block: place for place, block in enumerate(order)}
    dominators = compute_immediate_dominators(targets, order)
    assert order[0] == 0
    for block in order[1:]:
        above = dominators[block]
        assert above is not None
        assert rank[above] < rank[block]


def test_two_back_edges_to_one_header_make_one_loop() -> None:
    """Block 1 is the header; 2 and 3 both go back to it."""
    cfg = build_cfg(parse_lines("NOP", "@P0 BRA 0x40", "@P1 BRA 0x10", "BRA 0x10", "EXIT"))
    (loop,) = find_loops(cfg).loops
    assert [cfg.blocks[block].start for block in sorted(loop.blocks)] == [1, 2, 3]
    assert sorted(cfg.blocks[latch].start for latch in loop.latches) == [2, 3]


def test_a_block_that_branches_to_itself_is_a_loop() -> None:
    loop_forest = find_loops(build_cfg(parse_lines("NOP", "@P0 BRA 0x10", "EXIT")))
    assert [(loop.header, loop.blocks, loop.latches, loop.exit_edges) for loop in loop_forest.loops] == [
        (1, frozenset({1}), (1,), ((1, 2),))
    ]


def test_a_cycle_with_two_entries_is_irreducible() -> None:
    loop_forest = find_loops(make_cfg(((1, 2), (2,), (1, 3), ())))
    assert loop_forest.loops == ()
    assert len(loop_forest.irreducible_edges) == 1


def test_a_loop_that_nothing_reaches_is_no_loop() -> None:
    loop_forest = find_loops(make_cfg(((3,), (2,), (1,), ())))
    assert loop_forest.loops == ()
    assert loop_forest.immediate_dominators == (0, None, None, 0)


# (dump, kernel, depths of its loops), read off the sources: traces/cuda/report16.cu, traces/triton/kernels.py.
REAL_NESTS = [
    ("cuda/sm_80/report16.sass", "vector_add", ()),
    ("cuda/sm_80/report16.sass", "conv2d_7x7", ()),
    ("cuda/sm_80/report16.sass", "reduce_sum", (1,)),
    ("cuda/sm_80/report16.sass", "matmul_tiled", (1,)),
    ("cuda/sm_90/report16.sass", "vector_add_divergent", (1,)),
    ("cuda/sm_75/report16.sass", "matmul_naive", (1, 1, 1)),
    ("triton/sm_80/softmax.sass", "softmax", ()),
    ("triton/sm_80/rmsnorm.sass", "rmsnorm", (1, 1)),
    ("triton/sm_80/flash_attention.sass", "flash_attention", (1, 1)),
    ("triton/sm_90/matmul.sass", "matmul", (1,)),
    ("triton/sm_90/matmul_tma_persistent.sass", "matmul_tma_persistent", (1, 2, 3)),
    ("triton/sm_120/matmul_tma_persistent.sass", "matmul_tma_persistent", (1, 2, 3)),
    ("triton/sm_120/fused_moe.sass", "fused_moe", (1,)),
]


@pytest.mark.parametrize(("dump", "kernel", "depths"), REAL_NESTS)
def test_nest_depths_of_real_kernels(dump: str, kernel: str, depths: tuple[int, ...]) -> None:
    loop_forest = find_loops(build_cfg(read_kernel(dump, kernel)))
    assert tuple(sorted(loop.depth for loop in loop_forest.loops)) == depths


@pytest.mark.parametrize("path", list_sass_dumps(), ids=format_trace_name)
def test_real_kernels_equal_networkx(path: Path) -> None:
    for kernel in read_module(path):
        cfg = build_cfg(kernel)
        graph, loop_forest = digraph(cfg), find_loops(cfg)
        wanted = nx.immediate_dominators(graph, 0)
        alive = reachable_from(graph, 0)
        assert {b: loop_forest.immediate_dominators[b] for b in alive - {0}} == {
            b: wanted[b] for b in alive - {0}
        }
        assert {loop.header: loop.blocks for loop in loop_forest.loops} == brute_loops(graph)
        check_nest(cfg)
