"""Block counts: what comes in goes out, whatever is assumed; and what `--trip` changes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import format_trace_name, list_sass_dumps, parse_lines, read_kernel, read_module
from random_cfgs import BlockTargets, make_cfg, structured_graphs

from analyzer.execution.static_counts.block_counts import (
    ASSUMED_TRIP_COUNT,
    BlockCounts,
    Provenance,
    TripCountRule,
    count_block_executions,
    parse_trip_count_rule,
)
from analyzer.flow.cfg import Cfg, build_cfg
from analyzer.flow.loops import Loop, LoopForest, find_loops
from analyzer.frontend.sass_parser import parse_sass
from analyzer.ir.opcode import OpKind
from analyzer.text.errors import UsageError

OPEN_LOOP = ("MOV R1, RZ", "NOP", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, R9, PT",
             "@P0 BRA 0x10", "EXIT")  # fmt: skip
CONSTANT_LOOP = ("MOV R1, RZ", "NOP", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0x5, PT",
                 "@P0 BRA 0x10", "EXIT")  # fmt: skip


def counted(cfg: Cfg, *rules: str) -> tuple[BlockCounts, LoopForest]:
    loop_forest = find_loops(cfg)
    return count_block_executions(
        cfg, loop_forest, tuple(parse_trip_count_rule(rule) for rule in rules)
    ), loop_forest


def check_flow(cfg: Cfg, counts: BlockCounts, loop_forest: LoopForest) -> None:
    """Entered once, left once; inside, a block runs as often as the blocks around it let it."""
    per_warp = counts.per_warp
    assert per_warp[0] >= 1.0 or 0 in loop_forest.reverse_postorder
    assert all(
        per_warp[block] == 0 for block in range(len(per_warp)) if block not in loop_forest.reverse_postorder
    )
    ends = sum(per_warp[b] for b in loop_forest.reverse_postorder if not cfg.interprocedural_successors[b])
    endless = [loop for loop in loop_forest.loops if not loop.exit_edges]
    assert all(_holds_exit(cfg, loop) for loop in endless)
    if not endless:
        assert ends == pytest.approx(1.0)
    for block in loop_forest.reverse_postorder:
        if len(cfg.interprocedural_successors[block]) == 1:
            (target,) = cfg.interprocedural_successors[block]
            same_loop = loop_forest.loop_of[block] == loop_forest.loop_of[target]
            if len(cfg.predecessors[target]) == 1 and same_loop:
                assert per_warp[target] == pytest.approx(per_warp[block])


def _holds_exit(cfg: Cfg, loop: Loop) -> bool:
    """A loop without a way out in the graph ends by a guarded EXIT."""
    rows = [row for b in loop.blocks for row in range(cfg.blocks[b].start, cfg.blocks[b].stop)]
    return any(cfg.kernel.find_opcode(row).kind is OpKind.EXIT for row in rows)


def check_loops(cfg: Cfg, counts: BlockCounts, loop_forest: LoopForest) -> None:
    """A header runs its trips for each time that its loop is entered; the loop is left as often."""
    for trip in counts.trips:
        loop = loop_forest.loops[trip.loop]
        header = counts.per_warp[loop.header]
        above = None if loop.parent is None else loop_forest.loops[loop.parent]
        most = 1.0 if above is None else counts.per_warp[above.header]
        assert header <= trip.count * most * (1 + 1e-9)
        if loop.header == 0:
            assert header == pytest.approx(trip.count)


@given(structured_graphs())
def test_structured_graphs_are_left_as_often_as_entered(targets: BlockTargets) -> None:
    cfg = make_cfg(targets)
    counts, loop_forest = counted(cfg)
    check_flow(cfg, counts, loop_forest)
    check_loops(cfg, counts, loop_forest)


@given(structured_graphs(), st.integers(0, 5))
def test_the_rest_of_a_kernel_does_not_depend_on_a_loop_s_trips(targets: BlockTargets, trips: int) -> None:
    cfg = make_cfg(targets)
    counts, loop_forest = counted(cfg)
    changed, _ = counted(cfg, str(trips))
    for block in loop_forest.reverse_postorder:
        if loop_forest.loop_of[block] is None:
            assert changed.per_warp[block] == pytest.approx(counts.per_warp[block])
        else:
            assert changed.per_warp[block] <= counts.per_warp[block]
    for loop in loop_forest.loops:
        if loop.depth == 1:
            wanted = counts.per_warp[loop.header] * trips / ASSUMED_TRIP_COUNT
            assert changed.per_warp[loop.header] == pytest.approx(wanted)


@pytest.mark.parametrize("path", list_sass_dumps(), ids=format_trace_name)
def test_real_kernels_are_left_as_often_as_entered(path: Path) -> None:
    for kernel in read_module(path):
        cfg = build_cfg(kernel)
        if cfg.call_edges:
            continue  # a callee's RET ends its flow, see test_a_call_adds_its_callee
        counts, loop_forest = counted(cfg)
        check_flow(cfg, counts, loop_forest)
        check_loops(cfg, counts, loop_forest)


def test_straight_code_runs_once_and_is_exact() -> None:
    counts, _ = counted(build_cfg(parse_lines("MOV R1, R2", "BAR.SYNC 0x0", "MOV R3, R4", "EXIT")))
    assert set(counts.per_warp) == {1.0}
    assert counts.provenance is Provenance.EXACT
    assert counts.assumptions == ()


def test_a_guarded_exit_is_assumed_not_to_be_taken() -> None:
    counts, _ = counted(build_cfg(read_kernel("triton/sm_80/softmax.sass")))
    assert set(counts.per_warp) == {1.0}
    assert counts.provenance is Provenance.ASSUMED
    assert counts.assumptions == ("conditional exits and returns not taken: 1",)


def test_two_arms_share_the_flow() -> None:
    cfg = build_cfg(parse_lines("@P0 BRA 0x30", "MOV R1, R2", "BRA 0x40", "MOV R3, R4", "EXIT"))
    counts, _ = counted(cfg)
    assert counts.per_warp == (1.0, 0.5, 0.5, 1.0)
    assert counts.provenance is Provenance.ASSUMED
    assert counts.assumptions == ("forward branches taken as often as not: 1",)


def test_a_call_adds_its_callee() -> None:
    texts = (
        "CALL.REL.NOINC 0x40",
        "NOP",
        "CALL.REL.NOINC 0x40",
        "EXIT",
        "MOV R1, R2",
        "RET.REL.NODEC R20 0x0",
    )
    cfg = build_cfg(parse_lines(*texts))
    counts, _ = counted(cfg)
    by_row = {block.start: counts.per_warp[block.index] for block in cfg.blocks}
    assert by_row == {0: 1.0, 1: 1.0, 3: 1.0, 4: 2.0}


def test_a_slow_path_that_calls_is_cold() -> None:
    """A division calls its routine for odd operands only: that side of the branch counts as not taken."""
    texts = (
        "@!P0 BRA 0x20",
        "CALL.REL.NOINC 0x40",
        "MOV R1, R2",
        "EXIT",
        "MOV R3, R4",
        "RET.REL.NODEC R20 0x0",
    )
    cfg = build_cfg(parse_lines(*texts))
    counts, _ = counted(cfg)
    by_row = {block.start: counts.per_warp[block.index] for block in cfg.blocks}
    assert by_row == {0: 1.0, 1: 0.0, 2: 1.0, 4: 0.0}


def test_an_unknown_loop_is_assumed_and_said_so() -> None:
    counts, _ = counted(build_cfg(parse_lines(*OPEN_LOOP)))
    assert counts.per_warp == (1.0, ASSUMED_TRIP_COUNT, 1.0)
    assert counts.provenance is Provenance.ASSUMED
    assert counts.assumptions == ("loop at 0x0010: 16 trips assumed: no bound is known",)


def test_a_missing_branch_table_is_said() -> None:
    counts, _ = counted(build_cfg(parse_lines("BRX R4 -0x10", "EXIT", "EXIT")))
    assert counts.per_warp == (1.0, 0.5, 0.5)
    assert any("indirect" in text for text in counts.assumptions)


# ---- --trip ------------------------------------------------------------------------------------

RULES = [
    ("64", TripCountRule(64)),
    ("0", TripCountRule(0)),
    ("0x10", TripCountRule(16)),
    ("0x370=64", TripCountRule(64, address=0x370)),
    ("370=64", TripCountRule(64, address=0x370)),
    ("0x370=0x40", TripCountRule(64, address=0x370)),
    ("kernel.py:41=64", TripCountRule(64, source="kernel.py:41")),
]


@pytest.mark.parametrize(("text", "rule"), RULES)
def test_trip_rules_are_read(text: str, rule: TripCountRule) -> None:
    assert parse_trip_count_rule(text) == rule


@pytest.mark.parametrize("text", ["", "many", "-1", "0x370=", "0x370=1.5", "kernel.py:41=-2", "0x370=0xzz"])
def test_wrong_trip_rules_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a count") as caught:
        parse_trip_count_rule(text)
    assert caught.value.diagnostic.hint == "write --trip 64 or --trip 0x370=64"


def loop_counts(texts: tuple[str, ...], *rules: str) -> tuple[float, Provenance, str]:
    counts, _ = counted(build_cfg(parse_lines(*texts)), *rules)
    (trip,) = counts.trips
    assert counts.per_warp[1] == trip.count
    return trip.count, trip.provenance, trip.reason


def test_a_rule_for_all_loops_fills_what_is_unknown() -> None:
    assert loop_counts(OPEN_LOOP, "64") == (64, Provenance.ASSUMED, "given by --trip")


def test_a_rule_for_all_loops_leaves_constants_alone() -> None:
    assert loop_counts(CONSTANT_LOOP, "64") == (5, Provenance.EXACT, "from constant bounds")


def test_a_rule_for_one_loop_wins_over_its_constant() -> None:
    assert loop_counts(CONSTANT_LOOP, "0x10=64") == (64, Provenance.ASSUMED, "given by --trip")


def test_a_rule_for_one_loop_wins_over_a_rule_for_all() -> None:
    assert loop_counts(OPEN_LOOP, "7", "0x10=64")[0] == 64


def test_a_rule_for_another_address_changes_nothing() -> None:
    assert loop_counts(OPEN_LOOP, "0x20=64")[0] == ASSUMED_TRIP_COUNT


def test_no_trips_at_all_leave_the_loop_out_but_not_what_follows() -> None:
    counts, _ = counted(build_cfg(parse_lines(*OPEN_LOOP)), "0")
    assert counts.per_warp == (1.0, 0.0, 1.0)


def test_a_rule_by_source_line_finds_its_loop() -> None:
    lines = [
        '\t.section\t.text.kernel,"ax",@progbits',
        *(f"        /*{16 * row:04x}*/  {text} ;" for row, text in enumerate(OPEN_LOOP)),
        "",
    ]
    lines.insert(2, '\t//## File "/src/kernel.py", line 41')
    cfg = build_cfg(parse_sass("kernel.txt", ["\n".join(lines).encode()]).kernels[0])
    assert counted(cfg, "kernel.py:41=64")[0].per_warp == (1.0, 64, 1.0)
    assert counted(cfg, "kernel.py:4=64")[0].per_warp == (1.0, ASSUMED_TRIP_COUNT, 1.0)


def test_real_nests_multiply() -> None:
    """The persistent product runs its tiles times its steps in K."""
    cfg = build_cfg(read_kernel("triton/sm_90/matmul_tma_persistent.sass"))
    counts, loop_forest = counted(cfg, "3")
    for loop in loop_forest.loops:
        assert counts.per_warp[loop.header] <= 3**loop.depth
    deepest = max(loop_forest.loops, key=lambda loop: loop.depth)
    assert counts.per_warp[deepest.header] > 3
