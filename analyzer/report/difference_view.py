"""Where models of one kernel part, as report entries."""

from analyzer.models.explain import Difference, explain
from analyzer.models.verdict import Verdict
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.report import DifferenceEntry


def difference_entries(analysis: KernelAnalysis) -> tuple[DifferenceEntry, ...]:
    """The first model against each other one, GPU by GPU."""
    by_gpu: dict[str, list[Verdict]] = {}
    for on_gpu in analysis.verdicts:
        if on_gpu.verdict is not None:
            by_gpu.setdefault(on_gpu.gpu, []).append(on_gpu.verdict)
    return tuple(
        _entry(analysis, verdicts[0], other, difference)
        for verdicts in by_gpu.values()
        for other in verdicts[1:]
        for difference in explain(verdicts[0], other)
    )


def _entry(
    analysis: KernelAnalysis, verdict: Verdict, other: Verdict, difference: Difference
) -> DifferenceEntry:
    row, kernel = difference.row, analysis.kernel
    return DifferenceEntry(
        gpu=verdict.prediction.gpu,
        stall=difference.stall.value,
        model=verdict.prediction.model,
        cycles=difference.cycles,
        other_model=other.prediction.model,
        other_cycles=difference.other_cycles,
        reason=difference.reason,
        address=None if row is None else int(kernel.addresses[row]),
        source="" if row is None else str(kernel.origin(row) or ""),
    )
