"""The default model's answers for rows of a benchmark's own, compiled where that is still to be done."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernels.build import compile_units
from kernels.compiling import CompileUnit, is_built
from kernels.recipes import TableError
from rich.console import Console

import analyzer
from analyzer.report.validation_schema import CaseEntry


def compile_missing(units: Sequence[CompileUnit], jobs: int) -> None:
    """Compile what is not built yet, each unit once. Raises TableError with what nvcc says."""
    missing = [unit for unit in dict.fromkeys(units) if not is_built(unit)]
    if missing and (failures := compile_units(missing, jobs, Console(stderr=True))):
        raise TableError(failures[0].message)


def write_table(table: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write columns of `warplens validate`."""
    with table.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def predict_rows(table: Path, rows: Sequence[Mapping[str, object]], jobs: int) -> dict[str, CaseEntry]:
    """Answers by case; rows: columns of `warplens validate`, which are written to `table`."""
    write_table(table, rows)
    return {entry.case: entry for entry in analyzer.validate(table, models=("sm",), jobs=jobs).cases}
