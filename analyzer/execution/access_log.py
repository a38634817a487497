"""What each memory instruction touched: requests, lanes, sectors, passes, distinct bytes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.entries import AccessKey, AccessTotals, Entry
from analyzer.execution.footprint import Stride
from analyzer.execution.lanes import Group, Origins
from analyzer.execution.measuring import add_requests
from analyzer.execution.patterns import Patterns
from analyzer.execution.program import Access
from analyzer.execution.request_tables import tables_of
from analyzer.execution.step import Bits
from analyzer.execution.unknown_words import Trust
from analyzer.ir.opcode import GLOBAL_SPACES, Space

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

_FLUSH_LANES = 1 << 23


class Kept(Struct, frozen=True, eq=False):
    """What one instruction did: its entries, and the patterns of the tables that these come to, in order."""

    entries: tuple[Entry, ...]
    patterns: tuple[Patterns | None, ...]


class _Part(Struct, frozen=True, eq=False):
    """Lanes of a request that meet the same memory."""

    access: Access
    active: Bits
    addresses: Addresses | None


Wants = Callable[[Access], bool]


def wants_all(_: Access) -> bool:
    return True


def wants_none(_: Access) -> bool:
    """For runs that only look at the ways that are taken."""
    return False


class MemoryLog:
    """What every memory instruction of a batch touched, of those that are wanted.

    kept: after `finish`, what instructions did that reach global memory, None where that was too much.
    """

    def __init__(self, batch: "Batch", *, reduces: bool = True, wants: Wants = wants_all) -> None:
        self.batch, self.reduces, self.wants = batch, reduces, wants
        self.totals: dict[AccessKey, AccessTotals] = {}
        self.kept: dict[AccessKey, Kept] | None = {}
        self.held_lanes = 0

    def record(
        self,
        access: Access,
        group: Group,
        active: Bits,
        addresses: Addresses | None,
        origin: Origins | None,
        unknown: Origins | None,
        steps: IntArray | None = None,
    ) -> None:
        """Log one execution by a group; origin: of unknown addresses, unknown: of unknown guards."""
        for part in self._parts(access, active, addresses):
            if self.wants(part.access):
                self._record(part, group, origin, unknown, steps)

    def _parts(self, access: Access, active: Bits, addresses: Addresses | None) -> "tuple[_Part, ...]":
        """By the memory that lanes meet, which generic addresses tell."""
        if access.space is not Space.GENERIC or addresses is None:
            return (_Part(access, active, addresses),)
        windows = self.batch.image.windows
        in_shared, in_local = windows.shared_lanes(addresses), windows.local_lanes(addresses)
        found = []
        for space, lanes in (
            (Space.GENERIC, ~(in_shared | in_local)),
            (Space.SHARED, in_shared),
            (Space.LOCAL, in_local),
        ):
            here = active & lanes
            if here.any():
                own = access if space is Space.GENERIC else replace(access, space=space)
                found.append(_Part(own, here, addresses))
        return tuple(found) or (_Part(access, active, addresses),)

    def _record(
        self,
        part: "_Part",
        group: Group,
        origin: Origins | None,
        unknown: Origins | None,
        steps: IntArray | None,
    ) -> None:
        access, active, addresses = part.access, part.active, part.addresses
        totals = self._totals(access)
        if group.doubts or unknown is not None:
            totals.is_doubtful = True
        trust = self.batch.unknown_words.trust(origin, active)
        totals.trust = min(totals.trust, trust)
        if trust < Trust.PATTERN and totals.base is None and addresses is not None:
            totals.base = int(addresses.reshape(-1)[0])
        if trust is Trust.NOTHING:
            addresses = None
        elif trust is Trust.ROW:
            totals.namers |= self.batch.unknown_words.namers(origin, active)
        rows = None if group.is_whole else group.rows
        self._enter(totals, Entry(rows, active, addresses, steps, is_even=group.warps is not None))
        self._make_room()

    def for_trial(self) -> "MemoryLog":
        """An empty one for one iteration of a loop, which this one may absorb."""
        return MemoryLog(self.batch, reduces=False, wants=self.wants)

    def _enter(self, totals: AccessTotals, entry: Entry) -> None:
        if self.reduces and totals.entries and totals.entries[-1].takes(entry):
            return
        totals.entries.append(entry)
        self.held_lanes += entry.n_lanes

    def _totals(self, access: Access) -> AccessTotals:
        key = (access.row, access.space, access.lane_bytes)
        found = self.totals.get(key)
        if found is None:
            found = self.totals[key] = AccessTotals(access)
        return found

    def absorb(self, other: "MemoryLog", times: IntArray) -> None:
        """Add what one iteration logged, repeated `times[row]` times."""
        for totals in other.totals.values():
            own = self._totals(totals.access)
            own.trust = min(own.trust, totals.trust)
            own.base = totals.base if own.base is None else own.base
            own.namers |= totals.namers
            own.is_doubtful |= totals.is_doubtful
            repeated = [entry.repeated(times, self.batch.cta_shape) for entry in totals.entries]
            for entry in _interleaved([entry for entry in repeated if entry is not None]):
                self._enter(own, entry)
        self._make_room()

    def nest(self, inner: "MemoryLog", outer: "MemoryLog", later: "MemoryLog", repeats: int) -> bool:
        """Add what an iteration of an inner loop logged, `repeats` times, within one of an outer loop.

        False, and nothing is added, where lanes do not grow alike over the inner loop, or growth along one
        loop hangs on the other (an address with a product of both counters). inner, outer: logs of that
        iteration in which `steps` are of the inner and of the outer loop; later: as outer, of the next one.
        """
        found: list[tuple[AccessTotals, list[Entry]]] = []
        for key, totals in inner.totals.items():
            if key not in outer.totals or key not in later.totals:
                return False
            others, laters = outer.totals[key].entries, later.totals[key].entries
            if not len(totals.entries) == len(others) == len(laters):
                return False
            for own, other, after in zip(totals.entries, others, laters, strict=True):
                if not _grow_apart(own, other, after):
                    return False
            pairs = zip(totals.entries, others, strict=True)
            found.append((totals, [_nested(own, other, repeats) for own, other in pairs]))
        for totals, nested in found:
            kept = self._totals(totals.access)
            kept.trust = min(kept.trust, totals.trust)
            kept.base = totals.base if kept.base is None else kept.base
            kept.namers |= totals.namers
            kept.is_doubtful |= totals.is_doubtful
            for entry in nested:
                self._enter(kept, entry)
        return True

    def _make_room(self) -> None:
        """Turn entries into sums where there are many; those of global memory only if they must."""
        if not self.reduces or self.held_lanes <= _FLUSH_LANES:
            return
        found = [totals for totals in self.totals.values() if totals.access.space not in GLOBAL_SPACES]
        for totals in found:
            self._reduced(totals)
        self.held_lanes = sum(e.n_lanes for totals in self.totals.values() for e in totals.entries)
        if self.held_lanes > _FLUSH_LANES // 2:
            self.reduce()

    def finish(self) -> None:
        """Turn all into sums; keep entries of global memory, for questions about parts of the grid."""
        if self.kept is None:
            self.reduce()
            return
        self.kept = {}
        for key, totals in self.totals.items():
            entries = tuple(totals.entries)
            patterns = self._reduced(totals)
            if totals.access.space in GLOBAL_SPACES:
                self.kept[key] = Kept(entries, patterns)
        self.held_lanes = 0

    def reduce(self) -> None:
        """Turn held entries into sums."""
        self.kept = None
        for totals in self.totals.values():
            self._reduced(totals)
        self.held_lanes = 0

    def _reduced(self, totals: AccessTotals) -> tuple[Patterns | None, ...]:
        patterns = self._reduce(totals)
        totals.entries.clear()
        return patterns

    def _reduce(self, totals: AccessTotals) -> tuple[Patterns | None, ...]:
        tables = tables_of(totals, totals.entries, self.batch)
        return tuple(add_requests(totals, requests) for requests in tables)


def _grow_apart(inner: Entry, outer: Entry, later: Entry) -> bool:
    """Whether lanes grow alike along the inner loop, and by as much along the outer one later on."""
    step = _or_zero(inner.steps)
    is_uniform = bool((step == step.reshape(-1)[0]).all())
    return is_uniform and bool((_or_zero(outer.steps) == _or_zero(later.steps)).all())


def _nested(inner: Entry, outer: Entry, repeats: int) -> Entry:
    """An entry of an outer loop with an inner loop's repetitions."""
    step = int(_or_zero(inner.steps).reshape(-1)[0])
    stride = Stride(np.full((1, 1), step, dtype=np.int64), np.full(1, repeats, dtype=np.int64))
    return replace(outer, inner=(*outer.inner, stride))


def _or_zero(steps: IntArray | None) -> IntArray:
    return np.zeros((1, 1), dtype=np.int64) if steps is None else steps


def _once(entry: Entry) -> Entry:
    return replace(entry, steps=None, counts=None)


def _interleaved(entries: list[Entry]) -> list[Entry]:
    """Iterations of a period, each repeated alike, as one row of requests if they follow each other."""
    progress = [entry.progress() for entry in entries]
    first = progress[0] if progress else None
    if len(entries) < 2 or first is None or any(other != first for other in progress):
        return entries
    row = _once(entries[0])
    for entry in entries[1:]:
        if not row.takes(_once(entry)):
            return entries
    whole = row.progress()
    if whole is None or whole.step * len(entries) != first.step:
        return entries
    row.counts = np.full(1, first.count * len(entries), dtype=np.int64)
    return [row]
