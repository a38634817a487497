"""Functions that kernels of the same input call are executed; where one is missing, nothing is judged."""

from pathlib import Path

import pytest

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import KernelReport
from analyzer.report.check_schema import Level, Outcome
from analyzer.report.diff_schema import Verdict

FOLDER = Path(__file__).parent / "17-callees"
GPUS = {"80": "a100", "90": "h100", "100": "b200", "120": "rtx-5090"}
N = 100
CUBINS = [(f"calls_{arch}.cubin", gpu) for arch, gpu in GPUS.items()]


def make_options(kernel: str) -> Options:
    places = {"recurses": 1}
    arguments = (parse_argument(f"{places.get(kernel, 2)}={N if kernel != 'recurses' else 8}"),)
    return Options(
        kernels=(kernel,), launch=Launch(grid=Dim3(4), block=Dim3(256), arguments=arguments), models=("sm",)
    )


def analyze(name: str, gpu: str, kernel: str) -> KernelReport:
    (report,) = analyzer.analyze(str(FOLDER / name), gpu, options=make_options(kernel)).kernels
    return report


@pytest.mark.parametrize(("name", "gpu"), [*CUBINS, ("calls_90.txt", "h100"), ("calls_90.json", "h100")])
def test_callees_are_executed(name: str, gpu: str) -> None:
    one, two = (analyze(name, gpu, kernel) for kernel in ("calls_one", "calls_two"))
    assert not one.missing_code
    assert not two.missing_code
    assert one.flops == 32 * 2 * N
    # in 1,000 of 1,024 threads: 2 n, n, 2 * 3, the product, and two sums
    assert two.flops * 32 == 1000 * (2 * N + N + 2 * 3 + 3)


@pytest.mark.parametrize(("name", "gpu"), CUBINS)
def test_counts_through_calls_are_exact(name: str, gpu: str) -> None:
    assert analyze(name, gpu, "calls_two").counts.provenance == "exact"


@pytest.mark.parametrize(("name", "gpu"), CUBINS)
def test_a_recursive_function_returns(name: str, gpu: str) -> None:
    """Of fibonacci(8) there are 67 calls, each of some 20 instructions."""
    report = analyze(name, gpu, "recurses")
    assert report.counts.provenance == "exact"
    assert 67 * 10 < report.counts.instructions_per_warp < 67 * 40


def test_device_functions_are_no_kernels_of_their_own() -> None:
    names = {kernel.name for kernel in analyzer.load(str(FOLDER / "calls_80.cubin")).kernels}
    assert names == {"calls_one", "calls_two", "recurses"}


def test_linked_code_is_no_faster_than_the_whole_unit() -> None:
    whole, linked = (analyze(name, "a100", "calls_one") for name in ("whole_80.cubin", "calls_80.cubin"))
    assert linked.predictions[0].cycles > 0.95 * whole.predictions[0].cycles


def test_nothing_is_judged_where_a_callee_is_missing() -> None:
    """Text of cuobjdump names no callee: 6,400 operations of a warp are not there."""
    report = analyze("unnamed_90.sass", "h100", "calls_one")
    assert any("does not have" in sentence for sentence in report.missing_code)
    assert report.unknowns[0].what == "code"
    found = analyzer.diff(
        str(FOLDER / "calls_90.cubin"),
        str(FOLDER / "unnamed_90.sass"),
        "h100",
        options=make_options("calls_one"),
    )
    assert [kernel.verdict for kernel in found.kernels] == [Verdict.UNCLEAR]


def test_a_gate_does_not_call_missing_code_an_improvement(tmp_path: Path) -> None:
    kernel, baseline = tmp_path / "kernel.sass", tmp_path / "baseline.json"
    for name in ("calls_90.txt", "unnamed_90.sass"):
        kernel.write_text((FOLDER / name).read_text())
        found = analyzer.check(str(kernel), gpu="h100", baseline=baseline, cache=False)
    (calls,) = (each for each in found.kernels if each.name == "calls_one")
    assert calls.outcome is Outcome.PASSED
    rules = {(each.rule, each.level) for each in found.violations if each.kernel == "calls_one"}
    assert rules == {("code-unknown", Level.WARNING)}


def test_subroutines_of_callees_are_found() -> None:
    """Three divisions, in calls of calls: each costs a call and a return more than in one unit."""
    whole, linked = (
        analyze(name, "a100", "divides") for name in ("divides_whole_80.cubin", "divides_80.cubin")
    )
    assert not linked.missing_code
    more = linked.counts.instructions_per_warp - whole.counts.instructions_per_warp
    assert 0 < more < 40
