"""What is remembered of groups that come round a loop: their registers, and what closing it has gained."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.lanes import Group, Origins, View
from analyzer.execution.machine import Machine
from analyzer.execution.step import Value
from analyzer.execution.trial import MOST_SEGMENTS

IntArray = NDArray[np.int64]

_PERIODS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_SHORT_PERIOD = 4
_BOLD = 3  # arrivals more than a period has
_PATIENCE = 8
_LONGEST_PAUSE = 64
_MOST_SMALL = 3
HISTORY = 2 * _PERIODS[-1] + 1
_HISTORY_BYTES = 256 << 20


class Snapshot(Struct, eq=False):
    """What a group's registers hold at the header.

    ran[warp]: segments of the loop that it went through; taken: segments that inner loops were spared so far.
    """

    values: dict[int, Value]
    origins: dict[int, Origins | None]
    ran: IntArray
    taken: int


class History(Struct, eq=False):
    """Arrivals of one group at one header since it came into the loop, latest last.

    entries: how often it has come into it; failures: tries in vain since one succeeded.
    """

    group: Group
    entries: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    arrivals: int = 0
    failures: int = 0
    next_try: int = 0

    def __post_init__(self) -> None:
        self.next_try = max(3, self.pause())

    @property
    def is_outer(self) -> bool:
        """Whether loops were closed inside of the last iteration."""
        return len(self.snapshots) > 1 and self.snapshots[-1].taken != self.snapshots[-2].taken

    def pause(self) -> int:
        """Arrivals until the next try."""
        if self.is_outer:
            return self.arrivals
        return 1 if self.failures < _PATIENCE else min(self.failures, _LONGEST_PAUSE)

    def periods(self) -> Iterator[int]:
        """Periods to try now: boldly once two arrivals have been a period apart, else after two periods."""
        n_seen = len(self.snapshots)
        for period in _PERIODS:
            if period + 2 > n_seen or self.is_too_long(period):
                return
            if self.arrivals <= period + _BOLD or 2 * period + 1 <= n_seen:
                yield period

    def is_too_long(self, period: int) -> bool:
        """Whether so many iterations, loops inside of them and all, are more than a trial goes through."""
        ran = self.snapshots[-1].ran - self.snapshots[-1 - period].ran
        return int(ran.max(initial=0)) > MOST_SEGMENTS

    def goes_on(self, group: Group, machine: Machine) -> bool:
        """Whether a group is the one remembered, or what is left of it: some of its warps and lanes."""
        old = self.group
        if old.doubts != group.doubts:
            return False
        if old.is_whole and group.is_whole and old.is_full and group.is_full:
            self.group = replace(group)
            return True
        places = np.minimum(np.searchsorted(old.rows, group.rows), len(old.rows) - 1)
        if bool((old.rows[places] != group.rows).any()) or bool((group.mask & ~old.mask[places]).any()):
            return False
        if len(old.rows) != len(group.rows):
            whole, view = View(machine.state, old), View(machine.state, group)
            for snapshot in self.snapshots:
                snapshot.values = all_left(snapshot.values, whole, view, places)
                snapshot.origins = all_left(snapshot.origins, whole, view, places)
                snapshot.ran = snapshot.ran[places]
        self.group = replace(group)
        return True


class Gains(Struct, eq=False):
    """What taking iterations of a loop at once has gained: a few each time, where a short period ends soon.

    A place taken modulo 5 grows for 4 iterations; over 5 it does not grow. So after some such successes
    shorter periods are left out, until a longer one is found or as many iterations have gone by as it takes.
    best: the last period over which many were taken; shorter ones wait until it has been tried again.
    """

    n_small: int = 0
    best: int = 0
    least_period: int = 0
    is_settled: bool = False

    def wants(self, period: int, arrivals: int) -> bool:
        """Whether a period is worth a try after so many arrivals."""
        is_early = arrivals <= self.best + _BOLD
        return period >= max(self.least_period, self.best if is_early else 0)

    def note(self, period: int, taken: int, arrivals: int) -> None:
        """So many iterations were taken after so many arrivals."""
        self.best = period if taken > arrivals else 0
        if self.is_settled or self.best:
            self.n_small = 0
            return
        self.n_small += 1
        if self.n_small >= _MOST_SMALL:
            self.least_period = period + 1

    def note_arrivals(self, arrivals: int) -> None:
        """So many arrivals, and nothing could be taken."""
        if self.least_period and arrivals > HISTORY:
            self.least_period, self.is_settled = 0, True


def all_left(arrays: dict[int, Any], whole: View, view: View, places: IntArray) -> dict[int, Any]:
    """The rows of a group that is left of a larger one, of each register."""
    return {slot: _rows_left(array, whole, view, places) for slot, array in arrays.items()}


def _rows_left(array: NDArray[Any] | None, whole: View, view: View, places: IntArray) -> NDArray[Any] | None:
    if array is None:
        return None
    if whole.group.is_whole and array.ndim > 2:
        return view.pick(array)
    rows = whole.flat(array)
    return view.shaped(rows if len(rows) == 1 else rows[places])


def kept_like(snapshot: Snapshot) -> int:
    """How many like this one to remember: for the longest periods, where there is room."""
    n_bytes = sum(value.nbytes for value in snapshot.values.values())
    return max(2 * _SHORT_PERIOD + 1, min(HISTORY, _HISTORY_BYTES // max(1, n_bytes)))
