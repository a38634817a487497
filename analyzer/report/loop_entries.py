"""Loops as report entries, largest share of executed instructions first."""

import numpy as np

from analyzer.flow.loops import Loop
from analyzer.models.loop_bounds import LoopBounds
from analyzer.report.analyze_schema import LoopEntry
from analyzer.report.kernel_analysis import KernelAnalysis
from analyzer.report.pipe_entries import make_pipe_entries


def make_loop_entries(analysis: KernelAnalysis) -> tuple[LoopEntry, ...]:
    """Return the loops that some warp enters, by their share of executed instructions."""
    results = {result.loop.index: result for result in analysis.loops}
    entries = [
        _make_entry(analysis, loop, results.get(loop.index))
        for loop in analysis.loop_forest.loops
        if _is_entered(analysis, loop)
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.share, entry.header)))


def list_loops_not_entered(analysis: KernelAnalysis) -> tuple[int, ...]:
    """Return the addresses of the headers of the other loops, in order."""
    return tuple(
        sorted(
            _find_header_address(analysis, loop)
            for loop in analysis.loop_forest.loops
            if not _is_entered(analysis, loop)
        )
    )


def _is_entered(analysis: KernelAnalysis, loop: Loop) -> bool:
    return analysis.counts.per_warp[loop.header] > 0


def _find_header_address(analysis: KernelAnalysis, loop: Loop) -> int:
    return int(analysis.kernel.addresses[analysis.cfg.blocks[loop.header].start])


def _make_entry(analysis: KernelAnalysis, loop: Loop, result: LoopBounds | None) -> LoopEntry:
    trip = analysis.counts.trips[loop.index]
    row = analysis.cfg.blocks[loop.header].start
    return LoopEntry(
        header=_find_header_address(analysis, loop),
        depth=loop.depth,
        instructions=sum(len(analysis.cfg.blocks[b]) for b in loop.blocks),
        trip_count=trip.count,
        provenance=trip.provenance.value,
        trip_reason=trip.reason,
        cycles_per_iteration=result.cycles_per_iteration if result else None,
        bound=result.bound if result else "",
        bounds=dict(result.bounds_cycles) if result else {},
        limited_by_recurrence=result is not None and result.is_limited_by_recurrence,
        busiest=result.busiest_resource if result else "",
        busiest_share=result.busiest_resource_share if result else 0.0,
        pipes=make_pipe_entries(result.demand if result else None),
        cpi_stack=_make_cpi_stack(result),
        launch_stack=_make_launch_stack(analysis, loop),
        share=analysis.compute_instruction_share(loop),
        warp_share=result.warp_share if result else 1.0,
        source=analysis.kernel.find_source_place(row),
    )


def _make_cpi_stack(result: LoopBounds | None) -> dict[str, float]:
    return {} if result is None else {stall.value: cycles for stall, cycles in result.cpi_stack.items()}


def _make_launch_stack(analysis: KernelAnalysis, loop: Loop) -> dict[str, float]:
    first = analysis.first_result
    if first is None or first.stalls is None:
        return {}
    blocks = [analysis.cfg.blocks[number] for number in sorted(loop.blocks)]
    rows = np.concatenate([np.arange(block.start, block.stop) for block in blocks])
    return {stall.value: cycles for stall, cycles in first.stalls.sum_rows_by_stall(rows).items()}
