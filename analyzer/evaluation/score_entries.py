"""Scores, groups and worst rows of a validation as report entries."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from analyzer.evaluation.error_metrics import CaseTimes, evaluate_choice, measure_errors
from analyzer.report.validation_schema import CaseEntry, CasePrediction, GroupEntry, ScoreEntry, WorstEntry


class _PredictedCase(Struct, frozen=True):
    """A row with one model's prediction."""

    case: CaseEntry
    prediction: CasePrediction


def make_score_entries(cases: Sequence[CaseEntry], models: Sequence[str]) -> tuple[ScoreEntry, ...]:
    """Return scores by suite and GPU in the table's order, by suite on all its GPUs, and of all rows."""
    counted = [case for case in cases if case.counted]
    suites = list(dict.fromkeys(case.suite for case in counted))
    scores: list[ScoreEntry | None] = []
    for suite in suites:
        of_suite = [case for case in counted if case.suite == suite]
        gpus = list(dict.fromkeys(case.gpu for case in of_suite))
        for gpu in gpus:
            some = [case for case in of_suite if case.gpu == gpu]
            scores += [_make_score_entry(some, model, suite, gpu) for model in models]
        if len(gpus) > 1 and len(suites) > 1:
            scores += [_make_score_entry(of_suite, model, suite, None) for model in models]
    scores += [_make_score_entry(counted, model, None, None) for model in models]
    return tuple(score for score in scores if score is not None)


def _make_score_entry(
    cases: Sequence[CaseEntry], model: str, suite: str | None, gpu: str | None
) -> ScoreEntry | None:
    """Return the score of a model; None where it predicts none of the rows."""
    rows = list(_select_predicted(cases, model))
    if not rows:
        return None
    errors = measure_errors(
        CaseTimes(
            measured_us=np.array([row.case.time_us for row in rows]),
            predicted_us=np.array([row.prediction.time_us for row in rows]),
            low_us=np.array([row.prediction.time_us_low for row in rows]),
            high_us=np.array([row.prediction.time_us_high for row in rows]),
        )
    )
    losses = [group.loss for group in make_group_entries(cases, (model,))]
    return ScoreEntry(
        suite=suite,
        gpu=gpu,
        gpu_name=cases[0].gpu_name if gpu else "",
        model=model,
        rows=len(rows),
        refused=len(cases) - len(rows),
        mape=errors.mape,
        median_ape=errors.median_ape,
        p90_ape=errors.p90_ape,
        bias=errors.bias,
        spearman=errors.spearman,
        interval_coverage=errors.interval_coverage,
        groups=len(losses),
        choice_loss=sum(losses) / len(losses) if losses else None,
        worst_choice_loss=max(losses, default=None),
    )


def make_group_entries(cases: Iterable[CaseEntry], models: Sequence[str]) -> tuple[GroupEntry, ...]:
    """Return each model's choice among the counted rows of each group on a GPU; a single row is no choice."""
    groups: dict[tuple[str, str, str], list[CaseEntry]] = {}
    for case in cases:
        if case.counted and case.group:
            groups.setdefault((case.suite, case.gpu, case.group), []).append(case)
    found = []
    for key, members in groups.items():
        for model in models:
            rows = list(_select_predicted(members, model))
            if len(rows) > 1:
                found.append(_make_group_entry(key, model, rows))
    return tuple(found)


def _make_group_entry(key: tuple[str, str, str], model: str, rows: Sequence[_PredictedCase]) -> GroupEntry:
    suite, gpu, group = key
    choice = evaluate_choice([row.case.time_us for row in rows], [row.prediction.time_us for row in rows])
    return GroupEntry(
        suite=suite,
        gpu=gpu,
        group=group,
        model=model,
        rows=len(rows),
        best_case=rows[choice.best_row].case.case,
        best_time_us=rows[choice.best_row].case.time_us,
        chosen_case=rows[choice.chosen_row].case.case,
        chosen_time_us=choice.chosen_us,
        loss=choice.loss,
    )


def make_worst_entries(
    cases: Sequence[CaseEntry], models: Sequence[str], limit: int
) -> tuple[WorstEntry, ...]:
    """Return for each model the counted rows with the largest factors between prediction and measurement."""
    counted = [case for case in cases if case.counted]
    return tuple(
        _make_worst_entry(row)
        for model in models
        for row in sorted(
            _select_predicted(counted, model), key=lambda row: -abs(math.log(row.prediction.ratio))
        )[:limit]
    )


def _make_worst_entry(row: _PredictedCase) -> WorstEntry:
    case = row.case
    return WorstEntry(
        case=case.case,
        line=case.line,
        suite=case.suite,
        gpu=case.gpu,
        gpu_name=case.gpu_name,
        kernel=case.kernel,
        measured_us=case.time_us,
        provenance=case.provenance,
        prediction=row.prediction,
    )


def _select_predicted(cases: Iterable[CaseEntry], model: str) -> Iterator[_PredictedCase]:
    for case in cases:
        prediction = next((prediction for prediction in case.predictions if prediction.model == model), None)
        if prediction is not None:
            yield _PredictedCase(case, prediction)
