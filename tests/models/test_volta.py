"""Kernels of benchmark suites on Volta, whose cycles others measured: docs/volta.md (Accel-Sim, BSD-2-Clause)."""

import pytest
from volta_runs import FLOATS, POINTER, STREAM, VoltaLaunch

from analyzer.ir.launch import Dim3

ADJUST = VoltaLaunch(
    "adjust_weights", Dim3(1, 4096), Dim3(16, 16), (POINTER, 16, POINTER, 65536, POINTER, POINTER)
)
WAVES = VoltaLaunch("mri_q", Dim3(1024), Dim3(256), (2048, 0, *(POINTER for _ in range(5))))
NUMBERS = VoltaLaunch("quasirandom", Dim3(128), Dim3(128, 3), (POINTER, 0, 1048576))


@pytest.mark.parametrize(
    ("run", "cycles", "error"),
    [
        pytest.param(ADJUST, 32_578, 0.12, id="rows with gaps are changed in place"),
        pytest.param(WAVES, 691_893, 0.05, id="constants that a loop loads"),
        pytest.param(NUMBERS, 80_627, 0.05, id="constants under guards"),
        pytest.param(STREAM, 120_948, 0.05, id="streams"),
        pytest.param(FLOATS, 1_366_301, 0.16, id="floats between barriers"),
    ],
)
def test_cycles_are_near_those_measured(run: VoltaLaunch, cycles: int, error: float) -> None:
    report = run.analyze_on("v100-pcie", clock_mhz=1417)
    assert report.counts.provenance == "exact"
    assert report.predictions[0].cycles == pytest.approx(cycles, rel=error)


@pytest.mark.parametrize(
    ("rows", "columns", "measured_us"), [(9_324, 3956, 636), (7_892, 4100, 539), (11_872, 3368, 632)]
)
def test_rows_that_the_l2_does_not_hold_come_twice(rows: int, columns: int, measured_us: float) -> None:
    """A layer norm reads each row for its mean, and once more; those of all SMs are twice what the L2 holds.

    Times are those of PyTorch's (sitar-lab/NeuSight @6945927, scripts/asplos/data), 40 us of them the host's.
    """
    arguments = (columns, 1e-5, *(POINTER for _ in range(6)))
    run = VoltaLaunch("layer_norm", Dim3(rows), Dim3(32, 4), arguments, dump="layer_norm", shared_bytes=24)
    assert run.analyze_on("v100-pcie").predictions[0].time_us == pytest.approx(measured_us - 40, rel=0.16)
