"""Loops as report entries, the one that costs most first."""

import numpy as np

from analyzer.flow.loops import Loop
from analyzer.models.loops import LoopVerdict
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.pipe_view import pipe_entries
from analyzer.report.report import LoopEntry


def loop_entries(analysis: KernelAnalysis) -> tuple[LoopEntry, ...]:
    """All loops of the kernel, by their share of executed instructions."""
    verdicts = {verdict.loop.index: verdict for verdict in analysis.loops}
    entries = [_entry(analysis, loop, verdicts.get(loop.index)) for loop in analysis.nest.loops]
    return tuple(sorted(entries, key=lambda entry: (-entry.share, entry.header)))


def _entry(analysis: KernelAnalysis, loop: Loop, verdict: LoopVerdict | None) -> LoopEntry:
    trip = analysis.counts.trips[loop.index]
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
        busiest=verdict.busiest if verdict else "",
        busiest_share=verdict.busiest_share if verdict else 0.0,
        pipes=pipe_entries(verdict.demand if verdict else None),
        cpi_stack=_stack(verdict),
        launch_stack=_launch_stack(analysis, loop),
        share=analysis.share_of(loop),
        source=str(analysis.kernel.origin(row) or ""),
    )


def _stack(verdict: LoopVerdict | None) -> dict[str, float]:
    return {} if verdict is None else {stall.value: cycles for stall, cycles in verdict.stack.items()}


def _launch_stack(analysis: KernelAnalysis, loop: Loop) -> dict[str, float]:
    if analysis.first is None:
        return {}
    blocks = [analysis.cfg.blocks[number] for number in sorted(loop.blocks)]
    rows = np.concatenate([np.arange(block.start, block.stop) for block in blocks])
    return {stall.value: cycles for stall, cycles in analysis.first.stalls.stack_of(rows).items()}
