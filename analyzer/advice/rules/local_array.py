"""Arrays of a thread that lie in local memory, since registers cannot be indexed."""

from analyzer.advice.edited_rows import find_dead_rows, without_rows
from analyzer.advice.frame_accesses import find_frame_accesses
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.models.model_result import ModelResult

NAME = "local-array"
ACTION = (
    "make every index of the array a constant (unroll its loops, select with conditions), or keep it in "
    "shared memory"
)


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the accesses to arrays in local memory, those that are executed most first."""
    counts = result.model_input.execution_counts
    rows = sorted(
        find_frame_accesses(result.model_input).array_rows, key=lambda row: (-float(counts[row]), row)
    )
    requests = sum(float(counts[row]) for row in rows)
    message = f"array in local memory: {requests:,.0f} accesses by each warp, at computed addresses"
    return tuple(Site(row, message) for row in rows)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch without the accesses to the array and what computes their addresses."""
    rows = frozenset(list_rows(sites))
    rows |= find_dead_rows(result.model_input.cfg, rows)
    return Edit(
        without_rows(result.model_input, rows),
        note="neither accesses to the array nor their addresses, and as many registers as now",
    )
