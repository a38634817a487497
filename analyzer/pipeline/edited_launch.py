"""A model of one launch, asked on a GPU as it is and on edits of it: the same CTAs, the same clock.

No edit changes the work: the launch is counted once, and a grid that is not known stays as many CTAs as one
wave of the GPU as it is. The clock stays, too (see `models/held_clock.py`), unless it is to follow power.
"""

import math
from collections.abc import Callable

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.models.calibration import Calibration, apply_to_kernel
from analyzer.models.held_clock import hold_clock
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import find_model
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.text.errors import HardwareError


class EditedLaunch:
    """A model's results for a launch on edits of a GPU."""

    def __init__(
        self,
        counted: CountedLaunch,
        base: ModelResult,
        *,
        calibration: Calibration | None = None,
        follows_power: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Ask the model of a result.

        base: the result on the GPU as it is, with the level of the calibration.
        follows_power: let power choose the clock of each edited GPU.
        tell: is told how often the model ran; may be None.
        """
        self.counted, self.base, self.calibration = counted, base, calibration
        self.follows_power, self.tell, self.n_runs = follows_power, tell, 0
        self._predict_input = find_model(base.prediction.model)
        self._base_values = _read_values(self.model_input.gpu)

    @property
    def model_input(self) -> ModelInput:
        """The launch on the GPU as it is."""
        return self.base.model_input

    def predict(self, gpu: Gpu) -> ModelResult | Refusal:
        """Return the result on an edited GPU, or why the kernel does not run there.

        Where no figure has another value, it is that on the GPU as it is.
        """
        if gpu.key == self.model_input.gpu.key and _read_values(gpu) == self._base_values:
            return self.base
        bound = self.bind(gpu)
        return bound if isinstance(bound, Refusal) else self.predict_bound(bound)

    def bind(self, gpu: Gpu) -> ModelInput | Refusal:
        """Return the launch on an edited GPU, or why the kernel does not run there."""
        bound = bind_to_gpu(self.counted, gpu, assumed_ctas=self.model_input.grid_ctas)
        if isinstance(bound, Refusal) or self.follows_power:
            return bound
        return hold_clock(bound, self.base)

    def predict_bound(self, model_input: ModelInput) -> ModelResult:
        """Return the result of what `bind` returned."""
        self.n_runs += 1
        if self.tell is not None:
            self.tell(f"{self.base.prediction.model}: {self.n_runs} edited GPUs")
        return apply_to_kernel(self.calibration, self._predict_input(model_input))

    def measure_change(self, gpu: Gpu) -> float:
        """Return the change of log time on an edited GPU, endless where the kernel does not run there."""
        return self.compare(self.predict(gpu))

    def compare(self, found: ModelResult | Refusal) -> float:
        """Return the change of log time from the GPU as it is, endless for a refusal."""
        if isinstance(found, Refusal):
            return math.inf
        return math.log(found.prediction.time_us / self.base.prediction.time_us)


def _read_values(gpu: Gpu) -> dict[str, float]:
    return {key: figure.value for key, figure in collect_parameters(gpu).items()}


def predict_unedited(
    counted: CountedLaunch, gpu: Gpu, model: str, calibration: Calibration | None = None
) -> ModelResult:
    """Return a model's result on a GPU as it is. Raises HardwareError where the kernel does not run there."""
    bound = bind_to_gpu(counted, gpu)
    if isinstance(bound, Refusal):
        raise HardwareError(bound.reason, hint="choose another GPU with --gpu")
    return apply_to_kernel(calibration, find_model(model)(bound))
