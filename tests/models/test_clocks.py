"""Clocks of cards whose power does not suffice for FP32 work that fills their SMs."""

from dataclasses import dataclass

import pytest
from paths import TRACES

import analyzer
from analyzer.hardware.load import load_gpu
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, Pointer

POINTER = Pointer()


@dataclass(frozen=True, slots=True)
class Run:
    kernel: str
    grid: Dim3
    block: Dim3
    arguments: tuple[ArgumentValue, ...]

    def clock_mhz(self, gpu: str) -> float:
        given = tuple(Argument(place, value) for place, value in enumerate(self.arguments))
        launch = Launch(grid=self.grid, block=self.block, dynamic_shared_bytes=0, arguments=given)
        options = analyzer.Options(kernels=(self.kernel,), launch=launch)
        dump = str(TRACES / "volta" / "sm_70" / "kernels.sass")
        return analyzer.analyze(dump, gpu, options=options).kernels[0].predictions[0].clock_mhz


STREAM = Run("walsh_global", Dim3(8192), Dim3(256), (POINTER, POINTER, 2097152))
FLOATS = Run("binomial", Dim3(1024), Dim3(128), ())


def test_power_lowers_the_clock_of_floats() -> None:
    capped = load_gpu("t4").file.clock.sustained_float_mhz
    assert capped is not None
    assert FLOATS.clock_mhz("t4") == capped.value


@pytest.mark.parametrize("gpu", ["t4", "l4", "a10"])
def test_what_waits_for_memory_runs_at_boost(gpu: str) -> None:
    assert STREAM.clock_mhz(gpu) == load_gpu(gpu).file.clock.boost_mhz.value


def test_where_power_suffices_both_run_alike() -> None:
    assert FLOATS.clock_mhz("v100-pcie") == STREAM.clock_mhz("v100-pcie")
