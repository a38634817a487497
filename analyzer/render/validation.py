"""What `validate` found, for a terminal: errors by suite, GPU and model, and the worst rows."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from analyzer.render.tables import Column, Fit, make_table, numbers
from analyzer.report.validation import ScoreEntry, ValidationReport, WorstEntry

ALL = "all"
_STALLS = 4
_LEAST_SHARE = 0.01
_CASES_SHOWN = 4
_CASE_CELLS = 60
_WIDE = 400


def print_validation(report: ValidationReport, console: Console) -> None:
    """Everything but the rows themselves, which are in JSON and on the page."""
    console.print(Text(headline(report), style="bold"))
    for line in remarks(report):
        console.print(Text(line))
    if report.scores:
        console.print(_scores(report))
    worst = [entry for entry in report.worst if entry.prediction.model == report.models[0]]
    if worst:
        _print_worst(worst, report.models[0], console)
    for text in refusal_lines(report):
        console.print(Text(text, style="red"), soft_wrap=True)


def headline(report: ValidationReport) -> str:
    """`cases.csv, split judge: 98 rows, models steady, amali`."""
    split = f", split {report.split}" if report.split else ""
    models = ", ".join(report.models)
    return f"{report.table}{split}: {_rows(report.rows)}, model{_s(report.models)} {models}"


def remarks(report: ValidationReport) -> Iterator[str]:
    """What the figures leave out, and what to know of those in them."""
    uncounted = report.rows - report.counted
    if uncounted:
        yield f"{_rows(uncounted)} not counted, as the table says: in no figure below"
    if report.refused:
        yield f"{_rows(report.refused)} without an answer: in no figure below, listed at the end"
    if report.transferred:
        yield f"{_rows(report.transferred)} with code of another architecture than the GPU's"
    assumed = sum(bool(case.provenance) and case.provenance != "exact" for case in report.cases)
    if assumed:
        yield f"{_rows(assumed)} whose executed counts are not exact"


def refusal_lines(report: ValidationReport) -> list[str]:
    """Why rows have no answer, one line for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for case in report.cases:
        if not case.refused:
            continue
        for reason in dict.fromkeys(case.refused.values()):
            models = [model for model, text in case.refused.items() if text == reason]
            whose = "" if len(models) == len(report.models) else f"{', '.join(models)}: "
            reasons.setdefault((whose, reason), []).append(f"{case.case} (line {case.line})")
    return [
        f"no answer: {whose}{reason}: {', '.join(cases[:_CASES_SHOWN])}"
        + (f" and {len(cases) - _CASES_SHOWN} more" if len(cases) > _CASES_SHOWN else "")
        for (whose, reason), cases in reasons.items()
    ]


def place_name(score: ScoreEntry) -> tuple[str, str]:
    """Suite and GPU of a score as tables name them."""
    return (score.suite or ALL, score.gpu_name or ALL)


def shown_scores(report: ValidationReport) -> tuple[ScoreEntry, ...]:
    """All but those over everything where they would say the same as those above."""
    places = {(score.suite, score.gpu) for score in report.scores}
    if len(places) > 2:
        return report.scores
    return tuple(score for score in report.scores if score.suite is not None)


def score_cells(score: ScoreEntry) -> tuple[str, ...]:
    """Rows, errors, bias, ranks, coverage and choices; see `SCORE_COLUMNS`."""
    return (
        f"{score.rows:,}",
        f"{score.mape:.1%}",
        f"{score.median_ape:.1%}",
        f"{score.p90_ape:.1%}",
        f"{score.bias:.2f}",
        "" if score.spearman is None else f"{score.spearman:.3f}",
        f"{score.interval_coverage:.0%}",
        "" if score.choice_loss is None else f"{score.choice_loss:.1%}",
        "" if score.worst_choice_loss is None else f"{score.worst_choice_loss:.1%}",
    )


def score_columns(report: ValidationReport) -> tuple[str, ...]:
    """Heads of `score_cells`; those of choices only where there are groups."""
    return SCORE_COLUMNS if report.groups else SCORE_COLUMNS[:-_CHOICE_COLUMNS]


SCORE_COLUMNS = ("rows", "MAPE", "median", "P90", "bias", "Spearman", "inside", "choice", "worst")
_CHOICE_COLUMNS = 2


def stack_text(entry: WorstEntry) -> str:
    """`long_scoreboard 45%, wait 20%`: the largest shares of the cycles."""
    shares = [(stall, share) for stall, share in entry.prediction.cpi_shares.items() if share >= _LEAST_SHARE]
    return ", ".join(f"{stall} {share:.0%}" for stall, share in shares[:_STALLS])


def _scores(report: ValidationReport) -> RenderableType:
    """Suite and GPU stand in the first row of their models."""
    names = score_columns(report)
    rows: list[tuple[str, ...]] = []
    before = ("", "")
    for score in shown_scores(report):
        place = place_name(score)
        named = place if place != before else ("", "")
        rows.append((*named, score.model, *score_cells(score)[: len(names)]))
        before = place
    columns = [
        Column("suite", Fit.CUT),
        Column("GPU", Fit.CUT),
        Column("model", Fit.WHOLE),
        *numbers(*names),
    ]
    return make_table(columns, rows)


def _print_worst(worst: Sequence[WorstEntry], model: str, console: Console) -> None:
    """Columns are never cut where the output is no terminal."""
    width = console.width
    if not console.is_terminal:
        console.width = _WIDE
    console.print(_worst(worst, model))
    if not console.is_terminal:
        console.width = width


def _worst(worst: Sequence[WorstEntry], model: str) -> RenderableType:
    rows = [
        (
            entry.case,
            entry.gpu_name,
            short_time(entry.measured_us),
            short_time(entry.prediction.time_us),
            f"{entry.prediction.ratio:.2f}",
            entry.prediction.bound,
            stack_text(entry),
        )
        for entry in worst
    ]
    columns = [
        Column("case", Fit.CUT, _CASE_CELLS),
        Column("GPU", Fit.CUT),
        *numbers("us", "predicted", "ratio"),
        Column("bound", Fit.WHOLE),
        Column("cycles by stall", Fit.CUT),
    ]
    return make_table(columns, rows, title=f"worst rows of {model}")


def short_time(time_us: float) -> str:
    """Microseconds to three digits or more."""
    return f"{time_us:,.0f}" if time_us >= 1000 else f"{time_us:,.1f}" if time_us >= 100 else f"{time_us:.2f}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _s(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
