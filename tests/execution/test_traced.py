"""Profiles of traces: against sums taken by hand, and through the exporter and back."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from paths import TRACES, parse_lines, read_kernel

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.traces.execution_recorder import ExecutionRecorder
from analyzer.execution.traces.trace_profile import build_trace_profile, match_rows
from analyzer.execution.traces.trace_recorder import TraceRecorder, make_trace_header
from analyzer.flow.cfg import build_cfg
from analyzer.frontend.trace_module import build_trace_module
from analyzer.frontend.trace_parser import parse_trace
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.opcode import AddressSpace
from analyzer.ir.trace import Trace
from analyzer.render.traceg import render_traceg
from analyzer.text.errors import InputError, UsageError

KERNEL = parse_lines(
    "S2R R0, SR_TID.X",
    "@P1 LDG.E.64 R2, [R4.64]",
    "STS [R6+0x10], R2",
    "@P0 BRA 0x0",
    "STG.E.128 [R4.64+0x20], R8",
    "LDS.U8 R7, [R6]",
    "EXIT",
)
CFG = build_cfg(KERNEL)
WIDTHS = {1: 8, 2: 4, 4: 16, 5: 1}
SPACES = {1: AddressSpace.GLOBAL, 2: AddressSpace.SHARED, 4: AddressSpace.GLOBAL, 5: AddressSpace.SHARED}


def read_sample(name: str) -> Trace:
    path = TRACES / "nvbit" / name
    return parse_trace(str(path), [path.read_bytes()])


def profile_of(trace: Trace) -> ExecutionProfile:
    """With the graph of the trace's own kernel."""
    return build_trace_profile(trace, build_cfg(build_trace_module(trace.path, [trace]).kernels[0]))


def reread(trace: Trace) -> Trace:
    return parse_trace("again", [text.encode() for text in render_traceg(trace)])


def facts(profile: ExecutionProfile) -> dict[str, object]:
    """A profile as something that can be compared."""
    found = {name: getattr(profile, name) for name in ExecutionProfile.__slots__}
    found["warp_classes"] = [
        (c.n_warps, c.block_counts.tolist(), c.block_active_lanes.tolist(), c.example_warp)
        for c in profile.warp_classes
    ]
    return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in found.items()}


def test_vector_add_has_its_closed_form() -> None:
    """80 elements of 8 bytes, 4 warps of which the third is half full and the last has nothing to do."""
    profile = profile_of(read_sample("vector_add.traceg"))
    assert profile.provenance is Provenance.TRACED
    assert (profile.n_warps, profile.n_sampled_ctas, profile.assumptions) == (4, 2, ())
    assert profile.block_executions.tolist() == [4, 3]
    assert profile.block_active_lanes.tolist() == [128, 80]
    assert [(a.requests, a.lanes, a.bytes, a.sectors, a.unique_bytes) for a in profile.accesses] == [
        (3, 80, 640, 20, 640)
    ] * 3
    assert [access.is_store for access in profile.accesses] == [False, False, True]
    traffic = profile.traffic
    assert traffic is not None
    assert (traffic.read_bytes, traffic.read_unique_bytes) == (1280, 1280)
    assert (traffic.written_bytes, traffic.written_unique_bytes) == (640, 640)
    assert [(c.n_warps, c.example_warp) for c in profile.warp_classes] == [
        (2, (0, 0)),
        (1, (1, 0)),
        (1, (1, 1)),
    ]


def test_ungrouped_trace_tells_the_same() -> None:
    grouped, ungrouped = read_sample("vector_add.traceg"), read_sample("vector_add_ungrouped.trace")
    assert facts(profile_of(grouped)) == facts(profile_of(ungrouped))


def test_loop_with_lanes_that_leave_early() -> None:
    """148 elements a row: 20 lanes of the first warp come three times, all others twice."""
    profile = profile_of(read_sample("loop.traceg"))
    load = profile.accesses[0]
    assert (load.lanes, load.bytes, load.unique_bytes) == (3 * 148, 3 * 148 * 4, 3 * 148 * 4)
    assert profile.block_executions.tolist() == [6, 3 * (3 + 2), 3 * (2 + 1), 6, 3]
    assert profile.block_active_lanes.tolist() == [192, 3 * 148, 192, 192, 3]
    assert profile.loop_entries.tolist() == [6.0]
    assert [a.wavefronts for a in profile.accesses if a.space is AddressSpace.SHARED] == [6, 3]


def test_classes_cover_the_grid_and_sum_to_the_totals() -> None:
    for name in ("vector_add.traceg", "loop.traceg"):
        profile = profile_of(read_sample(name))
        assert sum(c.n_warps for c in profile.warp_classes) == profile.n_warps
        assert (
            sum(c.n_warps * c.block_counts for c in profile.warp_classes).tolist()
            == profile.block_executions.tolist()
        )
        assert (
            sum(c.n_warps * c.block_active_lanes for c in profile.warp_classes).tolist()
            == profile.block_active_lanes.tolist()
        )


def test_part_of_a_grid_is_scaled_and_says_so() -> None:
    text = (TRACES / "nvbit" / "vector_add.traceg").read_text()
    first = text[: text.index("#END_TB") + 8].replace("-grid dim = (2,1,1)", "-grid dim = (10,1,1)")
    profile = profile_of(parse_trace("part", [first.encode()]))
    assert profile.provenance is Provenance.ASSUMED
    assert (profile.n_warps, profile.n_sampled_ctas) == (20, 1)
    assert profile.block_executions.tolist() == [20, 20]
    assert profile.accesses[0].bytes == 10 * 64 * 8
    assert profile.accesses[0].unique_bytes is None
    assert sum(c.n_warps for c in profile.warp_classes) == 20
    assert "1 of 10 thread blocks" in profile.assumptions[0]


def test_warp_without_lines_ran_nothing() -> None:
    text = (TRACES / "nvbit" / "vector_add.traceg").read_text()
    start = text.rindex("\nwarp = 1")
    profile = profile_of(parse_trace("x", [(text[:start] + "\n#END_TB\n").encode()]))
    assert profile.block_executions.tolist() == [3, 3]
    assert sum(c.n_warps for c in profile.warp_classes) == 4
    assert profile.provenance is Provenance.ASSUMED
    assert profile.missing_code == (
        "the trace is cut off: 1 of its warps left no line; what they ran is not counted",
    )


@pytest.mark.parametrize("form", ["vector_add.traceg", "vector_add_ungrouped.trace", "loop.traceg"])
def test_warp_that_does_not_end_is_said(form: str) -> None:
    text = (TRACES / "nvbit" / form).read_text()
    assert profile_of(parse_trace("x", [text.encode()])).missing_code == ()
    lines = re.sub(r"insts = .*\n", "", text).splitlines()
    last = max(n for n, line in enumerate(lines) if " EXIT " in line)
    profile = profile_of(parse_trace("x", ["\n".join(lines[:last] + lines[last + 1 :]).encode()]))
    assert profile.provenance is Provenance.ASSUMED
    assert "1 of its warps end without EXIT" in profile.missing_code[0]


def test_instruction_that_the_tracer_leaves_out_runs_as_often_as_its_block() -> None:
    text = (TRACES / "nvbit" / "loop.traceg").read_text()
    cfg = build_cfg(build_trace_module("x", [parse_trace("x", [text.encode()])]).kernels[0])
    shorter = "\n".join(line for line in text.splitlines() if not line.startswith("0060 ")) + "\n"
    shorter = re.sub(r"insts = .*\n", "", shorter)
    trace = parse_trace("x", [shorter.encode()])
    profile = build_trace_profile(trace, cfg)
    assert profile.block_executions.tolist() == [6, 15, 9, 6, 3]
    assert "1 instructions of executed blocks left no line" in profile.assumptions[0]


def test_trace_of_another_build_is_refused() -> None:
    trace = read_sample("vector_add.traceg")
    with pytest.raises(InputError, match="does not fit kernel") as caught:
        build_trace_profile(trace, CFG)
    assert "IMAD.MOV.U32" in str(caught.value)


def test_generic_access_to_the_shared_window_costs_passes() -> None:
    text = (TRACES / "nvbit" / "vector_add.traceg").read_text()
    text = text.replace("LDG.E.64", "LD.E.64").replace("0x7f0000000000", "0x7f0675000000")
    profile = profile_of(parse_trace("x", [text.encode()]))
    shared, plain = profile.accesses[0], profile.accesses[1]
    assert shared.space is AddressSpace.GENERIC
    assert (shared.sectors, plain.sectors) == (
        4 + 8,
        20,
    )  # one warp's lanes at that address, 64-byte steps kept


def drive(
    recorder: ExecutionRecorder, seed: int, n_warps: int, steps: int
) -> list[tuple[int, int, int, list[int]]]:
    """Random runs told to a recorder: (warp, row, mask, addresses of its lanes) of all instructions in order."""
    rng = np.random.default_rng(seed)
    told = []
    for _ in range(steps):
        block = CFG.blocks[rng.integers(len(CFG.blocks))]
        warps = rng.permutation(n_warps)[: rng.integers(1, n_warps + 1)].astype(np.int64)
        active = rng.random((len(warps), 32)) < rng.choice([0.1, 0.5, 1.0], size=(len(warps), 1))
        active[:, 0] = True
        recorder.record_run(block.start, block.stop, warps, active)
        for row in range(block.start, block.stop):
            lanes = active.copy()
            if row in (1, 3):
                lanes &= rng.random(lanes.shape) < rng.choice([0.0, 0.5, 1.0])
                recorder.record_guard(row, warps, lanes)
            addresses = np.zeros(lanes.shape, dtype=np.uint64)
            if row in WIDTHS and lanes.any():
                base = rng.integers(0, 1 << 12, (len(warps), 1)) * 16
                step = rng.choice([0, 1, 4, 16, -16], size=(len(warps), 1))
                spread = rng.integers(0, 64, lanes.shape) * 16
                addresses = (1 << 20) + np.where(
                    rng.random((len(warps), 1)) < 0.5, base + step * np.arange(32), spread
                )
                addresses = (addresses // WIDTHS[row] * WIDTHS[row]).astype(np.uint64)
                order = rng.permutation(len(warps))
                recorder.record_access(row, warps[order], lanes[order], addresses[order])
            for warp, own, listed in zip(warps.tolist(), lanes, addresses, strict=True):
                mask = sum(1 << lane for lane in range(32) if own[lane])
                told.append((warp, row, mask, listed[own].tolist() if row in WIDTHS else []))
        active[:] = False  # arrays may be used again
    return told


@given(st.integers(0, 1 << 32), st.integers(1, 9), st.integers(1, 12))
def test_exported_and_read_back_gives_the_same_profile(seed: int, n_warps: int, steps: int) -> None:
    launch = Launch(grid=Dim3(3), block=Dim3(96))
    recorder = TraceRecorder(CFG, make_trace_header(KERNEL, launch))
    told = drive(recorder, seed, n_warps, steps)
    trace = recorder.build_trace("recorded")
    again = reread(trace)
    recorded, read = build_trace_profile(trace, CFG), build_trace_profile(again, CFG)
    assert facts(recorded) == facts(read)
    assert match_rows(again, CFG).tolist() == sorted({row for _, row, _, _ in told})
    if recorded.provenance is not Provenance.TRACED:
        return
    firsts = {block.start: block.index for block in CFG.blocks}
    runs = Counter(firsts[row] for _, row, _, _ in told if row in firsts)
    lanes: Counter[int] = Counter()
    for _, row, mask, _ in told:
        if row in firsts:
            lanes[firsts[row]] += mask.bit_count()
    assert read.block_executions.tolist() == [runs[b] for b in range(len(CFG.blocks))]
    assert read.block_active_lanes.tolist() == [lanes[b] for b in range(len(CFG.blocks))]
    for access in read.accesses:
        own = [listed for _, row, _, listed in told if row == access.row and listed]
        width = WIDTHS[access.row]
        assert access.space is SPACES[access.row]
        assert (access.requests, access.lanes) == (len(own), sum(map(len, own)))
        assert access.bytes == access.lanes * width
        if access.space is AddressSpace.GLOBAL:
            touched = [{(a + byte) // 32 for a in listed for byte in range(width)} for listed in own]
            assert access.sectors == sum(map(len, touched))
            assert access.unique_bytes == len(
                {a + byte for listed in own for a in listed for byte in range(width)}
            )


def test_trace_from_a_real_dump_reads_back_on_the_dump() -> None:
    """Every opcode of a real kernel is written and read, control flow aside."""
    kernel = read_kernel("triton/sm_90/matmul.sass")
    cfg = build_cfg(kernel)
    recorder = TraceRecorder(cfg, make_trace_header(kernel, Launch(grid=Dim3(2, 1, 1), block=Dim3(32))))
    active = np.ones((2, 32), dtype=bool)
    for block in cfg.blocks:
        recorder.record_run(block.start, block.stop, np.array([0, 1]), active)
    trace = recorder.build_trace()
    again = reread(trace)
    assert again.header.name == kernel.name
    assert again.header.arch == "sm_90"
    profile = build_trace_profile(again, cfg)
    assert profile.block_executions.tolist() == [2] * len(cfg.blocks)
    assert profile.block_active_lanes.tolist() == [64] * len(cfg.blocks)
    assert facts(profile) == facts(build_trace_profile(trace, cfg))


def test_memory_instruction_without_known_addresses_stays_unknown() -> None:
    recorder = TraceRecorder(CFG, make_trace_header(KERNEL, Launch(grid=Dim3(1), block=Dim3(32))))
    active = np.ones((1, 32), dtype=bool)
    warps = np.array([0])
    for told in (True, False):
        recorder.record_run(CFG.blocks[0].start, CFG.blocks[0].stop, warps, active)
        if told:
            recorder.record_access(1, warps, active, np.arange(32, dtype=np.uint64)[None, :] * np.uint64(8))
    for trace in (recorder.build_trace(), reread(recorder.build_trace())):
        access, silent = build_trace_profile(trace, CFG).accesses
        assert (silent.row, silent.requests, silent.lanes, silent.wavefronts) == (2, 2, 64, None)
        assert (access.requests, access.lanes, access.sectors, access.unique_bytes) == (2, 64, None, None)
        assert access.provenance is Provenance.UNKNOWN


def test_recorder_wants_order_and_a_launch() -> None:
    with pytest.raises(UsageError, match="grid and the block"):
        make_trace_header(KERNEL, Launch())
    recorder = TraceRecorder(CFG, make_trace_header(KERNEL, Launch(grid=Dim3(1), block=Dim3(32))))
    with pytest.raises(ValueError, match="before any run"):
        recorder.record_guard(0, np.array([0]), np.ones((1, 32), dtype=bool))
    with pytest.raises(ValueError, match="nothing was recorded"):
        recorder.build_trace()


def test_header_keeps_static_and_dynamic_shared_memory_apart() -> None:
    trace = read_sample("loop.traceg")
    kernel = build_trace_module("x", [trace]).kernels[0]
    dump = replace(kernel, resources=replace(kernel.resources, shared_bytes=100, dynamic_shared_bytes=None))
    assert build_trace_profile(trace, build_cfg(dump)).launch.dynamic_shared_bytes == 156
