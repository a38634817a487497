"""Memory as execution sees it: lane addresses, and contents where the slice needs them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzer.execution.budget import StopExecution
from analyzer.execution.constant_image import Allocation
from analyzer.execution.lanes import Origins, View, joined, uneven
from analyzer.execution.mixing import distinct
from analyzer.execution.program import Access, AddressForm
from analyzer.execution.shared_memory import Loaded, SharedMemory, stored
from analyzer.execution.step import Bits, Value
from analyzer.ir.opcode import Space

if TYPE_CHECKING:
    from analyzer.execution.warps import Batch

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

_MOST_OFFSETS = 64
_MOST_WORDS = 2048  # a recursion that goes deeper is taken to have no end


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


class Overwritten:
    """Bytes of supplied buffers that the kernel has stored to: what they hold now is not known."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        self.lost = [
            (a, np.zeros(len(a.contents), dtype=bool)) for a in allocations if a.contents is not None
        ]
        self.filled = [a for a in allocations if a.fill is not None]
        self.spoilt: set[int] = set()  # addresses of allocations that have been stored to

    def reaches(self, active: Bits, addresses: Addresses | None) -> bool:
        """A store by these lanes may change a supplied buffer."""
        held = [a for a, _ in self.lost] + [a for a in self.filled if a.address not in self.spoilt]
        return any(addresses is None or bool((a.holds(addresses) & active).any()) for a in held)

    def store(self, access: Access, active: Bits, addresses: Addresses | None) -> None:
        for allocation in self.filled:
            if addresses is None or bool((allocation.holds(addresses) & active).any()):
                self.spoilt.add(allocation.address)
        for allocation, lost in self.lost:
            if addresses is None:
                lost[:] = True
                self.spoilt.add(allocation.address)
                continue
            inside = allocation.holds(addresses) & active
            if inside.any():
                self.spoilt.add(allocation.address)
                offsets = np.broadcast_to(addresses, inside.shape)[inside] - np.uint64(allocation.address)
                for byte in range(access.width_bytes):
                    lost[np.minimum(offsets.astype(np.int64) + byte, len(lost) - 1)] = True

    def hide(
        self, access: Access, addresses: Addresses, loaded: "list[Loaded] | None"
    ) -> "list[Loaded] | None":
        """What was loaded, unknown where it is stale."""
        if loaded is None:
            return None
        for allocation in self.filled:
            if allocation.address in self.spoilt and (inside := allocation.holds(addresses)).any():
                loaded = _unknown_where(inside, access, loaded)
        for allocation, lost in self.lost:
            if allocation.address not in self.spoilt or not (inside := allocation.holds(addresses)).any():
                continue
            offsets = np.where(inside, addresses - np.uint64(allocation.address), 0).astype(np.int64)
            stale = np.zeros(inside.shape, dtype=bool)
            for byte in range(access.width_bytes):
                stale |= lost[np.minimum(offsets + byte, len(lost) - 1)] & inside
            if stale.any():
                loaded = _unknown_where(stale, access, loaded)
        return loaded


def _unknown_where(stale: Bits, access: Access, loaded: "list[Loaded]") -> "list[Loaded]":
    origin = np.where(stale, uneven(access.row), 0).astype(np.int32)
    return [Loaded(word.value, joined(word.origin, origin)) for word in loaded]


class TrackedMemory:
    """Shared and local memory whose contents the slice needs."""

    def __init__(self, batch: "Batch") -> None:
        self.batch = batch
        self.shared: SharedMemory | None = None
        self.local: dict[int, int] = {}
        self.doubtful: set[int] = set()  # words of the stack that were stored on assumption

    def _contents(self) -> SharedMemory:
        if self.shared is None:
            shape = self.batch.shape
            self.shared = SharedMemory(
                self.batch.ctas, shape.shared_bytes, shape.shared_start_bytes, self.batch.room_bytes
            )
        return self.shared

    def store(self, access: Access, view: View, active: Bits, addresses: Addresses | None) -> None:
        """Keep what the group stores; where addresses are unknown, nothing of its CTAs is known any more."""
        if access.space is Space.GENERIC:
            self._store_anywhere(access, view, addresses)
            return
        if access.space is Space.LOCAL:
            here = np.broadcast_to(view.flat(active), view.group.mask.shape)
            self._store_local(access, view, here, addresses)
            return
        self._contents().store(access, view, active, addresses)

    def knows_any(self, addresses: Addresses | None, width_bytes: int) -> bool:
        """Some byte in the range of these shared addresses is known."""
        if self.shared is None:
            return False
        return self.shared.knows_any(addresses, width_bytes)

    def load(
        self, access: Access, view: View, addresses: Addresses, lanes: Bits | None
    ) -> list[Loaded] | None:
        """What the group loads, register by register; None where nothing of it is known."""
        if access.space is Space.LOCAL:
            return self._load_local(access, view, addresses, lanes)
        return None if access.n_matrices else self._contents().load(access, view, addresses)

    def _store_anywhere(self, access: Access, view: View, addresses: Addresses | None) -> None:
        """A generic store may reach shared or local memory, unless all of its addresses are far from both."""
        if self.is_far(addresses):
            return
        if self.shared is not None:
            self.shared.forget_all(view)
        self._forget_local(access, view, None)

    def is_far(self, addresses: Addresses | None) -> bool:
        """Generic addresses that all lie in global memory."""
        if addresses is None:
            return False
        windows = self.batch.image.windows
        return not bool((windows.shared_lanes(addresses) | windows.local_lanes(addresses)).any())

    def _forget_local(self, access: Access, view: View, lanes: Bits | None) -> None:
        unknown = np.full((1, 1), uneven(access.row), dtype=np.int32)
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
                word = stored(view, source)
                view.write(slot, word.value, word.origin, word.delta, mask)

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
                found.append(stored(view, slot))
                continue
            value: Value = np.zeros((1, 1), dtype=np.uint32)
            origin: Origins = np.full((1, 1), uneven(access.row), dtype=np.int32)
            for offset, each in zip(places, slots, strict=True):
                if each is not None:
                    here = addresses == np.uint64(offset)
                    value = np.where(here, view.value(each), value)
                    own = view.origin(each)
                    origin = np.where(here, 0 if own is None else own, origin).astype(np.int32)
            found.append(Loaded(value, origin))
        return found


def stack_offsets(view: View, active: Bits, addresses: Addresses) -> list[int] | None:
    """Different stack offsets of active lanes; None where there are too many."""
    if addresses.size == 1:
        return [int(addresses.reshape(1)[0])]
    found = distinct(np.broadcast_to(view.flat(addresses), active.shape)[active])
    return found.tolist() if 0 < len(found) <= _MOST_OFFSETS and not (found & np.uint64(3)).any() else None
