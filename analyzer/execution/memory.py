"""Memory as execution sees it: lane addresses, a log of what each instruction touched, kept contents."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.footprint import Footprint, Stride
from analyzer.execution.lanes import Deltas, Group, Origins, Rows, View, joined
from analyzer.execution.patterns import Patterns, compress
from analyzer.execution.program import Access, AddressForm
from analyzer.execution.requests import (
    SECTOR_BYTES,
    atomic_wavefronts,
    matrix_wavefronts,
    sectors_of,
    shared_wavefronts_of,
)
from analyzer.execution.step import Bits, Value, Words
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import OpKind, Space

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

_BANK_ROW_BYTES = 128
RESERVED_SHARED_BYTES = 1024
_WITHIN_CTA = np.uint64(0xFFFFFF)  # above stands the rank of the CTA in its cluster
_OPERATIONS = {"OR": np.bitwise_or, "AND": np.bitwise_and, "XOR": np.bitwise_xor, "ADD": np.add}
_FLUSH_LANES = 1 << 22
_LOW = np.uint64(32)


def lane_addresses(form: AddressForm, view: View) -> tuple[Addresses, Origins | None]:
    """Byte address of each lane, and the origin of what is not known of it."""
    total = np.full((1, 1), form.offset & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    origin: Origins | None = None
    for term in form.terms:
        value = view.value(term.slot).astype(np.uint64)
        origin = joined(origin, view.origin(term.slot))
        if term.pair:
            value = value | view.value(term.slot + 1).astype(np.uint64) << _LOW
            origin = joined(origin, view.origin(term.slot + 1))
        if term.scale != 1:
            value = value * np.uint64(term.scale)
        total = total + value
    if not form.wide:
        total = total & np.uint64(0xFFFFFFFF)
    return total, origin


def address_steps(form: AddressForm, view: View) -> IntArray | None:
    """Bytes by which each lane's address grows per iteration of a loop that is being closed."""
    total: IntArray | None = None
    for term in form.terms:
        for slot, shift in ((term.slot, 0), (term.slot + 1, 32)) if term.pair else ((term.slot, 0),):
            delta = view.delta(slot)
            if delta is not None:
                step = delta.view(np.int32).astype(np.int64) << shift
                step = step * term.scale
                total = step if total is None else total + step
    return total


@dataclass(slots=True, eq=False)
class Entry:
    """Requests of one access by some warps, repeated `counts` times at `steps` bytes further each time."""

    rows: Rows | None
    active: Bits
    addresses: Addresses | None
    steps: IntArray | None = None
    counts: IntArray | None = None


@dataclass(slots=True, eq=False)
class AccessTotals:
    """Sums of one access over the grid. sectors and wavefronts stand only while `is_known`."""

    access: Access
    requests: float = 0.0
    lanes: float = 0.0
    sectors: float = 0.0
    wavefronts: float = 0.0
    is_known: bool = True
    is_doubtful: bool = False
    is_even: bool = True
    footprint: Footprint = field(default_factory=Footprint)
    entries: list[Entry] = field(default_factory=list)


class MemoryLog:
    """What every memory instruction of a batch touched."""

    def __init__(self, batch: "Batch", *, reduces: bool = True) -> None:
        self.batch, self.reduces = batch, reduces
        self.totals: dict[tuple[int, Space], AccessTotals] = {}
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
        totals = self._totals(access)
        if group.doubts or unknown is not None:
            totals.is_doubtful = True
        if origin is not None and not bool((np.where(active, origin, 0) == 0).all()):
            totals.is_known = False
            addresses = None
        rows = None if group.is_whole else group.rows
        totals.entries.append(Entry(rows, active, addresses, steps))
        self.held_lanes += 0 if addresses is None else max(active.size, addresses.size)
        if self.reduces and self.held_lanes > _FLUSH_LANES:
            self.reduce()

    def _totals(self, access: Access) -> AccessTotals:
        key = (access.row, access.space)
        found = self.totals.get(key)
        if found is None:
            found = self.totals[key] = AccessTotals(access)
        return found

    def absorb(self, other: "MemoryLog", times: IntArray) -> None:
        """Add what one iteration logged, repeated `times[row]` times."""
        for totals in other.totals.values():
            own = self._totals(totals.access)
            own.is_known &= totals.is_known
            own.is_doubtful |= totals.is_doubtful
            for entry in totals.entries:
                counts = times if entry.rows is None else times[entry.rows]
                own.entries.append(Entry(entry.rows, entry.active, entry.addresses, entry.steps, counts))
        if self.held_lanes > _FLUSH_LANES:
            self.reduce()

    def reduce(self) -> None:
        """Turn held entries into sums."""
        for totals in self.totals.values():
            for entry in totals.entries:
                _add(totals, entry, self.batch)
            totals.entries.clear()
        self.held_lanes = 0


def _add(totals: AccessTotals, entry: Entry, batch: "Batch") -> None:
    weights = batch.weights if entry.rows is None else batch.weights[entry.rows]
    counts, addresses, active, steps = entry.counts, entry.addresses, entry.active, entry.steps
    spread: list[Stride] = []
    if entry.rows is None:
        collapsed = _collapsed(entry, batch)
        if collapsed is not None:
            weights, counts, addresses, active, steps = collapsed
        else:
            shape = (len(batch.cta_numbers), batch.shape.warps_per_cta)
            active = _one_row_per_warp(active, shape)
            addresses = None if addresses is None else _one_row_per_warp(addresses, shape)
            steps = None if steps is None else _one_row_per_warp(steps, shape)
    if batch.neighbours and addresses is not None and len(addresses) == len(weights):
        spread = _spread(totals, addresses, active, entry, batch)
    counts = np.ones(1, dtype=np.int64) if counts is None else counts
    n_active = _lanes_of(active)
    times = weights * counts
    totals.requests += float((times * (n_active > 0)).sum())
    totals.lanes += float((times * n_active).sum())
    if addresses is None or totals.access.address is None:
        return
    addresses = np.broadcast_to(addresses, (len(weights), addresses.shape[1]))
    if batch.neighbours:
        kept = weights > 0
        weights, addresses, active, steps, counts = (
            array if array is None or len(array) != len(kept) else array[kept]
            for array in (weights, addresses, active, steps, counts)
        )
        spread = [Stride(_kept(stride.step, kept), _kept(stride.count, kept)) for stride in spread]
    _measure(totals, addresses, active, steps, weights, counts, tuple(spread))


def _kept(array: IntArray | int, kept: Bits) -> IntArray | int:
    return array if isinstance(array, int) or len(array) != len(kept) else array[kept]


def _spread(
    totals: AccessTotals, addresses: Addresses, active: Bits, entry: Entry, batch: "Batch"
) -> list[Stride]:
    """How addresses go on from a CTA to those that it stands for, along each axis of the grid."""
    per_cta = batch.shape.warps_per_cta
    rows = np.arange(batch.n_warps, dtype=np.int64) if entry.rows is None else entry.rows
    ctas, warps = np.divmod(rows, per_cta)
    stands = batch.weights[rows] > 0
    found: list[Stride] = []
    for beside, counts in zip(batch.neighbours, batch.box_counts, strict=True):
        next_cta = beside[ctas]
        moves = stands & (next_cta >= 0)
        if not moves.any():
            continue
        wanted = next_cta * per_cta + warps
        places = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
        if (rows[places] != wanted)[moves].any():
            totals.is_even = False  # the neighbour does not run with it
            continue
        step = np.where(moves[:, None], (addresses[places] - addresses).astype(np.int64), 0)
        step = np.where(np.broadcast_to(active, (len(rows), active.shape[1])), step, 0)
        if (step % SECTOR_BYTES).any():
            totals.is_even = False
        found.append(Stride(step, np.where(moves, counts[ctas], 1)))
    return found


def _collapsed(
    entry: Entry, batch: "Batch"
) -> tuple[Any, IntArray | None, Addresses | None, Bits, IntArray | None] | None:
    """An entry of all warps in which CTAs do not differ, as that of one CTA with all their weight."""
    arrays = (entry.active, entry.addresses, entry.steps)
    if any(array is not None and array.ndim == 3 and len(array) > 1 for array in arrays):
        return None
    shape = (len(batch.cta_numbers), batch.shape.warps_per_cta)
    counts = entry.counts
    if counts is not None:
        table = counts.reshape(shape)
        if bool((table != table[:1]).any()):
            return None
        counts = table[0]
    active, addresses, steps = (None if a is None else a[0] if a.ndim == 3 else a for a in arrays)
    assert active is not None
    return batch.weights.reshape(shape).sum(axis=0), counts, addresses, active, steps


def _one_row_per_warp(array: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    if array.ndim == 2:
        return array
    return np.broadcast_to(array, (*shape, array.shape[2])).reshape(-1, array.shape[2])


def _lanes_of(active: Bits) -> IntArray:
    lanes: IntArray = active.sum(axis=1)
    return lanes * WARP_LANES if active.shape[1] == 1 else lanes


def _measure(
    totals: AccessTotals,
    addresses: Addresses,
    active: Bits,
    steps: IntArray | None,
    weights: Any,
    counts: IntArray,
    spread: tuple[Stride, ...] = (),
) -> None:
    access = totals.access
    if steps is not None and not steps.any():
        steps = None
    for shift, share in _phases(access, steps, counts):
        moved = addresses if shift is None else addresses + shift
        patterns = compress(moved, active)
        weight = weights * share
        if access.space in (Space.SHARED, Space.DISTRIBUTED_SHARED):
            totals.wavefronts += float((_wavefronts(access, patterns, moved, active) * weight).sum())
        else:
            sectors = _sectors(access, patterns, moved, active)
            totals.sectors += float((sectors * weight).sum())
            totals.wavefronts += float((np.maximum(sectors / 4, sectors > 0) * weight).sum())
    if access.space in (Space.GLOBAL, Space.GENERIC):
        strides = () if steps is None else (Stride(steps, counts if len(counts) > 1 else int(counts[0])),)
        if steps is None and (counts < 1).any():
            strides = (Stride(0, counts),)
        totals.footprint.add(addresses, active, access.width_bytes, (*strides, *spread))


def _phases(access: Access, steps: IntArray | None, counts: IntArray) -> list[tuple[Addresses | None, Any]]:
    """Residues that a stepping address goes through: how far, and how many iterations have each."""
    if steps is None:
        return [(None, counts)]
    unit = _BANK_ROW_BYTES if access.space in (Space.SHARED, Space.DISTRIBUTED_SHARED) else SECTOR_BYTES
    shared = int(np.gcd.reduce(np.append(np.abs(steps).reshape(-1), unit)))
    period = unit // shared
    found: list[tuple[Addresses | None, Any]] = []
    for phase in range(period):
        share = (counts - phase + period - 1) // period
        share = np.maximum(share, 0)
        if share.any():
            found.append(((steps * phase).astype(np.uint64) if phase else None, share))
    return found


def _sectors(access: Access, patterns: Patterns, addresses: Addresses, active: Bits) -> IntArray:
    if access.space is not Space.LOCAL:
        return sectors_of(patterns, access.width_bytes)
    # local memory interleaves the lanes of a warp word by word
    lane = np.arange(WARP_LANES, dtype=np.uint64)[None, :] * np.uint64(4)
    total: IntArray = np.zeros(1, dtype=np.int64)
    for word in range(max(1, access.width_bytes // 4)):
        at = addresses + np.uint64(4 * word)
        placed = (at >> np.uint64(2)) * np.uint64(_BANK_ROW_BYTES) + lane + (at & np.uint64(3))
        total = total + sectors_of(compress(placed, active), min(4, access.width_bytes))
    return total


def _wavefronts(access: Access, patterns: Patterns, addresses: Addresses, active: Bits) -> IntArray:
    if access.n_matrices:
        return matrix_wavefronts(addresses, active, access.n_matrices)
    if access.kind in (OpKind.ATOMIC, OpKind.REDUCTION):
        return atomic_wavefronts(addresses, active, access.width_bytes)
    return shared_wavefronts_of(patterns, access.width_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A register's worth of what was loaded."""

    value: Value
    origin: Origins | None
    delta: Deltas | None = None


class SharedContents:
    """Contents of shared memory of each CTA, byte by byte, and which bytes are known."""

    def __init__(self, n_ctas: int, n_bytes: int) -> None:
        self.values = np.zeros((n_ctas, n_bytes), dtype=np.uint8)
        self.known = np.zeros((n_ctas, n_bytes), dtype=bool)
        self.known[:, :RESERVED_SHARED_BYTES] = True  # the system's own bytes start at zero

        self._touched = self.known[0].copy()

    @property
    def n_bytes(self) -> int:
        return self.values.shape[1]

    def touches(self, low: int, high: int) -> bool:
        """Some byte of the range may be known in some CTA."""
        return bool(self._touched[low:high].any())

    def put(self, owner: IntArray, at: IntArray, n_bytes: int, words: Words, known: Any) -> None:
        """Store the low bytes of words."""
        for byte in range(n_bytes):
            self.values[owner, at + byte] = (words >> np.uint32(8 * byte)).astype(np.uint8)
            self.known[owner, at + byte] = known
            self._touched[at + byte] = True

    def forget(self, owner: IntArray, at: IntArray, n_bytes: int) -> None:
        """Nothing is known of these bytes any more."""
        low, high = int(at.min()), int(at.max()) + n_bytes
        if not self.touches(low, high):
            return
        for byte in range(n_bytes):
            self.known[owner, at + byte] = False
        self._touched[low:high] = self.known[:, low:high].any(axis=0)


class TrackedMemory:
    """Shared and local memory whose contents the slice needs."""

    def __init__(self, batch: "Batch") -> None:
        self.batch = batch
        self.shared: SharedContents | None = None
        self.local: dict[int, int] = {}

    def _contents(self) -> SharedContents:
        if self.shared is None:
            self.shared = SharedContents(len(self.batch.cta_numbers), -(-self.batch.shared_bytes // 16) * 16)
        return self.shared

    def store(self, access: Access, view: View, active: Bits, addresses: Addresses | None) -> None:
        """Keep what the group stores; where addresses are unknown, nothing of its CTAs is known any more."""
        if access.space is Space.LOCAL:
            self._store_local(access, view, active, addresses)
            return
        contents = self._contents()
        ctas = self.batch.ctas[view.group.rows]
        if addresses is None:
            contents.known[ctas] = False
            return
        shape = active.shape
        at = (np.broadcast_to(view.flat(addresses), shape)[active] & _WITHIN_CTA).astype(np.int64)
        plain = self._stores_known(access, view)
        if not at.size or (
            not plain and not contents.touches(int(at.min()), int(at.max()) + access.width_bytes)
        ):
            return
        owner = np.broadcast_to(ctas[:, None], shape)[active]
        inside = at + access.width_bytes <= contents.n_bytes
        at, owner = at[inside], owner[inside]
        if (
            access.operation
            and not view.group.doubts
            and self._combine(access, view, active, inside, at, owner)
        ):
            return
        for place in range(max(1, access.width_bytes // 4)):
            slot = access.data[place] if plain and place < len(access.data) else None
            n_bytes = min(4, access.width_bytes)
            if slot is None:
                contents.forget(owner, at + 4 * place, n_bytes)
                continue
            word = np.broadcast_to(view.flat(view.value(slot)), shape)[active][inside]
            origin = view.origin(slot)
            known: Any = True
            if origin is not None:
                known = np.broadcast_to(view.flat(origin) == 0, shape)[active][inside]
            contents.put(owner, at + 4 * place, n_bytes, word, known)

    @staticmethod
    def _stores_known(access: Access, view: View) -> bool:
        """Some of what is stored is known."""
        if access.kind is not OpKind.STORE or access.n_matrices or view.group.doubts:
            return False
        origins = [view.origin(slot) for slot in access.data]
        return any(origin is None or not origin.all() for origin in origins)

    def _combine(
        self, access: Access, view: View, active: Bits, inside: Bits, at: IntArray, owner: IntArray
    ) -> bool:
        """Carry out an atomic on known words; False where that cannot be done."""
        contents = self._contents()
        if access.width_bytes != 4 or len(access.data) != 1 or (at & 3).any():
            return False
        slot = access.data[0]
        words = contents.values.view(np.uint32)
        if view.origin(slot) is not None or not contents.known[owner, at].all():
            return False
        data = np.broadcast_to(view.flat(view.value(slot)), active.shape)[active][inside]
        _OPERATIONS[access.operation].at(words, (owner, at >> 2), data)
        return True

    def knows_any(self, addresses: Addresses | None, width_bytes: int) -> bool:
        """Some byte in the range of these shared addresses is known."""
        if self.shared is None:
            return False
        if addresses is None:
            return bool(self.shared.known.any())
        low = int((addresses & _WITHIN_CTA).min())
        high = int((addresses & _WITHIN_CTA).max()) + width_bytes
        return self.shared.touches(low, high)

    def load(self, access: Access, view: View, addresses: Addresses) -> list[Loaded] | None:
        """What the group loads, register by register; None where nothing of it is known."""
        if access.space is Space.LOCAL:
            return self._load_local(access, view, addresses)
        if access.n_matrices:
            return None
        contents = self._contents()
        ctas = self.batch.ctas[view.group.rows][:, None]
        addresses = view.flat(addresses) & _WITHIN_CTA
        inside = addresses + np.uint64(access.width_bytes) <= contents.n_bytes
        at = np.where(inside, addresses, 0).astype(np.int64)
        found: list[Loaded] = []
        for place in range(len(access.results)):
            value = np.zeros(np.broadcast_shapes(at.shape, ctas.shape), dtype=np.uint32)
            known = np.broadcast_to(inside, value.shape)
            for byte in range(min(4, access.width_bytes)):
                target = np.minimum(at + 4 * place + byte, contents.n_bytes - 1)
                value |= contents.values[ctas, target].astype(np.uint32) << np.uint32(8 * byte)
                known = known & contents.known[ctas, target]
            if access.is_signed and access.width_bytes < 4:
                sign = np.uint32(1 << (8 * access.width_bytes - 1))
                value = (value ^ sign) - sign
            origin = None
            if not known.all():
                origin = view.shaped(np.where(known, 0, access.row + 1).astype(np.int32))
            found.append(Loaded(view.shaped(value), origin))
        return found

    def _store_local(self, access: Access, view: View, active: Bits, addresses: Addresses | None) -> None:
        """A stack slot at one offset in all lanes is kept like a register; else nothing is known any more."""
        if addresses is None or addresses.size != 1 or access.width_bytes < 4:
            unknown = np.full((1, 1), access.row + 1, dtype=np.int32)
            for slot in self.local.values():
                view.write(slot, view.value(slot), unknown)
            return
        mask = None if bool((active == view.group.mask).all()) else view.shaped(active)
        for place, source in enumerate(access.data):
            slot = self.local_slot(int(addresses.reshape(1)[0]) + 4 * place, view)
            view.write(slot, view.value(source), view.origin(source), view.delta(source), mask)

    def local_slot(self, address: int, view: View) -> int:
        """Storage number that stands for a word of the stack."""
        if address not in self.local:
            self.local[address] = view.state.add_slot()
        return self.local[address]

    def _load_local(self, access: Access, view: View, addresses: Addresses) -> list[Loaded] | None:
        if addresses.size != 1 or access.width_bytes < 4:
            return None
        found: list[Loaded] = []
        for place in range(len(access.results)):
            slot = self.local.get(int(addresses.reshape(1)[0]) + 4 * place)
            if slot is None:
                return None
            found.append(Loaded(view.value(slot), view.origin(slot), view.delta(slot)))
        return found
