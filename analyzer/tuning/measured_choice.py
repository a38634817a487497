"""A choice that takes over what has been measured of an input.

Measured times stand, each with its own configuration. A macro configuration that was not measured keeps its
prediction, times the geometric mean of measured over predicted among those that were: a tuner that measures
the first of the ranking and asks again moves on as soon as the next one is predicted to be faster.

Example: 10 us are predicted for A and 11 us for B. A is measured at 14 us: B is expected at 15.4 us, and A
stays. B is measured at 12 us all the same: B is chosen.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from analyzer.text.errors import UsageError
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.samples import Samples


class MeasuredChoice(Struct, frozen=True):
    """The configuration of one input."""

    config: Mapping[str, int]
    time_us: float
    is_measured: bool  # else predicted, levelled by what was measured
    n_measured: int  # configurations of this input that were measured


def choose_with_samples(
    chooser: Chooser, samples: Sequence[Samples] | None, shape: Sequence[int]
) -> MeasuredChoice:
    """Return the choice for one input, in the order of the kernel's inputs.

    samples: measured rows, None for no file; those of other inputs are passed over. Raises UsageError where
    none is of the artifact's kernel and GPU.
    """
    times_us = {} if samples is None else _take_medians(_find_samples(chooser, samples), shape)
    ranked = chooser.rank(shape)
    configs = [
        chooser.get_config(int(macro), int(micro))
        for macro, micro in zip(ranked.macro_ids, ranked.micro_ids, strict=True)
    ]
    n_macro = len(chooser.space.macro_parameters)
    predicted_us = {
        tuple(config.values())[:n_macro]: float(time_us)
        for config, time_us in zip(configs, ranked.time_us, strict=True)
    }
    candidates = [
        (time_us, True, dict(zip(configs[0], values, strict=True))) for values, time_us in times_us.items()
    ]
    level = _compute_level(times_us, predicted_us, n_macro)
    measured_macros = {values[:n_macro] for values in times_us}
    candidates += [
        (predicted_us[macro] * level, False, config)
        for config in configs
        if (macro := tuple(config.values())[:n_macro]) not in measured_macros
    ]
    time_us, is_measured, config = min(candidates, key=lambda each: each[0])
    return MeasuredChoice(config, time_us, is_measured, len(times_us))


def _find_samples(chooser: Chooser, samples: Sequence[Samples]) -> Samples:
    """Return the rows of the artifact's kernel and GPU. Raises UsageError where there is none."""
    found = chooser.artifact.description
    for each in samples:
        if (each.space.name, each.gpu) == (found.kernel, found.gpu):
            return each
    raise UsageError(
        f"--measured has no row of {found.kernel} on {found.gpu}",
        hint=f"it has {', '.join(f'{each.space.name} on {each.gpu}' for each in samples)}",
    )


def _take_medians(rows: Samples, shape: Sequence[int]) -> dict[tuple[int, ...], float]:
    """Return the median time of each configuration that was measured with an input."""
    of_shape = rows.select((rows.shapes == np.array(shape)).all(axis=1) & np.isfinite(rows.time_us))
    times: dict[tuple[int, ...], list[float]] = {}
    for macro, micro, time_us in zip(of_shape.macros, of_shape.micros, of_shape.time_us, strict=True):
        times.setdefault((*macro.tolist(), *micro.tolist()), []).append(float(time_us))
    return {values: float(np.median(several)) for values, several in times.items()}


def _compute_level(
    times_us: Mapping[tuple[int, ...], float], predicted_us: Mapping[tuple[int, ...], float], n_macro: int
) -> float:
    """Return the geometric mean of best measured over predicted time; 1 where no prediction can be held."""
    best: dict[tuple[int, ...], float] = {}
    for values, time_us in times_us.items():
        macro = values[:n_macro]
        best[macro] = min(time_us, best.get(macro, math.inf))
    ratios = [
        time_us / predicted_us[macro] for macro, time_us in best.items() if predicted_us.get(macro, 0.0) > 0.0
    ]
    return math.exp(float(np.mean(np.log(ratios)))) if ratios else 1.0
