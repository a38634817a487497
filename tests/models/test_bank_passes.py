"""What conflicts cost in the banks of shared memory and of the L1, on kernels that do nothing else for long.

Times of a TITAN RTX, and the clock that they speak of: docs/gemm.md (benchmark_hub, MIT).
"""

import pytest
from paths import TRACES

import analyzer
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer

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
    assert predicted_us(name) == pytest.approx(measured_us, rel=0.09)
