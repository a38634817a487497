"""One SM clock for a launch on a GPU and on edits of it.

A card's power limit chooses the clock by what the launch draws (`power.py`). At half the tensor rate a
product draws less, so its clock would rise and hide the edit. Points of a what-if therefore run at the clock
that the launch has on the GPU as it is; an edit of a clock's figure scales it by the same factor:

    1,530 MHz by the power of the GPU as it is     tensor rate x0.5: 1,530 MHz     clock x0.5: 765 MHz
"""

from msgspec.structs import replace

from analyzer.hardware.schema import HardwareParameter
from analyzer.ir.scheduling import Basis
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.models.power import find_clock_share, has_power_figures

_SOURCE = "the launch on the GPU as it is"


def hold_clock(model_input: ModelInput, base: ModelResult) -> ModelInput:
    """Return a launch on an edited GPU at the clock that it has on the GPU as it is.

    base: the result of the same launch on the GPU as it is.
    """
    factor = _find_unlimited_clock_mhz(model_input) / _find_unlimited_clock_mhz(base.model_input)
    if model_input.clock_mhz is not None:
        return replace(model_input, clock_mhz=model_input.clock_mhz * factor)
    clock_mhz = base.prediction.clock_mhz * factor
    clock = HardwareParameter(value=clock_mhz, basis=Basis.ASSUMED, source=_SOURCE)
    return replace(model_input, settled_clock=clock)


def _find_unlimited_clock_mhz(model_input: ModelInput) -> float:
    """Return the clock of such work by the GPU's figures: what power may lower, else the sustained clock."""
    gpu, tensor = model_input.gpu, model_input.dominant_tensor_rate
    if not has_power_figures(model_input):
        return gpu.find_clock_mhz(tensor=tensor).value
    return gpu.find_clock_mhz(tensor=None).value * find_clock_share(gpu, tensor)
