"""The text of a validation: errors by suite, GPU and model, and the worst rows."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table
from analyzer.report.validation_schema import CeilingEntry, ScoreEntry, ValidationReport, WorstEntry

ALL_LABEL = "all"
_MAX_SHOWN_STALLS = 4
_MIN_SHOWN_SHARE = 0.01
_MAX_SHOWN_CASES = 4
_MAX_CASE_CELLS = 60
_UNCUT_WIDTH_CELLS = 400


def print_validation(report: ValidationReport, console: Console) -> None:
    """Print all but the rows themselves, which are in the JSON and the HTML page."""
    console.print(Text(format_headline(report), style="bold"))
    for line in format_remarks(report):
        console.print(Text(line))
    if report.scores:
        console.print(_make_score_table(report))
    worst = [entry for entry in report.worst if entry.prediction.model == report.models[0]]
    if worst:
        _print_worst(worst, report.models[0], console)
    if report.underperforming:
        _print_underperforming(report.underperforming, console)
    for text in format_refusals(report):
        console.print(Text(text, style="red"), soft_wrap=True)


def format_headline(report: ValidationReport) -> str:
    """Return `cases.csv, split judge: 98 rows, models steady, amali`."""
    split = f", split {report.split}" if report.split else ""
    models = ", ".join(report.models)
    plural = _format_plural_ending(report.models)
    return f"{report.table}{split}: {_format_row_count(report.rows)}, model{plural} {models}"


def format_remarks(report: ValidationReport) -> Iterator[str]:
    """Yield remarks on rows that the scores leave out, and on those with less certain counts."""
    uncounted = report.rows - report.counted
    if uncounted:
        yield f"{_format_row_count(uncounted)} not counted, as the table says: in no figure below"
    if report.refused:
        yield f"{_format_row_count(report.refused)} without an answer: in no figure below, listed at the end"
    if report.transferred:
        yield f"{_format_row_count(report.transferred)} with code of another architecture than the GPU's"
    assumed = sum(bool(case.provenance) and case.provenance != "exact" for case in report.cases)
    if assumed:
        yield f"{_format_row_count(assumed)} whose executed counts are not exact"


def format_refusals(report: ValidationReport) -> list[str]:
    """Return one line for each reason why rows have no prediction."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for case in report.cases:
        if not case.refused:
            continue
        for reason in dict.fromkeys(case.refused.values()):
            models = [model for model, text in case.refused.items() if text == reason]
            whose = "" if len(models) == len(report.models) else f"{', '.join(models)}: "
            reasons.setdefault((whose, reason), []).append(f"{case.case} (line {case.line})")
    return [
        f"no answer: {whose}{reason}: {', '.join(cases[:_MAX_SHOWN_CASES])}"
        + (f" and {len(cases) - _MAX_SHOWN_CASES} more" if len(cases) > _MAX_SHOWN_CASES else "")
        for (whose, reason), cases in reasons.items()
    ]


def format_suite_and_gpu(score: ScoreEntry) -> tuple[str, str]:
    """Return suite and GPU of a score as tables name them."""
    return (score.suite or ALL_LABEL, score.gpu_name or ALL_LABEL)


def select_shown_scores(report: ValidationReport) -> tuple[ScoreEntry, ...]:
    """Return all scores, without those over all rows where these repeat the ones above."""
    keys = {(score.suite, score.gpu) for score in report.scores}
    if len(keys) > 2:
        return report.scores
    return tuple(score for score in report.scores if score.suite is not None)


def format_score_cells(score: ScoreEntry) -> tuple[str, ...]:
    """Return the cells of a score under `SCORE_COLUMNS`."""
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


def choose_score_columns(report: ValidationReport) -> tuple[str, ...]:
    """Return the headings of `format_score_cells`; those of choices only where there are groups."""
    return SCORE_COLUMNS if report.groups else SCORE_COLUMNS[:-_N_CHOICE_COLUMNS]


SCORE_COLUMNS = ("rows", "MAPE", "median", "P90", "bias", "Spearman", "inside", "choice", "worst")
_N_CHOICE_COLUMNS = 2
_SCORE_DROP_RANKS = {"worst": 5, "median": 4, "P90": 3, "inside": 2, "choice": 1}


def format_stall_shares(entry: WorstEntry) -> str:
    """Return `long_scoreboard 45%, wait 20%`: the largest shares of the cycles."""
    shares = [
        (stall, share) for stall, share in entry.prediction.cpi_shares.items() if share >= _MIN_SHOWN_SHARE
    ]
    return ", ".join(f"{stall} {share:.0%}" for stall, share in shares[:_MAX_SHOWN_STALLS])


def _make_score_table(report: ValidationReport) -> RenderableType:
    """Return the table of scores; only the first row of a suite and GPU names them."""
    names = choose_score_columns(report)
    rows: list[tuple[str, ...]] = []
    before = ("", "")
    for score in select_shown_scores(report):
        key = format_suite_and_gpu(score)
        named = key if key != before else ("", "")
        rows.append((*named, score.model, *format_score_cells(score)[: len(names)]))
        before = key
    columns = [
        Column("suite", ColumnFit.WRAP),
        Column("GPU", ColumnFit.WRAP),
        Column("model", ColumnFit.NO_WRAP),
        *(Column(name, drop_rank=_SCORE_DROP_RANKS.get(name, 0)) for name in names),
    ]
    return make_table(columns, rows)


_MOST_UNDERPERFORMING = 10


def _print_underperforming(entries: Sequence[CeilingEntry], console: Console) -> None:
    """Print the rows that could do much better, the widest gap first."""
    console.print()
    columns = (
        Column("case", ColumnFit.NO_WRAP),
        Column("operator", ColumnFit.WRAP),
        Column("GPU", ColumnFit.WRAP),
        Column("us"),
        Column("at the ceiling"),
        Column("efficiency"),
        Column("ceiling"),
    )
    rows = [
        (
            entry.case,
            entry.kernel,
            entry.gpu_name,
            f"{entry.measured_us:,.1f}",
            f"{entry.ceiling_us:,.1f}",
            f"{entry.efficiency:.2f}",
            f"{entry.ceiling:.2f}",
        )
        for entry in entries[:_MOST_UNDERPERFORMING]
    ]
    title = f"{len(entries):,} rows more than .1 below SynPerf's ceiling: a better configuration may exist"
    console.print(make_table(columns, rows, title=title))


def _print_worst(worst: Sequence[WorstEntry], model: str, console: Console) -> None:
    """Print the worst rows; columns are never cut where the output is no terminal."""
    width = console.width
    if not console.is_terminal:
        console.width = _UNCUT_WIDTH_CELLS
    console.print(_make_worst_table(worst, model))
    if not console.is_terminal:
        console.width = width


def _make_worst_table(worst: Sequence[WorstEntry], model: str) -> RenderableType:
    rows = [
        (
            entry.case,
            entry.gpu_name,
            format_time_us(entry.measured_us),
            format_time_us(entry.prediction.time_us),
            f"{entry.prediction.ratio:.2f}",
            entry.prediction.bound,
            format_stall_shares(entry),
        )
        for entry in worst
    ]
    columns = [
        Column("case", ColumnFit.WRAP, _MAX_CASE_CELLS),
        Column("GPU", ColumnFit.WRAP),
        *make_number_columns("us", "predicted", "ratio"),
        Column("bound", ColumnFit.WRAP, min_width=7),
        Column("cycles by stall", ColumnFit.WRAP, min_width=16),
    ]
    return make_table(columns, rows, title=f"worst rows of {model}")


def format_time_us(time_us: float) -> str:
    """Return microseconds with at least three digits."""
    return f"{time_us:,.0f}" if time_us >= 1000 else f"{time_us:,.1f}" if time_us >= 100 else f"{time_us:.2f}"


def _format_row_count(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _format_plural_ending(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
