"""What each memory instruction touched: requests, lanes, sectors, passes, distinct bytes."""

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.footprint.footprint import Stride
from analyzer.execution.footprint.lane_patterns import LanePatterns
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.lowering.step import BoolArray
from analyzer.execution.machine.access_totals import AccessKey, AccessLogEntry, AccessTotals
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.register_state import LockstepGroup, UnknownOrigins
from analyzer.execution.machine.request_measurement import add_to_totals
from analyzer.execution.machine.request_tables import build_request_tables
from analyzer.execution.machine.unknown_words import AddressConfidence
from analyzer.ir.opcode import GLOBAL_SPACES, AddressSpace

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

_MAX_PENDING_LANES = 1 << 23


class GlobalAccessRecord(Struct, frozen=True, eq=False):
    """What one instruction did: its entries, and the patterns of the tables that these come to, in order."""

    entries: tuple[AccessLogEntry, ...]
    patterns: tuple[LanePatterns | None, ...]


class _SpaceAccess(Struct, frozen=True, eq=False):
    """Lanes of a request that meet the same memory."""

    access: LoweredAccess
    active: BoolArray
    addresses: Addresses | None


AccessFilter = Callable[[LoweredAccess], bool]


def accept_all(_: LoweredAccess) -> bool:
    return True


def reject_all(_: LoweredAccess) -> bool:
    """For runs that only look at the ways that are taken."""
    return False


class AccessLog:
    """What every memory instruction of a batch touched, of those that are wanted.

    kept: after `finish`, what instructions did that reach global memory, None where that was too much.
    """

    def __init__(
        self, batch: CtaBatch, *, may_reduce: bool = True, access_filter: AccessFilter = accept_all
    ) -> None:
        self.batch, self.may_reduce, self.access_filter = batch, may_reduce, access_filter
        self.totals: dict[AccessKey, AccessTotals] = {}
        self.global_records: dict[AccessKey, GlobalAccessRecord] | None = {}
        self.n_pending_lanes = 0

    def record(
        self,
        access: LoweredAccess,
        group: LockstepGroup,
        active: BoolArray,
        addresses: Addresses | None,
        origin: UnknownOrigins | None,
        unknown: UnknownOrigins | None,
        steps: IntArray | None = None,
    ) -> None:
        """Log one execution by a group; origin: of unknown addresses, unknown: of unknown guards."""
        for part in self._split_by_space(access, active, addresses):
            if self.access_filter(part.access):
                self._record_in_space(part, group, origin, unknown, steps)

    def _split_by_space(
        self, access: LoweredAccess, active: BoolArray, addresses: Addresses | None
    ) -> "tuple[_SpaceAccess, ...]":
        """By the memory that lanes meet, which generic addresses tell."""
        if access.space is not AddressSpace.GENERIC or addresses is None:
            return (_SpaceAccess(access, active, addresses),)
        windows = self.batch.image.windows
        in_shared, in_local = windows.find_shared_lanes(addresses), windows.find_local_lanes(addresses)
        found = []
        for space, lanes in (
            (AddressSpace.GENERIC, ~(in_shared | in_local)),
            (AddressSpace.SHARED, in_shared),
            (AddressSpace.LOCAL, in_local),
        ):
            here = active & lanes
            if here.any():
                own = access if space is AddressSpace.GENERIC else replace(access, space=space)
                found.append(_SpaceAccess(own, here, addresses))
        return tuple(found) or (_SpaceAccess(access, active, addresses),)

    def _record_in_space(
        self,
        part: "_SpaceAccess",
        group: LockstepGroup,
        origin: UnknownOrigins | None,
        unknown: UnknownOrigins | None,
        steps: IntArray | None,
    ) -> None:
        access, active, addresses = part.access, part.active, part.addresses
        totals = self._find_or_add_totals(access)
        if group.speculations or unknown is not None:
            totals.is_speculative = True
        trust = self.batch.unknown_words.assess_confidence(origin, active)
        totals.trust = min(totals.trust, trust)
        if trust < AddressConfidence.LANE_PATTERN and totals.base_address is None and addresses is not None:
            totals.base_address = int(addresses.reshape(-1)[0])
        if trust is AddressConfidence.NONE:
            addresses = None
        elif trust is AddressConfidence.INDEXED_ROW:
            totals.index_loads |= self.batch.unknown_words.find_index_loads(origin, active)
        rows = None if group.has_all_warps else group.warp_indices
        self._append_entry(
            totals,
            AccessLogEntry(rows, active, addresses, steps, is_cta_uniform=group.common_warp_ids is not None),
        )
        self._reduce_if_full()

    def make_iteration_log(self) -> "AccessLog":
        """An empty one for one iteration of a loop, which this one may absorb."""
        return AccessLog(self.batch, may_reduce=False, access_filter=self.access_filter)

    def _append_entry(self, totals: AccessTotals, entry: AccessLogEntry) -> None:
        if self.may_reduce and totals.entries and totals.entries[-1].try_merge(entry):
            return
        totals.entries.append(entry)
        self.n_pending_lanes += entry.n_addresses

    def _find_or_add_totals(self, access: LoweredAccess) -> AccessTotals:
        key = (access.row, access.space, access.lane_bytes)
        found = self.totals.get(key)
        if found is None:
            found = self.totals[key] = AccessTotals(access)
        return found

    def add_iterations(self, other: "AccessLog", times: IntArray) -> None:
        """Add what one iteration logged, repeated `times[row]` times."""
        for totals in other.totals.values():
            own = self._find_or_add_totals(totals.access)
            own.trust = min(own.trust, totals.trust)
            own.base_address = totals.base_address if own.base_address is None else own.base_address
            own.index_loads |= totals.index_loads
            own.is_speculative |= totals.is_speculative
            repeated = [entry.make_repeated(times, self.batch.cta_shape) for entry in totals.entries]
            for entry in _merge_interleaved([entry for entry in repeated if entry is not None]):
                self._append_entry(own, entry)
        self._reduce_if_full()

    def add_nested_iterations(
        self, inner: "AccessLog", outer: "AccessLog", later: "AccessLog", repeats: int
    ) -> bool:
        """Add what an iteration of an inner loop logged, `repeats` times, within one of an outer loop.

        False, and nothing is added, where lanes do not grow alike over the inner loop, or growth along one
        loop hangs on the other (an address with a product of both counters). inner, outer: logs of that
        iteration in which `steps` are of the inner and of the outer loop; later: as outer, of the next one.
        """
        found: list[tuple[AccessTotals, list[AccessLogEntry]]] = []
        for key, totals in inner.totals.items():
            if key not in outer.totals or key not in later.totals:
                return False
            others, laters = outer.totals[key].entries, later.totals[key].entries
            if not len(totals.entries) == len(others) == len(laters):
                return False
            for own, other, after in zip(totals.entries, others, laters, strict=True):
                if not _has_independent_strides(own, other, after):
                    return False
            pairs = zip(totals.entries, others, strict=True)
            found.append((totals, [_nest_entry(own, other, repeats) for own, other in pairs]))
        for totals, nested in found:
            kept = self._find_or_add_totals(totals.access)
            kept.trust = min(kept.trust, totals.trust)
            kept.base_address = totals.base_address if kept.base_address is None else kept.base_address
            kept.index_loads |= totals.index_loads
            kept.is_speculative |= totals.is_speculative
            for entry in nested:
                self._append_entry(kept, entry)
        return True

    def _reduce_if_full(self) -> None:
        """Turn entries into sums where there are many; those of global memory only if they must."""
        if not self.may_reduce or self.n_pending_lanes <= _MAX_PENDING_LANES:
            return
        found = [totals for totals in self.totals.values() if totals.access.space not in GLOBAL_SPACES]
        for totals in found:
            self._drain_entries(totals)
        self.n_pending_lanes = sum(e.n_addresses for totals in self.totals.values() for e in totals.entries)
        if self.n_pending_lanes > _MAX_PENDING_LANES // 2:
            self.reduce_entries()

    def finish(self) -> None:
        """Turn all into sums; keep entries of global memory, for questions about parts of the grid."""
        if self.global_records is None:
            self.reduce_entries()
            return
        self.global_records = {}
        for key, totals in self.totals.items():
            entries = tuple(totals.entries)
            patterns = self._drain_entries(totals)
            if totals.access.space in GLOBAL_SPACES:
                self.global_records[key] = GlobalAccessRecord(entries, patterns)
        self.n_pending_lanes = 0

    def reduce_entries(self) -> None:
        """Turn held entries into sums."""
        self.global_records = None
        for totals in self.totals.values():
            self._drain_entries(totals)
        self.n_pending_lanes = 0

    def _drain_entries(self, totals: AccessTotals) -> tuple[LanePatterns | None, ...]:
        patterns = self._add_entries_to_totals(totals)
        totals.entries.clear()
        return patterns

    def _add_entries_to_totals(self, totals: AccessTotals) -> tuple[LanePatterns | None, ...]:
        tables = build_request_tables(totals, totals.entries, self.batch)
        return tuple(add_to_totals(totals, requests) for requests in tables)


def _has_independent_strides(inner: AccessLogEntry, outer: AccessLogEntry, later: AccessLogEntry) -> bool:
    """Whether lanes grow alike along the inner loop, and by as much along the outer one later on."""
    step = _steps_or_zero(inner.steps)
    is_uniform = bool((step == step.reshape(-1)[0]).all())
    return is_uniform and bool((_steps_or_zero(outer.steps) == _steps_or_zero(later.steps)).all())


def _nest_entry(inner: AccessLogEntry, outer: AccessLogEntry, repeats: int) -> AccessLogEntry:
    """An entry of an outer loop with an inner loop's repetitions."""
    step = int(_steps_or_zero(inner.steps).reshape(-1)[0])
    stride = Stride(np.full((1, 1), step, dtype=np.int64), np.full(1, repeats, dtype=np.int64))
    return replace(outer, inner_strides=(*outer.inner_strides, stride))


def _steps_or_zero(steps: IntArray | None) -> IntArray:
    return np.zeros((1, 1), dtype=np.int64) if steps is None else steps


def _drop_repeats(entry: AccessLogEntry) -> AccessLogEntry:
    return replace(entry, steps=None, counts=None)


def _merge_interleaved(entries: list[AccessLogEntry]) -> list[AccessLogEntry]:
    """Iterations of a period, each repeated alike, as one row of requests if they follow each other."""
    progress = [entry.find_uniform_stride() for entry in entries]
    first = progress[0] if progress else None
    if len(entries) < 2 or first is None or any(other != first for other in progress):
        return entries
    row = _drop_repeats(entries[0])
    for entry in entries[1:]:
        if not row.try_merge(_drop_repeats(entry)):
            return entries
    whole = row.find_uniform_stride()
    if whole is None or whole.step * len(entries) != first.step:
        return entries
    row.counts = np.full(1, first.count * len(entries), dtype=np.int64)
    return [row]
