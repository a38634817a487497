"""Blocks and edges against the graphs that `nvdisasm -bbcfg` draws of the same cubins."""

from pathlib import Path

import pytest
from bbcfg import DrawnFunction, collect_built_graph, collect_drawn_graph, find_owner, read_graphs
from paths import TRACES, list_nvdisasm_graphs, parse_lines, read_module

from analyzer.flow.cfg import EdgeKind, build_cfg
from analyzer.frontend.sass_parser import parse_sass

# The text whose control flow each graph shows: the same cubin, by either tool.
TEXTS = {
    "fused_moe_sm_120.dot": "triton/sm_120/fused_moe.sass",
    "matmul_sm_100.dot": "nvdisasm/matmul_sm_100.txt",
    "report16_sm_80.dot": "cuda/sm_80/report16.sass",
}


def test_every_drawing_has_its_text() -> None:
    assert {path.name for path in list_nvdisasm_graphs()} == set(TEXTS)


def drawings() -> dict[tuple[str, str], list[DrawnFunction]]:
    found: dict[tuple[str, str], list[DrawnFunction]] = {}
    for name, text in TEXTS.items():
        kernels = read_module(TRACES / text).kernels
        for graph in read_graphs(TRACES / "nvdisasm" / name):
            found.setdefault((name, find_owner(graph, kernels)), []).append(graph)
    return found


DRAWINGS = drawings()


@pytest.mark.parametrize(("drawing", "function"), DRAWINGS)
def test_blocks_and_edges_equal_the_drawing(drawing: str, function: str) -> None:
    kernel = next(k for k in read_module(TRACES / TEXTS[drawing]) if k.name == function)
    blocks, edges = collect_drawn_graph(DRAWINGS[drawing, function], kernel)
    our_blocks, our_edges = collect_built_graph(build_cfg(kernel))
    assert our_blocks == blocks
    assert our_edges == edges
    assert blocks, "nothing was compared"


def test_every_kernel_of_a_drawn_text_is_drawn() -> None:
    for drawing, text in TEXTS.items():
        names = [kernel.name for kernel in read_module(TRACES / text)]
        assert sorted(names) == sorted(function for name, function in DRAWINGS if name == drawing)


@pytest.mark.parametrize("path", sorted({TRACES / text for text in TEXTS.values()}))
def test_every_instruction_is_in_one_block(path: Path) -> None:
    for kernel in read_module(path):
        cfg = build_cfg(kernel)
        stops = [0, *(block.stop for block in cfg.blocks)]
        assert [block.start for block in cfg.blocks] == stops[:-1]
        left_over = {kernel.find_opcode(row).name for row in range(stops[-1], len(kernel))}
        assert left_over <= {"BRA", "NOP"}
        assert len(cfg.block_of) == stops[-1]


def test_padding_is_not_control_flow() -> None:
    cfg = build_cfg(parse_lines("MOV R1, R2", "EXIT", "BRA 0x20", "NOP", "NOP"))
    assert collect_built_graph(cfg) == ({(0, 2)}, set())


def test_a_guarded_exit_falls_through() -> None:
    cfg = build_cfg(parse_lines("@P0 EXIT", "MOV R1, R2", "EXIT"))
    assert collect_built_graph(cfg) == ({(0, 1), (1, 3)}, {(0, 1)})


def test_a_branch_that_is_never_taken_only_falls_through() -> None:
    cfg = build_cfg(parse_lines("@!PT BRA 0x20", "MOV R1, R2", "EXIT"))
    assert collect_built_graph(cfg) == ({(0, 1), (1, 2), (2, 3)}, {(0, 1), (1, 2)})


@pytest.mark.parametrize("branch", ["@P0 BRA 0x20", "BRA P1, 0x20", "BRA.U !UP0, 0x20", "BRA.DIV UR4, 0x20"])
def test_conditional_branches_have_two_edges(branch: str) -> None:
    cfg = build_cfg(parse_lines(branch, "MOV R1, R2", "EXIT"))
    kinds = {(edge.source, edge.target): edge.kind for edge in cfg.edges}
    assert kinds[0, 2] is EdgeKind.TAKEN
    assert kinds[0, 1] is EdgeKind.FALL_THROUGH


@pytest.mark.parametrize("branch", ["BRA 0x20", "@PT BRA 0x20", "BRA.U UPT, 0x20"])
def test_unconditional_branches_have_one_edge(branch: str) -> None:
    cfg = build_cfg(parse_lines(branch, "MOV R1, R2", "EXIT"))
    assert [(edge.source, edge.target) for edge in cfg.edges if edge.source == 0] == [(0, 2)]


def test_a_convergence_point_starts_a_block_without_an_edge() -> None:
    cfg = build_cfg(parse_lines("BSSY B0, 0x20", "MOV R1, R2", "MOV R3, R4", "BSYNC B0", "EXIT"))
    assert collect_built_graph(cfg) == ({(0, 2), (2, 4), (4, 5)}, {(0, 2), (2, 4)})


def test_a_call_returns_to_the_next_instruction() -> None:
    cfg = build_cfg(parse_lines("CALL.REL.NOINC 0x20", "EXIT", "MOV R1, R2", "RET.REL.NODEC R2 0x0"))
    assert cfg.call_edges == ((0, 2),)
    assert collect_built_graph(cfg)[1] == {(0, 1)}
    assert cfg.interprocedural_successors[0] == (1, 2)


def test_a_call_that_never_returns_is_a_jump() -> None:
    cfg = build_cfg(parse_lines("CALL.REL.NOINC 0x20", "EXIT", "MOV R1, R2", "EXIT"))
    assert cfg.call_edges == ()
    assert collect_built_graph(cfg)[1] == {(0, 2)}


def test_a_branch_table_is_followed() -> None:
    lines = [
        "\t.target\tsm_100",
        '\t.section\t.text.kernel,"ax",@progbits',
        '        /*0000*/  BRX R4 -0x10  (*"BRANCH_TARGETS .L_x_1,.L_x_2"*);',
        ".L_x_1:",
        "        /*0010*/  EXIT ;",
        ".L_x_2:",
        "        /*0020*/  EXIT ;",
        "",
    ]
    cfg = build_cfg(parse_sass("kernel.txt", ["\n".join(lines).encode()]).kernels[0])
    assert [(e.target, e.kind) for e in cfg.edges] == [(1, EdgeKind.INDIRECT), (2, EdgeKind.INDIRECT)]
    assert cfg.unresolved_branches == ()


def test_a_branch_table_that_is_not_printed_may_go_to_blocks_without_another_way_in() -> None:
    cfg = build_cfg(parse_lines("BRX R4 -0x10", "EXIT", "EXIT"))
    assert cfg.unresolved_branches == (0,)
    assert {(e.target, e.kind) for e in cfg.edges} == {(1, EdgeKind.ASSUMED), (2, EdgeKind.ASSUMED)}


def test_a_target_outside_the_kernel_has_no_edge() -> None:
    cfg = build_cfg(parse_lines("@P0 BRA 0x9990", "EXIT"))
    assert [(edge.source, edge.target) for edge in cfg.edges] == [(0, 1)]


def test_networkx_graph_has_the_same_blocks_and_edges() -> None:
    cfg = build_cfg(read_module(TRACES / TEXTS["matmul_sm_100.dot"]).kernels[0])
    graph = cfg.graph
    assert sorted(graph.nodes) == [block.index for block in cfg.blocks]
    assert set(graph.edges) == {(edge.source, edge.target) for edge in cfg.edges}
    assert all(graph.nodes[block.index]["block"] is block for block in cfg.blocks)
    forward = {(source, target) for source, row in enumerate(cfg.successors) for target in row}
    backward = {(source, target) for target, row in enumerate(cfg.predecessors) for source in row}
    assert forward == backward == set(graph.edges)


def test_a_branch_on_divergence_has_two_ways_even_without_an_operand() -> None:
    """sm_75 prints `BRA.DIV target`, later architectures `BRA.DIV UR4, target`."""
    for branch in ("BRA.DIV 0x30", "BRA.DIV UR4, 0x30", "BRA.CONV ~URZ, 0x30"):
        cfg = build_cfg(parse_lines(branch, "NOP", "EXIT", "EXIT"))
        assert collect_built_graph(cfg)[1] == {(0, 1), (0, 3)}, branch


def test_code_after_a_trap_is_reached_as_far_as_anyone_knows() -> None:
    cfg = build_cfg(parse_lines("BPT.TRAP 0x1", "BRA 0x10", "NOP"))
    assert collect_built_graph(cfg) == ({(0, 1), (1, 2)}, {(0, 1), (1, 1)})


def test_a_call_through_a_register_goes_on_in_the_same_block() -> None:
    """nvdisasm prints the kernel's own name behind the register, which says nothing of the target."""
    for call in ("CALL.REL.NOINC R6 `(kernel)", "CALL.REL.NOINC R6 0x0", "CALL.ABS.NOINC R8"):
        cfg = build_cfg(parse_lines("MOV R1, R2", call, "MOV R3, R4", "EXIT"))
        assert collect_built_graph(cfg) == ({(0, 4)}, set()), call
        assert cfg.call_edges == ()


def test_recursion_is_drawn_and_other_calls_are_not() -> None:
    cfg = build_cfg(
        parse_lines(
            "CALL.REL.NOINC 0x20",
            "EXIT",
            "@P0 RET.REL.NODEC R20 0x0",
            "CALL.REL.NOINC 0x20",
            "RET.REL.NODEC R20 0x0",
        )
    )
    assert collect_built_graph(cfg)[1] == {(0, 1), (2, 3), (3, 2), (3, 4)}
    assert cfg.call_edges == ((0, 2),)
