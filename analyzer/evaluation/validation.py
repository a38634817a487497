"""Validation of models: a table of measured launches, predicted by every model."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from analyzer.evaluation.case_table import Case, load_case_gpu, parse_cases, read_case_table
from analyzer.evaluation.operator_validation import validate_operators
from analyzer.evaluation.result_keys import (
    CaseResult,
    digest_inputs,
    make_cache_keys,
)
from analyzer.evaluation.tasks import CaseResults, EvaluationTask, PendingCase, evaluate_task
from analyzer.evaluation.validation_report import CaseFilters, make_validation_report
from analyzer.ir.launch import Timing
from analyzer.models.calibration import Calibration
from analyzer.models.registry import find_model, list_models
from analyzer.pipeline.content_digests import digest_code
from analyzer.pipeline.entry_store import EntryStore, find_default_folder
from analyzer.report.validation_schema import CaseEntry, CasePrediction, ValidationReport
from analyzer.text.errors import InputError, UsageError
from analyzer.worker_pool import run_in_processes

N_WORST_ROWS = 10

ProgressCallback = Callable[[int, int], None]


def validate(
    table: str | Path,
    *,
    models: Sequence[str] = (),
    filters: CaseFilters | None = None,
    jobs: int | None = None,
    cache: str | Path | bool = True,
    worst: int = N_WORST_ROWS,
    timing: Timing | None = None,
    calibration: Calibration | None = None,
    progress: ProgressCallback | None = None,
) -> ValidationReport:
    """Compare models with a CSV table of measured launches (docs/validate.md has its columns).

    models: names, all where empty; the first one is the default one of the report.
    jobs: processes, as many as cores where None.
    cache: a folder, True for the user's own, False for none.
    worst: number of worst rows to list for each model.
    timing: what the times of rows are that do not say so themselves; None: launch intervals.
    calibration: levels of a GPU, of `calibrate`.
    progress: called with the number of rows done and of all rows.
    Raises InputError, HardwareError or UsageError; a row that cannot be analyzed is listed with its reason.
    A table of operators (a column `operator`) is held against the models of operators.
    """
    fields = read_case_table(Path(table))
    if "operator" in fields.columns:
        return validate_operators(fields, models, filters, worst, calibration)
    model_names = tuple(dict.fromkeys(models)) or list_models()
    for name in model_names:
        find_model(name)
    cases = (filters or CaseFilters()).select(parse_cases(Path(table), fields))
    if timing is not None:
        cases = tuple(replace(case, timing=case.timing or timing.value) for case in cases)
    if not cases:
        raise InputError(f"{table}: the table has no rows", hint="one row is one launch with a measured time")
    results = evaluate_cases(cases, model_names, jobs, prepare_cache_folder(cache), progress)
    entries = tuple(
        _make_case_entry(row_index, case, model_names, results, calibration)
        for row_index, case in enumerate(cases)
    )
    _check_any_predicted(table, entries)
    return make_validation_report(table, entries, model_names, filters, worst)


def _check_any_predicted(table: str | Path, entries: Sequence[CaseEntry]) -> None:
    """Raise InputError where no row could be analyzed."""
    if any(entry.predictions for entry in entries):
        return
    first = entries[0]
    reason = next(iter(first.refused.values()))
    raise InputError(
        f"{table}: none of {len(entries):,} rows can be analyzed; line {first.line}: {reason}",
        hint="paths in the table are from its own folder",
    )


def prepare_cache_folder(cache: str | Path | bool) -> Path | None:
    """Return the folder, if any. Raises UsageError where one that the user names cannot be made."""
    if cache is False:
        return None
    folder = find_default_folder("validate") if cache is True else Path(cache)
    if folder is None:
        return None
    try:
        EntryStore(folder, digest_code).prepare()
    except UsageError:
        if cache is True:
            return None
        raise
    return folder


def evaluate_cases(
    cases: Sequence[Case],
    models: tuple[str, ...],
    jobs: int | None,
    folder: Path | None,
    progress: ProgressCallback | None,
) -> CaseResults:
    """Return the results of all rows: those in the cache, then those that have to be computed."""
    results, pending = _look_up_results(cases, models, EntryStore(folder, digest_code))
    done = len(cases) - len(pending)
    if progress is not None:
        progress(done, len(cases))
    tasks = _make_tasks(pending, folder)
    for index, found in run_in_processes(evaluate_task, tasks, jobs or os.cpu_count() or 1):
        results |= found
        done += len(tasks[index].pending_cases)
        if progress is not None:
            progress(done, len(cases))
    return results


def _look_up_results(
    cases: Sequence[Case], models: tuple[str, ...], store: EntryStore
) -> tuple[CaseResults, tuple[PendingCase, ...]]:
    """Return the results that need no computation, and the rows that lack some."""
    results: CaseResults = {}
    pending = []
    digests: dict[Path, str] = {}
    for row_index, case in enumerate(cases):
        if case.problem:
            results |= {(row_index, model): CaseResult(reason=case.problem) for model in models}
            continue
        found = _find_cached_results(case, models, store, digests) if store.is_enabled else {}
        results |= {(row_index, model): result for model, result in found.items()}
        missing = tuple(model for model in models if model not in found)
        if missing:
            pending.append(PendingCase(row_index, case, missing))
    return results, tuple(pending)


def _find_cached_results(
    case: Case, models: tuple[str, ...], store: EntryStore, digests: dict[Path, str]
) -> dict[str, CaseResult]:
    """Return the cached results of a row by model; none where its files cannot be read."""
    try:
        if case.dump not in digests:
            digests[case.dump] = digest_inputs(case.dump)
        keys = make_cache_keys(case, models, inputs=digests[case.dump], gpu=load_case_gpu(case))
    except OSError:
        return {}
    found = ((model, store.find(key, CaseResult)) for model, key in keys.items())
    return {model: result for model, result in found if result is not None}


def _make_tasks(pending: Sequence[PendingCase], folder: Path | None) -> tuple[EvaluationTask, ...]:
    """Group rows by dump and kernel, tasks of one dump in a row so that a worker keeps it in memory."""
    dumps: dict[Path, dict[str, list[PendingCase]]] = {}
    for row in pending:
        dumps.setdefault(row.case.dump, {}).setdefault(row.case.kernel, []).append(row)
    return tuple(
        EvaluationTask(tuple(rows), folder) for kernels in dumps.values() for rows in kernels.values()
    )


def _make_case_entry(
    row_index: int,
    case: Case,
    models: Sequence[str],
    results: CaseResults,
    calibration: Calibration | None,
) -> CaseEntry:
    of_row = {model: results[row_index, model] for model in models}
    good = [(model, result) for model, result in of_row.items() if not result.reason]
    first = good[0][1] if good else CaseResult()
    gpu = load_case_gpu(case)
    return CaseEntry(
        case=case.name,
        line=case.line,
        suite=case.suite,
        dump=case.dump_text,
        kernel=first.kernel or case.kernel,
        gpu=gpu.key,
        gpu_name=gpu.name,
        grid=case.grid.sizes,
        block=case.block.sizes,
        split=case.split,
        group=case.group,
        counted=case.counted,
        config=case.config,
        note=case.note,
        time_us=case.time_us,
        provenance=first.provenance,
        transferred=first.transferred,
        predictions=tuple(
            _make_case_prediction(
                model, result, case, calibration.find_factor(model, gpu.key) if calibration else 1.0
            )
            for model, result in good
        ),
        refused={model: result.reason for model, result in of_row.items() if result.reason},
    )


def _make_case_prediction(model: str, result: CaseResult, case: Case, factor: float) -> CasePrediction:
    """Return a prediction whose times are multiplied by the level of the GPU."""
    return CasePrediction(
        model=model,
        cycles=result.cycles,
        time_us=result.time_us * factor,
        time_us_low=result.time_us_low * factor,
        time_us_high=result.time_us_high * factor,
        ratio=result.time_us * factor / case.time_us,
        bound=result.bound,
        clock_mhz=result.clock_mhz,
        cpi_shares=result.cpi_shares,
    )
