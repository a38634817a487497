"""Loops as report entries, the one that costs most first."""

from analyzer.models.loops import LoopVerdict
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.pipe_view import pipe_entries
from analyzer.report.report import LoopEntry


def loop_entries(analysis: KernelAnalysis) -> tuple[LoopEntry, ...]:
    """All loops of the kernel, by their share of executed instructions."""
    verdicts = {verdict.loop.index: verdict for verdict in analysis.loops}
    per_warp, blocks = analysis.counts.per_warp, analysis.cfg.blocks
    total = sum(count * len(block) for count, block in zip(per_warp, blocks, strict=True))
    entries = []
    for loop in analysis.nest.loops:
        inside = sum(per_warp[b] * len(blocks[b]) for b in loop.blocks)
        share = inside / total if total else 0.0
        entries.append(_entry(analysis, loop.index, verdicts.get(loop.index), share))
    return tuple(sorted(entries, key=lambda entry: (-entry.share, entry.header)))


def _entry(analysis: KernelAnalysis, index: int, verdict: LoopVerdict | None, share: float) -> LoopEntry:
    loop, trip = analysis.nest.loops[index], analysis.counts.trips[index]
    row = analysis.cfg.blocks[loop.header].start
    return LoopEntry(
        header=int(analysis.kernel.addresses[row]),
        depth=loop.depth,
        instructions=sum(len(analysis.cfg.blocks[b]) for b in loop.blocks),
        trip_count=trip.value,
        provenance=trip.provenance.value,
        trip_reason=trip.reason,
        cycles_per_iteration=verdict.cycles_per_iteration if verdict else None,
        bound=verdict.bound if verdict else "",
        bounds=verdict.bounds_cycles if verdict else {},
        pipes=pipe_entries(verdict.demand if verdict else None),
        cpi_stack=_stack(verdict),
        share=share,
        source=str(analysis.kernel.origin(row) or ""),
    )


def _stack(verdict: LoopVerdict | None) -> dict[str, float]:
    return {} if verdict is None else {stall.value: cycles for stall, cycles in verdict.stack.items()}
