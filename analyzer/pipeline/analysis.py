"""Analysis of several inputs on several GPUs: from inputs and options to one report."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_gpus, find_typical_gpus
from analyzer.ir.launch import Launch as CheckedLaunch
from analyzer.models.portability import find_best_kernel_indices
from analyzer.pipeline.kernel_tasks import KernelTask, KernelTaskRunner
from analyzer.pipeline.loaded_program import LoadedKernel, Program, find_kernels, load_for_gpus
from analyzer.pipeline.options import Options
from analyzer.pipeline.python_launch import Launch
from analyzer.report.analyze_schema import ANALYZE_SCHEMA, KernelReport, Report
from analyzer.report.input_entries import (
    make_cut_off_warnings,
    make_input_entry,
    make_refused_gpu_warnings,
    make_unknown_arch_warnings,
    make_unused_launch_warnings,
    make_unused_trip_warning,
    make_warning_entry,
)
from analyzer.text.demangling import demangle
from analyzer.text.errors import GateError, HardwareError, UsageError
from analyzer.text.kernel_names import find_nearest_names, list_names_for_people
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__


def analyze(
    source: str | Program | Sequence[str],
    gpu: str | Sequence[str] | None = None,
    *,
    launch: Launch | CheckedLaunch | None = None,
    grid: tuple[int, int, int] | None = None,
    block: tuple[int, int, int] | None = None,
    options: Options | None = None,
) -> Report:
    """Analyze a dump (path or loaded program; several paths make one report) on one or more GPUs.

    gpu: name, alias or TOML path; "all" for every known GPU; None for the typical one of the dump's
        architecture.
    launch: in place of `options.launch`; grid, block: in place of its dimensions.
    Raises InputError, HardwareError, UsageError, or GateError for `options.min_coverage`.
    """
    options = with_launch(options or Options(), launch)
    if grid or block:
        dims = Launch(grid=grid, block=block).check()
        whole = replace(
            options.launch,
            grid=dims.grid or options.launch.grid,
            block=dims.block or options.launch.block,
        )
        options = replace(options, launch=whole)
    paths = [source] if isinstance(source, str | Program) else list(source)
    programs = [
        program
        for item in paths
        for program in ([item] if isinstance(item, Program) else load_for_gpus(item, gpu, options))
    ]
    return analyze_programs(programs, gpu, options)


def with_launch(options: Options, launch: Launch | CheckedLaunch | None) -> Options:
    """Return the options with a launch that is checked: the one given, else their own. Raises UsageError."""
    own = options.launch if launch is None else launch
    if isinstance(own, Launch):
        return replace(options, launch=own.check())
    if not isinstance(own, CheckedLaunch):
        raise UsageError(f"{own!r:.80} is no launch", hint="write analyzer.Launch(grid=132, block=128)")
    return replace(options, launch=own)


def analyze_programs(
    programs: Sequence[Program],
    gpu: str | Sequence[str] | None,
    options: Options,
    progress: ProgressCallback = ignore_progress,
) -> Report:
    """Analyze several loaded inputs; return one report."""
    gpus = find_gpus(gpu)
    chosen = list(zip(programs, choose_kernels(programs, options), strict=True))
    tasks = [
        KernelTask(kernel, own or find_typical_gpus(kernel.kernel.arch), _find_folder(program))
        for program, kernels in chosen
        for kernel, own in assign_gpus(kernels, gpus)
    ]
    done = KernelTaskRunner(tasks, options, progress).run()
    reports = done.reports
    _check_coverage(reports, options)
    refusals = [r.refused[0].reason for r in reports if r.refused and not r.predictions]
    if gpus and refusals and len(refusals) == len(reports):
        raise HardwareError(
            refusals[0], hint="choose a GPU of the dump's architecture, or one that has these units"
        )
    modules = [program.module for program in programs]
    return Report(
        schema=ANALYZE_SCHEMA,
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        inputs=tuple(make_input_entry(module) for module in modules),
        gpus=tuple(dict.fromkeys(p.gpu for r in reports for p in r.predictions)),
        kernels=reports,
        warnings=(
            *(make_warning_entry(p.module, diagnostic) for p in programs for diagnostic in p.diagnostics),
            *make_cut_off_warnings(modules, reports),
            *make_unknown_arch_warnings(modules, has_gpus=bool(gpus)),
            *make_refused_gpu_warnings(reports),
            *(
                make_unused_trip_warning(rule)
                for rule in options.trip_rules
                if rule not in done.used_trip_rules and not rule.is_general
            ),
            *make_unused_launch_warnings(find_unused_launches(programs, options)),
        ),
    )


def _find_folder(program: Program) -> Path | None:
    """Return the folder of an input; None for standard input."""
    path = Path(program.module.path)
    return path.parent if path.is_file() else None


def find_unused_launches(programs: Sequence[Program], options: Options) -> tuple[str, ...]:
    """Return the entries of the launch file that no kernel of the inputs takes.

    Of several inputs with chosen kernels, some may not have been read: then none is returned.
    """
    if options.launch_table is None or (options.kernels and len(programs) > 1):
        return ()
    names = [
        ((kernel.name, demangle(kernel.name)), kernel.kernel.triton_hash)
        for program in programs
        for kernel in program.kernels
    ]
    return options.launch_table.find_unused_globs(names)


def assign_gpus(
    kernels: Sequence[LoadedKernel], gpus: tuple[Gpu, ...]
) -> Iterator[tuple[LoadedKernel, tuple[Gpu, ...]]]:
    """Yield each kernel with the GPUs that run it rather than its versions for other architectures.

    A fat binary holds a kernel for several architectures: each GPU takes the nearest of them. Versions that
    no GPU takes are left out.
    """
    versions: dict[str, list[LoadedKernel]] = {}
    for kernel in kernels:
        versions.setdefault(kernel.name, []).append(kernel)
    for kernel in kernels:
        others = versions[kernel.name]
        archs = [other.kernel for other in others]
        own = tuple(
            gpu
            for gpu in gpus
            if any(others[index] is kernel for index in find_best_kernel_indices(archs, gpu))
        )
        if own or not gpus:
            yield kernel, own


def choose_kernels(programs: Sequence[Program], options: Options) -> list[list[LoadedKernel]]:
    """Return the kernels of each input that the options name, all where they name none.

    A name that equals one kernel's in any input leaves out those of which it is a part. Raises UsageError for
    a name that fits nothing.
    """
    if not options.kernels:
        return [list(program.kernels) for program in programs]
    kernels = [kernel for program in programs for kernel in program.kernels]
    chosen = set[int]()
    for pattern in options.kernels:
        found = find_kernels(kernels, pattern)
        if not found:
            raise make_no_kernel_error(pattern, [kernel.name for kernel in kernels])
        chosen.update(map(id, found))
    return [[kernel for kernel in program.kernels if id(kernel) in chosen] for program in programs]


def make_no_kernel_error(pattern: str, names: Sequence[str]) -> UsageError:
    """Return the error of a name that fits none of the kernels, with the nearest names."""
    near = find_nearest_names(names, pattern)
    hint = f"the input has: {list_names_for_people(sorted(names))}"
    if near:
        hint = f"did you mean {list_names_for_people(near)}?"
    return UsageError(f"no kernel fits {pattern}", hint=hint)


def _check_coverage(reports: Sequence[KernelReport], options: Options) -> None:
    total = sum(report.instructions for report in reports)
    coverage = sum(report.instructions * report.coverage for report in reports) / max(1, total)
    if coverage < options.min_coverage:
        raise GateError(
            f"coverage {coverage:.2%} is below --min-coverage {options.min_coverage:.2%}",
            hint="the warnings name the unknown opcodes",
        )
