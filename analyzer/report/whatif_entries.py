"""Figures and points of a what-if as report entries."""

from collections.abc import Iterable, Sequence

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import ParameterSetting, find_hardware_parameter, resolve_alias
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.hardware.resource_scaling import join_figure_keys
from analyzer.report.analyze_schema import PredictionEntry
from analyzer.report.whatif_schema import FigureEntry, PointEntry, WhatIfKernel
from analyzer.text.errors import HardwareError

_MIN_SAID_NOISE = 0.001  # of a time


def make_point_entry(
    gpu: Gpu, settings: Sequence[ParameterSetting], prediction: PredictionEntry | None, *, refused: str = ""
) -> PointEntry:
    """Return the entry of an edited GPU with the values that the settings gave it."""
    values = {
        resolve_alias(setting.key): find_hardware_parameter(gpu, setting.key).value for setting in settings
    }
    known = collect_parameters(gpu)
    scaled = {one.key: known[one.key].value for one in gpu.scaled_figures}
    return PointEntry(set=values, prediction=prediction, refused=refused, scaled=scaled)


def make_whatif_notes(gpus: Iterable[Gpu], kernels: Sequence[WhatIfKernel]) -> tuple[str, ...]:
    """Return what points and elasticities rest on: figures that follow others, models and their noise."""
    leaders: dict[str, dict[str, None]] = {}
    for gpu in gpus:
        for one in gpu.scaled_figures:
            leaders.setdefault(one.leader, {})[one.key] = None
    notes = [f"{join_figure_keys(keys)} scaled with {leader}" for leader, keys in leaders.items()]
    models = {(kernel.base.model, kernel.elasticity_model) for kernel in kernels if kernel.elasticity_model}
    notes += [
        f"elasticities are of {other}, which is quick and has no noise (--model {model} has its own)"
        for model, other in sorted(models)
        if model != other
    ]
    noise: dict[str, float] = {}
    for kernel in kernels:
        for model, resolution in (
            (kernel.base.model, kernel.resolution),
            (kernel.elasticity_model, kernel.elasticity_resolution),
        ):
            noise[model] = max(noise.get(model, 0.0), resolution)
    notes += [
        f"times of {model} change by up to {resolution:.1%} where figures hardly move: less is noise"
        for model, resolution in noise.items()
        if resolution >= _MIN_SAID_NOISE
    ]
    return tuple(notes)


def make_figure_entries(base: Gpu, kernels: Iterable[WhatIfKernel]) -> dict[str, FigureEntry]:
    """Return the figures that any point sets or any time follows, as the GPU has them, sorted by key."""
    keys: set[str] = set()
    for kernel in kernels:
        keys.update(kernel.elasticity, *(point.set for point in kernel.points))
    found = ((key, _make_figure_entry(base, key)) for key in sorted(keys))
    return {key: entry for key, entry in found if entry is not None}


def _make_figure_entry(gpu: Gpu, key: str) -> FigureEntry | None:
    try:
        figure = find_hardware_parameter(gpu, key)
    except HardwareError:
        return None
    return FigureEntry(value=figure.value, basis=figure.basis.value, source=figure.source)
