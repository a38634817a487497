"""Which stalls are worth showing where several predictions stand side by side."""

from collections.abc import Iterable

from analyzer.report.analyze_schema import PredictionEntry


def find_largest_stall_shares(entries: Iterable[PredictionEntry]) -> dict[str, float]:
    """Each stall's largest share of the cycles in any of them, in the order in which stalls first appear."""
    shares: dict[str, float] = {}
    for entry in entries:
        for stall, cycles in entry.cpi_stack.items():
            shares[stall] = max(shares.get(stall, 0.0), cycles / entry.cycles if entry.cycles else 0.0)
    return shares
