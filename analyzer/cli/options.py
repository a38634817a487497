"""Options that several subcommands share, and the values that they give."""

import os
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from analyzer.cli.completion import complete_models
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.launch_options import (
    LAUNCH_OPTIONS,
    Decorator,
    load_launch_table,
    parse_launch,
    parse_taken_rules,
)
from analyzer.cli.output import print_line
from analyzer.cli.path_types import CACHE_FOLDER, GPU_TEXT, INPUT_PATH, KERNEL_TEXT
from analyzer.execution.machine.budget import DEFAULT_STEP_LIMIT
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.models.calibration import Calibration
    from analyzer.pipeline import Options, Program
    from analyzer.pipeline.input_index import ReadingOptions
    from analyzer.report.analyze_schema import Report
    from analyzer.text.progress import ProgressCallback

Command = Callable[..., ExitCode | None]


class ScaleOptions(Struct, frozen=True, kw_only=True):
    """Values of the options that say who works, and what is kept."""

    jobs: int | None = None
    cache: Path | None = None
    no_cache: bool = False
    backend: str = "local"
    scheduler: str | None = None

    @property
    def n_jobs(self) -> int:
        """Processes to use."""
        return self.jobs or os.cpu_count() or 1

    def check(self) -> None:
        """Raise UsageError where there is nothing to schedule, ToolError where nothing can schedule it."""
        from analyzer.worker_pool import Backend, check_backend

        if self.scheduler is not None and self.backend == Backend.LOCAL:
            raise UsageError("--scheduler goes with --backend dask")
        check_backend(Backend(self.backend))


class InputOptions(Struct, frozen=True, kw_only=True):
    """Values of the shared options; `trace` has no GPU, no models and no traces among its options."""

    files: tuple[str, ...] = ()  # `diff` has two arguments of its own
    gpu: tuple[str, ...] = ()
    kernel: tuple[str, ...]
    grid: str | None
    block: str | None
    cluster: str | None
    dynamic_shared: int | None
    arg: tuple[str, ...]
    clock: float | None
    cold_l2: bool
    timing: str
    launch: Path | None
    taken: tuple[str, ...]
    trip: tuple[str, ...]
    res_usage: str | None
    arch: str | None = None
    ptxas: str | None = None
    virtual: bool = False
    ptxas_level: int | None = None
    trace: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    calibration: Path | None = None
    step_limit: int | None = None
    scale: ScaleOptions = ScaleOptions()

    def load(self) -> "list[Program]":
        """Read the inputs. Raises InputError, UsageError, or HardwareError for an unknown architecture."""
        from analyzer.pipeline import attach_traces
        from analyzer.pipeline.input_index import load_programs

        reading = self.make_reading_options()
        programs = [program for path in self.files for program in load_programs(path, self.kernel, reading)]
        return attach_traces(programs, self.trace) if self.trace else programs

    def make_reading_options(self) -> "ReadingOptions":
        """Return how inputs are read. Raises UsageError, HardwareError for an unknown architecture."""
        from analyzer.frontend.arch_lookup import parse_arch
        from analyzer.frontend.ptx_reader import PtxOptions
        from analyzer.hardware.gpu_database import load_arch
        from analyzer.pipeline.input_index import ReadingOptions

        if self.res_usage and len(self.files) > 1:
            raise UsageError("--res-usage goes with one FILE")
        arch = parse_arch(self.arch) if self.arch else ""
        if arch:
            load_arch(arch)
        ptx = PtxOptions(
            gpus=self.gpu,
            ptxas=self.ptxas,
            optimization_level=self.ptxas_level,
            is_virtual=self.virtual,
        )
        return ReadingOptions(usage_path=self.res_usage, arch=arch, ptx=ptx, jobs=self.scale.n_jobs)

    def make_pipeline_options(
        self,
        *,
        listing: bool,
        min_coverage: float = 0.0,
        explain: bool = False,
        levels: bool = False,
        advice: bool = False,
        caches_by_default: bool = False,
        hardware_curves: bool = False,
    ) -> "Options":
        """Return the options of the pipeline. Raises UsageError.

        caches_by_default: see `find_cache_folder`.
        """
        from analyzer.execution.static_counts.block_counts import parse_trip_count_rule
        from analyzer.pipeline.options import Options
        from analyzer.worker_pool import Backend

        self.scale.check()
        if self.trace and self.scale.backend != Backend.LOCAL:
            raise UsageError("--trace goes with --backend local")
        return Options(
            kernels=self.kernel,
            trip_rules=tuple(parse_trip_count_rule(text) for text in self.trip),
            launch=parse_launch(
                grid=self.grid,
                block=self.block,
                cluster=self.cluster,
                dynamic_shared=self.dynamic_shared,
                arguments=self.arg,
                clock=self.clock,
                cold_l2=self.cold_l2,
                timing=self.timing,
            ),
            launch_table=load_launch_table(self.launch),
            branch_rules=parse_taken_rules(self.taken),
            step_limit=self.step_limit,
            jobs=self.scale.n_jobs,
            backend=Backend(self.scale.backend),
            scheduler=self.scale.scheduler,
            models=parse_model_names(self.model),
            calibration=load_levels(self.calibration),
            explain=explain,
            levels=levels,
            advice=advice,
            hardware_curves=hardware_curves,
            listing=listing,
            min_coverage=min_coverage,
            cache_folder=find_cache_folder(self.scale, by_default=caches_by_default),
        )


def analyze_inputs(inputs: InputOptions, options: "Options", progress: "ProgressCallback") -> "Report":
    """Return the report of the inputs; kernels in the cache of the options are not analyzed again.

    What is wrong with the cache is told on standard error. Raises what reading and analysis do.
    """
    if inputs.trace:
        from analyzer.pipeline import analyze_programs

        return analyze_programs(inputs.load(), inputs.gpu, options, progress)
    from analyzer.pipeline.cached_analysis import analyze_files

    notes: list[str] = []
    report = analyze_files(
        inputs.files, inputs.gpu, options, progress, reading=inputs.make_reading_options(), notes=notes
    )
    for note in notes:
        print_line(f"note: {note}", to_errors=True)
    return report


def find_cache_folder(scale: ScaleOptions, *, by_default: bool) -> Path | None:
    """Return the folder of --cache, or that of the environment; None where nothing is kept.

    by_default: take the user's own folder where neither is given.
    Raises UsageError for contradicting options.
    """
    if scale.no_cache and scale.cache is not None:
        raise UsageError("--cache and --no-cache exclude each other", hint="give one of them")
    if scale.no_cache:
        return None
    if scale.cache is not None:
        return scale.cache
    from analyzer.pipeline.entry_store import find_kernel_folder

    return find_kernel_folder(by_default=by_default)


def load_levels(path: Path | None) -> "Calibration | None":
    """Return the levels of --calibration, None where it was not given. Raises InputError."""
    if path is None:
        return None
    from analyzer.models.calibration import load_calibration

    return load_calibration(path)


def split_names(texts: Iterable[str]) -> list[str]:
    """Return the names in `steady,amali` and in repeated options."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def parse_model_names(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in `steady,amali` and in repeated options, without duplicates. Raises UsageError."""
    from analyzer.models.registry import find_model, list_models

    names = split_names(texts)
    names = [each for name in names for each in (list_models() if name == "all" else (name,))]
    for name in names:
        find_model(name)
    return tuple(dict.fromkeys(names))


_FILES_ARGUMENT = click.argument("files", nargs=-1, required=True, type=KERNEL_TEXT, metavar="FILE...")
_TRACE_OPTION = click.option(
    "--trace",
    multiple=True,
    type=KERNEL_TEXT,
    help="Trace (.traceg, kernelslist.g) of a kernel in FILE; repeatable.",
)
_MODEL_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--gpu",
        "-g",
        multiple=True,
        type=GPU_TEXT,
        help="GPU by name or TOML file, repeatable; `all` for all.",
    ),
    click.option(
        "--model",
        "-m",
        multiple=True,
        shell_complete=complete_models,
        help="Models, by comma or repeated: sm, steady, amali, gcom, mdm, roofline, warp; `all` for all.",
    ),
    click.option(
        "--calibration",
        type=INPUT_PATH,
        help="Levels of a GPU that `calibrate` wrote.",
    ),
)
# For commands whose report lists warnings.
strict_option = click.option("--strict", is_flag=True, help="Exit with 2 where the report has a warning.")
# For commands that share kernels among processes; stands above `input_options`.
jobs_option = click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    help="Processes that share the kernels of a big FILE; as many as cores if not given.",
)
_CACHE_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--cache",
        type=CACHE_FOLDER,
        metavar="FOLDER",
        help="Keep reports of kernels there, by their content; WARPLENS_CACHE names one for all commands.",
    ),
    click.option("--no-cache", is_flag=True, help="Work everything out again, and keep nothing."),
)
_CLUSTER_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--backend",
        type=click.Choice(["local", "dask"]),
        default="local",
        show_default=True,
        help="Who analyzes the inputs: processes of this machine, or a cluster that sees the same files.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Scheduler of the cluster, as tcp://HOST:8786; if none, --jobs workers on this machine.",
    ),
)
_KERNEL_OPTIONS: tuple[Decorator, ...] = (
    click.option("--kernel", "-k", multiple=True, help="Name, glob or part of a name, or #N; repeatable."),
    *LAUNCH_OPTIONS,
    click.option(
        "--trip", multiple=True, help="Loop trips: N for all unknown, ADDRESS=N or FILE:LINE=N for one."
    ),
    click.option(
        "--step-limit",
        type=click.IntRange(min=1),
        help="Steps of abstract execution before it says what it knows, or gives up a trace; "
        f"{DEFAULT_STEP_LIMIT:,} (40,000 of a trace) unless given.",
    ),
    click.option(
        "--arch",
        help="Architecture of code that names none, such as a pasted loop, or to assemble PTX for: sm_90.",
    ),
    click.option(
        "--ptxas",
        type=KERNEL_TEXT,
        help="Program that assembles PTX; searched for if not given.",
    ),
    click.option("-O", "ptxas_level", type=click.IntRange(0, 3), help="Optimization level of ptxas."),
    click.option("--virtual", is_flag=True, help="Read PTX without ptxas: no stalls, registers estimated."),
    click.option(
        "--res-usage",
        type=KERNEL_TEXT,
        help="Text of cuobjdump -res-usage; FILE's own stem with .res is looked for.",
    ),
)


def input_options(function: Command) -> Command:
    """Add the shared arguments and options to a command, which gets them as one `InputOptions`."""
    return _add_options(function, (_FILES_ARGUMENT, *_MODEL_OPTIONS, _TRACE_OPTION, *_KERNEL_OPTIONS))


def cache_options(function: Command) -> Command:
    """Add --cache and --no-cache; stands above `input_options`, which takes their values."""
    for decorator in reversed(_CACHE_OPTIONS):
        function = decorator(function)
    return function


def scale_options(function: Command) -> Command:
    """Add the same, and options of clusters."""
    for decorator in reversed(_CLUSTER_OPTIONS):
        function = decorator(function)
    return cache_options(function)


def launch_options(function: Command) -> Command:
    """Add the same without GPUs, models and traces."""
    return _add_options(function, (_FILES_ARGUMENT, *_KERNEL_OPTIONS))


def pair_options(function: Command) -> Command:
    """Add the same without files and traces, to a command with inputs of its own."""
    return _add_options(function, (*_MODEL_OPTIONS, *_KERNEL_OPTIONS))


def _add_options(function: Command, options: tuple[Decorator, ...]) -> Command:
    @wraps(function)
    def wrapper(**values: Any) -> ExitCode | None:
        shared = {name: values.pop(name) for name in InputOptions.__struct_fields__ if name in values}
        scale = {name: values.pop(name) for name in ScaleOptions.__struct_fields__ if name in values}
        return function(InputOptions(**shared, scale=ScaleOptions(**scale)), **values)

    decorated: Command = wrapper
    for decorator in reversed(options):
        decorated = decorator(decorated)
    return decorated
