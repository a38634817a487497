"""Kernels of benchmark suites on Volta, whose cycles others measured: docs/volta.md (Accel-Sim, BSD-2-Clause)."""

import pytest
from paths import TRACES

import analyzer
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, Pointer

POINTER = Pointer()


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "arguments", "cycles", "error"),
    [
        pytest.param(
            "adjust_weights",
            Dim3(1, 4096),
            Dim3(16, 16),
            (POINTER, 16, POINTER, 65536, POINTER, POINTER),
            32_578,
            0.12,
            id="rows with gaps are changed in place",
        ),
        pytest.param(
            "mri_q",
            Dim3(1024),
            Dim3(256),
            (2048, 0, *(POINTER for _ in range(5))),
            691_893,
            0.05,
            id="constants that a loop loads",
        ),
        pytest.param(
            "quasirandom",
            Dim3(128),
            Dim3(128, 3),
            (POINTER, 0, 1048576),
            80_627,
            0.05,
            id="constants under guards",
        ),
        pytest.param(
            "walsh_global",
            Dim3(8192),
            Dim3(256),
            (POINTER, POINTER, 2097152),
            120_948,
            0.05,
            id="streams",
        ),
        pytest.param("binomial", Dim3(1024), Dim3(128), (), 1_366_301, 0.16, id="floats between barriers"),
    ],
)
def test_cycles_are_near_those_measured(
    kernel: str,
    grid: Dim3,
    block: Dim3,
    arguments: tuple[ArgumentValue, ...],
    cycles: int,
    error: float,
) -> None:
    given = tuple(Argument(place, value) for place, value in enumerate(arguments))
    launch = Launch(grid=grid, block=block, dynamic_shared_bytes=0, arguments=given, clock_mhz=1417)
    options = analyzer.Options(kernels=(kernel,), launch=launch)
    dump = str(TRACES / "volta" / "sm_70" / "kernels.sass")
    (report,) = analyzer.analyze(dump, "v100-pcie", options=options).kernels
    assert report.counts.provenance == "exact"
    assert report.predictions[0].cycles == pytest.approx(cycles, rel=error)


@pytest.mark.parametrize(("rows", "columns", "measured_us"), [(9_324, 3956, 636), (7_892, 4100, 539)])
def test_rows_that_the_l2_does_not_hold_come_twice(rows: int, columns: int, measured_us: float) -> None:
    """A layer norm reads each row for its mean, and once more; those of all SMs are twice what the L2 holds.

    Times are those of PyTorch's (data/neusight), 40 us of them the host's.
    """
    given = (Argument(0, columns), Argument(1, 1e-5), *(Argument(place, POINTER) for place in range(2, 8)))
    launch = Launch(grid=Dim3(rows), block=Dim3(32, 4), dynamic_shared_bytes=24, arguments=given)
    dump = str(TRACES / "volta" / "sm_70" / "layer_norm.sass")
    (report,) = analyzer.analyze(dump, "v100-pcie", options=analyzer.Options(launch=launch)).kernels
    assert report.predictions[0].time_us == pytest.approx(measured_us - 40, rel=0.16)
