"""Elasticity of a predicted time: how many percent it changes for one percent of a hardware figure.

e = d log time / d log figure, by central difference: the model runs with the figure multiplied and divided by
a step. -1: twice the figure halves the time; 0: the time does not depend on it.

A change from a worse to a better figure has the noise of two times: an elasticity is left out unless that
change is larger than twice the model's resolution. A simulation, which has noise, gets a larger step, so that
more changes exceed it. The longer it takes, the fewer runs it gets: what the search does not tell apart
(`figure_search`) is given by group, with the elasticity of all its figures together.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.parameter_edits import (
    find_hardware_parameter,
    list_parameter_keys,
)
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.hardware.resource_scaling import find_coupled_keys
from analyzer.hardware.resources import PerformanceDirection, find_row, iterate_rows
from analyzer.models.figure_search import CLOCK_KEY, SM_COUNT_KEY, FigureSearch, Group, improve_figures

# Returns the change of log time on an edited GPU, endless where the kernel does not run there.
ChangeMeasure = Callable[[Gpu], float]

_STEP_RATIO, _SIMULATED_STEP_RATIO = 1.05, 1.25
_SM_COUNT_STEP_RATIO = 2.0  # so large that waves of CTAs show their trend
_MIN_ELASTICITY = 0.0005
_N_LIKELY = 3  # figures that are asked for alone at once
_N_JITTER_RUNS, _FEW_RUNS = 2, 16  # of fewer runs than that one tells the noise
_MAX_NAMED_RESOURCES = 6
_MIN_NOISE = 0.003  # of log time: jitter moves the time by less where it does so smoothly
_UNREAD = ("peak.", "link.")  # printed peaks, which rates follow, and links


class Elasticities(Struct, frozen=True, kw_only=True):
    """How a time follows the figures of a GPU."""

    by_key: Mapping[str, float]  # those that the model resolves, the strongest first
    # By resources and how many of their figures: elasticity where all of them are worse, the strongest first.
    of_others: Mapping[str, float] = {}
    resolution: float  # relative change of time that can be noise of the model


def compute_elasticities(
    gpu: Gpu, measure_change: ChangeMeasure, n_runs: int, expected: Sequence[str] = (), *, is_simulated: bool
) -> Elasticities:
    """Return the elasticities that the model resolves; figures of zero have none.

    n_runs: of the model, at most. expected: figures that are likely to have one.
    is_simulated: the model simulates.
    """
    keys, step = list_relevant_keys(gpu), _SIMULATED_STEP_RATIO if is_simulated else _STEP_RATIO
    search = _make_search(gpu, measure_change, step, n_runs)
    search.measure_jitter(keys, 1 if n_runs < _FEW_RUNS else _N_JITTER_RUNS)
    if search.noise <= _MIN_NOISE:
        search.noise = 0.0
    likely = [key for key in expected if key in keys][:_N_LIKELY]
    search.run([*([key] for key in likely), [key for key in keys if key not in likely]])
    found = {
        key: change / _measure_step(gpu, key, step)
        for key, change in search.effects.items()
        if -change > 2 * search.noise
    }
    return Elasticities(
        by_key=dict(sorted(found.items(), key=lambda item: (-abs(item[1]), item[0]))),
        of_others={
            _name_group(group): loss / math.log(_widen_step(group, step)) for loss, group in search.unresolved
        },
        resolution=math.expm1(search.noise),
    )


def measure_resolution(gpu: Gpu, measure_change: ChangeMeasure) -> float:
    """Return the relative change of time that can be noise: what a thousandth of any figure changes."""
    search = _make_search(gpu, measure_change, _STEP_RATIO, _N_JITTER_RUNS)
    search.measure_jitter(list_relevant_keys(gpu), _N_JITTER_RUNS)
    return math.expm1(search.noise)


def _make_search(gpu: Gpu, measure_change: ChangeMeasure, step: float, n_runs: int) -> FigureSearch:
    def measure(group: Group, factor: float) -> float:
        return measure_change(improve_figures(gpu, group, _widen_step(group, factor)))

    return FigureSearch(measure, step, n_runs, _MIN_ELASTICITY * math.log(step))


def _widen_step(group: Sequence[str], factor: float) -> float:
    """Return the factor of a step, a larger one of the count of SMs alone."""
    wide = _SM_COUNT_STEP_RATIO if factor > 1 else 1 / _SM_COUNT_STEP_RATIO
    return wide if list(group) == [SM_COUNT_KEY] else factor


def _measure_step(gpu: Gpu, key: str, step: float) -> float:
    """Return the logarithm of a better figure over a worse one, as they could be made."""
    better, worse = (
        find_hardware_parameter(improve_figures(gpu, [key], _widen_step([key], factor)), key).value
        for factor in (step, 1 / step)
    )
    return math.log(better / worse)


def _name_group(group: Group) -> str:
    """Return the key of a single figure, else how many there are, and of what unless that is nearly all."""
    if len(group) == 1:
        return group[0]
    resources = dict.fromkeys(row.resource for row in map(find_row, group) if row is not None)
    of = f" of {', '.join(resources)}" if len(resources) <= _MAX_NAMED_RESOURCES else ""
    return f"{len(group)} other figures{of}"


def list_relevant_keys(gpu: Gpu) -> list[str]:
    """Return the figures that can matter, resource by resource: rates and costs that are not zero.

    Of figures that move together the first one represents all, and the clock what else makes it.
    """
    known, rows = collect_parameters(gpu), {row.key: row for row in iterate_rows()}
    kept: list[str] = []
    coupled: set[str] = set()
    for key in list_parameter_keys(gpu):
        # a share of one can only fall, together with what it is a share of
        is_full = key.endswith("_share") and known[key].value >= 1
        is_unread = key.startswith(_UNREAD) or (rows[key].resource == "clock" and key != CLOCK_KEY)
        is_rate = rows[key].direction is not PerformanceDirection.CAPACITY and known[key].value > 0
        if is_rate and not (is_full or is_unread or key in coupled):
            kept.append(key)
            coupled.update(find_coupled_keys(key))
    return [key for key in rows if key in kept]
