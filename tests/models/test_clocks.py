"""Clocks of cards whose power does not suffice for FP32 work that fills their SMs."""

import pytest
from volta_runs import FLOATS, STREAM, VoltaLaunch

from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.scheduling import TensorRate


def clock_mhz(run: VoltaLaunch, gpu: str) -> float:
    """Return the clock of a launch; all models take the same, of which this one is quick."""
    return run.analyze_on(gpu, models=("steady",)).predictions[0].clock_mhz


def test_power_lowers_the_clock_of_floats() -> None:
    boost = load_gpu("t4").file.clock.boost_mhz.value
    assert 0.5 * boost < clock_mhz(FLOATS, "t4") < 0.95 * boost


@pytest.mark.parametrize("gpu", ["t4", "l4", "a10"])
def test_what_waits_for_memory_runs_at_boost(gpu: str) -> None:
    assert clock_mhz(STREAM, gpu) == load_gpu(gpu).file.clock.boost_mhz.value


def test_where_power_suffices_both_run_alike() -> None:
    assert clock_mhz(FLOATS, "v100-pcie") == clock_mhz(STREAM, "v100-pcie")


def test_operators_take_the_clock_of_lasting_products() -> None:
    gpu = load_gpu("h100")
    clock = gpu.file.clock
    assert clock.launch_tensor_mhz is not None
    assert clock.sustained_tensor_mhz is not None
    assert gpu.find_clock_mhz(tensor=TensorRate.BF16) == clock.launch_tensor_mhz
    assert gpu.find_clock_mhz(tensor=TensorRate.BF16, lasts=True) == clock.sustained_tensor_mhz
    assert gpu.find_clock_mhz(tensor=None) == clock.boost_mhz
