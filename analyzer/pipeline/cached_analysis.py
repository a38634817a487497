"""Analysis of files with a cache: what has not changed is neither parsed nor analyzed again.

The report is the one of `load_all` and `analyze_programs`, byte for byte, whatever the cache holds:

1. Facts of each input (`input_index`): from the cache, else the file is read.
2. Kernels chosen by name and put on GPUs, by the facts alone.
3. The result of each kernel (`kernel_cache`): from the cache, else its file is read, and the kernel analyzed.
4. The report, from facts and results (`report_assembly`).
"""

from collections.abc import Sequence

from msgspec import Struct

from analyzer.frontend.ptx_reader import PtxOptions
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_gpus, find_typical_gpus
from analyzer.pipeline.analysis import find_input_folder
from analyzer.pipeline.input_index import IndexedInput, ReadingOptions, index_inputs, read_programs
from analyzer.pipeline.kernel_cache import KernelCache, KernelResult
from analyzer.pipeline.kernel_tasks import KernelTask, KernelTaskRunner
from analyzer.pipeline.options import Options
from analyzer.pipeline.report_assembly import assemble_report, assign_gpus, choose_kernel_facts
from analyzer.report.analyze_schema import Report
from analyzer.report.input_entries import KernelFacts
from analyzer.text.progress import ProgressCallback, ignore_progress


class _Work(Struct, frozen=True, eq=False):
    """A kernel by its facts, with its GPUs and the key of its result."""

    source: IndexedInput
    kernel: KernelFacts
    gpus: tuple[Gpu, ...]
    key: str


def analyze_files(
    paths: Sequence[str],
    gpu: str | Sequence[str] | None,
    options: Options,
    progress: ProgressCallback = ignore_progress,
    *,
    reading: ReadingOptions | None = None,
    notes: list[str] | None = None,
) -> Report:
    """Analyze files and folders; return the report of `load_all` and `analyze_programs`.

    reading: how files are read; by default PTX is assembled for the GPUs.
    notes: receives sentences on the state of the cache, such as damaged entries.
    Raises InputError, ToolError, HardwareError, UsageError, or GateError for `options.min_coverage`.
    """
    cache = KernelCache(options)
    gpus = find_gpus(gpu)
    reading = reading or _make_reading_options(gpu, options)
    progress(0, 0, "reading")
    inputs = index_inputs(paths, options.kernels, reading, cache)
    works = _list_works(inputs, gpus, options, cache)
    results = _find_results(works, cache)
    missing = [index for index, result in enumerate(results) if result is None]
    _analyze(works, missing, results, options, reading, cache, progress)
    cache.finish()
    if notes is not None:
        notes += cache.list_notes()
    done = [result for result in results if result is not None]
    return assemble_report(
        [each.facts for each in inputs],
        tuple(report for result in done for report in result.reports),
        gpus=gpus,
        options=options,
        used_trip_rules=frozenset(rule for result in done for rule in result.used_trip_rules),
    )


def _make_reading_options(gpu: str | Sequence[str] | None, options: Options) -> ReadingOptions:
    names = (gpu,) if isinstance(gpu, str) else tuple(gpu or ())
    return ReadingOptions(ptx=PtxOptions(gpus=names), jobs=options.jobs)


def _list_works(
    inputs: Sequence[IndexedInput], gpus: tuple[Gpu, ...], options: Options, cache: KernelCache
) -> list[_Work]:
    chosen = choose_kernel_facts([each.facts for each in inputs], options.kernels)
    placed = [
        (source, kernel, own or find_typical_gpus(kernel.arch))
        for source, kernels in zip(inputs, chosen, strict=True)
        for kernel, own in assign_gpus(kernels, gpus)
    ]
    return [
        _Work(source, kernel, own, cache.make_kernel_key(kernel, own, len(placed)))
        for source, kernel, own in placed
    ]


def _find_results(works: Sequence[_Work], cache: KernelCache) -> list[KernelResult | None]:
    if not cache.keeps_kernels:
        return [None] * len(works)
    return [cache.find_kernel(work.key, work.source.facts, work.kernel) for work in works]


def _analyze(
    works: Sequence[_Work],
    missing: Sequence[int],
    results: list[KernelResult | None],
    options: Options,
    reading: ReadingOptions,
    cache: KernelCache,
    progress: ProgressCallback,
) -> None:
    """Analyze the kernels whose results are missing, and put them in."""
    sources = {id(works[index].source): works[index].source for index in missing}
    read_programs([source.file for source in sources.values()], reading, cache)
    programs = {key: source.make_program() for key, source in sources.items()}
    tasks = []
    for work in (works[index] for index in missing):
        program = programs[id(work.source)]
        loaded = program.kernels[work.kernel.ordinal - program.first_ordinal]
        tasks.append(KernelTask(loaded, work.gpus, find_input_folder(program), work.key))
    runner = KernelTaskRunner(tasks, options, progress, n_kernels=len(works), cache=cache)
    for index, result in zip(missing, runner.run().kernels, strict=True):
        results[index] = result
