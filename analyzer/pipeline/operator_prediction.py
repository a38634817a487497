"""Operators to predicted times: rows of fields → batches → models → a report, or columns of a table."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.files import list_files
from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import ParameterSetting, with_settings
from analyzer.models.calibration import Calibration, apply_calibration
from analyzer.models.operators import ours
from analyzer.models.operators.served import predict_served
from analyzer.models.registry import OperatorPredictor, find_operator_model
from analyzer.operators.operator_rows import BatchOfRows, OperatorRows, read_operator_rows
from analyzer.report.predict_schema import OperatorPredictionEntry, PredictReport
from analyzer.text.errors import UsageError, WarplensError
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__

_COMMON_COLUMNS = ("operator", "gpu", "dtype")


class OperatorAnswers(Struct, frozen=True):
    """Times of rows by one model; NaN and a reason where a row cannot be answered."""

    model: str
    time_us: NDArray[np.float64]
    low_us: NDArray[np.float64]
    high_us: NDArray[np.float64]
    in_range: NDArray[np.bool_]
    basis: tuple[str, ...]
    reasons: tuple[str, ...]  # empty where there is an answer
    gpus: tuple[Gpu | None, ...]
    dtypes: tuple[str, ...]
    timings: tuple[str, ...]
    level_names: tuple[str, ...]  # what a calibration levels
    places: tuple[tuple[float, ...], ...]  # between which a calibration interpolates; empty where not known
    terms_us: tuple[Mapping[str, float], ...]


class OperatorOptions(Struct, frozen=True):
    """What changes the answers of all rows."""

    calibration: Calibration | None = None
    weights: Path | None = None  # a folder of `warplens learn`; what it lacks is taken from those shipped
    edits: tuple[ParameterSetting, ...] = ()  # of the GPUs' figures, as `whatif --set` has them
    explain: bool = False
    locate: bool = False  # say where rows lie, for a calibration
    served: bool = False  # as the steps of a served model meet them

    def edit_gpu(self, gpu: Gpu) -> Gpu:
        """Return a GPU with its edited figures. Raises HardwareError for a figure that it does not have."""
        return with_settings(gpu, self.edits) if self.edits else gpu


_DEFAULT_OPTIONS = OperatorOptions()


class _Answers:
    """Answers of rows, while they are made."""

    def __init__(self, model: str, n_rows: int) -> None:
        self.model = model
        self.times = np.full((3, n_rows), np.nan)
        self.in_range = np.zeros(n_rows, dtype=np.bool_)
        self.basis, self.reasons, self.dtypes = ([""] * n_rows for _ in range(3))
        self.timings, self.level_names = ([""] * n_rows for _ in range(2))
        self.gpus: list[Gpu | None] = [None] * n_rows
        self.terms: list[Mapping[str, float]] = [{}] * n_rows
        self.places: list[tuple[float, ...]] = [()] * n_rows

    def finish(self) -> OperatorAnswers:
        return OperatorAnswers(
            self.model,
            self.times[0],
            self.times[1],
            self.times[2],
            self.in_range,
            tuple(self.basis),
            tuple(self.reasons),
            tuple(self.gpus),
            tuple(self.dtypes),
            tuple(self.timings),
            tuple(self.level_names),
            tuple(self.places),
            tuple(self.terms),
        )


def predict_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    model: str = ours.NAME,
    options: OperatorOptions = _DEFAULT_OPTIONS,
    progress: ProgressCallback = ignore_progress,
) -> OperatorAnswers:
    """Return times of operators given as fields of named columns, in the order given.

    A row that cannot be answered has a reason. Raises UsageError for an unknown model.
    """
    return predict_batches(read_operator_rows(columns, rows), model=model, options=options, progress=progress)


def predict_batches(
    found: OperatorRows,
    *,
    model: str = ours.NAME,
    options: OperatorOptions = _DEFAULT_OPTIONS,
    progress: ProgressCallback = ignore_progress,
) -> OperatorAnswers:
    """Return times of rows that were read before, as several models answer the same; see `predict_rows`."""
    predict = find_operator_model(model)
    if options.served:
        _check_may_serve(model)
        predict = predict_served
    if options.weights is not None:
        _check_takes_weights(model, options.weights)
        predict = partial(predict_served if options.served else ours.predict, folder=options.weights)
    answers = _Answers(model, found.n_rows)
    for place, reason in found.problems.items():
        answers.reasons[place] = reason
    done = 0
    for part in found.batches:
        progress(done, found.n_rows, f"{part.batch.operator} on {part.gpu}")
        try:
            _answer_batch(part, predict, answers, options)
        except WarplensError as error:
            for place in part.places:
                answers.reasons[place] = error.diagnostic.message
        done += len(part.places)
    return answers.finish()


def _find_gpu(name: str) -> Gpu:
    """Return a GPU; one of the database is looked for once, a file of the user's own is read each time."""
    return load_gpu(name) if name.endswith(".toml") else _find_database_gpu(name)


@cache
def _find_database_gpu(name: str) -> Gpu:
    return load_gpu(name)


def _check_may_serve(model: str) -> None:
    if model != ours.NAME:
        raise UsageError(f"--served: model {model} knows single calls alone", hint=f"--model {ours.NAME}")


def _check_takes_weights(model: str, folder: Path) -> None:
    """Raise UsageError if a folder holds no weights, or a model reads none."""
    if model != ours.NAME:
        raise UsageError(f"--weights: model {model} reads none", hint=f"--model {ours.NAME}")
    if not list_files(folder, ".safetensors"):
        raise UsageError(f"{folder}: no weights in it", hint="write some with `warplens learn`")


def _answer_batch(
    part: BatchOfRows, predict: OperatorPredictor, answers: _Answers, options: OperatorOptions
) -> None:
    """Write the times of a batch to its places. Raises WarplensError where no time can be had."""
    gpu = options.edit_gpu(_find_gpu(part.gpu))
    found = apply_calibration(options.calibration, predict(part.batch, gpu), gpu.key)
    answers.times[:, part.places] = found.time_us, found.low_us, found.high_us
    answers.in_range[part.places] = found.in_range
    for place in part.places:
        answers.gpus[place], answers.basis[place] = gpu, found.basis
        answers.dtypes[place], answers.timings[place] = part.batch.dtype, found.timing
        answers.level_names[place] = found.level_name
    if options.locate and found.locate is not None:
        for place, coordinates in zip(part.places, found.locate().tolist(), strict=True):
            answers.places[place] = tuple(coordinates)
    if options.explain:
        for i, place in enumerate(part.places):
            answers.terms[place] = {name: float(values[i]) for name, values in found.terms_us.items()}
    for place in part.places[~np.isfinite(found.time_us)]:
        answers.reasons[place] = "the model has no finite time for these sizes"


def predict(
    operator: str,
    *,
    gpu: str | Sequence[str],
    dtype: str = "",
    model: str | Sequence[str] = ours.NAME,
    options: OperatorOptions = _DEFAULT_OPTIONS,
    **shape: float | str | Sequence[float],
) -> PredictReport:
    """Return the times of one operator on each GPU by each model.

    shape: the operator's own columns, as `warplens predict --help` names them: m=4096, n=4096, k=4096.
    A row that cannot be answered has a reason. Raises UsageError for an unknown model, HardwareError for an
    unknown GPU.
    """
    gpus = [gpu] if isinstance(gpu, str) else list(gpu)
    for name in gpus:
        load_gpu(name)
    given = {name: _format_field(value) for name, value in shape.items()}
    columns = (*_COMMON_COLUMNS, *given)
    rows = [(operator, name, dtype, *given.values()) for name in gpus]
    models = [model] if isinstance(model, str) else list(model)
    found = read_operator_rows(columns, rows)
    return make_predict_report(
        columns, rows, [predict_batches(found, model=name, options=options) for name in models]
    )


def make_predict_report(
    columns: Sequence[str], rows: Sequence[Sequence[str]], answers: Sequence[OperatorAnswers]
) -> PredictReport:
    """Return the report of rows and their answers, all models of a row one after the other."""
    entries = [
        _make_entry(columns, fields, answer, place) for place, fields in enumerate(rows) for answer in answers
    ]
    return PredictReport(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        predictions=tuple(entries),
    )


def _make_entry(
    columns: Sequence[str], fields: Sequence[str], answers: OperatorAnswers, place: int
) -> OperatorPredictionEntry:
    given = dict(zip(columns, fields, strict=False))
    gpu = answers.gpus[place]
    return OperatorPredictionEntry(
        operator=given.get("operator", ""),
        gpu=gpu.key if gpu else given.get("gpu", ""),
        gpu_name=gpu.name if gpu else "",
        dtype=answers.dtypes[place] or given.get("dtype", ""),
        shape={name: value for name, value in given.items() if name not in _COMMON_COLUMNS and value},
        model=answers.model,
        timing=answers.timings[place],
        time_us=_find_number(answers.time_us[place]),
        time_us_low=_find_number(answers.low_us[place]),
        time_us_high=_find_number(answers.high_us[place]),
        basis=answers.basis[place],
        in_range=bool(answers.in_range[place]),
        reason=answers.reasons[place],
        terms_us=answers.terms_us[place],
    )


def _find_number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _format_field(value: float | str | Sequence[float]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return f"[{', '.join(f'{each:.17g}' for each in value)}]"
    return f"{value:.17g}"
