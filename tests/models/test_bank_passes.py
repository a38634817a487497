"""What conflicts cost in the banks of shared memory and of the L1, on kernels that do nothing else for long.

Times of a TITAN RTX, and the clock that they speak of: docs/gemm.md (benchmark_hub, MIT). Rows of matrices on a
B300: see `count_matrix_wavefronts`.
"""

from pathlib import Path

import pytest
from paths import TRACES

import analyzer
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer

MATRIX_ROWS = Path(__file__).parents[1] / "demand" / "matrix_rows_103.txt"
SIZE = 4096
VALUES = (SIZE, SIZE, SIZE, 1.0, 0.5, Pointer(), Pointer(), Pointer())
LAUNCH = Launch(
    grid=Dim3(SIZE // 128, SIZE // 32, 1),
    block=Dim3(32, 32, 1),
    clock_mhz=1850,
    arguments=tuple(Argument(place, value) for place, value in enumerate(VALUES)),
)


def predicted_us(name: str) -> float:
    kernels = analyzer.load(str(TRACES / "gemm" / "sm_75" / f"{name}.sass"))
    (kernel,) = analyzer.analyze(kernels, gpu="titan-rtx", options=analyzer.Options(launch=LAUNCH)).kernels
    return kernel.predictions[0].time_us


@pytest.mark.parametrize(
    ("name", "measured_us"),
    [
        ("l1-4", 140_954),
        ("l1-8", 83_885),
        ("l1-16", 49_051),
        ("shared-4", 143_185),
        ("shared-8", 77_008),
        ("shared-16", 45_957),
    ],
)
def test_time_follows_passes(name: str, measured_us: float) -> None:
    assert predicted_us(name) == pytest.approx(measured_us, rel=0.1)


def matrix_cycles(pitch: int, gpu: str) -> float:
    """Of a round of two LDSM.x4 of each of eight warps."""
    rounds = 10_000
    launch = Launch(grid=Dim3(1), block=Dim3(256), arguments=(Argument(1, rounds),))
    options = analyzer.Options(launch=launch, kernels=(f"rows_{pitch}",))
    (kernel,) = analyzer.analyze(str(MATRIX_ROWS), gpu=gpu, options=options).kernels
    return kernel.predictions[0].cycles / rounds


_STARVED = 0.07  # the last of eight warps end their loops alone, see `sm.memory_resources`


@pytest.mark.parametrize(("pitch", "passes"), [(32, 8), (64, 16), (128, 32), (144, 4)])
def test_matrices_go_one_by_one(pitch: int, passes: int) -> None:
    """514 cycles were measured at 128 bytes on a B300."""
    assert matrix_cycles(pitch, "b300") == pytest.approx(16 * passes, rel=_STARVED)


@pytest.mark.parametrize(("pitch", "cycles"), [(32, 4), (64, 8), (128, 16), (144, 4)])
def test_conflicts_of_matrices_cost_half_on_geforce_blackwell(pitch: int, cycles: int) -> None:
    assert matrix_cycles(pitch, "rtx-5090") == pytest.approx(16 * cycles, rel=_STARVED)
