"""Traces through the whole house: written by abstract execution, read again, and analyzed like any other input."""

import gzip
import json
import lzma
import re
from functools import cache
from pathlib import Path

import pytest
from exactness import CASES, Case, make_launch
from msgspec.structs import replace
from paths import parse_lines

import analyzer
from analyzer.baselines.representative_warp import find_representative_class
from analyzer.cli.app import run
from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.execution.sampling.launch_preparation import prepare_launch
from analyzer.execution.traces.launch_recording import record_launch
from analyzer.execution.traces.trace_profile import build_trace_profile
from analyzer.execution.traces.trace_recorder import TraceRecorder, make_trace_header
from analyzer.frontend.trace_parser import parse_trace
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.ir.opcode import AddressSpace, OpKind
from analyzer.pipeline import LoadedKernel, Options, Program
from analyzer.pipeline.kernel_analyzer import find_launches
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.trace_generation import RecordedTrace, trace_kernel
from analyzer.render.traceg import render_traceg

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
VECTOR_ADD = str(TRACES / "nvbit" / "vector_add.traceg")
LOOP = str(TRACES / "nvbit" / "loop.traceg")
NAMES = """
    vector_add-1000x256 saxpy_grid_stride-1000-by-2x64 matmul_naive matmul_tiled-31 matmul_tiled-64
    reduce_sum-1000-by-128 dot_product-1000-by-128 histogram-10007-by-5x128 atomic_hotspot-10-by-3x96
    vector_add_divergent conv2d block_sum-5000-by-3x128 row_sums_64-257x17 csr_row_sums-1000-unknown
    transpose_tiled random_access-1000-unknown softmax-7x1008 matmul-1x16x16 matmul_one_stage-1x16x16
    rmsnorm-5x1040 flash_attention-1x16
"""
MOST_LINES = 60_000

Capture = pytest.CaptureFixture[str]


@cache
def load(path: str) -> Program:
    return analyzer.load(path)


def recorded(case: Case) -> tuple[LoadedKernel, Options, RecordedTrace]:
    program = load(str(TRACES / case.path))
    options = Options(kernels=(case.kernel,), launch=make_launch(case))
    return program[case.kernel], options, trace_kernel([program], options)


def chosen() -> list[Case]:
    """Launches small enough to be written down, one of each kernel and shape that NAMES begins to spell."""
    begins = tuple(NAMES.split())
    found: dict[tuple[str, int], Case] = {}
    for case in CASES:
        begin = next((b for b in begins if str(case).startswith(b)), None)
        if begin and case.arch in (80, 90, 120):
            kept = found.setdefault((begin, case.arch), case)
            if threads(case) < threads(kept):
                found[begin, case.arch] = case
    return list(found.values())


def threads(case: Case) -> int:
    return Dim3(*case.grid).count * Dim3(*case.block).count


def facts(loaded: LoadedKernel, profile: ExecutionProfile, guessed: frozenset[int]) -> dict[str, object]:
    """What both ways must agree on. Of asynchronous copies, the shared side is not traced; random words stand
    for what nobody knows in execution alone. `lines` are those of the first place of a pattern.
    """
    return {
        "warps": profile.block_executions.tolist(),
        "lanes": profile.block_active_lanes.tolist(),
        "entries": profile.loop_entries.tolist(),
        "classes": sorted(
            (c.n_warps, c.block_counts.tolist(), c.block_active_lanes.tolist()) for c in profile.warp_classes
        ),
        "accesses": [
            replace(
                access,
                provenance=Provenance.EXACT,
                address_provenance=Provenance.EXACT,
                lines=None,
                **(NOTHING if access.row in guessed else {}),
            )
            for access in profile.accesses
            if access.requests and not is_shared_side(loaded, access.row, access.space)
        ],
        "traffic": None if guessed else profile.traffic,
    }


NOTHING = {
    "sectors": None,
    "wavefronts": None,
    "base_address": None,
    "is_indirect": False,
    "unique_bytes": None,
    "table_bytes": None,
    "first_touch_share": 1.0,
    "missing_inputs": (),
}


def is_shared_side(loaded: LoadedKernel, row: int, space: AddressSpace) -> bool:
    return loaded.kernel.find_opcode(row).kind is OpKind.ASYNC_COPY and space is AddressSpace.SHARED


@pytest.mark.parametrize("case", chosen(), ids=str)
def test_a_written_trace_tells_what_execution_tells(case: Case) -> None:
    loaded, options, found = recorded(case)
    assert len(found.trace) < MOST_LINES
    read = parse_trace("again", [text.encode() for text in render_traceg(found.trace)])
    (launch,) = find_launches(loaded.kernel, options)
    executed = execute_kernel(loaded, launch)
    assert executed is not None
    traced = build_trace_profile(read, loaded.cfg, loaded.loops)
    guessed = frozenset(access.row for access in executed.profile.accesses if access.base_address is not None)
    assert facts(loaded, traced, guessed) == facts(loaded, executed.profile, guessed)
    assert traced.provenance is Provenance.TRACED


def test_enough_kernels_are_compared() -> None:
    assert len({case.kernel for case in chosen()}) >= 15


def masks_of(*texts: str) -> list[int]:
    """The mask that each instruction of a kernel has when one warp runs it, by row."""
    loaded = LoadedKernel(parse_lines(*texts))
    launch = Launch(grid=Dim3(1), block=Dim3(32))
    ready = prepare_launch(loaded.cfg, loaded.loops, launch)
    recorder = TraceRecorder(loaded.cfg, make_trace_header(loaded.kernel, launch))
    record_launch(ready.compiled, ready.image, ready.shape, BranchDecider(ready.compiled), recorder)
    trace = recorder.build_trace()
    assert trace.instruction_ids.tolist() == list(range(len(texts)))
    return trace.masks.tolist()


def test_guards_are_told_where_execution_knows_them() -> None:
    every, half = 0xFFFFFFFF, 0xFFFF0000
    assert masks_of(
        "S2R R0, SR_TID.X",
        "ISETP.GE.AND P0, PT, R0, 0x10, PT",  # a branch depends on it
        "@P0 MOV R5, 0x1",  # outside of the slice, its predicate is computed all the same
        "ISETP.GE.AND P1, PT, R0, 0x8, PT",  # decides nothing: not computed
        "@P1 MOV R6, 0x1",
        "@!PT MOV R7, 0x1",
        "@P0 LDG.E R8, [R2.64]",
        "@P0 ISETP.GE.AND P0, PT, R8, 0x8, PT",  # now it is another one
        "@P0 MOV R5, 0x2",
        "EXIT",
    ) == [every, every, half, every, every, 0, half, half, every, every]


def test_branches_and_exits_have_the_lanes_that_take_them() -> None:
    every, half = 0xFFFFFFFF, 0xFFFF0000
    assert masks_of(
        "S2R R0, SR_TID.X",
        "ISETP.GE.AND P0, PT, R0, 0x10, PT",
        "@P0 EXIT",
        "ISETP.GE.AND P1, PT, R0, 0x20, PT",
        "@P1 BRA 0x60",
        "NOP",
        "EXIT",
    ) == [every, every, half, half ^ every, 0, half ^ every, half ^ every]


def test_the_representative_warp_is_of_the_largest_class() -> None:
    trace = parse_trace(VECTOR_ADD, [Path(VECTOR_ADD).read_bytes()])
    loaded = load(VECTOR_ADD).kernels[0]
    profile = build_trace_profile(trace, loaded.cfg)
    found = find_representative_class(profile, [[6.0, 1.0], [10.0, 4.0]])
    assert (found.n_warps, found.block_counts.tolist()) == (2, [1, 1])


# ---- a trace as input ----------------------------------------------------------------------------


def report_of(capsys: Capture, *arguments: str) -> dict[str, object]:
    assert run(["analyze", *arguments, "--format", "json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    (kernel,) = report["kernels"]
    assert isinstance(kernel, dict)
    return kernel


def counts(kernel: dict[str, object]) -> dict[str, object]:
    found = kernel["counts"]
    assert isinstance(found, dict)
    return found


def test_a_trace_is_analyzed_alone(capsys: Capture) -> None:
    kernel = report_of(capsys, VECTOR_ADD)
    assert (kernel["name"], kernel["registers"], kernel["architecture"]) == (
        "_Z9vectorAddPKdS0_Pdi",
        12,
        "sm_80",
    )
    launch = kernel["launch"]
    assert isinstance(launch, dict)
    assert (launch["grid"], launch["block"]) == ([2, 1, 1], [64, 1, 1])
    assert counts(kernel)["provenance"] == "traced"
    assert counts(kernel)["executed_warp_instructions"] == 4 * 6 + 3 * 10
    assert kernel["predictions"]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_packed_traces_and_lists_are_analyzed(pack: object, tmp_path: Path, capsys: Capture) -> None:
    assert callable(pack)
    packed = tmp_path / "kernel-1.traceg.packed"
    packed.write_bytes(pack(Path(VECTOR_ADD).read_bytes()))
    plain = report_of(capsys, VECTOR_ADD)
    assert report_of(capsys, str(packed)) == {**plain, "input": str(packed)}
    listing = tmp_path / "kernelslist.g"
    (tmp_path / "kernel-1.traceg").write_bytes(Path(LOOP).read_bytes())
    listing.write_text("MemcpyHtoD,0x00007f0000000000,64\nkernel-1.traceg\n")
    listed = report_of(capsys, str(listing))
    assert listed == {**report_of(capsys, LOOP), "input": listed["input"]}


def test_a_trace_is_annotated(capsys: Capture) -> None:
    assert run(["annotate", LOOP]) == 0
    out = capsys.readouterr().out
    assert "FADD R8, R8, R5" in out
    assert re.search(r"15\s+lsu .*LDG\.E R5", out)


def test_options_that_the_trace_denies_are_named(capsys: Capture) -> None:
    kernel = report_of(capsys, VECTOR_ADD, "--grid", "7", "--block", "64")
    assert "grid 7x1x1 is not used: 2x1x1 was traced" in str(counts(kernel)["assumptions"])
    assert "block" not in str(counts(kernel)["assumptions"])


# ---- a trace beside its dump ---------------------------------------------------------------------


def written(tmp_path: Path, capsys: Capture, *arguments: str, name: str = "k.traceg") -> str:
    path = tmp_path / name
    assert run(["trace", *arguments, "-o", str(path)]) == 0, capsys.readouterr().err
    capsys.readouterr()
    return str(path)


def test_a_trace_gives_its_counts_to_the_dump(tmp_path: Path, capsys: Capture) -> None:
    launch = ("-k", "vector_add", "--grid", "4", "--block", "256", "--arg", "3=1000")
    trace = written(tmp_path, capsys, REPORT16, *launch)
    direct = report_of(capsys, REPORT16, "-k", "#16", *launch[2:])
    beside = report_of(capsys, REPORT16, "-k", "#16", "--trace", trace)
    assert direct["name"] == beside["name"] == "vector_add"
    assert counts(beside)["provenance"] == beside["traffic"].pop("read_provenance") == "traced"
    assert beside["traffic"].pop("written_provenance") == "traced"
    assert direct["traffic"].pop("read_provenance") == direct["traffic"].pop("written_provenance") == "exact"
    for key in ("traffic", "mix", "registers", "instructions"):
        assert direct[key] == beside[key]
    assert counts(direct)["executed_warp_instructions"] == counts(beside)["executed_warp_instructions"]


def test_names_may_be_mangled_or_not(tmp_path: Path, capsys: Capture) -> None:
    dump = tmp_path / "add.sass"
    text = Path(VECTOR_ADD).read_text()
    lines = dict.fromkeys(re.findall(r"^([0-9a-f]{4}) \S+ \d (?:R\d+ )?([A-Z0-9.]+)", text, re.M))
    listed = "".join(f"        /*{at}*/   {with_operands(name)} ;\n" for at, name in sorted(lines))
    dump.write_text(f"\tcode for sm_80\n\t\tFunction : _Z9vectorAddPKdS0_Pdi\n{listed}")
    for name in ("vectorAdd(double const*, double const*, double*, int)", "vectorAdd"):
        trace = tmp_path / "named.traceg"
        trace.write_text(text.replace("_Z9vectorAddPKdS0_Pdi", name))
        kernel = report_of(capsys, str(dump), "--trace", str(trace))
        assert counts(kernel)["provenance"] == "traced"


def with_operands(name: str) -> str:
    if name == "EXIT":
        return name
    return f"{name} [R2.64], R4" if name.startswith("ST") else f"{name} R4, [R2.64]" if "LD" in name else name


def fails(capsys: Capture, *arguments: str) -> str:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    return error


def test_a_trace_that_fits_no_kernel_is_refused(tmp_path: Path, capsys: Capture) -> None:
    error = fails(capsys, "analyze", REPORT16, "--trace", VECTOR_ADD)
    assert "the trace is of _Z9vectorAddPKdS0_Pdi, which is not in the input" in error
    assert "the input has: shared_bank_conflict" in error
    trace = written(tmp_path, capsys, REPORT16, "-k", "saxpy", "--grid", "1", "--block", "32")
    other = str(TRACES / "cuda" / "sm_90" / "report16.sass")
    assert "traced was sm_80 code, saxpy is here for sm_90" in fails(
        capsys, "analyze", other, "--trace", trace
    )
    Path(trace).write_text(Path(trace).read_text().replace("= saxpy", "= vector_add"))
    assert "does not fit vector_add" in fails(capsys, "analyze", REPORT16, "--trace", trace)


# ---- warplens trace ------------------------------------------------------------------------------


def test_a_part_of_the_grid(tmp_path: Path, capsys: Capture) -> None:
    launch = ("-k", "#16", "--grid", "8", "--block", "64", "--arg", "3=512")
    trace = written(tmp_path, capsys, REPORT16, *launch, "--ctas", "2")
    kernel = report_of(capsys, REPORT16, "-k", "#16", "--trace", trace)
    assert counts(kernel)["provenance"] == "assumed"
    assert counts(kernel)["looked_at_ctas"] == 2
    assert "2 of 8 thread blocks were traced" in str(counts(kernel)["assumptions"])
    direct = report_of(capsys, REPORT16, *launch)
    assert counts(direct)["executed_warp_instructions"] == counts(kernel)["executed_warp_instructions"]


def test_to_standard_output_and_what_it_rests_on(capsys: Capture) -> None:
    assert run(["trace", REPORT16, "-k", "#16", "--grid", "1", "--block", "32"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("-kernel name = vector_add\n")
    assert captured.out.endswith("#END_TB\n")
    assert captured.err.startswith("rests on: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((REPORT16, "-k", "matmul*"), "a trace is of one kernel, 2 fit: matmul_"),
        ((REPORT16, "-k", "#16"), "give --grid and --block"),
        ((REPORT16, "--grid", "1", "--block", "32"), "choose with -k NAME"),
        ((REPORT16, "-k", "nothing"), "no kernel fits nothing"),
        ((VECTOR_ADD, "--grid", "1", "--block", "32"), "was read from a trace"),
        ((REPORT16, "-k", "#16", "--grid", "1", "--block", "32", "-o", "/nowhere/x"), "cannot write"),
        ((REPORT16, "-k", "#16", "--grid", "10000000", "--block", "32"), "--ctas N records"),
    ],
)
def test_wrong_uses_are_one_message(capsys: Capture, arguments: tuple[str, ...], says: str) -> None:
    assert says in fails(capsys, "trace", *arguments)


def test_guesses_are_named() -> None:
    """Trips that nobody knows are assumed, and the notes say so."""
    program = load(REPORT16)
    launch = Launch(grid=Dim3(1), block=Dim3(32), arguments=(Argument(0, Pointer()),))
    found = trace_kernel([program], Options(kernels=("matmul_naive",), launch=launch))
    assert any(note.startswith("branch at ") for note in found.assumptions)
