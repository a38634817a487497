"""Demand on pipes as report entries."""

from analyzer.demand.warp_demand import WarpDemand
from analyzer.report.analyze_schema import PipeEntry


def make_pipe_entries(demand: WarpDemand | None) -> dict[str, PipeEntry]:
    """Return operations and cycles by pipe, busiest first."""
    if demand is None:
        return {}
    ordered = sorted(demand.pipes.items(), key=lambda item: -item[1].cycles)
    return {pipe.value: PipeEntry(operations=use.operations, cycles=use.cycles) for pipe, use in ordered}
