"""Counts are exact only where nothing but the launch decides them; arguments have their parameter's type."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import analyzer
from analyzer.cli.app import run
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.frontend.ptx_reader import PtxOptions
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.opcode import AddressSpace
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program, load

FOLDER = Path(__file__).parent / "27-not-exact"
SASS = ("not_exact_80.sass", "not_exact_90.sass")
FILES = (*SASS, "not_exact.ptx")
N_THREADS = 128
ORDERED = (
    "by_barrier",
    "own_word",
    "own_warp",
    "same_value",
    "two_phases",
    "by_pairs",
    "by_arrival",
    "counted",
    "bytes",
    "reused",
)
ORDER_OF_WARPS = (
    "neighbor",
    "one_phase",
    "late_store",
    "overwritten",
    "other_pair",
    "counting",
    "neighbor_byte",
)
SEVERAL_VALUES = ("last_writer", "two_leaders")
CORRECTED = ("quotient", "root", "clear_cut", "only_data")
LAST_BITS = ("fast_quotient", "power")


@cache
def load_program(file: str) -> Program:
    return load(str(FOLDER / file), ptx=PtxOptions(is_virtual=True))


def execute(file: str, name: str, *arguments: str, grid: int = 1) -> ExecutionProfile:
    kernel = next(
        k for k in load_program(file).kernels if k.name == name or k.name.startswith(f"_Z{len(name)}{name}")
    )
    given = tuple(parse_argument(text) for text in arguments)
    found = execute_kernel(kernel, Launch(grid=Dim3(grid), block=Dim3(N_THREADS), arguments=given))
    assert found is not None
    return found.profile


def count_stored_lanes(profile: ExecutionProfile) -> int:
    return sum(a.lanes for a in profile.accesses if a.is_store and a.space is AddressSpace.GLOBAL)


def find_origins(profile: ExecutionProfile) -> str:
    return " ".join(branch.origin for branch in profile.unknown_branches)


# ---- order of warps ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_what_barriers_order_is_exact(file: str) -> None:
    for name in ORDERED:
        assert execute(file, name, "1=3").provenance is Provenance.EXACT, name
    of_threads = sum(t % 4 + 3 for t in range(N_THREADS))
    for name in ("by_barrier", "own_word", "own_warp", "by_pairs"):
        assert count_stored_lanes(execute(file, name, "1=3")) == of_threads
    assert count_stored_lanes(execute(file, "counted", "1=3")) == N_THREADS * N_THREADS * 3 // 4


@pytest.mark.parametrize("file", FILES)
def test_what_hangs_on_the_order_of_warps_is_assumed(file: str) -> None:
    for name in ORDER_OF_WARPS:
        profile = execute(file, name, "1=3")
        assert profile.provenance is Provenance.ASSUMED, name
        origins = find_origins(profile)
        assert "the order of warps: no barrier between 0x" in origins, name
        assert "LDS" in origins, name
        assert "STS" in origins or "ATOMS" in origins, name


@pytest.mark.parametrize("file", FILES)
def test_values_in_doubt_are_computed_with(file: str) -> None:
    """All stores first, then all loads is a possible order: its trips, and not a rule's."""
    profile = execute(file, "neighbor", "1=3")
    assert count_stored_lanes(profile) == sum(t % 4 + 3 for t in range(N_THREADS))
    assert all("may have" in branch.rule for branch in profile.unknown_branches)


@pytest.mark.parametrize("file", FILES)
def test_what_the_last_of_several_stores_decides_is_assumed(file: str) -> None:
    for name in SEVERAL_VALUES:
        profile = execute(file, name, "1=3")
        assert profile.provenance is Provenance.ASSUMED, name
        assert "the order of threads: several values" in find_origins(profile), name


@pytest.mark.parametrize("file", FILES)
def test_the_value_that_an_atomic_returns_is_not_known(file: str) -> None:
    profile = execute(file, "ticket", "1=3")
    assert profile.provenance is Provenance.ASSUMED
    assert "ATOMS" in find_origins(profile)


@pytest.mark.parametrize("file", FILES)
def test_addresses_in_doubt_are_assumed(file: str) -> None:
    for name, argument, cause in (("scattered", "1=3", "order of warps"), ("places", "1=3.0", "last bits")):
        profile = execute(file, name, argument)
        stores = [a for a in profile.accesses if a.is_store and a.space is AddressSpace.GLOBAL]
        assert {a.address_provenance for a in stores} == {Provenance.ASSUMED}, name
        assert any("one of several" in note and cause in note for note in profile.assumptions), name


@pytest.mark.parametrize("file", FILES)
def test_stores_of_other_ctas_may_come_before_a_load(file: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(2 * N_THREADS, dtype=np.int32) % 5)
    argument = f"0=@{tmp_path / 'x.npy'}"
    own = execute(file, "in_place", argument, "1=3", grid=2)
    assert own.provenance is Provenance.EXACT
    assert count_stored_lanes(own) == sum(t % 5 + 3 for t in range(2 * N_THREADS))
    other = execute(file, "from_next_cta", argument, "1=3", grid=2)
    assert other.provenance is Provenance.ASSUMED
    assert "no barrier between" in find_origins(other)


# ---- approximate functions -----------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_corrected_approximations_are_exact(file: str) -> None:
    assert execute(file, "remainder_of", "1=3").provenance is Provenance.EXACT
    for name in CORRECTED:
        assert execute(file, name, "1=3.0").provenance is Provenance.EXACT, name
    trips = (np.arange(1, N_THREADS + 1, dtype=np.float32) * np.float32(10) / np.float32(3)).astype(int)
    assert count_stored_lanes(execute(file, "quotient", "1=3.0")) == trips.sum()
    roots = np.sqrt(np.arange(1, N_THREADS + 1, dtype=np.float32) * np.float32(3)).astype(int)
    assert count_stored_lanes(execute(file, "root", "1=3.0")) == roots.sum()


@pytest.mark.parametrize("file", FILES)
def test_what_hangs_on_last_bits_is_assumed(file: str) -> None:
    for name in LAST_BITS:
        profile = execute(file, name, "1=3.0")
        assert profile.provenance is Provenance.ASSUMED, name
        assert "the last bits of 0x" in find_origins(profile), name
        assert "MUFU" in find_origins(profile), name


def test_the_report_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-k", "late_store", "--gpu", "h100", "--grid", "3", "--block", "64", "--arg", "1=3"]
    assert run(["analyze", str(FOLDER / SASS[1]), *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "counts exact" not in text
    assert "depends on the order of warps: no barrier between" in text


# ---- traps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_a_trap_that_surely_runs_is_a_fault(file: str) -> None:
    for name, argument in (("trapped", "1=3"), ("late_trap", "1=200")):
        with pytest.raises(analyzer.WarplensError, match=r"would fault: warp 0 of CTA 0 runs into BPT\.TRAP"):
            execute(file, name, argument)
    for name, argument in (("trapped", "1=1000"), ("late_trap", "1=50")):
        assert execute(file, name, argument).provenance is Provenance.EXACT, name


def test_a_failed_assertion_is_a_fault() -> None:
    with pytest.raises(analyzer.WarplensError, match="would fault"):
        execute(FILES[2], "asserted", "1=3")
    assert execute(FILES[2], "asserted", "1=1000").provenance is Provenance.EXACT


# ---- types of arguments --------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_numbers_take_the_type_of_their_parameter(file: str) -> None:
    for given in (("1=5", "2=1e1"), ("1=5.0", "2=10"), ("1=0x5", "2=10.0"), ("1+0=5", "2=10")):
        profile = execute(file, "scale", *given)
        assert profile.provenance is Provenance.EXACT
        assert count_stored_lanes(profile) == N_THREADS * 15, given


def test_types_and_fields_of_structs() -> None:
    given = ("1=2", "2=1", "3=3", "4=4e0", "5=5", "6+0=6", "6+4=7.0")
    profile = execute(FILES[2], "numbers", *given)
    assert profile.provenance is Provenance.EXACT
    assert count_stored_lanes(profile) == N_THREADS * (2 + 1 + 3 + 4 + 5 + 6 + 7)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("kernel", "argument", "says"),
    [
        ("scale", "1=1e39", "does not fit"),
        ("scale", "1=ptr", "a pointer has 8"),
        ("scale", "2=1.5", "is an integer (long long), 1.5 is not"),
        ("scale", "2=nan", "is an integer (long long), nan is not"),
        ("scale", "2=inf", "is an integer (long long), inf is not"),
        ("scale", "2=1e30", "is beyond"),
        ("scale", "0=1.5", "is a pointer, 1.5 is a float"),
        ("numbers", "2=2", "is a bool"),
        ("numbers", "3=300", "is beyond"),
        ("numbers", "4=-1", "holds 0 to 4,294,967,295: -1 is beyond"),
        ("numbers", "5=40000", "holds -32,768 to 32,767: 40000 is beyond"),
    ],
)
def test_what_does_not_fit_its_type_is_refused(file: str, kernel: str, argument: str, says: str) -> None:
    with pytest.raises(analyzer.WarplensError) as caught:
        execute(file, kernel, argument)
    assert says in str(caught.value)


def test_launch_files_convert_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = {"grid": 1, "block": N_THREADS, "arguments": {"1": 5, "2": 10.0}}
    (tmp_path / "launch.json").write_text(json.dumps({"kernels": {"*scale*": launch}}))
    options = ["-k", "scale", "--gpu", "h100", "--format", "json", "--launch", str(tmp_path / "launch.json")]
    assert run(["analyze", str(FOLDER / SASS[1]), *options]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["counts"]["provenance"] == "exact"
    assert sum(block["executed_warps"] for block in kernel["counts"]["blocks"]) > 15
