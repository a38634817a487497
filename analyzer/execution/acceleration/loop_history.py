"""History of groups at a loop header: snapshots of registers, and what acceleration has gained so far."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.acceleration.symbolic_iteration import MAX_PERIOD_SEGMENTS
from analyzer.execution.lowering.step import Value
from analyzer.execution.machine.abstract_machine import AbstractMachine
from analyzer.execution.machine.register_state import LockstepGroup, RegisterView, UnknownOrigins
from analyzer.ir.arrays import IntArray

_CANDIDATE_PERIODS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_MIN_TRACKED_PERIOD = 4
_MAX_EARLY_ARRIVALS = 3  # arrivals more than a period has
_FAILURES_BEFORE_BACKOFF = 8
_MAX_PAUSE_ARRIVALS = 64
_MAX_SMALL_GAINS = 3
_MAX_LAST_ARRIVALS = 2  # beyond a period, after the gain that ends with the loop
MAX_SNAPSHOTS = 2 * _CANDIDATE_PERIODS[-1] + 1
_MAX_SNAPSHOT_BYTES = 256 << 20


class RegisterSnapshot(Struct, eq=False):
    """Registers of a group at one arrival at a header."""

    values: dict[int, Value]
    origins: dict[int, UnknownOrigins | None]
    segment_runs: IntArray  # [warp], executed segments of the loop so far
    accelerated_segments: int  # runs of segments that inner loops have skipped so far, of any warp


class LoopHistory(Struct, eq=False):
    """Arrivals of one group at one header since it entered the loop."""

    group: LockstepGroup
    n_entries: int = 0  # of the loop, by this group
    snapshots: list[RegisterSnapshot] = field(default_factory=list)  # the latest last
    n_arrivals: int = 0
    n_failures: int = 0  # attempts that failed since one succeeded
    next_attempt: int = 0  # number of arrivals at which to try again

    def __post_init__(self) -> None:
        self.next_attempt = max(3, self.count_pause_arrivals())

    @property
    def is_outer(self) -> bool:
        """True if inner loops were accelerated in the last iteration."""
        return (
            len(self.snapshots) > 1
            and self.snapshots[-1].accelerated_segments != self.snapshots[-2].accelerated_segments
        )

    def count_pause_arrivals(self) -> int:
        """Return the number of arrivals until the next attempt."""
        if self.is_outer:
            return self.n_arrivals
        return 1 if self.n_failures < _FAILURES_BEFORE_BACKOFF else min(self.n_failures, _MAX_PAUSE_ARRIVALS)

    def iterate_candidate_periods(self) -> Iterator[int]:
        """Yield periods to try now: early, after little more than one period, and later after two."""
        n_seen = len(self.snapshots)
        for period in _CANDIDATE_PERIODS:
            if period + 2 > n_seen or self.is_too_long(period):
                return
            if self.n_arrivals <= period + _MAX_EARLY_ARRIVALS or 2 * period + 1 <= n_seen:
                yield period

    def is_too_long(self, period: int) -> bool:
        """Return whether a period with its inner loops is too long for a symbolic iteration."""
        ran = self.snapshots[-1].segment_runs - self.snapshots[-1 - period].segment_runs
        return int(ran.max(initial=0)) > MAX_PERIOD_SEGMENTS

    def follow_group(self, group: LockstepGroup, machine: AbstractMachine) -> bool:
        """Return whether a group is that of the history or a part of it; keep only this part."""
        old = self.group
        if old.speculations != group.speculations:
            return False
        if old.has_all_warps and group.has_all_warps and old.has_all_lanes and group.has_all_lanes:
            self.group = replace(group)
            return True
        n_old = len(old.warp_indices)
        places: IntArray | slice = slice(None)  # of the group's warps in the history's
        if len(group.warp_indices) != n_old:
            places = np.minimum(np.searchsorted(old.warp_indices, group.warp_indices), n_old - 1)
        if bool((old.warp_indices[places] != group.warp_indices).any()) or bool(
            (group.mask & ~old.mask[places]).any()
        ):
            return False
        if not isinstance(places, slice):
            whole, view = RegisterView(machine.state, old), RegisterView(machine.state, group)
            for snapshot in self.snapshots:
                snapshot.values = select_remaining(snapshot.values, whole, view, places)
                snapshot.origins = select_remaining(snapshot.origins, whole, view, places)
                snapshot.segment_runs = snapshot.segment_runs[places]
        self.group = replace(group)
        return True


class AccelerationGains(Struct, eq=False):
    """Gains of a loop's acceleration, which decide the periods to try.

    Example: an index modulo 5 grows over 4 iterations, and not at all over 5. Period 1 gains a few iterations
    each time, period 5 all of them. So after some small gains shorter periods are skipped, until a longer one
    succeeds or enough iterations have passed without one. A gain that ends only with the loop is not small,
    however short the loop is: whether it does is known when the group arrives once more.
    """

    n_small_gains: int = 0  # in a row
    best_period: int = 0  # of the last large gain: shorter ones wait until it has been tried again
    min_period: int = 0  # shorter ones are skipped
    is_unrestricted: bool = False  # no longer period succeeded: never skip again
    unsettled: tuple[int, int] | None = None  # (entries of the loop, period) of a gain not known to be small
    last_entry: int = 0
    n_in_entry: int = 0  # gains of one entry of the loop

    def is_worth_trying(self, period: int, arrivals: int) -> bool:
        """Return whether to try a period after so many arrivals."""
        is_early = arrivals <= self.best_period + _MAX_EARLY_ARRIVALS
        return period >= max(self.min_period, self.best_period if is_early else 0)

    def record_success(self, period: int, taken: int, arrivals: int, entries: int) -> None:
        """Record that `taken` iterations were accelerated after so many arrivals, at an entry of the loop."""
        self.n_in_entry = self.n_in_entry + 1 if entries == self.last_entry else 1
        self.last_entry = entries
        if self.unsettled is not None:
            self._record_small_gain(self.unsettled[1])
        self.best_period = period if taken > arrivals else 0
        if self.is_unrestricted or self.best_period:
            self.n_small_gains, self.unsettled = 0, None
        else:
            self.unsettled = (entries, period)

    def ends_loop(self, arrivals: int, entries: int) -> bool:
        """Return whether an arrival, the first of another entry, follows a gain that ended with the loop."""
        if self.unsettled is None:
            return False
        entry, period = self.unsettled
        if entries != entry:
            self.n_small_gains, self.unsettled = 0, None
            return True
        if arrivals > period + _MAX_LAST_ARRIVALS:
            self._record_small_gain(period)
        return False

    def _record_small_gain(self, period: int) -> None:
        self.unsettled = None
        self.n_small_gains += 1
        if self.n_small_gains >= _MAX_SMALL_GAINS:
            self.min_period = period + 1

    def record_failure(self, arrivals: int) -> None:
        """Record that no iteration was accelerated after so many arrivals."""
        if self.min_period and arrivals > MAX_SNAPSHOTS:
            self.min_period, self.is_unrestricted = 0, True


def select_remaining(
    arrays: dict[int, Any], whole: RegisterView, view: RegisterView, places: IntArray
) -> dict[int, Any]:
    """Return the rows of a group that is part of a larger one, of each register."""
    return {slot: _select_remaining_rows(array, whole, view, places) for slot, array in arrays.items()}


def _select_remaining_rows(
    array: NDArray[Any] | None, whole: RegisterView, view: RegisterView, places: IntArray
) -> NDArray[Any] | None:
    """Return the rows of a part of a group."""
    if array is None:
        return None
    if whole.group.has_all_warps and array.ndim > 2:
        return view.select_group(array)
    rows = whole.to_warp_rows(array)
    return view.from_warp_rows(rows if len(rows) == 1 else rows[places])


def count_kept_snapshots(snapshot: RegisterSnapshot) -> int:
    """Return how many such snapshots to keep: for the longest period, or fewer if they are large."""
    n_bytes = sum(value.nbytes for value in snapshot.values.values())
    return max(2 * _MIN_TRACKED_PERIOD + 1, min(MAX_SNAPSHOTS, _MAX_SNAPSHOT_BYTES // max(1, n_bytes)))
