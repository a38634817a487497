"""Inputs and options to one report."""

from collections.abc import Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from analyzer import __version__
from analyzer.execution.counts import TripRule
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.load import base_arch, known_archs, load_all_gpus, load_arch, load_gpu
from analyzer.ir.launch import Dim3
from analyzer.ir.program import Kernel, Module
from analyzer.models.portability import best_for
from analyzer.pipeline.analyst import Options
from analyzer.pipeline.crew import Crew, Task
from analyzer.pipeline.program import LoadedKernel, Program, load, named_kernels
from analyzer.report.report import SCHEMA, InputEntry, KernelReport, Report, WarningEntry
from analyzer.text.errors import HardwareError, InputError, UsageError
from analyzer.text.source import Diagnostic


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
        Task(kernel, own or _typical(kernel.kernel.arch), place)
        for place, (_, kernels) in enumerate(chosen)
        for kernel, own in _with_gpus(kernels, gpus)
    ]
    done = Crew(tasks, options).run()
    reports = done.reports
    _check_coverage(reports, options)
    refusals = [r.refused[0].reason for r in reports if r.refused and not r.predictions]
    if gpus and refusals and len(refusals) == len(reports):
        raise HardwareError(
            refusals[0], hint="choose a GPU of the dump's architecture, or one that has these units"
        )
    return Report(
        schema=SCHEMA,
        tool_version=__version__,
        inputs=tuple(_input(program.module) for program in programs),
        gpus=tuple(dict.fromkeys(p.gpu for r in reports for p in r.predictions)),
        kernels=reports,
        warnings=(
            *(_warning(program.module, d) for program in programs for d in program.diagnostics),
            *_without_figures(programs, gpus),
            *(_unused(rule) for rule in options.trips if rule not in done.used and not rule.is_general),
        ),
    )


def _with_gpus(
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
        own = tuple(gpu for gpu in gpus if any(others[place] is kernel for place in best_for(archs, gpu)))
        if own or not gpus:
            yield kernel, own


def find_gpus(gpu: str | Sequence[str] | None) -> tuple[Gpu, ...]:
    """GPUs by name; empty for None. Raises HardwareError for names that fit nothing."""
    names = [gpu] if isinstance(gpu, str) else list(gpu or ())
    found: list[Gpu] = []
    for name in names:
        found += load_all_gpus(kernels_only=True) if name == "all" else [_for_kernels(load_gpu(name))]
    return tuple({g.key: g for g in found}.values())


def _for_kernels(gpu: Gpu) -> Gpu:
    if gpu.arch is None:
        raise HardwareError(
            f"{gpu.name} ({gpu.file.arch}) has figures for operator models only",
            hint=f"kernels need one of: {', '.join(known_archs())}",
        )
    return gpu


def gpu_for(name: str | None, kernel: Kernel) -> Gpu:
    """The GPU of a name, else the typical part of the kernel's architecture. Raises HardwareError."""
    found = find_gpus(name) or _typical(kernel.arch)
    if not found:
        raise HardwareError(f"no GPU is known for {kernel.arch or 'this dump'}", hint="name one with --gpu")
    if len(found) > 1:
        raise HardwareError(f"{name}: one GPU at a time", hint="name one, such as h100")
    return found[0]


@cache
def _typical(arch: str) -> tuple[Gpu, ...]:
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
    chosen = {id(kernel) for pattern in options.kernels for kernel in named_kernels(program.kernels, pattern)}
    return [kernel for kernel in program.kernels if id(kernel) in chosen]


def _check_coverage(reports: Sequence[KernelReport], options: Options) -> None:
    total = sum(report.instructions for report in reports)
    coverage = sum(report.instructions * report.coverage for report in reports) / max(1, total)
    if coverage < options.min_coverage:
        raise InputError(
            f"coverage {coverage:.2%} is below --min-coverage {options.min_coverage:.2%}",
            hint="the warnings name the unknown opcodes",
        )


def _input(module: Module) -> InputEntry:
    return InputEntry(
        path=module.path,
        format=module.dialect.value,
        architecture=tuple(dict.fromkeys(kernel.arch for kernel in module.kernels)),
        toolchain=module.toolchain,
    )


def _without_figures(programs: Sequence[Program], gpus: tuple[Gpu, ...]) -> Iterator[WarningEntry]:
    """Architectures that have no figures, or that the dump does not name, so only counts are given."""
    counts: dict[tuple[str, str], int] = {}
    for program in programs:
        for kernel in program.module.kernels:
            if base_arch(kernel.arch) not in known_archs():
                place = (program.module.path, kernel.arch)
                counts[place] = counts.get(place, 0) + 1
    for (path, arch), count in counts.items():
        what = f"architecture {arch} is not known" if arch else "the dump names no architecture"
        so = "taken to the GPU as it is" if gpus else "counts only; --gpu NAME takes the code to a known GPU"
        yield WarningEntry(
            code="unknown-architecture", message=f"{what}: {so}", path=path, line=None, count=count
        )


def _unused(rule: TripRule) -> WarningEntry:
    message = f"--trip {rule} fits no loop; `--loops` lists them"
    return WarningEntry(code="unused-trip", message=message, path="", line=None, count=1)


def _warning(module: Module, diagnostic: Diagnostic) -> WarningEntry:
    location = diagnostic.location
    return WarningEntry(
        code=diagnostic.code,
        message=diagnostic.message,
        path=location.path if location else module.path,
        line=location.line if location else None,
        count=diagnostic.count,
    )
