"""Validation of operator models: a table of measured operators, predicted by every model."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
from msgspec.structs import replace

from analyzer.evaluation.ceilings import list_underperforming
from analyzer.evaluation.validation_report import CaseFilters, make_validation_report
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.calibration import Calibration
from analyzer.models.registry import OPERATOR_MODELS, list_models
from analyzer.operators.operator_rows import read_operator_rows
from analyzer.pipeline.operator_prediction import OperatorAnswers, OperatorOptions, predict_batches
from analyzer.report.validation_schema import CaseEntry, CasePrediction, ValidationReport
from analyzer.text.csv_table import CsvTable
from analyzer.text.errors import InputError

_MEASURED_COLUMN = "time_us"
_HINT = "a table of operators has columns operator, gpu, dtype, the operator's own, and time_us"
_COMMON_COLUMNS = frozenset({"operator", "gpu", "dtype", "suite", "case", "split", "counted", "note"})


def validate_operators(
    table: CsvTable,
    models: Sequence[str],
    filters: CaseFilters | None,
    worst: int,
    calibration: Calibration | None = None,
) -> ValidationReport:
    """Compare models of operators with measured times; suites are the table's, else the operators.

    models: names, all where empty. Raises InputError, HardwareError or UsageError.
    """
    table.check_columns(("operator", "gpu", _MEASURED_COLUMN), _HINT)
    names = tuple(dict.fromkeys(models)) or list_models(OPERATOR_MODELS)
    rows = _Rows(table)
    kept = rows.select(filters or CaseFilters())
    found = read_operator_rows(table.columns, [table.rows[i][1] for i in kept])
    options = OperatorOptions(calibration=calibration)
    answers = [predict_batches(found, model=name, options=options) for name in names]
    if not kept or not any(np.isfinite(each.time_us).any() for each in answers):
        reason = next((reason for each in answers for reason in each.reasons if reason), "it has no rows")
        raise InputError(f"{table.name}: no row can be answered: {reason}", hint=_HINT)
    entries = tuple(rows.make_entry(place, i, answers) for place, i in enumerate(kept))
    report = make_validation_report(table.name, entries, names, filters, worst)
    return replace(report, underperforming=list_underperforming(found, entries))


class _Rows:
    """Fields of a table by column."""

    def __init__(self, table: CsvTable) -> None:
        self._table = table
        self._places = {name: i for i, name in enumerate(table.columns)}

    def find(self, i: int, column: str) -> str:
        """Return a field, empty where there is none."""
        place, fields = self._places.get(column, -1), self._table.rows[i][1]
        return fields[place].strip() if 0 <= place < len(fields) else ""

    def select(self, filters: CaseFilters) -> list[int]:
        """Return the rows that the filters leave. Raises HardwareError for an unknown GPU."""
        keys = {load_gpu(name).key for name in filters.gpus}
        return [
            i
            for i in range(len(self._table.rows))
            if (filters.split is None or self.find(i, "split") == filters.split)
            and (not filters.suites or any(fnmatchcase(self._find_suite(i), g) for g in filters.suites))
            and (not keys or load_gpu(self.find(i, "gpu")).key in keys)
        ]

    def _find_suite(self, i: int) -> str:
        return self.find(i, "suite") or self.find(i, "operator")

    def make_entry(self, place: int, i: int, answers: Sequence[OperatorAnswers]) -> CaseEntry:
        """Return a row with its predictions. Raises InputError for a time that is none."""
        measured_us = self._table.read_positive(i, _MEASURED_COLUMN, "microseconds")
        gpu = next((each.gpus[place] for each in answers if each.gpus[place]), None)
        shape = " ".join(
            f"{name}={self.find(i, name)}"
            for name in self._table.columns
            if name not in _COMMON_COLUMNS and name != _MEASURED_COLUMN and self.find(i, name)
        )
        predictions = tuple(
            _make_prediction(each, place, measured_us) for each in answers if not each.reasons[place]
        )
        return CaseEntry(
            case=self.find(i, "case") or str(i + 1),
            line=self._table.rows[i][0],
            suite=self._find_suite(i),
            dump="",
            kernel=f"{self.find(i, 'operator')} {self.find(i, 'dtype')} {shape}",
            gpu=gpu.key if gpu else self.find(i, "gpu"),
            gpu_name=gpu.name if gpu else self.find(i, "gpu"),
            grid=(0, 0, 0),
            block=(0, 0, 0),
            split=self.find(i, "split"),
            group="",
            counted=self.find(i, "counted") != "no",
            config=shape,
            note=self.find(i, "note"),
            time_us=measured_us,
            provenance="exact",
            transferred=False,
            predictions=predictions,
            refused={each.model: each.reasons[place] for each in answers if each.reasons[place]},
        )


def _make_prediction(answers: OperatorAnswers, place: int, measured_us: float) -> CasePrediction:
    time_us = float(answers.time_us[place])
    return CasePrediction(
        model=answers.model,
        cycles=0.0,
        time_us=time_us,
        time_us_low=float(answers.low_us[place]),
        time_us_high=float(answers.high_us[place]),
        ratio=time_us / measured_us,
        bound="",
        clock_mhz=0.0,
        cpi_shares={},
    )
