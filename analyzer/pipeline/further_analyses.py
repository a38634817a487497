"""What the analysis of a launch adds to its predictions: bounds of loops, and what the options ask for."""

from collections.abc import Callable

from msgspec.structs import replace

from analyzer.advice.findings import find_advice
from analyzer.models.loop_bounds import compute_loop_bounds
from analyzer.pipeline.gpu_binding import CountedLaunch
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import HardwareCurve
from analyzer.report.kernel_analysis import KernelAnalysis
from analyzer.report.level_work import LevelWork
from analyzer.text.demangling import demangle

Tell = Callable[[str], None]


def add_further_analyses(
    analysis: KernelAnalysis,
    counted: CountedLaunch,
    options: Options,
    n_kernels: int,
    tell: Tell,
) -> KernelAnalysis:
    """Return the analysis with bounds of loops and advice of its first prediction, levels and curves.

    n_kernels: of the report; tell: is told what is done.
    """
    first = analysis.first_result
    if first is not None:
        analysis = replace(
            analysis,
            loops=compute_loop_bounds(first),
            findings=find_advice(first, options.advice_rules, tell) if options.advice else (),
        )
    return replace(
        analysis,
        hardware_curves=_trace_hardware_curves(counted, analysis, options, n_kernels, tell),
        levels=_compare_levels(counted, options, tell),
    )


def _trace_hardware_curves(
    counted: CountedLaunch, analysis: KernelAnalysis, options: Options, n_kernels: int, tell: Tell
) -> tuple[HardwareCurve, ...]:
    if not options.hardware_curves:
        return ()
    from analyzer.pipeline.hardware_curves import trace_hardware_curves

    return trace_hardware_curves(counted, analysis, options, n_kernels, tell)


def _compare_levels(counted: CountedLaunch, options: Options, tell: Tell) -> tuple[LevelWork, ...]:
    if not options.levels:
        return ()
    from analyzer.pipeline.level_comparison import compare_levels

    tell(f"comparing the levels of {demangle(counted.loaded.name)}")
    return compare_levels(counted)
