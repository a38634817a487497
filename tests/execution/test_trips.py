"""Constant trip counts: on real kernels by their sources, on made-up loops by running them."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from interpreter import Machine
from paths import list_sass_dumps, parse_lines, read_kernel, read_module

from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.static_counts.block_counts import count_block_executions
from analyzer.execution.static_counts.trip_counts import find_constant_trip_count
from analyzer.flow.cfg import Cfg, build_cfg
from analyzer.flow.loops import LoopForest, find_loops
from analyzer.ir.module import Kernel

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
DIVERGENT_STEPS = 128  # kDivergentSteps of traces/cuda/report16.cu


def analyzed(kernel: Kernel) -> tuple[Cfg, LoopForest]:
    cfg = build_cfg(kernel)
    return cfg, find_loops(cfg)


def only_trip(*texts: str) -> int | None:
    """The constant trip count of a kernel with one loop."""
    cfg, loop_forest = analyzed(parse_lines(*texts))
    (loop,) = loop_forest.loops
    return find_constant_trip_count(cfg, loop_forest, loop)


@pytest.mark.parametrize("arch", ARCHS)
def test_unrolled_loop_of_a_real_kernel_adds_up_to_its_source(arch: str) -> None:
    """Each step of the source is one conversion to float: those of the body times the trips are all steps."""
    cfg, loop_forest = analyzed(read_kernel(f"cuda/{arch}/report16.sass", "vector_add_divergent"))
    (loop,) = loop_forest.loops
    rows = [row for b in loop.blocks for row in range(cfg.blocks[b].start, cfg.blocks[b].stop)]
    steps = sum(cfg.kernel.find_opcode(row).name in ("I2F", "I2FP", "UI2FP") for row in rows)
    trips = find_constant_trip_count(cfg, loop_forest, loop)
    assert trips is not None
    assert trips * steps == DIVERGENT_STEPS


# Loops whose bounds are kernel arguments or launch sizes: no constant may be claimed.
OPEN_LOOPS = [
    ("cuda/sm_80/report16.sass", "reduce_sum"),
    ("cuda/sm_80/report16.sass", "dot_product"),
    ("cuda/sm_80/report16.sass", "matmul_tiled"),
    ("cuda/sm_90/report16.sass", "matmul_naive"),
    ("cuda/sm_75/report16.sass", "histogram"),
    ("cuda/sm_90/report16.sass", "atomic_hotspot"),
    ("triton/sm_80/matmul.sass", "matmul"),
    ("triton/sm_90/matmul_tma_persistent.sass", "matmul_tma_persistent"),
    ("triton/sm_100/flash_attention.sass", "flash_attention"),
    ("triton/sm_120/rmsnorm.sass", "rmsnorm"),
]


@pytest.mark.parametrize(("dump", "kernel"), OPEN_LOOPS)
def test_loops_over_arguments_have_no_constant(dump: str, kernel: str) -> None:
    cfg, loop_forest = analyzed(read_kernel(dump, kernel))
    assert loop_forest.loops
    assert [find_constant_trip_count(cfg, loop_forest, loop) for loop in loop_forest.loops] == [None] * len(
        loop_forest.loops
    )


def test_constants_are_claimed_for_the_kernels_that_have_them() -> None:
    found = set()
    for path in list_sass_dumps():
        for kernel in read_module(path):
            cfg, loop_forest = analyzed(kernel)
            if any(
                find_constant_trip_count(cfg, loop_forest, loop) is not None for loop in loop_forest.loops
            ):
                found.add(kernel.name)
    assert found == {"vector_add_divergent", "dedispersion", "three_memories", "gemm"}


SIMPLE = [
    pytest.param("MOV R1, RZ", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", 10, id="count-up"),
    pytest.param("MOV R1, 0x10", "IADD3 R1, R1, -0x4, RZ", "ISETP.GT.AND P0, PT, R1, RZ, PT", 4, id="count-down"),
    pytest.param("CS2R R0, SRZ", "IADD3 R1, R1, 0x8, RZ", "ISETP.NE.AND P0, PT, R1, 0x40, PT", 8, id="cleared-pair"),
    pytest.param("MOV R1, RZ", "VIADD R1, R1, 0x2", "ISETP.GE.AND P0, PT, 0x9, R1, PT", 5, id="bound-first"),
    pytest.param("HFMA2 R1, -RZ, RZ, 0, 5.9604644775390625e-08", "IADD3 R1, R1, 0x1, RZ", "ISETP.LE.U32.AND P0, PT, R1, 0x3, PT", 3, id="half-bits"),
    pytest.param("IMAD.MOV.U32 R1, RZ, RZ, -0x5", "IADD3 R1, R1, 0x1, RZ", "ISETP.NE.AND P0, PT, R1, RZ, PT", 5, id="negative-start"),
    pytest.param("MOV R1, 0xfffffffe", "IADD3 R1, R1, 0x1, RZ", "ISETP.GE.U32.AND P0, PT, R1, 0x5, PT", 2, id="unsigned-wrap"),
]  # fmt: skip


@pytest.mark.parametrize(("start", "step", "compare", "trips"), SIMPLE)
def test_simple_loops(start: str, step: str, compare: str, trips: int) -> None:
    assert only_trip(start, "NOP", step, compare, "@P0 BRA 0x10", "EXIT") == trips


UNKNOWN = [
    pytest.param(("S2R R1, SR_TID.X", "NOP", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", "@P0 BRA 0x10", "EXIT"), id="start-is-not-constant"),
    pytest.param(("MOV R1, RZ", "NOP", "IADD3 R1, R1, R2, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", "@P0 BRA 0x10", "EXIT"), id="step-is-not-constant"),
    pytest.param(("MOV R1, RZ", "NOP", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, c[0x0][0x210], PT", "@P0 BRA 0x10", "EXIT"), id="bound-is-an-argument"),
    pytest.param(("MOV R1, RZ", "NOP", "@P1 IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", "@P0 BRA 0x10", "EXIT"), id="step-is-guarded"),
    pytest.param(("@P1 MOV R1, RZ", "NOP", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", "@P0 BRA 0x10", "EXIT"), id="start-is-guarded"),
    pytest.param(("MOV R1, RZ", "NOP", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.OR P0, PT, R1, 0xa, P1", "@P0 BRA 0x10", "EXIT"), id="condition-has-two-parts"),
    pytest.param(("MOV R1, RZ", "IADD3 R1, R1, 0x1, RZ", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", "@P0 BRA 0x10", "EXIT"), id="two-steps"),
    pytest.param(("MOV R1, RZ", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", "@P1 BRA 0x60", "@P0 BRA 0x10", "EXIT", "EXIT"), id="two-exits"),
    pytest.param(("MOV R1, RZ", "NOP", "IADD3 R1, R1, 0x1, RZ", "ISETP.LT.AND P0, PT, R1, 0xa, PT", "LOP3.LUT P0, RZ, R3, 0x1, RZ, 0xc0, !PT", "@P0 BRA 0x10", "EXIT"), id="predicate-is-written-again"),
]  # fmt: skip


@pytest.mark.parametrize("texts", UNKNOWN)
def test_no_constant_is_claimed_where_there_is_none(texts: tuple[str, ...]) -> None:
    assert only_trip(*texts) is None


_NEXT = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}


@st.composite
def counted_loops(draw: st.DrawFn) -> tuple[str, ...]:
    """A loop with constant bounds: the step before or after the test, either order, either sense."""
    small = st.integers(-40, 40)
    start, bound, step = draw(small), draw(small), draw(small.filter(bool))
    name = draw(st.sampled_from(sorted(_NEXT)))
    unsigned = draw(st.sampled_from(("", ".U32")))
    counter_first, negated, bound_in_register = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    bound_text = "R2" if bound_in_register else _hex(bound)
    pair = f"R1, {bound_text}" if counter_first else f"{bound_text}, R1"
    compare = f"ISETP.{name}{unsigned}.AND P0, PT, {pair}, PT"
    add = f"IADD3 R1, R1, {_hex(step)}, RZ"
    body = [add, compare] if draw(st.booleans()) else [compare, add]
    guard = "@!P0" if negated else "@P0"
    return (
        f"MOV R1, {_hex(start)}",
        f"MOV R2, {_hex(bound)}",
        "NOP",
        *body,
        f"{guard} BRA 0x20",
        "EXIT",
    )


def _hex(value: int) -> str:
    return f"-{-value:#x}" if value < 0 else f"{value:#x}"


@given(counted_loops())
def test_constant_trips_equal_running_the_loop(texts: tuple[str, ...]) -> None:
    kernel = parse_lines(*texts)
    runs = Machine(kernel).run()
    assume(runs is not None)
    assert runs is not None
    assert only_trip(*texts) == runs[2]


@given(counted_loops())
def test_block_counts_of_an_exact_loop_equal_running_it(texts: tuple[str, ...]) -> None:
    kernel = parse_lines(*texts)
    runs = Machine(kernel).run()
    assume(runs is not None)
    assert runs is not None
    cfg, loop_forest = analyzed(kernel)
    counts = count_block_executions(cfg, loop_forest)
    assert counts.provenance is Provenance.EXACT
    assert list(counts.per_warp) == [runs[block.start] for block in cfg.blocks]


def test_a_loop_that_never_ends_has_no_trip_count() -> None:
    assert only_trip("MOV R1, RZ", "NOP", "IADD3 R1, R1, 0x2, RZ", "ISETP.NE.AND P0, PT, R1, 0x7, PT",
                     "@P0 BRA 0x10", "EXIT") is None  # fmt: skip


def test_nested_constant_loops_multiply() -> None:
    kernel = parse_lines(
        "MOV R1, RZ",
        "MOV R2, RZ",
        "IADD3 R2, R2, 0x1, RZ",
        "ISETP.LT.AND P0, PT, R2, 0x5, PT",
        "@P0 BRA 0x20",
        "IADD3 R1, R1, 0x1, RZ",
        "ISETP.LT.AND P1, PT, R1, 0x3, PT",
        "@P1 BRA 0x10",
        "EXIT",
    )
    cfg, loop_forest = analyzed(kernel)
    runs = Machine(kernel).run()
    assert runs is not None
    counts = count_block_executions(cfg, loop_forest)
    assert list(counts.per_warp) == [runs[block.start] for block in cfg.blocks]
    assert counts.provenance is Provenance.EXACT


STEP = "IADD3 R1, R1, 0x1, RZ"
TEST = "ISETP.LT.AND P0, PT, R1, 0xa, PT"
# Loops that look constant and are not: (texts, row of the loop's header).
TRAPS = [
    pytest.param(("MOV R1, RZ", "NOP", STEP, TEST, "IADD3 R5, P1, P0, R6, R7, RZ", "@P0 BRA 0x10", "EXIT"), 1, id="second-carry-out-writes-the-predicate"),
    pytest.param(("MOV R1, RZ", "NOP", STEP, TEST, "R2P PR, R3, 0x7f", "@P0 BRA 0x10", "EXIT"), 1, id="the-whole-predicate-file-is-written"),
    pytest.param(("MOV R1, RZ", "NOP", "IADD3 R1, UR1, 0x1, RZ", TEST, "@P0 BRA 0x10", "EXIT"), 1, id="uniform-register-of-the-same-number"),
    pytest.param(("MOV R1, RZ", "NOP", "IADD3 R1, ~R1, 0x1, RZ", TEST, "@P0 BRA 0x10", "EXIT"), 1, id="step-of-the-complement"),
    pytest.param(("MOV R1, RZ", "CALL.REL.NOINC 0x70", "NOP", STEP, TEST, "@P0 BRA 0x20", "EXIT", "MOV R1, 0x5", "RET.REL.NODEC R20 0x0"), 2, id="a-call-changes-the-start"),
    pytest.param(("MOV R1, RZ", "NOP", STEP, "@P1 BRA 0x60", TEST, "@!P0 BRA 0x70", "BRA 0x10", "EXIT"), 1, id="the-test-is-not-made-each-time"),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "header"), TRAPS)
def test_loops_that_only_look_constant(texts: tuple[str, ...], header: int) -> None:
    cfg, loop_forest = analyzed(parse_lines(*texts))
    loop = next(loop for loop in loop_forest.loops if cfg.blocks[loop.header].start == header)
    assert find_constant_trip_count(cfg, loop_forest, loop) is None


def test_bf16_constant_is_not_read_as_fp16() -> None:
    """BF16 one is 0x3f80."""
    trips = only_trip("HFMA2.BF16_V2 R1, -RZ, RZ, 0, 1", "NOP", "IADD3 R1, R1, -0x1, RZ",
                      "ISETP.NE.AND P0, PT, R1, RZ, PT", "@P0 BRA 0x10", "EXIT")  # fmt: skip
    assert trips in (None, 0x3F80)


# Loops that run() can count: what is called exact must be so.
EXACT_TRAPS = [
    pytest.param(("MOV R1, RZ", "ISETP.GE.AND P0, PT, R1, 0x4, PT", "@P0 BRA 0x60", "NOP", STEP, "BRA 0x10", "EXIT"), id="exit-at-the-top"),
    pytest.param(("MOV R1, RZ", "NOP", STEP, "ISETP.GE.AND P0, PT, R1, 0x4, PT", "@P0 BRA 0x70", "NOP", "BRA 0x10", "EXIT"), id="exit-in-the-middle"),
    pytest.param(("MOV R1, RZ", "MOV R2, RZ", STEP, "IADD3 R2, R2, 0x1, RZ", "ISETP.LT.AND P1, PT, R2, 0x3, PT", "@P1 BRA 0x20", "ISETP.LT.AND P0, PT, R1, 0xc, PT", "@P0 BRA 0x10", "EXIT"), id="step-in-an-inner-loop"),
]  # fmt: skip


@pytest.mark.parametrize("texts", EXACT_TRAPS)
def test_counts_called_exact_are_those_of_a_run(texts: tuple[str, ...]) -> None:
    kernel = parse_lines(*texts)
    runs = Machine(kernel).run()
    assert runs is not None
    cfg, loop_forest = analyzed(kernel)
    counts = count_block_executions(cfg, loop_forest)
    is_equal = list(counts.per_warp) == [runs[block.start] for block in cfg.blocks]
    assert is_equal or counts.provenance is not Provenance.EXACT


@st.composite
def small_programs(draw: st.DrawFn) -> tuple[str, ...]:
    """Any program of a few instructions over two registers and two predicates."""
    length = draw(st.integers(3, 9))
    setup = [
        "MOV R1, 0x0",
        "MOV R2, 0x3",
        "ISETP.LT.AND P0, PT, RZ, 0x1, PT",
        "ISETP.LT.AND P1, PT, RZ, 0x0, PT",
    ]
    register, predicate = st.sampled_from(["R1", "R2"]), st.sampled_from(["P0", "P1"])
    small = st.integers(-2, 6)
    body = []
    for _ in range(length):
        kind = draw(st.sampled_from(["add", "add", "test", "test", "branch", "branch", "move"]))
        guard = draw(st.sampled_from(["", "", "", "@P0 ", "@!P1 "]))
        if kind == "add":
            one, other = draw(register), draw(register)
            body.append(f"{guard}IADD3 {one}, {other}, {_hex(draw(small))}, RZ")
        elif kind == "move":
            body.append(f"{guard}MOV {draw(register)}, {_hex(draw(small))}")
        elif kind == "test":
            name = draw(st.sampled_from(sorted(_NEXT)))
            body.append(
                f"{guard}ISETP.{name}.AND {draw(predicate)}, PT, {draw(register)}, {_hex(draw(small))}, PT"
            )
        else:
            target = 16 * (len(setup) + draw(st.integers(0, length)))
            sense = draw(st.sampled_from(["@P0", "@!P0", "@P1", "@!P1"]))
            body.append(f"{sense} BRA {target:#x}")
    return (*setup, *body, "EXIT")


def has_forward_choice(cfg: Cfg, loop_forest: LoopForest) -> bool:
    """A block that may go on in two ways without leaving a loop: which one, only a rule of thumb says."""
    headers = {loop.header for loop in loop_forest.loops}
    for block in loop_forest.reverse_postorder:
        around = set(loop_forest.find_enclosing_loops(block))
        inside = [
            t
            for t in cfg.successors[block]
            if around <= set(loop_forest.find_enclosing_loops(t)) and t not in headers
        ]
        if len(inside) > 1 or (
            len(inside) == 1
            and loop_forest.find_enclosing_loops(inside[0]) != loop_forest.find_enclosing_loops(block)
        ):
            return True
        if len(cfg.successors[block]) > 1 and not any(
            block in (e[0] for e in x.exit_edges) for x in loop_forest.loops
        ):
            return True
    return False


def test_a_branch_settled_by_a_rule_of_thumb_is_no_exact_count() -> None:
    """Nothing is known of P0, so neither side is certain."""
    cfg, loop_forest = analyzed(parse_lines("@P0 BRA 0x30", "NOP", "EXIT", *["NOP"] * 5, "EXIT"))
    counts = count_block_executions(cfg, loop_forest)
    assert counts.provenance is not Provenance.EXACT


@given(small_programs())
def test_exact_counts_of_any_small_program_equal_running_it(texts: tuple[str, ...]) -> None:
    kernel = parse_lines(*texts)
    cfg, loop_forest = analyzed(kernel)
    counts = count_block_executions(cfg, loop_forest)
    if counts.provenance is not Provenance.EXACT or has_forward_choice(cfg, loop_forest):
        return
    runs = Machine(kernel).run()
    assert runs is not None, "counted exactly, and yet it never ends"
    assert list(counts.per_warp) == [runs[block.start] for block in cfg.blocks]


@given(small_programs())
def test_a_constant_trip_count_of_any_small_program_is_right(texts: tuple[str, ...]) -> None:
    """Each time that a loop with a constant is entered, its header runs as often as that says."""
    kernel = parse_lines(*texts)
    cfg, loop_forest = analyzed(kernel)
    claims = [
        (loop, find_constant_trip_count(cfg, loop_forest, loop))
        for loop in loop_forest.loops
        if loop.depth == 1
    ]
    runs = Machine(kernel).run()
    for loop, trips in claims:
        if trips is not None and runs is not None:
            header = runs[cfg.blocks[loop.header].start]
            assert header % trips == 0, f"{trips} trips claimed, {header} runs"
            assert (header == 0) or header == trips
