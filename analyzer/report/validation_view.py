"""Rows with predictions to the report: scores, groups and the worst rows."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from analyzer.report.validation import CaseEntry, CasePrediction, GroupEntry, ScoreEntry, WorstEntry
from analyzer.report.validation_metrics import Times, choose, measure_errors


class _Row(Struct, frozen=True):
    """A row with one model's answer."""

    case: CaseEntry
    answer: CasePrediction


def score_entries(cases: Sequence[CaseEntry], models: Sequence[str]) -> tuple[ScoreEntry, ...]:
    """Scores of each suite on each GPU in the table's order, of suites on all their GPUs, of all rows."""
    counted = [case for case in cases if case.counted]
    suites = list(dict.fromkeys(case.suite for case in counted))
    scores: list[ScoreEntry | None] = []
    for suite in suites:
        of_suite = [case for case in counted if case.suite == suite]
        gpus = list(dict.fromkeys(case.gpu for case in of_suite))
        for gpu in gpus:
            some = [case for case in of_suite if case.gpu == gpu]
            scores += [_score(some, model, suite, gpu) for model in models]
        if len(gpus) > 1 and len(suites) > 1:
            scores += [_score(of_suite, model, suite, None) for model in models]
    scores += [_score(counted, model, None, None) for model in models]
    return tuple(score for score in scores if score is not None)


def _score(cases: Sequence[CaseEntry], model: str, suite: str | None, gpu: str | None) -> ScoreEntry | None:
    """None where the model answers for none of the rows."""
    rows = list(_answered(cases, model))
    if not rows:
        return None
    errors = measure_errors(
        Times(
            measured=np.array([row.case.time_us for row in rows]),
            predicted=np.array([row.answer.time_us for row in rows]),
            low=np.array([row.answer.time_us_low for row in rows]),
            high=np.array([row.answer.time_us_high for row in rows]),
        )
    )
    losses = [group.loss for group in group_entries(cases, (model,))]
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


def group_entries(cases: Iterable[CaseEntry], models: Sequence[str]) -> tuple[GroupEntry, ...]:
    """What each model chooses among the counted rows of a group on a GPU; a single row is no choice."""
    groups: dict[tuple[str, str, str], list[CaseEntry]] = {}
    for case in cases:
        if case.counted and case.group:
            groups.setdefault((case.suite, case.gpu, case.group), []).append(case)
    found = []
    for key, members in groups.items():
        for model in models:
            rows = list(_answered(members, model))
            if len(rows) > 1:
                found.append(_group(key, model, rows))
    return tuple(found)


def _group(key: tuple[str, str, str], model: str, rows: Sequence[_Row]) -> GroupEntry:
    suite, gpu, group = key
    choice = choose([row.case.time_us for row in rows], [row.answer.time_us for row in rows])
    return GroupEntry(
        suite=suite,
        gpu=gpu,
        group=group,
        model=model,
        rows=len(rows),
        best_case=rows[choice.best].case.case,
        best_time_us=rows[choice.best].case.time_us,
        chosen_case=rows[choice.chosen].case.case,
        chosen_time_us=choice.chosen_us,
        loss=choice.loss,
    )


def worst_entries(cases: Sequence[CaseEntry], models: Sequence[str], limit: int) -> tuple[WorstEntry, ...]:
    """For each model the counted rows that it misses by the largest factors, ties in the table's order."""
    counted = [case for case in cases if case.counted]
    return tuple(
        _worst(row)
        for model in models
        for row in sorted(_answered(counted, model), key=lambda row: -abs(math.log(row.answer.ratio)))[:limit]
    )


def _worst(row: _Row) -> WorstEntry:
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
        prediction=row.answer,
    )


def _answered(cases: Iterable[CaseEntry], model: str) -> Iterator[_Row]:
    for case in cases:
        answer = next((answer for answer in case.predictions if answer.model == model), None)
        if answer is not None:
            yield _Row(case, answer)
