"""What is ordered between the warps of a CTA, and accesses to shared memory that are not.

Time counts accesses and barriers of a batch. What other warps did before `floors[warp]` comes before what the
warp does next: a barrier of all threads moves it to now, as does a wait on an mbarrier, whose arrivals are
not followed. Where a barrier holds some warps, `seen[warp, other]` is such a time for each other warp.

    warp 0: STS [0], R1    BAR.SYNC             LDS R2, [0]: ordered behind the store
    warp 1: LDS R3, [0]: not ordered, so R3 is in doubt

Each word of shared memory has its last store and its last load: warps, and time. A load is in doubt if the
store of another warp is not ordered before it, or if stores of different values that are not ordered came to
its word. A store that changes a word which another warp has loaded puts that load in doubt after the fact,
unless it is ordered behind it.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.machine.doubts import Doubt, DoubtKind
from analyzer.ir.arrays import BoolArray, IntArray

Times = NDArray[np.int32]
_NEVER = 0
_MANY_WARPS = -1
_DISPUTED = 1 << 30  # added to the time of a store: which of several came last is not known


class WarpOrder:
    """Order of the warps of a batch.

    doubts: of loads, by row, see `UnknownWords`; added to.
    """

    def __init__(self, n_warps: int, warps_per_cta: int, doubts: dict[int, Doubt]) -> None:
        self.n_warps, self.warps_per_cta, self.doubts = n_warps, warps_per_cta, doubts
        self.now = 0
        self.floors: Times = np.zeros(n_warps, dtype=np.int32)
        self.seen: Times | None = (
            None  # [warp, warp of its CTA], kept from the first barrier of some warps on
        )
        self.events: dict[int, tuple[int, str]] = {}  # by time: row of an access, operation of an atomic
        self.late_loads: list[
            int
        ] = []  # rows of loads that are in doubt after the fact, until they are taken

    def add_event(self, row: int, operation: str = "") -> int:
        """Return the time of an access, which is its own."""
        time = self.tick()
        self.events[time] = (row, operation)
        return time

    def tick(self) -> int:
        """Return a time between what came before and what comes next."""
        self.now += 1
        return self.now

    def see_all(self, warps: IntArray) -> None:
        """Order all that came before what these warps do next."""
        self.floors[warps] = self.tick()

    def pass_barrier(self, arrived: IntArray, waiting: IntArray, times: Times) -> None:
        """Order what warps did before they arrived at a barrier before what waiting warps do next.

        arrived, waiting: warps, of the CTAs that are released; times: [n_arrived], of their arrivals.
        """
        if self.seen is None:
            self.seen = np.zeros((self.n_warps, self.warps_per_cta), dtype=np.int32)
        ctas = arrived // self.warps_per_cta
        for cta in np.unique(ctas).tolist():
            here, own = arrived[ctas == cta], waiting[waiting // self.warps_per_cta == cta]
            joint = self.seen[here].max(axis=0)
            np.maximum.at(joint, here % self.warps_per_cta, times[ctas == cta])
            self.seen[own] = np.maximum(self.seen[own], joint)
            self.floors[own] = np.maximum(self.floors[own], self.floors[here].max())

    def find_unordered(self, warps: IntArray, times: Times) -> BoolArray:
        """Return whether events at these times are not known to come before what the warps do next."""
        unordered: BoolArray = ((times & ~_DISPUTED) >= self.floors[warps]) & (times != _NEVER)
        return unordered

    def find_unseen_bits(self, warps: IntArray, bits: NDArray[np.uint32], times: Times) -> BoolArray:
        """Return whether a warp among `bits` did something at these times that is not ordered before."""
        unseen: BoolArray = bits != 0
        if self.seen is None or not unseen.any():
            return unseen
        unseen = np.zeros(len(bits), dtype=bool)
        for number in range(self.warps_per_cta):
            has = (bits >> np.uint32(number) & np.uint32(1)) != 0
            unseen |= has & (self.seen[warps, number] <= (times & ~_DISPUTED))
        return unseen

    def find_unseen_warps(self, warps: IntArray, others: NDArray[np.int16], times: Times) -> BoolArray:
        """Return whether the other warp did something at these times that is not ordered before.

        Of many warps, those that are ordered best count: which one it was is not kept.
        """
        if self.seen is None:
            return np.ones(len(warps), dtype=bool)
        seen = np.where(others < 0, self.seen[warps].max(axis=1), self.seen[warps, others])
        unseen: BoolArray = seen <= times
        return unseen

    def find_atomics(self, times: Times, operation: str) -> BoolArray:
        """Return which of the stores at these times are atomics of an operation."""
        stored = np.unique(times & ~_DISPUTED).tolist()
        equal = [time for time in stored if self.events.get(time, (0, ""))[1] == operation]
        found: BoolArray = np.isin(times & ~_DISPUTED, equal)
        return found

    def add_doubt(self, load: int, time: int) -> None:
        """Put a load in doubt because of the store at a time."""
        kind = DoubtKind.DISPUTED if time & _DISPUTED else DoubtKind.UNORDERED
        self.doubts.setdefault(load, Doubt(kind, self.events[time & ~_DISPUTED][0]))

    def add_late_loads(self, times: Times, store: int) -> None:
        """Put the loads at these times in doubt because of a store that came later."""
        for time in np.unique(times).tolist():
            load = self.events[time][0]
            self.doubts.setdefault(load, Doubt(DoubtKind.UNORDERED, store))
            self.late_loads.append(load)


class WordLanes(Struct, frozen=True, eq=False):
    """Lanes of an access to words of shared memory; all arrays are [n_lane]."""

    rows: IntArray  # of the memory, see `SharedMemory`
    cells: IntArray
    warps: IntArray  # in the batch

    @property
    def places(self) -> tuple[IntArray, IntArray]:
        """Index of the words in an array by row and cell."""
        return self.rows, self.cells

    def select(self, chosen: BoolArray) -> "WordLanes":
        """Return some of the lanes."""
        return WordLanes(self.rows[chosen], self.cells[chosen], self.warps[chosen])


class AccessOrder:
    """Last stores and loads of each word of shared memory: by which warps of its CTA, and when."""

    def __init__(self, order: WarpOrder, n_rows: int, n_cells: int) -> None:
        self.order = order
        shape = (n_rows, n_cells)
        # each warp that stored the value is a bit; none for atomics of many warps
        self.writers: NDArray[np.uint32] = np.zeros(shape, dtype=np.uint32)
        self.write_times: Times = np.zeros(shape, dtype=np.int32)
        self.readers: NDArray[np.int16] = np.zeros(shape, dtype=np.int16)  # plus 1
        self.read_times: Times = np.zeros(shape, dtype=np.int32)

    def spread(self, n_rows: int, n_cells: int, end: int, n_parts: int = 1) -> "AccessOrder":
        """Return the same order for memory with a row for each CTA, or with smaller cells.

        end: cells of this one that may have been accessed; n_parts: that each of them is divided into.
        """
        found = AccessOrder(self.order, n_rows, n_cells)
        for old, new in zip(self._list_arrays(), found._list_arrays(), strict=True):
            new[:, : end * n_parts] = np.repeat(old[:, :end], n_parts, axis=1)
        return found

    def _list_arrays(self) -> tuple[NDArray[np.generic], ...]:
        return self.writers, self.write_times, self.readers, self.read_times

    def store(self, lanes: WordLanes, changes: BoolArray, row: int, operation: str = "") -> BoolArray:
        """Note a store; return the lanes whose word another warp gives a different value, unordered.

        changes: whether the word gets another value than it has; operation: of an atomic, of which the order
        does not matter among equal ones.
        """
        order, at, warps = self.order, lanes.places, lanes.warps
        own = np.uint32(1) << (warps % order.warps_per_cta).astype(np.uint32)
        bits, times = self.writers[at], self.write_times[at]
        unordered, disputed = order.find_unordered(warps, times), np.zeros(len(warps), dtype=bool)
        if unordered.any():
            unordered &= (bits == 0) | order.find_unseen_bits(warps, bits & ~own, times)
            disputed = unordered & changes
            if operation and disputed.any():
                disputed &= ~order.find_atomics(times, operation)
        self._check_loads(lanes, changes, row)
        self.writers[at] = np.where(unordered & ~disputed, bits | own, own)
        if bool((self.writers[at] & own != own).any()):  # several warps store to a word at once
            np.bitwise_or.at(self.writers, at, own)
        if operation:
            self.writers[lanes.select(self.writers[at] != own).places] = 0
        self.write_times[at] = order.add_event(row, operation)
        return disputed

    def dispute(self, lanes: WordLanes) -> None:
        """Note that it is not known which of several values these words got."""
        self.writers[lanes.places] = 0
        self.write_times[lanes.places] |= _DISPUTED

    def _check_loads(self, lanes: WordLanes, changes: BoolArray, row: int) -> None:
        """Put loads in doubt whose word this store changes and that it is not ordered behind."""
        order, warps = self.order, lanes.warps
        readers, times = self.readers[lanes.places] - 1, self.read_times[lanes.places]
        late = order.find_unordered(warps, times) & changes & (readers != warps % order.warps_per_cta)
        if not late.any():
            return
        late &= order.find_unseen_warps(warps, readers, times)
        order.add_late_loads(times[late], row)

    def load(self, lanes: WordLanes, row: int) -> BoolArray:
        """Note a load; return the lanes in doubt."""
        order, at, warps = self.order, lanes.places, lanes.warps
        number = (warps % order.warps_per_cta).astype(np.int16)
        own = np.uint32(1) << number.astype(np.uint32)
        bits, times, readers = self.writers[at], self.write_times[at], self.readers[at] - 1
        doubtful: BoolArray = times & _DISPUTED != 0
        unordered = order.find_unordered(warps, times) & (bits & own == 0)
        if unordered.any():
            doubtful |= unordered & ((bits == 0) | order.find_unseen_bits(warps, bits, times))
        is_alone = (readers == number) | ~order.find_unordered(warps, self.read_times[at])
        self.readers[at] = np.where(is_alone, number + 1, _MANY_WARPS)
        self.readers[lanes.select(self.readers[at] != number + 1).places] = _MANY_WARPS
        self.read_times[at] = order.add_event(row)
        if doubtful.any():
            order.add_doubt(row, int(times[doubtful][0]))
        return doubtful
