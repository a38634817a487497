"""Log of memory accesses: requests, lanes, sectors, wavefronts and distinct bytes of each instruction.

An access is logged as an `AccessLogEntry`: the addresses of all warps of a group, with a step and a count
where it repeats evenly. Entries are added up (`AccessTotals`) at the end, or before if there are too many.
"""

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.footprint.footprint import Stride
from analyzer.execution.footprint.lane_patterns import LanePatterns
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.machine.access_totals import AccessKey, AccessLogEntry, AccessTotals
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.register_state import LockstepGroup, UnknownOrigins
from analyzer.execution.machine.request_measurement import add_to_totals
from analyzer.execution.machine.request_tables import build_request_tables
from analyzer.execution.machine.unknown_words import AddressConfidence, find_instruction_rows
from analyzer.ir.arrays import Addresses, BoolArray, IntArray
from analyzer.ir.opcode import GLOBAL_SPACES, AddressSpace

_MAX_PENDING_LANES = 1 << 23


class GlobalAccessRecord(Struct, frozen=True, eq=False):
    """Accesses of one instruction to global memory."""

    entries: tuple[AccessLogEntry, ...]
    patterns: tuple[LanePatterns | None, ...]  # of the request tables built from the entries, in order


class _SpaceAccess(Struct, frozen=True, eq=False):
    """Lanes of an access that address the same memory."""

    access: LoweredAccess
    active: BoolArray
    addresses: Addresses | None


AccessFilter = Callable[[LoweredAccess], bool]


def accept_all(_: LoweredAccess) -> bool:
    """Log every access."""
    return True


def reject_all(_: LoweredAccess) -> bool:
    """Log no access: for runs of which only control flow matters."""
    return False


class AccessLog:
    """Accesses of a batch.

    may_reduce: entries may be merged, and added up early if there are many.
    access_filter: returns whether to log an access.
    """

    def __init__(
        self, batch: CtaBatch, *, may_reduce: bool = True, access_filter: AccessFilter = accept_all
    ) -> None:
        self.batch, self.may_reduce, self.access_filter = batch, may_reduce, access_filter
        self.totals: dict[AccessKey, AccessTotals] = {}
        # after `sum_entries`: accesses to global memory, None if they were too many to keep
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
        """Log one execution of an access by a group.

        origin: of unknown addresses.
        unknown: origin of unknown guards.
        steps: bytes by which addresses grow per iteration, if a symbolic iteration logs.
        """
        for part in self._split_by_space(access, active, addresses):
            if self.access_filter(part.access):
                self._record_in_space(part, group, origin, unknown, steps)

    def _split_by_space(
        self, access: LoweredAccess, active: BoolArray, addresses: Addresses | None
    ) -> "tuple[_SpaceAccess, ...]":
        """Split a generic access by the memory that its lanes address."""
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
        """Log the lanes of an access that address one memory."""
        access, active, addresses = part.access, part.active, part.addresses
        totals = self._find_or_add_totals(access)
        if group.speculations or unknown is not None:
            totals.is_speculative = True
        if totals.first_address is None and addresses is not None:
            totals.first_address = int(addresses.reshape(-1)[0])
        trust = self.batch.unknown_words.assess_confidence(origin, active)
        totals.trust = min(totals.trust, trust)
        if trust < AddressConfidence.LANE_PATTERN and totals.base_address is None and addresses is not None:
            totals.base_address = int(addresses.reshape(-1)[0])
        if trust is AddressConfidence.NONE:
            addresses = None
        elif trust is AddressConfidence.INDEXED_ROW:
            totals.index_loads |= self.batch.unknown_words.find_index_loads(origin, active)
        for found in (origin, unknown):
            if found is not None:
                totals.origins |= frozenset(find_instruction_rows(np.where(active, found, 0)))
        rows = None if group.has_all_warps else group.warp_indices
        self._append_entry(
            totals,
            AccessLogEntry(rows, active, addresses, steps, is_cta_uniform=group.common_warp_ids is not None),
        )
        self._reduce_if_full()

    def make_iteration_log(self) -> "AccessLog":
        """Return an empty log for one iteration of a loop (see `add_iterations`)."""
        return AccessLog(self.batch, may_reduce=False, access_filter=self.access_filter)

    def _append_entry(self, totals: AccessTotals, entry: AccessLogEntry) -> None:
        """Append an entry, or merge it into the last one."""
        if self.may_reduce and totals.entries and totals.entries[-1].try_merge(entry):
            return
        totals.entries.append(entry)
        self.n_pending_lanes += entry.n_addresses

    def _find_or_add_totals(self, access: LoweredAccess) -> AccessTotals:
        """Return the totals of an access."""
        key = (access.row, access.space, access.lane_bytes)
        found = self.totals.get(key)
        if found is None:
            found = self.totals[key] = AccessTotals(access)
        return found

    def add_iterations(self, other: "AccessLog", times: IntArray) -> None:
        """Add what one iteration logged, `times[warp]` times."""
        for totals in other.totals.values():
            own = self._find_or_add_totals(totals.access)
            own.trust = min(own.trust, totals.trust)
            own.base_address = totals.base_address if own.base_address is None else own.base_address
            own.add_sources(totals)
            own.is_speculative |= totals.is_speculative
            repeated = [entry.make_repeated(times, self.batch.cta_shape) for entry in totals.entries]
            for entry in _merge_interleaved([entry for entry in repeated if entry is not None]):
                self._append_entry(own, entry)
        self._reduce_if_full()

    def add_nested_iterations(
        self, inner: "AccessLog", outer: "AccessLog", later: "AccessLog", repeats: int
    ) -> bool:
        """Add what an iteration of an inner loop logged, `repeats` times, within one of an outer loop.

        Return False and add nothing if addresses grow unevenly among lanes along the inner loop, or if growth
        along one loop depends on the other (an address with a product of both counters).
        inner: log of the iteration with `steps` along the inner loop.
        outer: log of the same iteration with `steps` along the outer loop.
        later: as `outer`, of the inner loop's next iteration.
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
            kept.add_sources(totals)
            kept.is_speculative |= totals.is_speculative
            for entry in nested:
                self._append_entry(kept, entry)
        return True

    def _reduce_if_full(self) -> None:
        """Add up entries if they are too many; those of global memory only if that does not suffice."""
        if not self.may_reduce or self.n_pending_lanes <= _MAX_PENDING_LANES:
            return
        found = [totals for totals in self.totals.values() if totals.access.space not in GLOBAL_SPACES]
        for totals in found:
            self._drain_entries(totals)
        self.n_pending_lanes = sum(e.n_addresses for totals in self.totals.values() for e in totals.entries)
        if self.n_pending_lanes > _MAX_PENDING_LANES // 2:
            self.reduce_entries()

    def sum_entries(self) -> None:
        """Add up all entries; keep those of global memory, for questions about parts of the grid."""
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
        """Add up all entries and keep none."""
        self.global_records = None
        for totals in self.totals.values():
            self._drain_entries(totals)
        self.n_pending_lanes = 0

    def _drain_entries(self, totals: AccessTotals) -> tuple[LanePatterns | None, ...]:
        """Add up the entries of an access and drop them."""
        patterns = self._add_entries_to_totals(totals)
        totals.entries.clear()
        return patterns

    def _add_entries_to_totals(self, totals: AccessTotals) -> tuple[LanePatterns | None, ...]:
        tables = build_request_tables(totals, totals.entries, self.batch)
        return tuple(add_to_totals(totals, requests) for requests in tables)


def _has_independent_strides(inner: AccessLogEntry, outer: AccessLogEntry, later: AccessLogEntry) -> bool:
    """Return whether steps along the inner loop are uniform, and those along the outer loop stay the same."""
    step = _steps_or_zero(inner.steps)
    is_uniform = bool((step == step.reshape(-1)[0]).all())
    return is_uniform and bool((_steps_or_zero(outer.steps) == _steps_or_zero(later.steps)).all())


def _nest_entry(inner: AccessLogEntry, outer: AccessLogEntry, repeats: int) -> AccessLogEntry:
    """Return an entry of an outer loop with an inner loop's repetitions."""
    step = int(_steps_or_zero(inner.steps).reshape(-1)[0])
    stride = Stride(np.full((1, 1), step, dtype=np.int64), np.full(1, repeats, dtype=np.int64))
    return replace(outer, inner_strides=(*outer.inner_strides, stride))


def _steps_or_zero(steps: IntArray | None) -> IntArray:
    return np.zeros((1, 1), dtype=np.int64) if steps is None else steps


def _drop_repeats(entry: AccessLogEntry) -> AccessLogEntry:
    return replace(entry, steps=None, counts=None)


def _merge_interleaved(entries: list[AccessLogEntry]) -> list[AccessLogEntry]:
    """Merge entries of a period's iterations into one if their addresses continue each other.

    Example: entries at 0 and at 8, both with step 16 and count 5, become one at 0 with step 8 and count 10.
    """
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
