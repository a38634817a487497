"""Compile the kernels of a benchmark page and predict their times with the default model."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernels.build import compile_units
from kernels.compiling import CompileUnit, is_built
from kernels.recipes import TableError
from rich.console import Console

import analyzer
from analyzer.report.validation_schema import CaseEntry

_LAUNCH_COLUMNS = (
    *("case", "suite", "dump", "kernel", "gpu", "grid", "block", "cluster", "dynamic_shared_bytes"),
    *("arguments", "time_us", "l2", "clock_mhz", "timing", "counted"),
)


def compile_missing(units: Sequence[CompileUnit], jobs: int) -> None:
    """Compile what is not built yet, each unit once. Raises TableError with nvcc's message."""
    missing = [unit for unit in dict.fromkeys(units) if not is_built(unit)]
    if missing and (failures := compile_units(missing, jobs, Console(stderr=True))):
        raise TableError(failures[0].message)


def compile_rows(rows: Sequence[Mapping[str, object]], jobs: int) -> list[dict[str, object]]:
    """Compile what rows need that have a `unit`, and return the rows without it.

    Raises TableError with nvcc's message.
    """
    compile_missing([unit for row in rows if isinstance(unit := row.get("unit"), CompileUnit)], jobs)
    return [{name: value for name, value in row.items() if name != "unit"} for row in rows]


def write_table(table: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a CSV table for `warplens validate`; rows: value by column."""
    with table.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_launch_rows(table: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows of launches, which may have more columns or fewer than `warplens validate` reads."""
    write_table(table, [{column: row.get(column, "") for column in _LAUNCH_COLUMNS} for row in rows])


def predict_rows(table: Path, rows: Sequence[Mapping[str, object]], jobs: int) -> dict[str, CaseEntry]:
    """Write `rows` to `table`, validate it, and return the default model's results by case."""
    write_table(table, rows)
    return {entry.case: entry for entry in analyzer.validate(table, models=("sm",), jobs=jobs).cases}
