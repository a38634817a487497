"""The report of a validation from its rows, and the filters of rows."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from analyzer.evaluation.case_table import SPLITS, Case, load_case_gpu
from analyzer.evaluation.score_entries import make_group_entries, make_score_entries, make_worst_entries
from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu_database import load_gpu
from analyzer.report.validation_schema import VALIDATE_SCHEMA, CaseEntry, ValidationReport
from analyzer.text.errors import UsageError
from analyzer.version import __version__


class CaseFilters(Struct, frozen=True, kw_only=True):
    """Filters of the rows of a table; all rows where empty."""

    split: str | None = None
    suites: tuple[str, ...] = ()  # globs
    gpus: tuple[str, ...] = ()  # names

    def select(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        """Return the rows that fit. Raises HardwareError for an unknown GPU, UsageError where no row fits."""
        if self.split is not None and self.split not in SPLITS:
            raise UsageError(f"split {self.split}: no such split", hint=f"one of: {', '.join(SPLITS)}")
        keys = {load_gpu(name).key for name in self.gpus}
        found = tuple(
            case
            for case in cases
            if (self.split is None or case.split == self.split)
            and (not self.suites or any(fnmatchcase(case.suite, glob) for glob in self.suites))
            and (not keys or load_case_gpu(case).key in keys)
        )
        if cases and not found:
            suites = ", ".join(dict.fromkeys(case.suite for case in cases))
            gpus = ", ".join(dict.fromkeys(load_case_gpu(case).key for case in cases))
            raise UsageError("no row fits the filters", hint=f"suites: {suites}; GPUs: {gpus}")
        return found


def make_validation_report(
    table: str | Path,
    entries: tuple[CaseEntry, ...],
    model_names: tuple[str, ...],
    filters: CaseFilters | None,
    worst: int,
) -> ValidationReport:
    """Return the report of rows and their predictions: scores, groups, worst rows."""
    return ValidationReport(
        schema=VALIDATE_SCHEMA,
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        table=str(table),
        split=filters.split if filters else None,
        models=model_names,
        rows=len(entries),
        counted=sum(entry.counted for entry in entries),
        refused=sum(bool(entry.refused) for entry in entries),
        transferred=sum(entry.transferred for entry in entries),
        scores=make_score_entries(entries, model_names),
        groups=make_group_entries(entries, model_names),
        worst=make_worst_entries(entries, model_names, worst),
        cases=entries,
    )
