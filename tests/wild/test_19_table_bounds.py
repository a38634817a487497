"""Loops bounded by a table that nobody gave: the first line says how to fill it, and filling it settles them."""

from functools import cache
from pathlib import Path

import pytest

from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.pipeline import Options
from analyzer.pipeline.analysis import analyze
from analyzer.pipeline.loaded_program import Program, load
from analyzer.report.analyze_schema import KernelReport

FOLDER = Path(__file__).parent / "19-table-bounds"
FILLS = {"words": "fill:N", "wide": "fill:i64:N", "bytes": "fill:u8:N", "floats": "fill:f32:N"}


@cache
def dump(arch: int) -> Program:
    return load(str(FOLDER / f"bounds.sm_{arch}.sass"))


def analyzed(arch: int, name: str, *arguments: Argument) -> KernelReport:
    launch = Launch(grid=Dim3(4), block=Dim3(64), arguments=arguments)
    gpu = {75: "t4", 100: "b200"}[arch]
    return analyze(dump(arch), gpu, options=Options(kernels=(name,), launch=launch)).kernels[0]


def settle(report: KernelReport) -> dict[str, tuple[str, ...]]:
    return {entry.what: entry.settle for entry in report.unknowns}


@pytest.mark.parametrize("arch", [75, 100])
@pytest.mark.parametrize("name", FILLS)
def test_the_width_of_the_table_is_asked_for(name: str, arch: int) -> None:
    assert settle(analyzed(arch, name))["trips"] == (f"--arg 2={FILLS[name]}",)


@pytest.mark.parametrize("arch", [75, 100])
@pytest.mark.parametrize("name", FILLS)
def test_what_is_asked_for_settles_the_loop(name: str, arch: int) -> None:
    report = analyzed(arch, name, parse_argument(f"2={FILLS[name].replace('N', '37')}"))
    assert report.counts.provenance == "exact"
    assert [loop.trip_count for loop in report.loops] == [37]


@pytest.mark.parametrize("arch", [75, 100])
def test_no_number_settles_a_difference_of_two_loads(arch: int) -> None:
    assert settle(analyzed(arch, "rows"))["trips"] == ("--arg 2=@data.npy",)
