"""Predictions on edited hardware: launches are counted once, then a model runs once for each edit.

Kernels are shared among processes, and what was found of each is kept in the cache of the options.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_single_gpu
from analyzer.hardware.parameter_edits import (
    combine_settings,
    parse_setting,
    parse_sweep,
    with_settings,
)
from analyzer.ir.launch import Launch as CheckedLaunch
from analyzer.ir.module import SourceFormat
from analyzer.pipeline.analysis import choose_kernels, with_launch
from analyzer.pipeline.content_digests import digest_json, digest_kernel
from analyzer.pipeline.edited_kernels import EditedGpu, HardwareEdits, evaluate_kernel
from analyzer.pipeline.input_index import load_for_gpus
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.kernel_cache import KernelCache
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.pipeline.options import Options
from analyzer.pipeline.python_launch import Launch
from analyzer.report.input_entries import make_kernel_facts
from analyzer.report.whatif_entries import make_figure_entries, make_whatif_notes
from analyzer.report.whatif_schema import WHATIF_SCHEMA, WhatIfKernel, WhatIfReport
from analyzer.text.demangling import demangle
from analyzer.text.errors import UsageError
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__
from analyzer.worker_pool import count_workers, run_in_forks


def whatif(
    source: str | Program,
    gpu: str | None = None,
    *,
    settings: Sequence[str] = (),
    sweeps: Sequence[str] = (),
    elasticity: bool = True,
    follow_power: bool = False,
    launch: Launch | CheckedLaunch | None = None,
    options: Options | None = None,
) -> WhatIfReport:
    """Predict a dump's times on edited hardware.

    launch: in place of `options.launch`.
    settings, sweeps: as on the command line: `dram=x2`, `sms=54:216:54`.
    follow_power: let power choose the clock of each edited GPU, in place of the clock of the GPU as it is.
    Raises InputError, HardwareError or UsageError.
    """
    edits = HardwareEdits(
        settings=tuple(map(parse_setting, settings)),
        sweeps=tuple(map(parse_sweep, sweeps)),
        elasticity=elasticity,
        follows_power=follow_power,
    )
    options = with_launch(options or Options(), launch)
    programs = [source] if isinstance(source, Program) else load_for_gpus(source, gpu, options)
    return whatif_programs(programs, gpu, edits, options)


def whatif_programs(
    programs: Sequence[Program],
    gpu: str | None,
    edits: HardwareEdits,
    options: Options,
    progress: ProgressCallback = ignore_progress,
) -> WhatIfReport:
    """Predict times on a GPU as it is and on each edited one; a point where a kernel does not fit is refused.

    gpu: name, alias or TOML path; None for the typical one of the first kernel's architecture.
    Raises InputError, HardwareError or UsageError.
    """
    if len(options.models) > 1:
        raise UsageError("whatif takes one --model", hint="run it once for each")
    chosen = [
        (program.module.source_format, kernel)
        for program, kernels in zip(programs, choose_kernels(programs, options), strict=True)
        for kernel in kernels
    ]
    base = find_single_gpu(gpu, chosen[0][1].kernel.arch)
    points = tuple(
        (settings, with_settings(base, settings))
        for settings in combine_settings(edits.settings, edits.sweeps)
    )
    sweep = _Sweep(base, points, edits, options, progress, [kernel for _, kernel in chosen])
    cache = KernelCache(options)
    keys = [_make_key(cache, kernel, source_format, sweep) for source_format, kernel in chosen]
    found = [kernel for result in sweep.evaluate_all(keys, cache) for kernel in result.kernels]
    return WhatIfReport(
        schema=WHATIF_SCHEMA,
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        gpu=base.key,
        gpu_name=base.name,
        model=found[0].base.model,
        figures=make_figure_entries(base, found),
        kernels=tuple(found),
        notes=make_whatif_notes(
            [base, *(gpu for _, gpu in points)], found, follows_power=edits.follows_power
        ),
    )


class _SweepResult(Struct, frozen=True):
    """The entries of one kernel, one for each launch."""

    kernels: tuple[WhatIfKernel, ...]


class _Sweep:
    """Some kernels on a GPU and its edits, shared among processes."""

    def __init__(
        self,
        base: Gpu,
        points: tuple[EditedGpu, ...],
        edits: HardwareEdits,
        options: Options,
        progress: ProgressCallback,
        kernels: Sequence[LoadedKernel],
    ) -> None:
        self.base, self.points, self.edits = base, points, edits
        self.options, self.progress, self.kernels = options, progress, kernels
        self.analyzer = KernelAnalyzer(options, len(kernels))

    def evaluate_all(self, keys: Sequence[str], cache: KernelCache) -> list[_SweepResult]:
        """Return the result of each kernel, from the cache where it is there."""
        found = [cache.store.find(key, _SweepResult) for key in keys]
        missing = [index for index, result in enumerate(found) if result is None]
        n_workers = count_workers(self.options.jobs, len(missing))
        tell: ProgressCallback = ignore_progress
        if n_workers < 2:
            results: Iterable[tuple[int, _SweepResult]] = enumerate(map(self.evaluate, missing))
        else:
            tell, self.progress = self.progress, ignore_progress  # forks tell nothing
            results = run_in_forks(self.evaluate, missing, n_workers, _SweepResult)
        for done, (place, result) in enumerate(results, 1):
            tell(done, len(missing), "kernels")
            found[missing[place]] = result
            cache.store.keep(keys[missing[place]], result)
        cache.finish()
        return [
            _place_result(result, kernel.input_path)
            for result, kernel in zip(found, self.kernels, strict=True)
            if result is not None
        ]

    def evaluate(self, index: int) -> _SweepResult:
        """Return the result of a kernel."""
        kernel = self.kernels[index]
        self.progress(index, len(self.kernels), demangle(kernel.name))
        tell = partial(self.progress, index, len(self.kernels))
        counted = self.analyzer.count_launches(kernel)
        return _SweepResult(
            tuple(
                evaluate_kernel(one, self.base, self.points, self.edits, self.options, tell)
                for one in counted
            )
        )


def _place_result(result: _SweepResult, path: str) -> _SweepResult:
    return _SweepResult(tuple(replace(kernel, input=path) for kernel in result.kernels))


def _make_key(cache: KernelCache, loaded: LoadedKernel, source_format: SourceFormat, sweep: _Sweep) -> str:
    """Return the key of a kernel's result; "" where it is not kept.

    Instructions that were lowered from PTX are more than their texts say, and a trace is more than code.
    """
    if not cache.keeps_kernels or loaded.traces or loaded.is_virtual:
        return ""
    facts = make_kernel_facts(loaded.kernel, loaded.ordinal, digest_kernel(loaded.kernel, source_format))
    gpus = [sweep.base, *(gpu for _, gpu in sweep.points)]
    key = cache.make_kernel_key(facts, gpus, len(sweep.kernels))
    return digest_json(["whatif", key, sweep.edits])
