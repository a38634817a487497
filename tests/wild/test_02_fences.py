"""Memory fences take as long as the way of the stores before them, by scope; they drop what the L1 holds."""

from pathlib import Path

import pytest

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import PredictionEntry

FOLDER = Path(__file__).parent / "02-fences"
GPUS = {75: "t4", 80: "a100", 90: "h100", 120: "rtx-5090"}
L2_LATENCY_CYCLES = {75: 188, 80: 200, 90: 200, 120: 250}  # of none of them is it less
MODELS = ("sm", "steady", "warp", "amali", "gcom", "mdm")
N = 200


def predict(arch: int, kernel: str, model: str = "sm", n: int = N, warps: int = 1) -> PredictionEntry:
    arguments = tuple(map(parse_argument, ("0=ptr", f"1={n}")))
    launch = Launch(grid=Dim3(1), block=Dim3(32 * warps), arguments=arguments)
    options = Options(kernels=(kernel,), launch=launch, models=(model,))
    (found,) = analyzer.analyze(str(FOLDER / f"fences_{arch}.sass"), GPUS[arch], options=options).kernels
    return found.predictions[0]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_waits_at_fences(model: str) -> None:
    found = predict(80, "gpu_fence", model)
    assert found.cycles > N * 250
    assert found.cpi_stack["membar"] > 0.7 * found.cycles
    assert predict(80, "system_fence", model).cycles > 1.2 * found.cycles


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("kernel", ["gpu_fence", "release_fence"])
def test_a_fence_takes_the_way_to_the_l2(arch: int, kernel: str) -> None:
    assert predict(arch, kernel).cpi_stack["membar"] > N * (L2_LATENCY_CYCLES[arch] - 20)
    assert predict(arch, "system_fence").cycles > 1.2 * predict(arch, kernel).cycles


@pytest.mark.parametrize("arch", GPUS)
def test_a_fence_of_the_cta_is_cheap(arch: int) -> None:
    found, without = predict(arch, "block_fence"), predict(arch, "no_fence")
    assert "membar" not in found.cpi_stack
    assert found.cycles < without.cycles + 20 * N


@pytest.mark.parametrize("arch", GPUS)
def test_what_was_loaded_before_a_fence_is_loaded_again(arch: int) -> None:
    kept, dropped = (predict(arch, name) for name in ("load_block_fence", "load_release_fence"))
    assert dropped.cpi_stack["long_scoreboard"] > 3 * kept.cpi_stack["long_scoreboard"]


@pytest.mark.parametrize("arch", GPUS)
def test_release_waits_for_the_stores_of_its_own_warp_alone(arch: int) -> None:
    assert predict(arch, "load_release_fence").cpi_stack.get("membar", 0.0) == 0.0
    assert predict(arch, "load_gpu_fence").cpi_stack["membar"] > N * L2_LATENCY_CYCLES[arch] / 2


def test_warps_wait_at_their_fences_at_the_same_time() -> None:
    assert predict(80, "gpu_fence", warps=8).cycles < 1.2 * predict(80, "gpu_fence").cycles


def test_the_report_says_what_a_fence_is_taken_to_cost() -> None:
    notes = predict(80, "system_fence").assumptions
    assert any("memory fences" in note and "assumed" in note for note in notes)
