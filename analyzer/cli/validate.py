"""`warplens validate`: predictions against measured launches."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.output import output_options, print_line, write_report
from analyzer.cli.path_types import CACHE_FOLDER, CHART_PATH, GPU_TEXT, INPUT_PATH
from analyzer.ir.launch import Timing
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.evaluation.validation import ProgressCallback
    from analyzer.report.validation_schema import ValidationReport


@click.command(
    epilog=make_examples(
        "warplens validate docs/cases.csv --model sm,roofline --jobs 1",
        "warplens validate docs/cases.csv --suite stream --jobs 1 --max-mape 200 --format json",
    )
)
@click.argument("table", metavar="CASES.csv", type=INPUT_PATH)
@click.option(
    "--model", "-m", multiple=True, help="Models, by comma or repeated, the default one first; all if none."
)
@click.option("--split", type=click.Choice(["learn", "judge"]), help="Only rows of this split.")
@click.option("--suite", multiple=True, metavar="GLOB", help="Only rows of suites that fit; repeatable.")
@click.option(
    "--gpu",
    "-g",
    multiple=True,
    type=GPU_TEXT,
    help="Only rows of this GPU; repeatable.",
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes; as many as cores if not given.")
@click.option("--cache", type=CACHE_FOLDER, help="Folder of answers; ~/.cache/warplens/validate.")
@click.option("--no-cache", is_flag=True, help="Work everything out again, and keep nothing.")
@click.option(
    "--limit-worst", type=click.IntRange(min=0), default=10, show_default=True, help="Worst rows to list."
)
@click.option(
    "--timing",
    type=click.Choice([timing.value for timing in Timing]),
    help="What the times of rows are that do not say so; interval if not given.",
)
@click.option("--calibration", type=INPUT_PATH, help="Levels that `calibrate` wrote.")
@output_options("validate")
@click.option("--html", type=CHART_PATH, help="Write a page with tables and scatter plots.")
@click.option(
    "--max-mape",
    type=click.FloatRange(min=0),
    metavar="PCT",
    help="Exit with 1 where the default model's mean error exceeds this.",
)
def validate(
    table: Path,
    *,
    model: tuple[str, ...],
    split: str | None,
    suite: tuple[str, ...],
    gpu: tuple[str, ...],
    jobs: int | None,
    cache: Path | None,
    no_cache: bool,
    limit_worst: int,
    timing: str | None,
    calibration: Path | None,
    output_format: str,
    output: Path | None,
    html: Path | None,
    max_mape: float | None,
) -> ExitCode:
    """Hold the models against measured times: each row of CASES.csv is one launch of one kernel.

    Columns: dump, gpu, grid, block, time_us; and case, suite, kernel, cluster, dynamic_shared_bytes,
    arguments, split, l2, clock_mhz, timing, group, counted, config, note, as far as there is something to
    say. A table of operators has the columns of `predict --table` and time_us.
    """
    from analyzer.cli.options import load_levels, split_names
    from analyzer.evaluation.validation import validate as run_validation
    from analyzer.evaluation.validation_report import CaseFilters

    if no_cache and cache is not None:
        raise UsageError("--cache and --no-cache exclude each other", hint="give one of them")
    filters = CaseFilters(split=split, suites=suite, gpus=gpu)
    with _show_progress() as progress:
        report = run_validation(
            table,
            models=() if "all" in (names := split_names(model)) else names,
            filters=filters,
            jobs=jobs,
            cache=False if no_cache else cache or True,
            worst=limit_worst,
            calibration=load_levels(calibration),
            timing=None if timing is None else Timing(timing),
            progress=progress,
        )
    if html is not None:
        write_report(report, "html", html)
    write_report(report, output_format, output)
    return _check_max_mape(report, max_mape)


@contextmanager
def _show_progress() -> "Iterator[ProgressCallback]":
    """Show a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _check_max_mape(report: "ValidationReport", max_mape: float | None) -> ExitCode:
    """Return CLEAN or GATE_TRIPPED, the latter with one line on standard error.

    Raises UsageError where there is no score.
    """
    if max_mape is None:
        return ExitCode.CLEAN
    score = report.find_overall_score()
    if score is None:
        raise UsageError(
            f"--max-mape {max_mape:g}: {report.models[0]} has no answer for any counted row",
            hint="the report lists why",
        )
    if score.mape * 100 <= max_mape:
        return ExitCode.CLEAN
    result = f"MAPE of {score.model} is {score.mape:.1%} over {score.rows:,} rows"
    print_line(f"gate: {result}, more than --max-mape {max_mape:g}", to_errors=True)
    return ExitCode.GATE_TRIPPED
