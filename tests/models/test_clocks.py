"""Clocks of cards whose power does not suffice for FP32 work that fills their SMs."""

import pytest
from volta_runs import FLOATS, STREAM, VoltaLaunch

from analyzer.hardware.gpu_database import load_gpu


def clock_mhz(run: VoltaLaunch, gpu: str) -> float:
    return run.analyze_on(gpu).predictions[0].clock_mhz


def test_power_lowers_the_clock_of_floats() -> None:
    capped = load_gpu("t4").file.clock.sustained_float_mhz
    assert capped is not None
    assert clock_mhz(FLOATS, "t4") == capped.value


@pytest.mark.parametrize("gpu", ["t4", "l4", "a10"])
def test_what_waits_for_memory_runs_at_boost(gpu: str) -> None:
    assert clock_mhz(STREAM, gpu) == load_gpu(gpu).file.clock.boost_mhz.value


def test_where_power_suffices_both_run_alike() -> None:
    assert clock_mhz(FLOATS, "v100-pcie") == clock_mhz(STREAM, "v100-pcie")
