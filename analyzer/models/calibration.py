"""Calibration: a few measurements on a GPU level the predictions for it.

The idea: on a GPU that taught nothing, most of a model's error is one factor for all shapes of an operator
(ACCURACY: a level of 20 to 30 %, against 5 to 10 % around it). With n measured rows of mean log ratio r, the
level is r · n / (n + variance of one row / variance of levels): few or scattered rows move it less.

    three rows, each 20 % slower than predicted, scatter 6 %, levels scatter 25 %:
    level = log 1.2 · 3 / (3 + .06² / .25²) = log 1.196

Of operators, rows near a measured one (see `operators.places`) take more of its error than of the others':
the mean of a Gaussian process with a constant (the level) and a smooth part, through the measured errors.

What remains is the interval of the model's residuals without their levels, wider by sqrt(1 + 1 / n).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import tomli
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.files import read_file
from analyzer.text.errors import InputError

if TYPE_CHECKING:  # `analyze` needs levels, and none of the operators' modules
    from analyzer.models.model_result import ModelResult
    from analyzer.models.operators.interface import OperatorPrediction
    from analyzer.operators.batches import Column

CALIBRATION_SCHEMA = "warplens/calibration/1"
_LEVEL_SPREAD = 0.25  # standard deviation of levels of GPUs that taught nothing, in log time
# Of the Gaussian process, whose length is one (the places are weighted for it): standard deviation of levels
# in log time; parts of the scatter of the measured errors that are smooth among shapes, and each row's own.
_PROCESS_LEVEL, _SMOOTH_PART, _NOISE_PART = 0.15, 0.7, 0.7
_MOST_PLACES = 200  # measured rows between which is interpolated; more of them only level
_ROWS_AT_ONCE = 20_000
_USUAL_ROW_SPREAD = 0.1
_LEAST_ROW_SPREAD = 0.03  # of one row: fewer rows cannot show less
_QUANTILE_90 = 1.2816  # of the normal distribution: both ends make 80 %
_MAX_FILE_BYTES = 1 << 20
_MOST_LOG_RATIO = 50.0  # 10^21 times
_MOST_COORDINATE = 1e100


class Level(Struct, frozen=True, forbid_unknown_fields=True):
    """The factor of one model and set of weights on a GPU."""

    model: str  # "ours-gemm-bf16", or the name of a model of kernels
    log_ratio: float  # of measured over predicted time, shrunk
    log_spread: float  # standard deviation of one row around it
    rows: int
    # of operators: where the measured rows lie, and log(measured / predicted) of each
    places: tuple[tuple[float, ...], ...] = ()
    residuals: tuple[float, ...] = ()


class Calibration(Struct, frozen=True, forbid_unknown_fields=True):
    """Levels of a GPU, as `warplens calibrate` writes them."""

    schema: str
    gpu: str  # key in the hardware database
    level: tuple[Level, ...]

    def find_factor(self, model: str, gpu: str) -> float:
        """Return the factor on the times of a model of kernels on a GPU, 1 if nothing was measured there."""
        level = self.find_level(model, gpu)
        return 1.0 if level is None else float(np.exp(level.log_ratio))

    def find_level(self, model: str, gpu: str) -> Level | None:
        """Return the level of a model and set of weights on a GPU, None if nothing was measured."""
        return next((each for each in self.level if each.model == model and gpu == self.gpu), None)


def fit_level(model: str, log_ratios: "Column") -> Level:
    """Return the level that log(measured / predicted) of a few rows shows."""
    n_rows = len(log_ratios)
    spread = _measure_spread(log_ratios)
    center = float(np.median(log_ratios)) if n_rows > 2 else float(np.mean(log_ratios))
    return Level(model, center * n_rows / (n_rows + (spread / _LEVEL_SPREAD) ** 2), spread, n_rows)


def interpolate(
    measured: NDArray[np.float64], residuals: NDArray[np.float64], places: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return log(measured / predicted) at places, from that at measured ones: a Gaussian process's mean."""
    spread = _measure_spread(residuals)
    covariance = _compute_covariance(measured, measured, spread)
    weights = np.linalg.solve(covariance + (_NOISE_PART * spread) ** 2 * np.eye(len(measured)), residuals)
    parts = [
        _compute_covariance(places[start : start + _ROWS_AT_ONCE], measured, spread) @ weights
        for start in range(0, len(places), _ROWS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _measure_spread(log_ratios: NDArray[np.float64]) -> float:
    """Return the standard deviation of rows around their level; a usual one where there is but one row."""
    spread = float(np.std(log_ratios, ddof=1)) if len(log_ratios) > 1 else _USUAL_ROW_SPREAD
    return max(spread, _LEAST_ROW_SPREAD)


def _compute_covariance(
    left: NDArray[np.float64], right: NDArray[np.float64], spread: float
) -> NDArray[np.float64]:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2.0 * left @ right.T
    smooth = np.exp(-0.5 * np.maximum(squares, 0.0))
    covariance: NDArray[np.float64] = _PROCESS_LEVEL**2 + (_SMOOTH_PART * spread) ** 2 * smooth
    return covariance


def _find_log_ratios(level: Level, found: "OperatorPrediction") -> NDArray[np.float64]:
    """Return the correction of each row: between measured ones where places are known, else the level."""
    places = found.locate() if found.locate and level.places else None
    if places is None or len(level.places[0]) != places.shape[1]:
        return np.full(len(found.time_us), level.log_ratio)
    return interpolate(np.array(level.places), np.array(level.residuals), places)


def apply_calibration(
    calibration: Calibration | None, found: "OperatorPrediction", gpu: str
) -> "OperatorPrediction":
    """Return a prediction with the level of its GPU, as it is if nothing was measured there."""
    level = calibration.find_level(found.level_name, gpu) if calibration else None
    if level is None:
        return found
    time_us = found.time_us * np.exp(_find_log_ratios(level, found))
    wider = (1.0 + 1.0 / level.rows) ** 0.5
    if found.leveled is not None:
        low, high = (wider * edge for edge in found.leveled.find(time_us))
    else:
        high = np.full(len(time_us), wider * _QUANTILE_90 * level.log_spread)
        low = -high
    basis = (
        f"{found.basis}; levelled by {level.rows} measured rows (about {np.exp(level.log_ratio):.2f} times)"
    )
    return msgspec.structs.replace(
        found,
        time_us=time_us,
        low_us=time_us * np.exp(low),
        high_us=time_us * np.exp(high),
        basis=basis,
        terms_us={**found.terms_us, "level": time_us - found.time_us} if found.terms_us else {},
    )


def apply_to_kernel(calibration: Calibration | None, result: "ModelResult") -> "ModelResult":
    """Return a model's result with its times moved by the level of its GPU; the interval moves along.

    The cycles stay: they are at the clock that the report names, and the level may be one of the clock.
    """
    prediction = result.prediction
    level = calibration.find_level(prediction.model, prediction.gpu) if calibration else None
    if calibration is None or level is None:
        return result
    factor = calibration.find_factor(prediction.model, prediction.gpu)
    moved = msgspec.structs.replace(
        prediction,
        time_us=prediction.time_us * factor,
        time_us_low=prediction.time_us_low * factor,
        time_us_high=prediction.time_us_high * factor,
        assumptions=(
            *prediction.assumptions,
            f"times {factor:.3f} by the level of {level.rows} measured rows (--calibration)",
        ),
    )
    return msgspec.structs.replace(result, prediction=moved)


def load_calibration(path: Path) -> Calibration:
    """Return a calibration from its file. Raises InputError for a file that is none."""
    hint = "write one with `warplens calibrate`"
    try:
        table = tomli.loads(read_file(path, _MAX_FILE_BYTES).decode("utf-8"))
        found = msgspec.convert(table, Calibration)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: no calibration: {reason}", hint=hint) from None
    if found.schema != CALIBRATION_SCHEMA:
        raise InputError(f"{path}: its schema is {found.schema!r}, not {CALIBRATION_SCHEMA}", hint=hint)
    for level in found.level:
        if fault := _find_fault(level):
            raise InputError(f"{path}: level {level.model!r:.80}: {fault}", hint=hint)
    return found


def _find_fault(level: Level) -> str:
    """Return what no level that was fitted has; empty where there is nothing of the kind."""
    widths = {len(place) for place in level.places}
    if len(level.places) != len(level.residuals):
        return f"{len(level.places):,} places and {len(level.residuals):,} residuals"
    if len(level.places) > _MOST_PLACES:
        return f"{len(level.places):,} places, at most {_MOST_PLACES} are kept"
    if len(widths) > 1 or 0 in widths:
        return f"its places have {' and '.join(map(str, sorted(widths)))} numbers"
    if level.rows < max(1, len(level.places)):
        return f"rows = {level.rows}"
    logs = (level.log_ratio, level.log_spread, *level.residuals)
    if level.log_spread < 0 or not all(abs(value) <= _MOST_LOG_RATIO for value in logs):
        return "a ratio or spread that no measurement has"
    if not all(abs(value) <= _MOST_COORDINATE for place in level.places for value in place):
        return "a place that is no number, or too large"
    return ""


def format_calibration(calibration: Calibration) -> str:
    """Return a calibration as TOML."""
    lines = [f'schema = "{calibration.schema}"', f'gpu = "{calibration.gpu}"']
    for level in calibration.level:
        lines += [
            "",
            "[[level]]",
            f'model = "{level.model}"',
            f"log_ratio = {level.log_ratio:.6f}  # measured / predicted: {np.exp(level.log_ratio):.3f}",
            f"log_spread = {level.log_spread:.6f}",
            f"rows = {level.rows}",
            *_format_places(level),
        ]
    return "\n".join(lines) + "\n"


def _format_places(level: Level) -> Iterator[str]:
    if level.places:
        yield "# where the measured rows lie, and log(measured / predicted) of each"
        rows = ",\n    ".join(
            "[" + ", ".join(f"{value:.5f}" for value in place) + "]" for place in level.places
        )
        yield f"places = [\n    {rows},\n]"
        yield "residuals = [" + ", ".join(f"{value:.6f}" for value in level.residuals) + "]"


def list_levels(
    models: Sequence[str], log_ratios: "Column", places: Sequence[tuple[float, ...]] = ()
) -> tuple[Level, ...]:
    """Return a level for each model and set of weights among the rows.

    places: of each row, where they are known.
    """
    names = np.array(models)
    found = []
    for name in dict.fromkeys(models):
        chosen = np.flatnonzero(names == name)
        level = fit_level(name, log_ratios[chosen])
        if places:
            kept = chosen[:_MOST_PLACES]
            level = msgspec.structs.replace(
                level, places=tuple(places[i] for i in kept), residuals=tuple(log_ratios[kept].tolist())
            )
        found.append(level)
    return tuple(found)
