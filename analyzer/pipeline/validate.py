"""How right the models are: every row of a table of measured launches with every model."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from analyzer import __version__
from analyzer.hardware.load import load_gpu
from analyzer.models.registry import all_models, find_model
from analyzer.pipeline.validation_cache import (
    Answer,
    AnswerCache,
    answer_keys,
    default_folder,
    inputs_digest,
    prepare_folder,
)
from analyzer.pipeline.validation_cases import SPLITS, Case, gpu_of, read_cases
from analyzer.pipeline.validation_tasks import Answers, Task, Wanted, answer_task
from analyzer.report.validation import VALIDATE_SCHEMA, CaseEntry, CasePrediction, ValidationReport
from analyzer.report.validation_view import group_entries, score_entries, worst_entries
from analyzer.text.errors import InputError, UsageError

WORST_ROWS = 10

Progress = Callable[[int, int], None]


class Filters(Struct, frozen=True, kw_only=True):
    """Which rows of a table count: a split, suites by glob, GPUs by name; all where empty."""

    split: str | None = None
    suites: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    def apply(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        """The rows that fit. Raises HardwareError for an unknown GPU, UsageError where no row fits."""
        if self.split is not None and self.split not in SPLITS:
            raise UsageError(f"split {self.split}: no such split", hint=f"one of: {', '.join(SPLITS)}")
        keys = {load_gpu(name).key for name in self.gpus}
        found = tuple(
            case
            for case in cases
            if (self.split is None or case.split == self.split)
            and (not self.suites or any(fnmatchcase(case.suite, glob) for glob in self.suites))
            and (not keys or gpu_of(case).key in keys)
        )
        if cases and not found:
            suites = ", ".join(dict.fromkeys(case.suite for case in cases))
            gpus = ", ".join(dict.fromkeys(gpu_of(case).key for case in cases))
            raise UsageError("no row fits the filters", hint=f"suites: {suites}; GPUs: {gpus}")
        return found


def validate(
    table: str | Path,
    *,
    models: Sequence[str] = (),
    filters: Filters | None = None,
    jobs: int | None = None,
    cache: str | Path | bool = True,
    worst: int = WORST_ROWS,
    progress: Progress | None = None,
) -> ValidationReport:
    """Hold every model against a CSV table of measured launches (docs/validate.md has its columns).

    models: the default one first; all where empty. jobs: processes, as many as cores where None.
    cache: a folder, True for the user's own, False for none. worst: rows to list for each model.
    progress: called with rows done and rows in all.
    Raises InputError, HardwareError or UsageError; a row that cannot be analyzed is listed with its reason.
    """
    asked = tuple(dict.fromkeys(models)) or all_models()
    for name in asked:
        find_model(name)
    cases = (filters or Filters()).apply(read_cases(Path(table)))
    if not cases:
        raise InputError(f"{table}: the table has no rows", hint="one row is one launch with a measured time")
    answers = _answer(cases, asked, jobs, _cache_folder(cache), progress)
    entries = tuple(_entry(place, case, asked, answers) for place, case in enumerate(cases))
    _check_any(table, entries)
    return ValidationReport(
        schema=VALIDATE_SCHEMA,
        tool_version=__version__,
        table=str(table),
        split=filters.split if filters else None,
        models=asked,
        rows=len(entries),
        counted=sum(entry.counted for entry in entries),
        refused=sum(bool(entry.refused) for entry in entries),
        transferred=sum(entry.transferred for entry in entries),
        scores=score_entries(entries, asked),
        groups=group_entries(entries, asked),
        worst=worst_entries(entries, asked, worst),
        cases=entries,
    )


def _check_any(table: str | Path, entries: Sequence[CaseEntry]) -> None:
    """Raises InputError where nothing at all could be analyzed."""
    if any(entry.predictions for entry in entries):
        return
    first = entries[0]
    reason = next(iter(first.refused.values()))
    raise InputError(
        f"{table}: none of {len(entries):,} rows can be analyzed; line {first.line}: {reason}",
        hint="paths in the table are from its own folder",
    )


def _cache_folder(cache: str | Path | bool) -> Path | None:
    """Raises UsageError for a folder of the user's choice that cannot be made."""
    if cache is False:
        return None
    folder = default_folder() if cache is True else Path(cache)
    try:
        prepare_folder(folder)
    except UsageError:
        if cache is True:
            return None
        raise
    return folder


def _answer(
    cases: Sequence[Case],
    models: tuple[str, ...],
    jobs: int | None,
    folder: Path | None,
    progress: Progress | None,
) -> Answers:
    """What the cache holds, then what has to be worked out."""
    answers, wanted = _kept(cases, models, AnswerCache(folder))
    done = len(cases) - len(wanted)
    if progress is not None:
        progress(done, len(cases))
    for task, found in _run(_tasks(wanted, folder), jobs):
        answers |= found
        done += len(task.rows)
        if progress is not None:
            progress(done, len(cases))
    return answers


def _kept(
    cases: Sequence[Case], models: tuple[str, ...], kept: AnswerCache
) -> tuple[Answers, tuple[Wanted, ...]]:
    """Answers that are known without work, and rows that lack some."""
    answers: Answers = {}
    wanted = []
    digests: dict[Path, str] = {}
    for place, case in enumerate(cases):
        if case.problem:
            answers |= {(place, model): Answer(reason=case.problem) for model in models}
            continue
        found = _find(case, models, kept, digests) if kept.is_on else {}
        answers |= {(place, model): answer for model, answer in found.items()}
        missing = tuple(model for model in models if model not in found)
        if missing:
            wanted.append(Wanted(place, case, missing))
    return answers, tuple(wanted)


def _find(
    case: Case, models: tuple[str, ...], kept: AnswerCache, digests: dict[Path, str]
) -> dict[str, Answer]:
    """A row's answers in the cache; one whose files cannot be read has none."""
    try:
        if case.dump not in digests:
            digests[case.dump] = inputs_digest(case.dump)
        keys = answer_keys(case, models, inputs=digests[case.dump], gpu=gpu_of(case))
    except OSError:
        return {}
    found = ((model, kept.find(key)) for model, key in keys.items())
    return {model: answer for model, answer in found if answer is not None}


def _tasks(wanted: Sequence[Wanted], folder: Path | None) -> tuple[Task, ...]:
    """Rows by dump and kernel, those of one dump one after another, so that a worker finds it read."""
    dumps: dict[Path, dict[str, list[Wanted]]] = {}
    for row in wanted:
        dumps.setdefault(row.case.dump, {}).setdefault(row.case.kernel, []).append(row)
    return tuple(Task(tuple(rows), folder) for kernels in dumps.values() for rows in kernels.values())


def _run(tasks: Sequence[Task], jobs: int | None) -> Iterator[tuple[Task, Answers]]:
    """Each task with its answers as they come."""
    n_jobs = min(jobs or os.cpu_count() or 1, len(tasks))
    if n_jobs <= 1:
        yield from ((task, answer_task(task)) for task in tasks)
        return
    from concurrent.futures.process import BrokenProcessPool

    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    try:
        for place, found in pool(delayed(_in_worker)(place, task) for place, task in enumerate(tasks)):
            yield tasks[place], found
    except BrokenProcessPool:
        hint = f"memory may have run out with {n_jobs} of them: give fewer --jobs"
        raise InputError("a worker process has died", hint=hint) from None


def _in_worker(place: int, task: Task) -> tuple[int, Answers]:
    """In a process of its own, which like the command line's hardly ever has cycles to look for."""
    gc.set_threshold(100_000, 50, 1000)
    return place, answer_task(task)


def _entry(place: int, case: Case, models: Sequence[str], answers: Answers) -> CaseEntry:
    of_row = {model: answers[place, model] for model in models}
    good = [(model, answer) for model, answer in of_row.items() if not answer.reason]
    first = good[0][1] if good else Answer()
    gpu = gpu_of(case)
    return CaseEntry(
        case=case.case,
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
        predictions=tuple(_prediction(model, answer, case) for model, answer in good),
        refused={model: answer.reason for model, answer in of_row.items() if answer.reason},
    )


def _prediction(model: str, answer: Answer, case: Case) -> CasePrediction:
    return CasePrediction(
        model=model,
        cycles=answer.cycles,
        time_us=answer.time_us,
        time_us_low=answer.time_us_low,
        time_us_high=answer.time_us_high,
        ratio=answer.time_us / case.time_us,
        bound=answer.bound,
        clock_mhz=answer.clock_mhz,
        cpi_shares=answer.cpi_shares,
    )
