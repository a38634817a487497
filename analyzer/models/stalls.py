"""Cycles of a launch by instruction and stall: what every model's CPI stack is summed from."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from analyzer.demand.opcode_costs import FloatArray
from analyzer.ir.module import IntArray
from analyzer.models.interface import Stall, sort_largest_first

STALLS = tuple(Stall)
STALL_INDEX = {stall: column for column, stall in enumerate(STALLS)}


class StallProfile(Struct, frozen=True, eq=False):
    """cycles[n, stall]: elapsed cycles of the launch that stand to an instruction's account, columns in order
    of `STALLS`; outside: those that stand to no instruction's.
    """

    cycles: FloatArray
    unattributed_cycles: Mapping[Stall, float]

    @property
    def total_cycles(self) -> float:
        """All of them: the launch's elapsed cycles."""
        return float(self.cycles.sum()) + sum(self.unattributed_cycles.values())

    def sum_by_stall(self) -> dict[Stall, float]:
        """Cycles by stall, largest first; they sum to `total_cycles`."""
        return _make_stall_stack(self.cycles.sum(axis=0), self.unattributed_cycles)

    def sum_rows_by_stall(self, rows: "Sequence[int] | IntArray") -> dict[Stall, float]:
        """Those that stand to the account of some instructions."""
        return _make_stall_stack(self.cycles[rows].sum(axis=0), {})


def _make_stall_stack(cycles: FloatArray, unattributed_cycles: Mapping[Stall, float]) -> dict[Stall, float]:
    found = {
        stall: float(c) + unattributed_cycles.get(stall, 0.0) for stall, c in zip(STALLS, cycles, strict=True)
    }
    return sort_largest_first({stall: c for stall, c in found.items() if c > 0})


class StallAccumulator:
    """A stall profile in the making, of a kernel with so many instructions."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.cycles: FloatArray = np.zeros((n_rows, len(STALLS)))
        self.unattributed_cycles: dict[Stall, float] = {}

    def add_row_cycles(self, stall: Stall, cycles: FloatArray) -> None:
        """Cycles of each instruction, [n]."""
        self.cycles[:, STALL_INDEX[stall]] += cycles

    def distribute_cycles(self, stall: Stall, cycles: float, shares: FloatArray) -> None:
        """Cycles handed out by shares [n]; to no instruction where all shares are zero."""
        total = float(shares.sum())
        if total > 0:
            self.add_row_cycles(stall, shares * (cycles / total))
        else:
            self.add_unattributed_cycles(stall, cycles)

    def add_unattributed_cycles(self, stall: Stall, cycles: float) -> None:
        """Cycles of no instruction."""
        self.unattributed_cycles[stall] = self.unattributed_cycles.get(stall, 0.0) + cycles

    def build_profile(self) -> StallProfile:
        """Return the finished profile; nothing can be added to it any more."""
        self.cycles.setflags(write=False)
        return StallProfile(self.cycles, self.unattributed_cycles)
