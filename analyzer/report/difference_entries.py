"""Differences between models of one kernel as report entries."""

from analyzer.models.model_comparison import StallDifference, compare_results
from analyzer.models.model_result import ModelResult
from analyzer.report.analyze_schema import DifferenceEntry
from analyzer.report.kernel_analysis import KernelAnalysis


def make_difference_entries(analysis: KernelAnalysis) -> tuple[DifferenceEntry, ...]:
    """Return the differences of the first model from each other one, GPU by GPU."""
    by_gpu: dict[str, list[ModelResult]] = {}
    for on_gpu in analysis.results:
        if on_gpu.result is not None:
            by_gpu.setdefault(on_gpu.gpu, []).append(on_gpu.result)
    return tuple(
        _make_entry(analysis, results[0], other, difference)
        for results in by_gpu.values()
        for other in results[1:]
        for difference in compare_results(results[0], other)
    )


def _make_entry(
    analysis: KernelAnalysis, result: ModelResult, other: ModelResult, difference: StallDifference
) -> DifferenceEntry:
    row, kernel = difference.row, analysis.kernel
    return DifferenceEntry(
        gpu=result.prediction.gpu,
        stall=difference.stall.value,
        model=result.prediction.model,
        cycles=difference.cycles,
        other_model=other.prediction.model,
        other_cycles=difference.other_cycles,
        reason=difference.reason,
        address=None if row is None else int(kernel.addresses[row]),
        source="" if row is None else kernel.find_source_place(row),
    )
