"""Cycles of a launch by instruction and stall.

Every model fills one table, so that its CPI stack sums to its predicted cycles because both are sums of it:

    accumulator = StallAccumulator(n_rows=2)
    accumulator.add_row_cycles(Stall.SELECTED, np.array([1.0, 1.0]))
    accumulator.add_unattributed_cycles(Stall.LAUNCH, 10.0)
    accumulator.build_profile().sum_by_stall()   # {LAUNCH: 10.0, SELECTED: 2.0}
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from analyzer.ir.arrays import FloatArray, IntArray, make_read_only
from analyzer.models.interface import Stall, sort_largest_first

STALLS = tuple(Stall)
STALL_INDEX = {stall: column for column, stall in enumerate(STALLS)}


class StallProfile(Struct, frozen=True, eq=False):
    """Elapsed cycles of a launch, attributed to instructions and stalls."""

    cycles: FloatArray  # [n, stall], columns in order of `STALLS`; read-only
    unattributed_cycles: Mapping[Stall, float]  # cycles that belong to no instruction

    def __post_init__(self) -> None:
        make_read_only(self.cycles)

    @property
    def total_cycles(self) -> float:
        """Elapsed cycles of the launch."""
        return float(self.cycles.sum()) + sum(self.unattributed_cycles.values())

    def sum_by_stall(self) -> dict[Stall, float]:
        """Return the cycles by stall, largest first; they sum to `total_cycles`."""
        return _make_stall_stack(self.cycles.sum(axis=0), self.unattributed_cycles)

    def sum_rows_by_stall(self, rows: "Sequence[int] | IntArray") -> dict[Stall, float]:
        """Return the cycles by stall that are attributed to some instructions, largest first."""
        return _make_stall_stack(self.cycles[rows].sum(axis=0), {})


def _make_stall_stack(cycles: FloatArray, unattributed_cycles: Mapping[Stall, float]) -> dict[Stall, float]:
    found = {
        stall: float(c) + unattributed_cycles.get(stall, 0.0) for stall, c in zip(STALLS, cycles, strict=True)
    }
    return sort_largest_first({stall: c for stall, c in found.items() if c > 0})


class StallAccumulator:
    """Builder of a `StallProfile` for a kernel of n_rows instructions."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.cycles: FloatArray = np.zeros((n_rows, len(STALLS)))
        self.unattributed_cycles: dict[Stall, float] = {}

    def add_row_cycles(self, stall: Stall, cycles: FloatArray) -> None:
        """Add cycles to each instruction, [n]."""
        self.cycles[:, STALL_INDEX[stall]] += cycles

    def distribute_cycles(self, stall: Stall, cycles: float, shares: FloatArray) -> None:
        """Add cycles to instructions in proportion to shares [n]; to none if all shares are zero."""
        total = float(shares.sum())
        if total > 0:
            self.add_row_cycles(stall, shares * (cycles / total))
        else:
            self.add_unattributed_cycles(stall, cycles)

    def add_unattributed_cycles(self, stall: Stall, cycles: float) -> None:
        """Add cycles that belong to no instruction."""
        self.unattributed_cycles[stall] = self.unattributed_cycles.get(stall, 0.0) + cycles

    def build_profile(self) -> StallProfile:
        """Return the finished profile; nothing can be added to it any more."""
        return StallProfile(self.cycles, self.unattributed_cycles)
