"""Analysis of several inputs on several GPUs: from inputs and options to one report."""

from collections.abc import Sequence

from msgspec.structs import replace

from analyzer.hardware.gpu_selection import find_gpus
from analyzer.ir.launch import Launch as CheckedLaunch
from analyzer.pipeline.input_index import load_for_gpus
from analyzer.pipeline.kernel_choice import choose_kernel_facts, place_kernels
from analyzer.pipeline.kernel_runner import KernelRunner, KernelTask
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.pipeline.options import Options
from analyzer.pipeline.python_launch import Launch
from analyzer.pipeline.report_assembly import assemble_report
from analyzer.report.analyze_schema import Report
from analyzer.report.input_entries import collect_input_facts
from analyzer.text.errors import UsageError
from analyzer.text.progress import ProgressCallback, ignore_progress


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
    inputs = [collect_input_facts(program.module, program.first_ordinal) for program in programs]
    tasks = [
        KernelTask(programs[index].find_kernel(kernel.ordinal), own)
        for index, kernel, own in place_kernels(inputs, options.kernels, gpus)
    ]
    results = KernelRunner(tasks, options, progress).run()
    return assemble_report(inputs, results, gpus=gpus, options=options)


def choose_kernels(programs: Sequence[Program], options: Options) -> list[list[LoadedKernel]]:
    """Return the kernels of each input that the options name, all where they name none.

    A name that equals one kernel's in any input leaves out those of which it is a part. Raises UsageError for
    a name that fits nothing.
    """
    inputs = [collect_input_facts(program.module, program.first_ordinal) for program in programs]
    return [
        [program.find_kernel(kernel.ordinal) for kernel in kernels]
        for program, kernels in zip(programs, choose_kernel_facts(inputs, options.kernels), strict=True)
    ]
