"""Control flow on a page: which blocks become a node, what is left out, and what is too large to draw."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from page_reports import make_library_report

from analyzer.render.html.flow_graph import FlowGraph, make_flow_graph
from analyzer.report.analyze_schema import BlockEntry, KernelReport, ListingEntry

STEP = 16


def make_kernel(
    successors: Sequence[Sequence[int]], loops: Mapping[int, tuple[int, ...]] | None = None
) -> KernelReport:
    """Return a kernel of one instruction a block; loops: headers around a block, the outermost first."""
    kernel = make_library_report().kernels[0]
    blocks = tuple(
        BlockEntry(
            start=number * STEP,
            end=number * STEP + STEP,
            successors=tuple(target * STEP for target in targets),
            executed_warps=None,
            executed_per_warp=1.0,
            active_lanes=None,
            provenance="exact",
        )
        for number, targets in enumerate(successors)
    )
    listing: tuple[ListingEntry, ...] = tuple(
        msgspec.structs.replace(
            kernel.listing[0],
            address=number * STEP,
            cpi_stack={"selected": 1.0, "wait": 1.0},
            loops=tuple(header * STEP for header in (loops or {}).get(number, ())),
        )
        for number in range(len(blocks))
    )
    counts = msgspec.structs.replace(kernel.counts, blocks=blocks)
    return msgspec.structs.replace(kernel, counts=counts, listing=listing)


def draw(
    successors: Sequence[Sequence[int]], loops: Mapping[int, tuple[int, ...]] | None = None
) -> FlowGraph:
    found = make_flow_graph(make_kernel(successors, loops))
    assert found is not None
    assert sum(node.share for node in found.nodes) == pytest.approx(1.0)
    assert sum(node.n_instructions for node in found.nodes) == found.n_blocks
    return found


def make_chain(length: int) -> list[list[int]]:
    return [[number + 1] for number in range(length - 1)] + [[]]


def test_instructions_are_counted_where_addresses_leap() -> None:
    kernel = make_kernel([[]])
    block = msgspec.structs.replace(kernel.counts.blocks[0], end=1 << 62)
    last = msgspec.structs.replace(kernel.listing[0], address=1 << 61)
    kernel = msgspec.structs.replace(
        kernel,
        counts=msgspec.structs.replace(kernel.counts, blocks=(block,)),
        listing=(*kernel.listing, last),
    )
    graph = make_flow_graph(kernel)
    assert graph is not None
    assert [(node.n_instructions, node.share) for node in graph.nodes] == [(2, 1.0)]


def make_diamonds(count: int) -> list[list[int]]:
    """Return branches and joins one after the other: 3 * count + 1 blocks of which none can be joined."""
    found: list[list[int]] = []
    for at in range(0, 3 * count, 3):
        found += [[at + 1, at + 2], [at + 3], [at + 3]]
    return [*found, []]


def test_few_blocks_are_drawn_as_they_are() -> None:
    graph = draw(make_chain(60))
    assert len(graph.nodes) == 60
    assert graph.note == ""


def test_blocks_that_only_follow_become_one() -> None:
    graph = draw(make_chain(61))
    assert [node.n_blocks for node in graph.nodes] == [61]
    assert "61 basic blocks" in graph.note
    # A loop of 70 blocks before 30 others: the back edge stays.
    looped = [*([number + 1] for number in range(69)), [0, 70], *([n + 1] for n in range(70, 99)), []]
    graph = draw(looped)
    assert [node.n_blocks for node in graph.nodes] == [70, 30]
    assert [edge.is_back for edge in graph.edges].count(True) == 1


def test_outermost_loops_become_nodes() -> None:
    successors = make_diamonds(50)  # 151 blocks, too many nodes
    successors[149] = [150, 3]  # blocks 3 to 149 are a loop
    assert make_flow_graph(make_kernel(successors)) is None
    graph = draw(successors, {number: (3,) for number in range(3, 150)})
    loop = next(node for node in graph.nodes if node.is_loop)
    assert loop.n_blocks == 147
    assert loop.title == "loop 0x0030"
    assert len(graph.nodes) == 5
    assert "loop" in graph.note


def test_blocks_that_nothing_leads_to_are_left_out() -> None:
    kernel = make_kernel([[1], [], [3], [2]])
    idle = tuple(
        msgspec.structs.replace(block, executed_per_warp=0.0) if block.start >= 2 * STEP else block
        for block in kernel.counts.blocks
    )
    counts = msgspec.structs.replace(kernel.counts, blocks=idle)
    graph = make_flow_graph(msgspec.structs.replace(kernel, counts=counts))
    assert graph is not None
    assert [node.title for node in graph.nodes] == ["0x0000", "0x0010"]
    assert "2 blocks that nothing leads to" in graph.note


def test_what_is_too_large_is_not_drawn() -> None:
    everything = [[target for target in range(100) if target != number] for number in range(100)]
    assert make_flow_graph(make_kernel(everything)) is None
    assert make_flow_graph(make_kernel([[number - 1] for number in range(1, 6000)] + [[]])) is None


def test_a_switch_is_drawn() -> None:
    graph = draw([list(range(1, 101)), *([101] for _ in range(100)), []])
    assert len(graph.nodes) == 102
    assert len({node.y for node in graph.nodes}) == 3


def test_successors_outside_of_the_code_are_ignored() -> None:
    graph = draw([[1, 500], [7]])
    assert len(graph.edges) == 1
