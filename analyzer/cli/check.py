"""`warplens check`: the gate against a committed baseline and budgets."""

import shlex
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from analyzer.cli.completion import complete_models
from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.launch_options import dimension_options, parse_launch
from analyzer.cli.options import (
    ScaleOptions,
    find_cache_folder,
    jobs_option,
    scale_options,
    split_names,
    strict_option,
)
from analyzer.cli.output import check_warnings, output_options, print_line, write_report
from analyzer.cli.path_types import BASELINE_PATH, GPU_TEXT, INPUT_PATH, KERNEL_TEXT, find_claims
from analyzer.cli.progress import show_progress
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.checking.checking import CheckRequest
    from analyzer.checking.configuration import CheckConfig


@click.command(
    epilog=make_examples(
        "warplens check --update traces/triton/sm_90/matmul.sass -g h100 --launch docs/launch.json",
        "warplens check traces/triton/sm_90/matmul.sass -g h100 --launch docs/launch.json",
    )
)
@click.argument("files", nargs=-1, metavar="[FILE...]", type=KERNEL_TEXT)
@click.option("--update", is_flag=True, help="Accept what changed: write the baseline.")
@click.option(
    "--config",
    type=INPUT_PATH,
    help="File with the configuration; pyproject.toml or warplens.toml here or above if not given.",
)
@click.option(
    "--baseline",
    type=BASELINE_PATH,
    help="File of the baseline, or folder with one for each input; warplens-baseline.json if not given.",
)
@click.option("--per-input", is_flag=True, help="Keep a baseline for each input, in a folder.")
@click.option("--no-baseline", is_flag=True, help="Hold budgets alone.")
@click.option(
    "--gpu",
    "-g",
    multiple=True,
    type=GPU_TEXT,
    help="GPU by name or TOML file, repeatable; `all` for all.",
)
@click.option("--model", "-m", shell_complete=complete_models, help="Model; sm if not given.")
@click.option(
    "--launch",
    type=INPUT_PATH,
    help="JSON file with the launches of kernels.",
)
@dimension_options
@click.option("--no-assumed-launch", is_flag=True, help="Assume no launch where nobody gives one.")
@jobs_option
@scale_options
@output_options("check")
@strict_option
def check(
    files: tuple[str, ...],
    *,
    update: bool,
    config: Path | None,
    baseline: Path | None,
    per_input: bool,
    no_baseline: bool,
    gpu: tuple[str, ...],
    model: str | None,
    launch: Path | None,
    grid: str | None,
    block: str | None,
    cluster: str | None,
    dynamic_shared: int | None,
    arg: tuple[str, ...],
    no_assumed_launch: bool,
    jobs: int | None,
    cache: Path | None,
    no_cache: bool,
    backend: str,
    scheduler: str | None,
    output_format: str,
    output: Path | None,
    strict: bool,
) -> ExitCode:
    """Hold the kernels in FILE to a committed baseline and to budgets; exit with 1 where one is worse.

    FILE is what `analyze` takes, or a glob; the inputs of the configuration where none is given. The first
    run writes the baseline; `--update` accepts what changed since.
    """
    from analyzer.checking.checking import CheckRequest, run_check
    from analyzer.checking.configuration import find_config
    from analyzer.pipeline.options import Backend

    scale = ScaleOptions(jobs=jobs, cache=cache, no_cache=no_cache, backend=backend, scheduler=scheduler)
    scale.check()
    if no_baseline and (baseline is not None or update):
        raise UsageError("--no-baseline excludes --baseline and --update", hint="give one of them")
    found = _override(
        find_config(config),
        baseline,
        per_input=per_input,
        has_baseline=not no_baseline,
        gpu=gpu,
        launch=launch,
    )
    if model is not None:
        found = replace(found, model=_check_model(model))
    if no_assumed_launch:
        found = replace(found, assumes_launch=False)
    request = CheckRequest(
        config=found,
        inputs=files,
        updates=update,
        jobs=scale.n_jobs,
        cache_folder=find_cache_folder(scale, by_default=True),
        backend=Backend(backend),
        scheduler=scheduler,
        accept_command=_make_accept_command(),
        launch=parse_launch(
            grid=grid, block=block, cluster=cluster, dynamic_shared=dynamic_shared, arguments=arg
        ),
    )
    _claim_files(request)
    if baseline is None and found.holds_baseline:
        BASELINE_PATH.claim(found.baseline_path, find_claims(click.get_current_context()))
    cache_notes: list[str] = []
    with show_progress("reading") as progress:
        report = run_check(request, progress, cache_notes)
    for note in cache_notes:
        print_line(f"note: {note}", to_errors=True)
    write_report(report, output_format, output)
    code = check_warnings(report.warnings, strict=strict)
    return code or (ExitCode.CLEAN if report.is_clean else ExitCode.GATE_TRIPPED)


def _claim_files(request: "CheckRequest") -> None:
    """Claim what the configuration names beside the command line. Raises UsageError for an output in it."""
    from analyzer.checking.checking import find_requested_inputs

    config, claims = request.config, find_claims(click.get_current_context())
    paths = [each.path for each in find_requested_inputs(request).inputs]
    named = [path for path in (config.path, config.launch, *config.gpus) if path is not None]
    claims.add_inputs(lambda: chain(named, *map(KERNEL_TEXT.list_read, paths)))


def _override(
    config: "CheckConfig",
    baseline: Path | None,
    *,
    per_input: bool,
    has_baseline: bool,
    gpu: tuple[str, ...],
    launch: Path | None,
) -> "CheckConfig":
    """Return the configuration with what the command line says in its place."""
    if baseline is not None:
        config = replace(config, baseline=baseline, holds_baseline=True)
    if not has_baseline:
        config = replace(config, holds_baseline=False)
    if per_input:
        config = replace(config, per_input=True)
    if gpu:
        config = replace(config, gpus=tuple(split_names(gpu)))
    if launch is not None:
        config = replace(config, launch=launch)
    return config


def _check_model(text: str) -> str:
    """Return the name of one model. Raises UsageError."""
    from analyzer.models.registry import find_model

    find_model(text)
    return text


# They change neither the baseline nor what is compared.
_REPORT_OPTIONS = frozenset(
    {
        "output_format",
        "output",
        "strict",
        "jobs",
        "update",
        "cache",
        "no_cache",
        "backend",
        "scheduler",
    }
)


def _make_accept_command() -> str:
    """Return the command that accepts what this one found: its own arguments and --update."""
    context = click.get_current_context()
    words = ["warplens", "check", "--update"]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if not value or parameter.name in _REPORT_OPTIONS:
            continue
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(parameter, click.Argument):
            words += [str(each) for each in values]
        elif value is True:
            words.append(parameter.opts[0])
        else:
            words += [word for each in values for word in (parameter.opts[0], str(each))]
    return shlex.join(words)
