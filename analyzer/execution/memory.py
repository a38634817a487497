"""Memory as execution sees it: lane addresses, and contents where the slice needs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.constant_image import Allocation
from analyzer.execution.lanes import Deltas, Origins, View, joined
from analyzer.execution.program import Access, AddressForm
from analyzer.execution.step import Bits, Value, Words
from analyzer.ir.opcode import OpKind, Space

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

RESERVED_SHARED_BYTES = 1024
_WITHIN_CTA = np.uint64(0xFFFFFF)  # above stands the rank of the CTA in its cluster
_OPERATIONS = {
    "OR": np.bitwise_or,
    "AND": np.bitwise_and,
    "XOR": np.bitwise_xor,
    "ADD": np.add,
    "POPC": np.add,
}
_MOST_OFFSETS = 64
_MOST_WORDS = 2048  # a recursion that goes deeper is taken to have no end


class StopExecution(Exception):
    """A limit was reached, or a loop has no end."""


def lane_addresses(form: AddressForm, view: View) -> tuple[Addresses, Origins | None]:
    """Byte address of each lane, and the origin of what is not known of it."""
    total: Addresses | None = None
    origin: Origins | None = None
    for term in form.terms:
        low = view.value(term.slot)
        origin = joined(origin, view.origin(term.slot))
        if term.pair:
            value = _pair(low, view.value(term.slot + 1))
            origin = joined(origin, view.origin(term.slot + 1))
        else:
            value = low.astype(np.uint64)
        if term.scale != 1:
            value = value * np.uint64(term.scale)
        total = value if total is None else total + value
    offset = np.uint64(form.offset & 0xFFFFFFFFFFFFFFFF)
    if total is None:
        total = np.full((1, 1), offset, dtype=np.uint64)
    elif offset:
        total = total + offset
    return (total if form.wide else total & np.uint64(0xFFFFFFFF)), origin


def _pair(low: Value, high: Value) -> Addresses:
    """uint64 of two words; two strided copies are cheaper than widening both."""
    shape = np.broadcast_shapes(low.shape, high.shape)
    words = np.empty((*shape, 2), dtype=np.uint32)
    words[..., 0], words[..., 1] = low, high
    pairs: Addresses = words.view(np.uint64)[..., 0]
    return pairs


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


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A register's worth of what was loaded."""

    value: Value
    origin: Origins | None
    delta: Deltas | None = None


class Overwritten:
    """Bytes of supplied buffers that the kernel has stored to: what they hold now is not known."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        self.lost = [
            (a, np.zeros(len(a.contents), dtype=bool)) for a in allocations if a.contents is not None
        ]

    def reaches(self, active: Bits, addresses: Addresses | None) -> bool:
        """A store by these lanes may change a supplied buffer."""
        return any(
            addresses is None or bool((self._inside(a, addresses, len(lost)) & active).any())
            for a, lost in self.lost
        )

    def store(self, access: Access, active: Bits, addresses: Addresses | None) -> None:
        for allocation, lost in self.lost:
            if addresses is None:
                lost[:] = True
                continue
            inside = self._inside(allocation, addresses, len(lost)) & active
            if inside.any():
                offsets = np.broadcast_to(addresses, inside.shape)[inside] - np.uint64(allocation.address)
                for byte in range(access.width_bytes):
                    lost[np.minimum(offsets.astype(np.int64) + byte, len(lost) - 1)] = True

    def hide(
        self, access: Access, addresses: Addresses, loaded: "list[Loaded] | None"
    ) -> "list[Loaded] | None":
        """What was loaded, unknown where it is stale."""
        for allocation, lost in self.lost:
            inside = self._inside(allocation, addresses, len(lost))
            if loaded is None or not lost.any() or not inside.any():
                continue
            offsets = np.where(inside, addresses - np.uint64(allocation.address), 0).astype(np.int64)
            stale = np.zeros(inside.shape, dtype=bool)
            for byte in range(access.width_bytes):
                stale |= lost[np.minimum(offsets + byte, len(lost) - 1)] & inside
            if stale.any():
                origin = np.where(stale, access.row + 1, 0).astype(np.int32)
                loaded = [Loaded(word.value, joined(word.origin, origin)) for word in loaded]
        return loaded

    @staticmethod
    def _inside(allocation: Allocation, addresses: Addresses, size: int) -> Bits:
        first = np.uint64(allocation.address)
        inside: Bits = (addresses >= first) & (addresses < first + np.uint64(size))
        return inside


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
        self.doubtful: set[int] = set()  # words of the stack that were stored on assumption

    def _contents(self) -> SharedContents:
        if self.shared is None:
            self.shared = SharedContents(len(self.batch.cta_numbers), -(-self.batch.shared_bytes // 16) * 16)
        return self.shared

    def store(self, access: Access, view: View, active: Bits, addresses: Addresses | None) -> None:
        """Keep what the group stores; where addresses are unknown, nothing of its CTAs is known any more."""
        if access.space is Space.GENERIC:
            self._store_anywhere(access, view, addresses)
            return
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
            value, origin, _ = _stored(view, slot)
            word = np.broadcast_to(view.flat(value), shape)[active][inside]
            known: Any = True
            if origin is not None:
                known = np.broadcast_to(view.flat(origin) == 0, shape)[active][inside]
            contents.put(owner, at + 4 * place, n_bytes, word, known)

    @staticmethod
    def _stores_known(access: Access, view: View) -> bool:
        """Some of what is stored is known."""
        if access.kind is not OpKind.STORE or access.n_matrices or view.group.doubts:
            return False
        origins = [_stored(view, slot)[1] for slot in access.data]
        return any(origin is None or not origin.all() for origin in origins)

    def _combine(
        self, access: Access, view: View, active: Bits, inside: Bits, at: IntArray, owner: IntArray
    ) -> bool:
        """Carry out an atomic on known words; False where that cannot be done."""
        contents = self._contents()
        counts = access.operation == "POPC"  # POPC.INC: each lane adds one
        if access.width_bytes != 4 or len(access.data) != (not counts) or (at & 3).any():
            return False
        words = contents.values.view(np.uint32)
        if any(view.origin(slot) is not None for slot in access.data):
            return False
        if not contents.known[owner, at].all():
            return False
        added = np.ones((1, 1), dtype=np.uint32) if counts else view.flat(view.value(access.data[0]))
        data = np.broadcast_to(added, active.shape)[active][inside]
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

    def load(
        self, access: Access, view: View, addresses: Addresses, lanes: Bits | None
    ) -> list[Loaded] | None:
        """What the group loads, register by register; None where nothing of it is known."""
        if access.space is Space.LOCAL:
            return self._load_local(access, view, addresses, lanes)
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

    def _store_anywhere(self, access: Access, view: View, addresses: Addresses | None) -> None:
        """A generic store may reach shared or local memory, unless all of its addresses are far from both."""
        if self.is_far(addresses):
            return
        if self.shared is not None:
            self.shared.known[self.batch.ctas[view.group.rows]] = False
        self._forget_local(access, view, None)

    def is_far(self, addresses: Addresses | None) -> bool:
        """Generic addresses that all lie in global memory."""
        windows = self.batch.image.windows
        near = np.array([windows.shared >> 32, windows.local >> 32], dtype=np.uint64)
        return addresses is not None and not bool(np.isin(addresses >> np.uint64(32), near).any())

    def _forget_local(self, access: Access, view: View, lanes: Bits | None) -> None:
        unknown = np.full((1, 1), access.row + 1, dtype=np.int32)
        for slot in self.local.values():
            view.write(slot, view.value(slot), unknown, None, lanes)

    def _store_local(self, access: Access, view: View, active: Bits, addresses: Addresses | None) -> None:
        """Words of the stack are kept like registers, one for each offset; if it is unknown, all are lost."""
        places = None if addresses is None else stack_offsets(view, active, addresses)
        if addresses is None or places is None or access.width_bytes < 4:
            self._forget_local(access, view, None if view.group.is_full else view.mask)
            return
        for offset in places:
            here = active if len(places) == 1 else active & (view.flat(addresses) == np.uint64(offset))
            mask = None if bool((here == view.group.mask).all()) else view.shaped(here)
            for place, source in enumerate(access.data):
                slot = self.local_slot(offset + 4 * place, view)
                if view.group.doubts:
                    self.doubtful.add(slot)
                view.write(slot, *_stored(view, source), mask)

    def local_slot(self, address: int, view: View) -> int:
        """Storage number that stands for a word of the stack."""
        if address not in self.local:
            if len(self.local) >= _MOST_WORDS:
                raise StopExecution(f"stopped when more than {_MOST_WORDS:,} words of the stack were in use")
            self.local[address] = view.state.add_slot()
        return self.local[address]

    def _load_local(
        self, access: Access, view: View, addresses: Addresses, lanes: Bits | None
    ) -> list[Loaded] | None:
        active = view.flat(view.active if lanes is None else view.active & lanes)
        active = np.broadcast_to(active, view.group.mask.shape)
        places = stack_offsets(view, active, addresses)
        if places is None or access.width_bytes < 4:
            return None
        found: list[Loaded] = []
        for place in range(len(access.results)):
            slots = [self.local.get(offset + 4 * place) for offset in places]
            if len(slots) == 1 and slots[0] is not None:
                slot = slots[0]
                found.append(Loaded(view.value(slot), view.origin(slot), view.delta(slot)))
                continue
            value: Value = np.zeros((1, 1), dtype=np.uint32)
            origin: Origins = np.full((1, 1), access.row + 1, dtype=np.int32)
            for offset, each in zip(places, slots, strict=True):
                if each is not None:
                    here = addresses == np.uint64(offset)
                    value = np.where(here, view.value(each), value)
                    own = view.origin(each)
                    origin = np.where(here, 0 if own is None else own, origin).astype(np.int32)
            found.append(Loaded(value, origin))
        return found


def _stored(view: View, slot: int) -> tuple[Value, Origins | None, Deltas | None]:
    """What a store writes: a register, or zero."""
    if slot < 0:
        return np.zeros((1, 1), dtype=np.uint32), None, None
    return view.value(slot), view.origin(slot), view.delta(slot)


def stack_offsets(view: View, active: Bits, addresses: Addresses) -> list[int] | None:
    """Different stack offsets of active lanes; None where there are too many."""
    if addresses.size == 1:
        return [int(addresses.reshape(1)[0])]
    found = np.unique(np.broadcast_to(view.flat(addresses), active.shape)[active])
    return found.tolist() if 0 < len(found) <= _MOST_OFFSETS and not (found & np.uint64(3)).any() else None
