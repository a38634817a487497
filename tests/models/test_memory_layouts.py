"""The same bytes, asked for in another order, take the same time."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from paths import TRACES

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import PredictionEntry

DUMP = Path(__file__).parents[1] / "demand" / "layouts_80.txt"
N = 1 << 25
EDGE = 512


@cache
def predicted(kernel: str, gpu: str, grid: Dim3, block: Dim3, n: int, *arguments: str) -> PredictionEntry:
    launch = Launch(grid=grid, block=block, arguments=tuple(map(parse_argument, (f"2={n}", *arguments))))
    options = Options(launch=launch, models=("sm",), kernels=(kernel,))
    (found,) = analyzer.analyze(str(DUMP), gpu, options=options).kernels
    (prediction,) = found.predictions
    return prediction


def least_us(gpu: str, n_bytes: int) -> float:
    return n_bytes / load_gpu(gpu).file.memory.bandwidth_gbps.value / 1e3


@pytest.mark.parametrize("gpu", ["a100-80gb-sxm", "rtx-a4000"])
def test_records_take_as_long_as_columns(gpu: str) -> None:
    """Three instructions share each sector of the records: one of them brings it, and all of it."""
    times = {
        kernel: predicted(kernel, gpu, Dim3(N // 256), Dim3(256), N).time_us
        for kernel in ("records", "columns")
    }
    assert times["records"] == pytest.approx(times["columns"], rel=0.1)
    assert times["records"] > least_us(gpu, 4 * N * 4)


@pytest.mark.parametrize(
    ("gpu", "edge", "block"),
    [
        ("a100-80gb-sxm", 512, Dim3(32, 8)),
        ("a100-80gb-sxm", 1024, Dim3(32, 8)),
        ("rtx-4090", 1024, Dim3(32, 8)),
        ("a100-80gb-sxm", 512, Dim3(32, 4, 2)),
    ],
)
def test_planes_of_a_cube_are_read_once(gpu: str, edge: int, block: Dim3) -> None:
    """The first waves of CTAs may read nothing, and no wave comes to the next plane: more CTAs tell."""
    grid = Dim3(edge // block.x, edge // block.y, edge // block.z)
    found = predicted("stencil", gpu, grid, block, edge)
    least = least_us(gpu, 2 * 4 * edge**3)
    assert least < found.bounds["DRAM"] / found.clock_mhz < 1.35 * least
    assert found.time_us < 1.6 * least


@pytest.mark.parametrize(
    ("gpu", "bound", "least_share"),
    [
        *(("rtx-a4000", "DRAM", 0.85), ("rtx-4090", "DRAM", 0.85)),
        *(("a100-80gb-sxm", "DRAM", 0.65), ("h100-sxm", "latency", 0.6)),
    ],
)
def test_tiles_bring_their_rims_once(gpu: str, bound: str, least_share: float) -> None:
    """Two of seven sectors hold a word of a tile's rim, of which the next tile brings the other seven.

    On an A100 and an H100 a CTA lives some 1,800 cycles, of which its slot stands empty 320 to 340 before it
    (`cta_turnover_cycles`, measured of empty CTAs): so up to a fifth of the DRAM's rate is not asked for;
    and on an H100 loads wait the longer the more is read and written.
    """
    edge = 8192
    found = predicted("tiled", gpu, Dim3(edge // 32, edge // 16), Dim3(32, 16), edge)
    assert found.bound == bound
    assert least_share < least_us(gpu, 2 * 4 * edge**2) / found.time_us < 0.93


def test_ctas_that_are_handed_out_too_slowly_are_what_binds() -> None:
    """A warp for each CTA: its loads are awaited, but more CTAs could be there."""
    n = 1 << 25
    found = predicted("columns", "a100-80gb-sxm", Dim3(n // 32), Dim3(32), n)
    assert found.bound == "launch"
    assert found.cpi_stack["launch"] > 0.5 * sum(found.cpi_stack.values())


def test_atomics_that_data_place_are_not_passed_over(tmp_path: Path) -> None:
    """Where all meet at one word they take many times as long as where nobody knows."""
    ones = tmp_path / "ones.npy"
    np.save(ones, np.ones(1 << 16, np.uint8))
    grid, block = Dim3(256), Dim3(256)
    unknown = predicted("counts", "a100-80gb-sxm", grid, block, 1 << 16)
    known = predicted("counts", "a100-80gb-sxm", grid, block, 1 << 16, f"0=@{ones}")
    told = [any("atomics" in note for note in found.assumptions) for found in (unknown, known)]
    assert told == [True, False]
    assert known.bound == "atomics"
    assert unknown.time_us_high / unknown.time_us_low > known.time_us_high / known.time_us_low


def transposed(place: tuple[str, str], *settings: str) -> PredictionEntry:
    """A naive transpose: stores go to 16 lines each."""
    gpu, arch = place
    arguments = (parse_argument("2=4096"), parse_argument("3=4096"))
    launch = Launch(grid=Dim3(256, 256), block=Dim3(16, 16), arguments=arguments)
    options = Options(launch=launch, models=("sm",), kernels=("naive_transpose",))
    report = analyzer.whatif(
        str(TRACES / "cuda" / arch / "report16.sass"),
        gpu,
        settings=settings,
        elasticity=False,
        options=options,
    )
    (found,) = report.kernels
    if not settings:
        return found.base
    (point,) = found.points
    assert point.prediction is not None
    return point.prediction


def test_lines_of_scattered_stores_do_not_count_for_more_once_again() -> None:
    """What a line of them takes at the L2 was seen with whatever stores count for there."""
    place = ("h200", "sm_90")
    found = transposed(place)
    assert found.bound == "L2"
    assert transposed(place, "l2.store_factor=x1.2").time_us < 1.1 * found.time_us


def test_scattered_stores_take_no_longer_on_a_larger_gpu() -> None:
    places = (("rtx-4070", "sm_89"), ("a100", "sm_80"), ("h200", "sm_90"))
    times = [transposed(place).time_us for place in places]
    assert times == sorted(times, reverse=True)
