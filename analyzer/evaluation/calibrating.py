"""Levels of a GPU from a few measured operators or kernels."""

from pathlib import Path

import numpy as np

from analyzer.evaluation.validation import validate
from analyzer.evaluation.validation_report import CaseFilters
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.calibration import CALIBRATION_SCHEMA, Calibration, Level, list_levels
from analyzer.pipeline.operator_prediction import OperatorAnswers, OperatorOptions, predict_rows
from analyzer.text.csv_table import CsvTable, read_csv_table
from analyzer.text.errors import InputError, UsageError

_MEASURED_COLUMN = "time_us"
_HINT = "calibrate takes predict's columns or validate's, and time_us: see docs/predict.md"


def calibrate(table: Path, gpu: str) -> Calibration:
    """Return the levels of a GPU from a table of measured operators, or of measured kernels.

    table: columns as `predict --table` takes them and `time_us`; or as `validate` takes them (`dump` ...).
    Rows of other GPUs are left out. Raises InputError for a table that shows nothing of this GPU.
    """
    found = load_gpu(gpu)
    rows = read_csv_table(table)
    if "dump" in rows.columns:
        return Calibration(CALIBRATION_SCHEMA, found.key, _level_kernels(table, found))
    rows.check_columns(("operator", _MEASURED_COLUMN), _HINT)
    return Calibration(CALIBRATION_SCHEMA, found.key, _level_operators(rows, found))


def _level_operators(table: CsvTable, gpu: Gpu) -> tuple[Level, ...]:
    """Return the levels of each set of weights. Raises InputError where there are none."""
    measured_us = np.array(
        [table.read_positive(i, _MEASURED_COLUMN, "microseconds") for i in range(len(table.rows))]
    )
    columns, rows = list(table.columns), [fields for _, fields in table.rows]
    if "gpu" not in columns:
        columns, rows = [*columns, "gpu"], [[*fields, gpu.key] for fields in rows]
    answers = predict_rows(columns, rows, options=OperatorOptions(locate=True))
    chosen = [
        i for i, answered in enumerate(answers.gpus) if answered is not None and answered.key == gpu.key
    ]
    if not chosen:
        raise _make_no_rows_error(table, gpu, answers)
    names = [answers.level_names[i] for i in chosen]
    ratios = np.log(measured_us[chosen] / answers.time_us[chosen])
    places = [answers.places[i] for i in chosen]
    return list_levels(names, ratios, places if all(places) else ())


def _make_no_rows_error(table: CsvTable, gpu: Gpu, answers: OperatorAnswers) -> InputError:
    reason = next((reason for reason in answers.reasons if reason), f"no row is of {gpu.name}")
    return InputError(f"{table.name}: no row can be used: {reason}", hint=_HINT)


def _level_kernels(table: Path, gpu: Gpu) -> tuple[Level, ...]:
    """Return the level of `sm` on the kernels of a table. Raises UsageError where none has an answer."""
    report = validate(table, models=("sm",), filters=CaseFilters(gpus=(gpu.key,)))
    ratios = [
        np.log(case.time_us / prediction.time_us)
        for case in report.cases
        for prediction in case.predictions
        if prediction.time_us
    ]
    if not ratios:
        raise UsageError(f"{table}: no kernel of {gpu.name} has an answer", hint=_HINT)
    return list_levels(["sm"] * len(ratios), np.array(ratios))
