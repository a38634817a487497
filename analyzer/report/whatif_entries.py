"""Figures and points of a what-if as report entries."""

from collections.abc import Iterable, Sequence

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import ParameterSetting, find_hardware_parameter, resolve_alias
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.hardware.resource_scaling import join_figure_keys
from analyzer.report.analyze_schema import Effect, PredictionEntry
from analyzer.report.whatif_schema import FigureEntry, PointEntry, WhatIfKernel
from analyzer.text.errors import HardwareError

_MIN_SAID_NOISE = 0.001  # of a time
_ROUNDING = 1e-9


def make_point_entry(
    gpu: Gpu,
    settings: Sequence[ParameterSetting],
    prediction: PredictionEntry | None,
    *,
    effect: Effect | None = None,
    refused: str = "",
) -> PointEntry:
    """Return the entry of an edited GPU with the values that the settings gave it."""
    values = {
        resolve_alias(setting.key): find_hardware_parameter(gpu, setting.key).value for setting in settings
    }
    known = collect_parameters(gpu)
    scaled = {one.key: known[one.key].value for one in gpu.scaled_figures}
    return PointEntry(set=values, prediction=prediction, refused=refused, effect=effect, scaled=scaled)


def judge_change(ratio: float, resolution: float) -> Effect:
    """Return what a time over that of the GPU as it is says: no effect where noise can make as much."""
    if abs(ratio - 1) <= max(resolution, _ROUNDING):
        return Effect.NONE
    return Effect.FASTER if ratio < 1 else Effect.SLOWER


def make_whatif_notes(
    gpus: Iterable[Gpu], kernels: Sequence[WhatIfKernel], *, follows_power: bool
) -> tuple[str, ...]:
    """Return what points and elasticities rest on: figures that follow others, the clock, the model's noise.

    follows_power: the clock of each edited GPU does.
    """
    leaders: dict[str, dict[str, None]] = {}
    for gpu in gpus:
        for one in gpu.scaled_figures:
            leaders.setdefault(one.leader, {})[one.key] = None
    notes = [f"{join_figure_keys(keys)} scaled with {leader}" for leader, keys in leaders.items()]
    if any(kernel.points or kernel.elasticity is not None for kernel in kernels):
        notes.append(_describe_clocks(kernels, follows_power=follows_power))
    resolution = max((kernel.resolution for kernel in kernels), default=0.0)
    if resolution >= _MIN_SAID_NOISE:
        notes.append(
            f"times of {kernels[0].base.model} change by up to {resolution:.1%} where figures hardly move: "
            "a change within that is no effect beyond the model's resolution"
        )
    return tuple(notes)


def _describe_clocks(kernels: Sequence[WhatIfKernel], *, follows_power: bool) -> str:
    if follows_power:
        return "power chooses the clock of each edited GPU (--follow-power)"
    clocks = sorted({f"{kernel.base.clock_mhz:,.0f} MHz" for kernel in kernels})
    clock = f"is {clocks[0]}" if len(clocks) == 1 else "of a launch is the same"
    return f"the SM clock {clock} on every edited GPU, as on the GPU as it is; an edited clock scales it"


def make_figure_entries(base: Gpu, kernels: Iterable[WhatIfKernel]) -> dict[str, FigureEntry]:
    """Return the figures that any point sets or any time follows, as the GPU has them, sorted by key."""
    keys: set[str] = set()
    for kernel in kernels:
        keys.update(kernel.elasticity or (), *(point.set for point in kernel.points))
    found = ((key, _make_figure_entry(base, key)) for key in sorted(keys))
    return {key: entry for key, entry in found if entry is not None}


def _make_figure_entry(gpu: Gpu, key: str) -> FigureEntry | None:
    try:
        figure = find_hardware_parameter(gpu, key)
    except HardwareError:
        return None
    return FigureEntry(value=figure.value, basis=figure.basis.value, source=figure.source)
