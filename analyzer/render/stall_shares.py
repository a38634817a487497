"""Shares of stalls over several predictions, which decide the stalls to show."""

from collections.abc import Iterable

from analyzer.report.analyze_schema import PredictionEntry


def find_largest_stall_shares(entries: Iterable[PredictionEntry]) -> dict[str, float]:
    """Return each stall's largest share of the cycles of a prediction, in order of first appearance."""
    shares: dict[str, float] = {}
    for entry in entries:
        for stall, cycles in entry.cpi_stack.items():
            shares[stall] = max(shares.get(stall, 0.0), cycles / entry.cycles if entry.cycles else 0.0)
    return shares
