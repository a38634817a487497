"""`warplens check`: the gate against a committed baseline and budgets."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from analyzer.cli.completion import complete_files, complete_gpus, complete_models
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
from analyzer.cli.output import check_outputs, check_warnings, output_options, print_line, write_report
from analyzer.cli.progress import show_progress
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.checking.configuration import CheckConfig


@click.command(
    epilog=make_examples(
        "warplens check --update traces/triton/sm_90/matmul.sass -g h100 --launch docs/launch.json",
        "warplens check traces/triton/sm_90/matmul.sass -g h100 --launch docs/launch.json",
    )
)
@click.argument("files", nargs=-1, metavar="[FILE...]", shell_complete=complete_files)
@click.option("--update", is_flag=True, help="Accept what changed: write the baseline.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    shell_complete=complete_files,
    help="File with the configuration; pyproject.toml or warplens.toml here or above if not given.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    shell_complete=complete_files,
    help="File of the baseline, or folder with one for each input; warplens-baseline.json if not given.",
)
@click.option("--per-input", is_flag=True, help="Keep a baseline for each input, in a folder.")
@click.option("--no-baseline", is_flag=True, help="Hold budgets alone.")
@click.option(
    "--gpu",
    "-g",
    multiple=True,
    shell_complete=complete_gpus,
    help="GPU by name or TOML file, repeatable; `all` for all.",
)
@click.option("--model", "-m", shell_complete=complete_models, help="Model; sm if not given.")
@click.option(
    "--launch",
    type=click.Path(path_type=Path),
    shell_complete=complete_files,
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
    from analyzer.checking.checking import CheckRequest, find_requested_inputs, run_check
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
    paths = [each.path for each in find_requested_inputs(request).inputs]
    gpu_files = (name for name in found.gpus if name.endswith(".toml"))
    named = [str(path) for path in (found.path, found.launch, *gpu_files) if path]
    check_outputs([*paths, *named, *_list_siblings(paths, output)], found.baseline_path, output)
    cache_notes: list[str] = []
    with show_progress("reading") as progress:
        report = run_check(request, progress, cache_notes)
    for note in cache_notes:
        print_line(f"note: {note}", to_errors=True)
    write_report(report, output_format, output)
    code = check_warnings(report.warnings, strict=strict)
    return code or (ExitCode.CLEAN if report.is_clean else ExitCode.GATE_TRIPPED)


def _list_siblings(paths: list[str], output: Path | None) -> list[str]:
    """Return the files beside inputs that are read with them; none where the output replaces no file."""
    if output is None or not output.is_file():
        return []
    from analyzer.frontend.module_reader import list_sibling_paths

    return [str(path) for each in paths for path in list_sibling_paths(each)]


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
