"""Inputs and options to one report."""

from collections.abc import Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import (
    list_known_archs,
    load_all_gpus,
    load_arch,
    load_gpu,
    strip_arch_suffix,
)
from analyzer.ir.launch import Dim3
from analyzer.ir.module import Kernel, Module
from analyzer.models.portability import find_best_kernel_indices
from analyzer.pipeline.kernel_analyzer import Options
from analyzer.pipeline.loaded_program import LoadedKernel, Program, find_kernels, load
from analyzer.pipeline.parallel import KernelTask, ParallelRun
from analyzer.report.analyze_schema import ANALYZE_SCHEMA, InputEntry, KernelReport, Report, WarningEntry
from analyzer.text.errors import HardwareError, InputError, UsageError
from analyzer.text.source import Diagnostic
from analyzer.version import __version__


def analyze(
    source: str | Program | Sequence[str],
    gpu: str | Sequence[str] | None = None,
    *,
    grid: tuple[int, int, int] | None = None,
    block: tuple[int, int, int] | None = None,
    options: Options | None = None,
) -> Report:
    """Analyze a dump (path or loaded program; several paths make one report) on one or more GPUs.

    gpu: name, alias or TOML path; "all" for every known GPU; None for the typical part of the dump's
    architecture. grid, block: short for `options.launch`.
    Raises InputError, HardwareError or UsageError.
    """
    options = options or Options()
    if grid or block:
        launch = replace(
            options.launch,
            grid=Dim3(*grid) if grid else options.launch.grid,
            block=Dim3(*block) if block else options.launch.block,
        )
        options = replace(options, launch=launch)
    paths = [source] if isinstance(source, str | Program) else list(source)
    programs = [item if isinstance(item, Program) else load(item) for item in paths]
    return analyze_programs(programs, gpu, options)


def analyze_programs(
    programs: Sequence[Program], gpu: str | Sequence[str] | None, options: Options
) -> Report:
    """One report over several loaded inputs."""
    gpus = find_gpus(gpu)
    chosen = [(program, choose_kernels(program, options)) for program in programs]
    if not any(kernels for _, kernels in chosen):
        names = ", ".join(sorted({k.name for p in programs for k in p.kernels})[:5])
        raise UsageError(f"no kernel fits {', '.join(options.kernels)}", hint=f"the input has: {names}")
    tasks = [
        KernelTask(kernel, own or _find_typical_gpus(kernel.kernel.arch), place)
        for place, (_, kernels) in enumerate(chosen)
        for kernel, own in _assign_gpus(kernels, gpus)
    ]
    done = ParallelRun(tasks, options).run()
    reports = done.reports
    _check_coverage(reports, options)
    refusals = [r.refused[0].reason for r in reports if r.refused and not r.predictions]
    if gpus and refusals and len(refusals) == len(reports):
        raise HardwareError(
            refusals[0], hint="choose a GPU of the dump's architecture, or one that has these units"
        )
    return Report(
        schema=ANALYZE_SCHEMA,
        tool_version=__version__,
        inputs=tuple(_make_input_entry(program.module) for program in programs),
        gpus=tuple(dict.fromkeys(p.gpu for r in reports for p in r.predictions)),
        kernels=reports,
        warnings=(
            *(_make_warning_entry(program.module, d) for program in programs for d in program.diagnostics),
            *_warn_of_unknown_archs(programs, gpus),
            *(
                _make_unused_trip_warning(rule)
                for rule in options.trip_rules
                if rule not in done.used_trip_rules and not rule.is_general
            ),
        ),
    )


def _assign_gpus(
    kernels: Sequence[LoadedKernel], gpus: tuple[Gpu, ...]
) -> Iterator[tuple[LoadedKernel, tuple[Gpu, ...]]]:
    """Each kernel with those GPUs for which no other chosen one is the same code for a nearer architecture.

    One that is left without any is left out.
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
            if any(others[place] is kernel for place in find_best_kernel_indices(archs, gpu))
        )
        if own or not gpus:
            yield kernel, own


def find_gpus(gpu: str | Sequence[str] | None) -> tuple[Gpu, ...]:
    """GPUs by name; empty for None. Raises HardwareError for names that fit nothing."""
    names = [gpu] if isinstance(gpu, str) else list(gpu or ())
    found: list[Gpu] = []
    for name in names:
        found += (
            load_all_gpus(kernels_only=True) if name == "all" else [_check_has_kernel_figures(load_gpu(name))]
        )
    return tuple({g.key: g for g in found}.values())


def _check_has_kernel_figures(gpu: Gpu) -> Gpu:
    if gpu.arch is None:
        raise HardwareError(
            f"{gpu.name} ({gpu.file.arch}) has figures for operator models only",
            hint=f"kernels need one of: {', '.join(list_known_archs())}",
        )
    return gpu


def find_single_gpu(name: str | None, kernel: Kernel) -> Gpu:
    """The GPU of a name, else the typical part of the kernel's architecture. Raises HardwareError."""
    found = find_gpus(name) or _find_typical_gpus(kernel.arch)
    if not found:
        raise HardwareError(f"no GPU is known for {kernel.arch or 'this dump'}", hint="name one with --gpu")
    if len(found) > 1:
        raise HardwareError(f"{name}: one GPU at a time", hint="name one, such as h100")
    return found[0]


@cache
def _find_typical_gpus(arch: str) -> tuple[Gpu, ...]:
    """The part taken where none is named; none for an architecture without figures."""
    try:
        name = load_arch(arch).typical_gpu
    except HardwareError:
        return ()
    return () if name is None else (load_gpu(name),)


def choose_kernels(program: Program, options: Options) -> list[LoadedKernel]:
    """Those that the options name, all where they name none."""
    if not options.kernels:
        return list(program.kernels)
    chosen = {id(kernel) for pattern in options.kernels for kernel in find_kernels(program.kernels, pattern)}
    return [kernel for kernel in program.kernels if id(kernel) in chosen]


def _check_coverage(reports: Sequence[KernelReport], options: Options) -> None:
    total = sum(report.instructions for report in reports)
    coverage = sum(report.instructions * report.coverage for report in reports) / max(1, total)
    if coverage < options.min_coverage:
        raise InputError(
            f"coverage {coverage:.2%} is below --min-coverage {options.min_coverage:.2%}",
            hint="the warnings name the unknown opcodes",
        )


def _make_input_entry(module: Module) -> InputEntry:
    return InputEntry(
        path=module.path,
        format=module.source_format.value,
        architecture=tuple(dict.fromkeys(kernel.arch for kernel in module.kernels)),
        toolchain=module.toolchain,
    )


def _warn_of_unknown_archs(programs: Sequence[Program], gpus: tuple[Gpu, ...]) -> Iterator[WarningEntry]:
    """Architectures that have no figures, or that the dump does not name, so only counts are given."""
    counts: dict[tuple[str, str], int] = {}
    for program in programs:
        for kernel in program.module.kernels:
            if strip_arch_suffix(kernel.arch) not in list_known_archs():
                place = (program.module.path, kernel.arch)
                counts[place] = counts.get(place, 0) + 1
    for (path, arch), count in counts.items():
        what = f"architecture {arch} is not known" if arch else "the dump names no architecture"
        so = "taken to the GPU as it is" if gpus else "counts only; --gpu NAME takes the code to a known GPU"
        yield WarningEntry(
            code="unknown-architecture", message=f"{what}: {so}", path=path, line=None, count=count
        )


def _make_unused_trip_warning(rule: TripCountRule) -> WarningEntry:
    message = f"--trip {rule} fits no loop; `--loops` lists them"
    return WarningEntry(code="unused-trip", message=message, path="", line=None, count=1)


def _make_warning_entry(module: Module, diagnostic: Diagnostic) -> WarningEntry:
    location = diagnostic.location
    return WarningEntry(
        code=diagnostic.code,
        message=diagnostic.message,
        path=location.path if location else module.path,
        line=location.line if location else None,
        count=diagnostic.count,
    )
