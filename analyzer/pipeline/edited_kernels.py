"""One kernel on a GPU and on edits of it: its times there, and how they follow each figure."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import ParameterSetting, ParameterSweep
from analyzer.models.calibration import apply_to_kernel
from analyzer.models.elasticity import (
    Elasticities,
    TimePredictor,
    compute_elasticities,
    measure_resolution,
)
from analyzer.models.model_result import ModelResult
from analyzer.models.portability import is_native
from analyzer.models.registry import choose_default_model, choose_edited_gpu_model, find_model
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import PredictionEntry
from analyzer.report.kernel_entries import make_prediction_entry
from analyzer.report.whatif_entries import make_point_entry
from analyzer.report.whatif_schema import PointEntry, WhatIfKernel
from analyzer.text.demangling import demangle
from analyzer.text.errors import HardwareError

EditedGpu = tuple[tuple[ParameterSetting, ...], Gpu]


class HardwareEdits(Struct, frozen=True, kw_only=True):
    """Edits of a GPU's figures; see `combine_settings` for the points that they make."""

    settings: tuple[ParameterSetting, ...] = ()  # hold at every point
    sweeps: tuple[ParameterSweep, ...] = ()  # their values are combined with each other
    elasticity: bool = True  # also compute how time follows each figure


def evaluate_kernel(
    counted: CountedLaunch,
    base: Gpu,
    points: Sequence[EditedGpu],
    edits: HardwareEdits,
    options: Options,
    tell: Callable[[str], None],
) -> WhatIfKernel:
    """Return the entry of a kernel. Raises HardwareError where the GPU as it is does not run it."""
    model, elasticity_model = _choose_models(counted, options)
    before = _predict(counted, base, model)
    if isinstance(before, Refusal):
        raise HardwareError(before.reason, hint="choose another GPU with --gpu")
    kernel, ctas = counted.loaded.kernel, before.model_input.grid_ctas
    elasticities = Elasticities(by_key={}, resolution=0.0)
    if edits.elasticity:
        predict_time_us = _make_time_predictor(counted, elasticity_model, ctas)
        elasticities = compute_elasticities(before.model_input, predict_time_us, tell)
    resolution = elasticities.resolution if edits.elasticity and model == elasticity_model else 0.0
    if points and not resolution:
        predict_time_us = _make_time_predictor(counted, model, ctas)
        resolution = measure_resolution(before.model_input, before.prediction.time_us, predict_time_us)
    return WhatIfKernel(
        input=counted.loaded.input_path,
        name=kernel.name,
        demangled=demangle(kernel.name),
        architecture=kernel.arch,
        base=_make_prediction_entry(before, counted, base, options),
        points=tuple(
            _make_point_entry(counted, model, settings, gpu, ctas, options, tell) for settings, gpu in points
        ),
        elasticity=elasticities.by_key,
        resolution=resolution,
        elasticity_model=elasticity_model if edits.elasticity else "",
        elasticity_resolution=elasticities.resolution,
    )


def _choose_models(counted: CountedLaunch, options: Options) -> tuple[str, str]:
    """Return the model of times, by default the one of `analyze`, and the model of elasticities."""
    if options.models:
        return options.models[0], options.models[0]
    is_known = counted.launch.has_dimensions
    return choose_default_model(is_launch_known=is_known), choose_edited_gpu_model(is_launch_known=is_known)


def _make_time_predictor(counted: CountedLaunch, model: str, ctas: int) -> TimePredictor:
    def predict_time_us(gpu: Gpu) -> float | None:
        found = _predict(counted, gpu, model, ctas)
        return None if isinstance(found, Refusal) else found.prediction.time_us

    return predict_time_us


def _predict(counted: CountedLaunch, gpu: Gpu, model: str, ctas: int | None = None) -> ModelResult | Refusal:
    """Run a model on a GPU.

    ctas: those of one wave of the GPU as it is, for a grid that is not known: no edit may change the work.
    """
    model_input = bind_to_gpu(counted, gpu, assumed_ctas=ctas)
    return model_input if isinstance(model_input, Refusal) else find_model(model)(model_input)


def _make_point_entry(
    counted: CountedLaunch,
    model: str,
    settings: Sequence[ParameterSetting],
    gpu: Gpu,
    ctas: int,
    options: Options,
    tell: Callable[[str], None],
) -> PointEntry:
    tell(f"{model} at {', '.join(map(str, settings))}")
    found = _predict(counted, gpu, model, ctas)
    if isinstance(found, Refusal):
        return make_point_entry(gpu, settings, None, refused=found.reason)
    return make_point_entry(gpu, settings, _make_prediction_entry(found, counted, gpu, options))


def _make_prediction_entry(
    result: ModelResult, counted: CountedLaunch, gpu: Gpu, options: Options
) -> PredictionEntry:
    return make_prediction_entry(
        apply_to_kernel(options.calibration, result), transferred=not is_native(counted.loaded.kernel, gpu)
    )
