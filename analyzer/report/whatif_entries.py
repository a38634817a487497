"""Figures and points of a what-if as report entries."""

from collections.abc import Iterable, Sequence

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import ParameterSetting, find_hardware_parameter, resolve_alias
from analyzer.report.analyze_schema import PredictionEntry
from analyzer.report.whatif_schema import FigureEntry, PointEntry, WhatIfKernel
from analyzer.text.errors import HardwareError


def make_point_entry(
    gpu: Gpu, settings: Sequence[ParameterSetting], prediction: PredictionEntry | None, *, refused: str = ""
) -> PointEntry:
    """Return the entry of an edited GPU with the values that the settings gave it."""
    values = {
        resolve_alias(setting.key): find_hardware_parameter(gpu, setting.key).value for setting in settings
    }
    scaled = {one.key: find_hardware_parameter(gpu, one.key).value for one in gpu.scaled_figures}
    return PointEntry(set=values, prediction=prediction, refused=refused, scaled=scaled)


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
