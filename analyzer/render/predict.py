"""Predicted times of operators as a text, or as CSV with one row for each."""

import csv
import io
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from analyzer.render.number_format import format_provenance
from analyzer.render.tables import Column, ColumnFit, make_table
from analyzer.render.warnings import print_warnings
from analyzer.report.predict_schema import OperatorPredictionEntry, PredictReport

ANSWER_COLUMNS = ("time_us", "time_us_low", "time_us_high", "basis", "in_range", "reason")
_DIGITS = 6  # of a time


def print_predictions(report: PredictReport, console: Console) -> None:
    """Print a table of all predictions, what each rests on, and the terms where they were asked for."""
    models = {entry.model for entry in report.predictions}
    rows = [_make_row(place, entry, models) for place, entry in enumerate(report.predictions, start=1)]
    console.print(make_table(_make_columns(models), rows))
    for place, entry in enumerate(report.predictions, start=1):
        if entry.reason:
            console.print(Text(f"[{place}] no answer: {entry.reason}", style="red"))
        if entry.basis:
            warning = "" if entry.in_range or not entry.timing else "; outside what taught it"
            console.print(Text(f"[{place}] {entry.basis}{warning}"))
        if entry.terms_us:
            terms = "  ".join(f"{name} {value:,.2f}" for name, value in entry.terms_us.items())
            console.print(Text(f"[{place}] terms in us: {terms}"))
    print_warnings(report.warnings, console)


def _make_columns(models: set[str]) -> list[Column]:
    return [
        Column(""),
        Column("operator", ColumnFit.NO_WRAP),
        Column("sizes", ColumnFit.WRAP),
        Column("dtype", ColumnFit.NO_WRAP),
        Column("GPU", ColumnFit.WRAP),
        *([Column("model", ColumnFit.NO_WRAP)] if len(models) > 1 else []),
        Column("time"),
        Column("80 % interval", ColumnFit.NO_WRAP),
    ]


def _make_row(place: int, entry: OperatorPredictionEntry, models: set[str]) -> list[str]:
    sizes = " ".join(f"{name}={value}" for name, value in entry.shape.items())
    interval = time = "-"
    if entry.time_us is not None and entry.time_us_low is not None:
        time = format_provenance(entry.counts) + _format_time(entry.time_us)
        interval = f"at least {_format_time(entry.time_us_low)}"
        if entry.time_us_high is not None:
            interval = f"{_format_time(entry.time_us_low)} to {_format_time(entry.time_us_high)}"
    head = [entry.operator, sizes, entry.dtype, entry.gpu_name or entry.gpu]
    return [f"[{place}]", *head, *([entry.model] if len(models) > 1 else []), time, interval]


def render_predictions_csv(report: PredictReport) -> str:
    """Return one row for each prediction: its own columns, then ANSWER_COLUMNS."""
    shape_columns = list(dict.fromkeys(name for entry in report.predictions for name in entry.shape))
    columns = ["operator", "gpu", "dtype", *shape_columns, "model"]
    rows = [
        [e.operator, e.gpu, e.dtype, *(e.shape.get(name, "") for name in shape_columns), e.model]
        for e in report.predictions
    ]
    answers = [
        format_answer(e.time_us, e.time_us_low, e.time_us_high, e.basis, e.in_range, e.reason)
        for e in report.predictions
    ]
    return format_csv(columns, rows, answers)


def format_csv(
    columns: Sequence[str], rows: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]
) -> str:
    """Return a table of what was given and what was answered; a given time_us is called measured_us."""
    renames: Mapping[str, str] = {name: f"given_{name}" for name in ANSWER_COLUMNS} | {
        "time_us": "measured_us"
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(renames.get(name, name) for name in columns), *ANSWER_COLUMNS])
    n_columns = len(columns)
    for given, answer in zip(rows, answers, strict=True):
        kept = [*given[:n_columns], *[""] * (n_columns - len(given))]
        writer.writerow([*kept, *answer])
    return text.getvalue()


def format_answer(
    time_us: float | None,
    low_us: float | None,
    high_us: float | None,
    basis: str,
    in_range: bool,
    reason: str,
) -> tuple[str, ...]:
    """Return the fields of ANSWER_COLUMNS; times are empty where there is none."""
    times = ("" if value is None else f"{value:.{_DIGITS}g}" for value in (time_us, low_us, high_us))
    return (*times, basis, "true" if in_range else "false", reason)


def _format_time(time_us: float) -> str:
    """Return `4.07 us`, `412 us`, `1.23 ms`: three digits."""
    value, unit = (time_us, "us") if time_us < 999.5 else (time_us / 1e3, "ms")
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f} {unit}"
