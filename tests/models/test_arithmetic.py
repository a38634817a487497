"""Operations of a launch against closed forms, for families of operators (traces/cuda/arithmetic.cu)."""

from pathlib import Path

import pytest
from paths import TRACES

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import KernelReport

GPUS = {80: "a100", 90: "h100", 100: "b200"}
LANES = 32
DEPTH = 4096


def analyze(arch: int, kernel: str, block: Dim3, *arguments: str) -> KernelReport:
    """Return the report of a launch of 64 CTAs."""
    launch = Launch(grid=Dim3(64), block=block, arguments=tuple(map(parse_argument, arguments)))
    path = str(TRACES / "cuda" / f"sm_{arch}" / "arithmetic.sass")
    options = Options(launch=launch, kernels=(kernel,))
    (report,) = analyzer.analyze(path, GPUS[arch], options=options).kernels
    return report


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize(
    ("kernel", "flops", "conversions"),
    [
        ("thread_sum", 31, 0),
        ("half_add", 2, 0),
        ("half_multiply", 2, 0),
        ("half_fma", 4, 0),
        ("double_fma", 2, 0),
        ("quantize", 1, 1),
        ("dequantize", 1, 1),
        ("divide", 0, 2),  # to floating point and back: the reciprocal helps
        ("divide_wide", 0, 2),
        ("invert", 5, 1),  # the reciprocal, and two multiply-adds that round it
        ("power_row", 3 * 16 - 1, 0),
    ],
)
def test_operations_have_their_closed_form(arch: int, kernel: str, flops: int, conversions: int) -> None:
    report = analyze(arch, kernel, Dim3(256), "2=7")
    assert (report.flops, report.conversions) == (LANES * flops, LANES * conversions)


@pytest.mark.parametrize(
    ("kernel", "flops"),
    [("hfma", 2), ("bfma", 2), ("hmul", 1), ("haxpy", 2), ("hrelu", 1), ("hdot", 3), ("hscale", 2)],
)
def test_a_packed_instruction_of_one_number_counts_once(kernel: str, flops: int) -> None:
    """A comparison is no operation; the sum of the halves of a product of pairs is one."""
    path = str(Path(__file__).with_name("packed_halves_80.txt"))
    options = Options(launch=Launch(grid=Dim3(64), block=Dim3(256)), kernels=(kernel,))
    (report,) = analyzer.analyze(path, "a100", options=options).kernels
    assert (report.flops, report.conversions) == (LANES * flops, 0)


@pytest.mark.parametrize("arch", GPUS)
def test_a_product_of_converted_halves_counts_its_multiply_adds(arch: int) -> None:
    """Two conversions stand beside each; they are additions by their opcode, of two halves each."""
    report = analyze(arch, "half_product", Dim3(16, 16), "3=1024", f"4={DEPTH}")
    assert report.flops == 2 * LANES * DEPTH
    assert report.conversions == 2 * LANES * DEPTH
    speed = report.predictions[0].speed_of_light
    assert speed is not None
    (compute,) = speed.compute
    assert compute.data_type == "FP32"
    assert compute.operations == report.flops * 64 * 8


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("n", [64 * 256, 64 * 256 - 77, 100])
def test_lanes_out_of_range_compute_nothing(arch: int, n: int) -> None:
    report = analyze(arch, "axpy", Dim3(256), f"3={n}")
    assert report.flops == pytest.approx(2 * n / (64 * 8))
