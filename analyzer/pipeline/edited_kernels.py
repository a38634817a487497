"""One kernel on a GPU and on edits of it: its times there, and how they follow each figure."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import ParameterSetting, ParameterSweep
from analyzer.models.elasticity import compute_elasticities, measure_resolution
from analyzer.models.figure_search import count_affordable_runs, list_expected_keys
from analyzer.models.model_result import ModelResult
from analyzer.models.portability import is_native
from analyzer.pipeline.edited_launch import EditedLaunch, predict_unedited
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal
from analyzer.pipeline.model_runs import choose_models
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import PredictionEntry
from analyzer.report.kernel_entries import make_prediction_entry
from analyzer.report.whatif_entries import judge_change, make_point_entry
from analyzer.report.whatif_schema import PointEntry, WhatIfKernel
from analyzer.text.demangling import demangle

_ELASTICITY_STEPS = 850_000  # of simulations: about twice as long as the first analysis takes
EditedGpu = tuple[tuple[ParameterSetting, ...], Gpu]


class HardwareEdits(Struct, frozen=True, kw_only=True):
    """Edits of a GPU's figures; see `combine_settings` for the points that they make."""

    settings: tuple[ParameterSetting, ...] = ()  # hold at every point
    sweeps: tuple[ParameterSweep, ...] = ()  # their values are combined with each other
    elasticity: bool = True  # also compute how time follows each figure
    follows_power: bool = (
        False  # power chooses the clock of each point; else all have that of the GPU as it is
    )


def evaluate_kernel(
    counted: CountedLaunch,
    base: Gpu,
    points: Sequence[EditedGpu],
    edits: HardwareEdits,
    options: Options,
    tell: Callable[[str], None],
) -> WhatIfKernel:
    """Return the entry of a kernel. Raises HardwareError where the GPU as it is does not run it."""
    unedited = predict_unedited(counted, base, choose_models(options, counted.launch)[0], options.calibration)
    edited = EditedLaunch(
        counted, unedited, calibration=options.calibration, follows_power=edits.follows_power, tell=tell
    )
    elasticities, resolution = None, 0.0
    if edits.elasticity:
        elasticities = compute_elasticities(
            base,
            edited.measure_change,
            count_affordable_runs(unedited, _ELASTICITY_STEPS),
            list_expected_keys(unedited),
            is_simulated=unedited.n_simulated_steps > 0,
        )
        resolution = elasticities.resolution
    elif points:
        resolution = measure_resolution(base, edited.measure_change)
    kernel, before = counted.loaded.kernel, _make_prediction_entry(unedited, edited)
    return WhatIfKernel(
        input=counted.loaded.input_path,
        name=kernel.name,
        demangled=demangle(kernel.name),
        architecture=kernel.arch,
        base=before,
        points=tuple(
            _make_point_entry(edited, settings, gpu, before.time_us, resolution) for settings, gpu in points
        ),
        elasticity=None if elasticities is None else elasticities.by_key,
        elasticity_of_others={} if elasticities is None else elasticities.of_others,
        resolution=resolution,
    )


def _make_point_entry(
    edited: EditedLaunch,
    settings: Sequence[ParameterSetting],
    gpu: Gpu,
    base_us: float,
    resolution: float,
) -> PointEntry:
    found = edited.predict(gpu)
    if isinstance(found, Refusal):
        return make_point_entry(gpu, settings, None, refused=found.reason)
    entry = _make_prediction_entry(found, edited)
    return make_point_entry(gpu, settings, entry, effect=judge_change(entry.time_us / base_us, resolution))


def _make_prediction_entry(result: ModelResult, edited: EditedLaunch) -> PredictionEntry:
    """Return the entry of a prediction, with its tail where another count of SMs may have made one."""
    gpu = result.model_input.gpu
    return make_prediction_entry(
        result,
        transferred=not is_native(edited.counted.loaded.kernel, gpu),
        measures_tail=gpu.sm_count != edited.model_input.gpu.sm_count,
    )
