"""The one place that puts the storeys together: bytes to report.

>>> import analyzer
>>> program = analyzer.load("kernel.sass")                       # doctest: +SKIP
>>> kernel = program["gemm"]; kernel.cfg.graph; kernel.mix["HMMA"]  # doctest: +SKIP
>>> analyzer.analyze(program, gpu="h100", grid=(132, 1, 1))      # doctest: +SKIP
"""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from analyzer import __version__
from analyzer.demand.costs import OpcodeCosts, opcode_costs
from analyzer.demand.demand import instruction_weights, measure_demand
from analyzer.demand.mix import Mix
from analyzer.demand.registers import with_registers
from analyzer.demand.tiles import with_known_tiles
from analyzer.execution.counts import BlockCounts, TripRule, count_blocks
from analyzer.flow.cfg import Cfg, build_cfg
from analyzer.flow.defuse import DefUse
from analyzer.flow.loops import LoopNest, find_loops
from analyzer.frontend.reader import read_module
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.load import base_arch, known_archs, load_all_gpus, load_arch, load_gpu
from analyzer.hardware.occupancy import WARP_LANES, Occupancy, occupancy
from analyzer.hardware.schema import Arch
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.program import Instruction, Kernel, Module
from analyzer.isa.control_bits import decode_control
from analyzer.models.advice import find_advice
from analyzer.models.base import Situation
from analyzer.models.loops import judge_loop
from analyzer.models.portability import is_native, missing_units
from analyzer.models.warp import predict
from analyzer.report.analysis import GpuVerdict, KernelAnalysis
from analyzer.report.kernel_view import kernel_report
from analyzer.report.report import SCHEMA, InputEntry, KernelReport, Report, WarningEntry
from analyzer.text.errors import HardwareError, InputError, UsageError
from analyzer.text.source import Diagnostic

ASSUMED_BLOCK_THREADS = 256


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel with what can be known of it without a GPU, worked out when asked for."""

    kernel: Kernel
    ordinal: int = 1

    @property
    def name(self) -> str:
        return self.kernel.name

    @cached_property
    def cfg(self) -> Cfg:
        """Control-flow graph; `cfg.graph` is its networkx form."""
        return build_cfg(self.kernel)

    @cached_property
    def loops(self) -> LoopNest:
        return find_loops(self.cfg)

    @cached_property
    def defuse(self) -> DefUse:
        """Def-use chains through registers, predicates, uniform registers and scoreboards."""
        return DefUse(self.cfg)

    @cached_property
    def mix(self) -> Mix:
        return Mix(self.kernel)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions in address order, decoded as they are asked for."""
        for row in range(len(self.kernel)):
            words = self.kernel.control_words
            yield Instruction(
                index=row,
                address=int(self.kernel.addresses[row]),
                form=self.kernel.form(row),
                control=None if words is None else decode_control(int(words[row])),
                origin=self.kernel.origin(row),
            )

    def __len__(self) -> int:
        return len(self.kernel)


@dataclass(frozen=True, eq=False)
class Program:
    """A loaded input: kernels by name; `program["gemm*"]` takes the first that fits."""

    module: Module

    @cached_property
    def kernels(self) -> tuple[LoadedKernel, ...]:
        return tuple(LoadedKernel(kernel, n) for n, kernel in enumerate(self.module.kernels, start=1))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.module.diagnostics

    def __getitem__(self, name: str) -> LoadedKernel:
        found = _named(self.kernels, name)
        if not found:
            raise KeyError(name)
        return found[0]

    def __len__(self) -> int:
        return len(self.module.kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to analyze: `kernels` are globs or parts of names, all where empty; `listing` adds instructions."""

    kernels: tuple[str, ...] = ()
    trips: tuple[TripRule, ...] = ()
    launch: Launch = field(default_factory=Launch)
    listing: bool = False
    min_coverage: float = 0.0


def load(path: str, *, usage_path: str | None = None) -> Program:
    """Read a dump or binary; `usage_path` is `cuobjdump -res-usage` text, else looked for beside it.

    Raises InputError where the file cannot be read as what it claims to be.
    """
    return Program(read_module(path, usage_path=usage_path))


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
    chosen = [(program, _choose(program, options)) for program in programs]
    if not any(kernels for _, kernels in chosen):
        names = ", ".join(sorted({k.name for p in programs for k in p.kernels})[:5])
        raise UsageError(f"no kernel fits {', '.join(options.kernels)}", hint=f"the input has: {names}")
    reports = []
    used: set[TripRule] = set()
    for program, kernels in chosen:
        analyst = _Analyst(program.module, options)
        for kernel in kernels:
            analysis = analyst.analyze(kernel, gpus or _typical(kernel.kernel))
            used.update(trip.rule for trip in analysis.counts.trips if trip.rule)
            reports.append(kernel_report(analysis, listing=options.listing))
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
        kernels=tuple(reports),
        warnings=(
            *(_warning(program.module, d) for program in programs for d in program.diagnostics),
            *_without_figures(programs, gpus),
            *(_unused(rule) for rule in options.trips if rule not in used and not rule.is_general),
        ),
    )


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


def _typical(kernel: Kernel) -> tuple[Gpu, ...]:
    """The part taken where none is named; none for an architecture without figures."""
    try:
        name = load_arch(kernel.arch).typical_gpu
    except HardwareError:
        return ()
    return () if name is None else (load_gpu(name),)


def _named(kernels: Sequence[LoadedKernel], pattern: str) -> list[LoadedKernel]:
    """Kernels of exactly this name; where there is none, those that fit it as a glob or hold it.

    `#N` is the Nth kernel of the input.
    """
    if re.fullmatch(r"#\d+", pattern):
        return [kernel for kernel in kernels if kernel.ordinal == int(pattern[1:])]
    exact = [kernel for kernel in kernels if kernel.name == pattern]
    return exact or [k for k in kernels if fnmatch.fnmatchcase(k.name, pattern) or pattern in k.name]


def _choose(program: Program, options: Options) -> list[LoadedKernel]:
    if not options.kernels:
        return list(program.kernels)
    chosen = {id(kernel) for pattern in options.kernels for kernel in _named(program.kernels, pattern)}
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


class _Analyst:
    """Analyzes the kernels of one module; costs are worked out once per GPU."""

    def __init__(self, module: Module, options: Options) -> None:
        self.module = module
        self.options = options
        self._costs: dict[str, OpcodeCosts] = {}

    def analyze(self, loaded: LoadedKernel, gpus: tuple[Gpu, ...]) -> KernelAnalysis:
        loaded = replace(loaded, kernel=with_registers(loaded.kernel))
        cfg, nest = loaded.cfg, loaded.loops
        counts = count_blocks(cfg, nest, self.options.trips)
        verdicts = tuple(self._verdict(loaded, counts, gpu) for gpu in gpus)
        analysis = KernelAnalysis(
            kernel=loaded.kernel,
            ordinal=loaded.ordinal,
            cfg=cfg,
            nest=nest,
            counts=counts,
            mix=loaded.mix,
            launch=self._launch(loaded.kernel),
            verdicts=verdicts,
            loops=(),
            findings=(),
        )
        first = analysis.first
        if first is None:
            return analysis
        return replace(
            analysis,
            loops=tuple(judge_loop(first.situation, first.walk, loop) for loop in nest.loops),
            findings=find_advice(first.situation, first.prediction, first.walk),
        )

    def _launch(self, kernel: Kernel) -> Launch:
        """What the user says, else what metadata does."""
        launch, resources = self.options.launch, kernel.resources
        block, dynamic = launch.block, launch.dynamic_shared_bytes
        if block is None and resources.block_threads is not None and resources.block_threads_exact:
            block = Dim3(resources.block_threads)
        if dynamic is None:
            dynamic = resources.dynamic_shared_bytes
        return replace(launch, block=block, dynamic_shared_bytes=dynamic)

    def _verdict(self, loaded: LoadedKernel, counts: BlockCounts, gpu: Gpu) -> GpuVerdict:
        reason, verdict = "", None
        missing = missing_units(loaded.kernel, gpu)
        if gpu.arch is None:
            reason = f"{gpu.name} has figures for operator models only"
        elif missing:
            reason = f"{gpu.name} ({gpu.file.arch}) has no {', '.join(missing)}, which the kernel needs"
        else:
            situation = self._situation(loaded, counts, gpu, gpu.arch)
            if situation.occupancy.ctas_per_sm:
                verdict = predict(situation)
            else:
                reason = f"a CTA does not fit on {gpu.name}: too much {situation.occupancy.limiter.value}"
        return GpuVerdict(
            gpu=gpu.key,
            gpu_name=gpu.name,
            transferred=not is_native(loaded.kernel, gpu),
            reason=reason,
            verdict=verdict,
        )

    def _situation(self, loaded: LoadedKernel, counts: BlockCounts, gpu: Gpu, arch: Arch) -> Situation:
        kernel, cfg = loaded.kernel, loaded.cfg
        costs = self._costs.get(gpu.key)
        if costs is None:
            costs = self._costs[gpu.key] = opcode_costs(kernel.vocabulary, gpu, arch)
        tiled = with_known_tiles(cfg, costs)
        launch = self._launch(kernel)
        threads = launch.block.count if launch.block else ASSUMED_BLOCK_THREADS
        resident = self._occupancy(kernel, arch, threads)
        weights = instruction_weights(cfg, counts.per_warp)
        wave = gpu.sm_count * max(1, resident.ctas_per_sm)
        return Situation(
            kernel=kernel,
            cfg=cfg,
            nest=loaded.loops,
            counts=counts,
            weights=weights,
            gpu=gpu,
            arch=arch,
            costs=tiled.costs,
            demand=measure_demand(kernel, weights, tiled.costs),
            occupancy=resident,
            grid=launch.grid,
            grid_ctas=launch.grid.count if launch.grid else wave,
            block=launch.block,
            block_threads=threads,
            guessed_tiles=tiled.guessed,
        )

    def _occupancy(self, kernel: Kernel, arch: Arch, threads: int) -> Occupancy:
        resources = kernel.resources
        static = resources.shared_bytes or 0
        dynamic = self._launch(kernel).dynamic_shared_bytes or 0
        return occupancy(
            arch.limits,
            block_threads=threads,
            registers=resources.registers or WARP_LANES,
            shared_bytes=static + dynamic,
        )
