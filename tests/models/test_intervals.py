"""How wide an interval is: as rows of a kernel's class were off, wider where no such kernel or GPU taught."""

import pytest
from paths import TRACES

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.interface import Stall
from analyzer.models.residuals import load_residuals
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import PredictionEntry

PRODUCT = Launch(
    grid=Dim3(128, 128),
    block=Dim3(1024),
    arguments=tuple(map(parse_argument, ("0=4096", "1=4096", "2=4096", "3=0.5", "6=3.0"))),
)
ATTENTION = Launch(
    grid=Dim3(16, 64),
    block=Dim3(256),
    arguments=tuple(map(parse_argument, ("4=2048", "5=64", "6=131072", "7=0.18"))),
)


def predicted(dump: str, gpu: str, launch: Launch) -> PredictionEntry:
    (kernel,) = analyzer.analyze(
        str(TRACES / dump), gpu, options=Options(launch=launch, models=("sm",))
    ).kernels
    (prediction,) = kernel.predictions
    return prediction


def distance_of(prediction: PredictionEntry) -> float:
    return load_residuals().kinds.measure_distance(
        {Stall(stall): cycles for stall, cycles in prediction.cpi_stack.items()}
    )


def wider(prediction: PredictionEntry) -> float:
    """Than the interval of rows of its class that taught."""
    found = load_residuals().bounds.get(prediction.bound, load_residuals().other)
    return prediction.time_us_high / prediction.time_us / max(1.0, found.high)


@pytest.mark.parametrize(("gpu", "is_taught"), [("rtx-a6000", True), ("rtx-3090", False)])
def test_a_gpu_that_taught_nothing_has_wider_intervals(gpu: str, is_taught: bool) -> None:
    found = predicted("measured/sm_86/sgemm_cuda-55d0f9e-k2-rtxa6000-4096.sass", gpu, PRODUCT)
    assert distance_of(found) < load_residuals().kinds.unlike_distance
    assert wider(found) == pytest.approx(1.0 if is_taught else load_residuals().untaught_factor)


@pytest.mark.parametrize("gpu", ["a100-40gb-pcie", "a100"])
def test_so_has_a_kernel_unlike_any_that_taught(gpu: str) -> None:
    """No measured row of the split is an attention; on another GPU as well it is no wider still."""
    found = predicted("triton/sm_80/flash_attention.sass", gpu, ATTENTION)
    assert distance_of(found) > load_residuals().kinds.unlike_distance
    assert wider(found) == pytest.approx(load_residuals().untaught_factor)


def test_distance_is_the_share_of_cycles_that_stand_elsewhere() -> None:
    kinds = load_residuals().kinds
    kind = dict(zip(kinds.stalls, kinds.hundredths[0], strict=True))
    assert kinds.measure_distance(kind) == pytest.approx(0.0, abs=0.02)
    moved = {stall: 0.8 * share for stall, share in kind.items()} | {Stall.TEX_THROTTLE: 0.2 * 100}
    assert kinds.measure_distance(moved) == pytest.approx(0.2, abs=0.02)
    assert kinds.measure_distance({Stall.TEX_THROTTLE: 1.0}) == pytest.approx(1.0, abs=0.02)
