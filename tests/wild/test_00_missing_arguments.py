"""What nobody gave is said first, and the interval covers what it can do."""

from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from analyzer import analyze
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline.options import Options
from analyzer.render.terminal import print_report
from analyzer.report.analyze_schema import KernelReport, Report

FOLDER = Path(__file__).parent / "00-missing-arguments"
LAUNCHES = {
    "transpose": ((32, 128), (32, 8)),
    "column_sums": ((8,), (256,)),
    "table_sums": ((16,), (256,)),
    "by_mode": ((256,), (256,)),
    "conflicts": ((256,), (256,)),
}
# What is unknown without arguments, what settles it, and sets of arguments whose times the interval must hold.
CASES = {
    "transpose": ("addresses", "--arg 2=N", [["2=1024"], ["2=1023"], ["2=1"]]),
    "column_sums": ("trips", "--arg 2=N", [["2=300", "3=4096"], ["2=1", "3=1"]]),
    "table_sums": ("trips", "--arg 2=fill:N", [["2=fill:4000"], ["2=fill:1"], ["2=fill:0"]]),
    "by_mode": ("branches", "--arg 2=N", [["2=0"], ["2=1"]]),
    "conflicts": ("addresses", "--arg 2=N", [["2=0"], ["2=32"]]),
}


@cache
def run(arch: int, kernel: str, arguments: tuple[str, ...] = ()) -> Report:
    grid, block = LAUNCHES[kernel]
    launch = Launch(grid=Dim3(*grid), block=Dim3(*block), arguments=tuple(map(parse_argument, arguments)))
    path = FOLDER / f"missing_{arch}.sass"
    gpu = {80: "a100", 90: "h100"}[arch]
    return analyze(str(path), gpu, options=Options(kernels=(kernel,), launch=launch))


def find_kernel(arch: int, kernel: str, arguments: tuple[str, ...] = ()) -> KernelReport:
    return run(arch, kernel, arguments).kernels[0]


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("kernel", CASES)
def test_what_nobody_gave_is_named_first(arch: int, kernel: str) -> None:
    what, option, _ = CASES[kernel]
    found = {entry.what: entry for entry in find_kernel(arch, kernel).unknowns}
    assert option in found[what].settle
    output = StringIO()
    print_report(run(arch, kernel), Console(width=200, file=output))
    lines = output.getvalue().splitlines()
    table = next(index for index, line in enumerate(lines) if line.lstrip().startswith("GPU "))
    verdict = next(index for index, line in enumerate(lines) if " unknown: give " in line)
    assert verdict < table
    assert what in lines[verdict]
    assert option in lines[verdict]


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("kernel", CASES)
def test_the_interval_holds_the_time_with_arguments(arch: int, kernel: str) -> None:
    without = find_kernel(arch, kernel).predictions[0]
    for arguments in CASES[kernel][2]:
        settled = find_kernel(arch, kernel, tuple(arguments))
        assert not settled.unknowns
        assert without.time_us_low <= settled.predictions[0].time_us <= without.time_us_high


@pytest.mark.parametrize("arch", [80, 90])
def test_counts_and_addresses_are_labelled_apart(arch: int) -> None:
    unknown, known = find_kernel(arch, "transpose"), find_kernel(arch, "transpose", ("2=1024",))
    assert (unknown.counts.provenance, unknown.counts.addresses) == ("exact", "unknown")
    assert (known.counts.provenance, known.counts.addresses) == ("exact", "exact")
    assert unknown.counts.assumed_address_share == 1.0
    assert known.counts.assumed_address_share == 0.0


@pytest.mark.parametrize("arch", [80, 90])
def test_a_known_launch_has_the_narrow_interval_of_the_model(arch: int) -> None:
    known = find_kernel(arch, "transpose", ("2=1024",)).predictions[0]
    unknown = find_kernel(arch, "transpose").predictions[0]
    assert known.time_us_high / known.time_us_low < 1.5
    assert unknown.time_us_high / unknown.time_us_low > 4
    assert any("interval covers what is unknown" in note for note in unknown.assumptions)


def test_without_a_launch_that_is_what_is_unknown() -> None:
    report = analyze(str(FOLDER / "missing_90.sass"), "h100", options=Options(kernels=("column_sums",)))
    kinds = [entry.what for entry in report.kernels[0].unknowns]
    assert kinds[:2] == ["grid", "block"]
    assert "trips" in kinds
    prediction = report.kernels[0].predictions[0]
    assert prediction.time_us_high > 100 * prediction.time_us
