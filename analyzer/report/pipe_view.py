"""Demand on pipes as report entries."""

from analyzer.demand.demand import PipelineDemand
from analyzer.report.report import PipeEntry


def pipe_entries(demand: PipelineDemand | None) -> dict[str, PipeEntry]:
    """Operations and cycles by pipe, busiest first."""
    if demand is None:
        return {}
    ordered = sorted(demand.pipes.items(), key=lambda item: -item[1].cycles)
    return {pipe.value: PipeEntry(operations=use.operations, cycles=use.cycles) for pipe, use in ordered}
