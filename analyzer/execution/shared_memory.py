"""Contents of shared memory that the slice needs, byte by byte."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.lanes import Deltas, Origins, View, uneven
from analyzer.execution.program import Access
from analyzer.execution.step import Bits, Value, Words
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import OpKind

IntArray = NDArray[np.int64]
Addresses = NDArray[np.uint64]

_WORD_BYTES = 4
_ALL_BYTES = np.uint32(0x01010101)  # of a word that is known
_WITHIN_CTA = np.uint64(0xFFFFFF)  # above stands the rank of the CTA in its cluster
_OPERATIONS = {
    "OR": np.bitwise_or,
    "AND": np.bitwise_and,
    "XOR": np.bitwise_xor,
    "ADD": np.add,
    "POPC": np.add,
}


def within_cta(addresses: Addresses) -> Addresses:
    """Places in a CTA's own shared memory, or in that of its cluster's CTA which the address names."""
    found: Addresses = addresses & _WITHIN_CTA
    return found


class SharedTooLarge(Exception):
    """CTAs' shared memories differ, and take too much room together."""


def kept_bytes(shared_bytes: int) -> int:
    """Room for one CTA's shared memory."""
    return -(-shared_bytes // 16) * 16


class Loaded(Struct, frozen=True, eq=False):
    """A register's worth of what was loaded."""

    value: Value
    origin: Origins | None
    delta: Deltas | None = None


def stored(view: View, slot: int) -> Loaded:
    """What a store writes: a register, or zero."""
    if slot < 0:
        return Loaded(np.zeros((1, 1), dtype=np.uint32), None)
    return Loaded(view.value(slot), view.origin(slot), view.delta(slot))


class _Lanes(Struct, frozen=True, eq=False):
    """Lanes that take part in a store, one number each: whose memory, where, and from which of `rows`."""

    owner: IntArray
    at: IntArray
    active: Bits
    inside: Bits

    def of(self, rows: Value) -> Value:
        """Those lanes of an array of rows."""
        taken: Value = np.broadcast_to(rows, self.active.shape)[self.active][self.inside]
        return taken


class SharedMemory:
    """What each CTA's shared memory holds, and which bytes of it are known.

    ctas: place of each warp's CTA; start_bytes: of the system, before a CTA's own. While all CTAs store
    alike, one row of bytes stands for all; then each has its own, and SharedTooLarge is raised where they
    take more than `room_bytes`.
    """

    def __init__(
        self, ctas: IntArray, shared_bytes: int, start_bytes: int, room_bytes: int | None = None
    ) -> None:
        n_bytes = kept_bytes(shared_bytes)
        self.ctas, self.n_ctas, self.n_bytes = ctas, int(ctas[-1]) + 1, n_bytes
        self.is_too_large = room_bytes is not None and self.n_ctas * n_bytes > max(room_bytes, n_bytes)
        self.values = np.zeros((1, n_bytes), dtype=np.uint8)
        self.known = np.zeros((1, n_bytes), dtype=bool)
        self.start_bytes = start_bytes
        self.known[:, :start_bytes] = True  # the system's own bytes are zero at first
        self._touched = self.known[0].copy()

    # ---- what is known ---------------------------------------------------------------------------

    def knows_any(self, addresses: Addresses | None, width_bytes: int) -> bool:
        """Some byte in the range of these addresses may be known in some CTA; None: any that code stored."""
        if addresses is None:
            return bool(self._touched[self.start_bytes :].any())
        within = within_cta(addresses)
        return bool(self._touched[int(within.min()) : int(within.max()) + width_bytes].any())

    def forget_all(self, view: View) -> None:
        """Nothing is known any more in the group's CTAs."""
        self._owners(view, [])
        self.known[np.unique(self._places(view))] = False

    def _places(self, view: View) -> IntArray:
        places = self.ctas[view.group.rows]
        return places if len(self.values) > 1 else np.zeros_like(places)

    def _owners(self, view: View, arrays: list[Value]) -> list[Value]:
        """Arrays with one row per warp: of one CTA while all are alike, else of all, and memory likewise."""
        if len(self.values) == 1:
            alike = view.first_cta(arrays)
            if alike is not None:
                return alike
            self._spread()
        return [view.flat(array) for array in arrays]

    def _spread(self) -> None:
        """A row of bytes for each CTA; most of them were never touched, and stay without memory."""
        if self.is_too_large:
            raise SharedTooLarge(f"{self.n_ctas} CTAs")
        end = int(np.flatnonzero(self._touched).max(initial=-1)) + 1
        values, known = self.values[:, :end], self.known[:, :end]
        self.values = np.zeros((self.n_ctas, self.n_bytes), dtype=np.uint8)
        self.known = np.zeros((self.n_ctas, self.n_bytes), dtype=bool)
        self.values[:, :end], self.known[:, :end] = values, known

    # ---- stores ----------------------------------------------------------------------------------

    def store(self, access: Access, view: View, active: Bits, addresses: Addresses | None) -> None:
        """Keep what the group stores; where addresses are unknown, nothing of its CTAs is known any more."""
        if addresses is None:
            self.forget_all(view)
            return
        data = [stored(view, slot) for slot in access.data]
        is_plain = stores_known(access, view)
        if not is_plain and not self.knows_any(addresses, access.width_bytes):
            return
        origins = [_FULLY_KNOWN if word.origin is None else word.origin for word in data]
        active, table, *rest = self._owners(
            view, [active, addresses, *(word.value for word in data), *origins]
        )
        words, unknown = rest[: len(data)], rest[len(data) :]
        lanes = self._lanes(view, access, active, table)
        if not lanes.at.size:
            return
        if access.operation and not view.group.doubts and self._combine(access, lanes, words, unknown):
            return
        for place in range(max(1, access.width_bytes // 4)):
            n_bytes = min(4, access.width_bytes)
            if is_plain and place < len(data):
                known = lanes.of(unknown[place]) == 0
                self._put(lanes, 4 * place, n_bytes, lanes.of(words[place]), known)
            else:
                self._forget(lanes, 4 * place, n_bytes)

    def _lanes(self, view: View, access: Access, active: Bits, addresses: Addresses) -> _Lanes:
        n_rows = len(view.group.rows)
        places = self._places(view)
        if len(self.values) == 1:
            n_rows //= self.n_ctas
            places = places[:n_rows]
        shape = (n_rows, WARP_LANES)
        active = np.broadcast_to(active, shape)
        at = within_cta(np.broadcast_to(addresses, shape)[active]).astype(np.int64)
        owner = np.broadcast_to(places[:, None], shape)[active]
        inside = at + access.width_bytes <= self.n_bytes
        return _Lanes(owner[inside], at[inside], active, inside)

    def _put(self, lanes: _Lanes, offset: int, n_bytes: int, words: Words, known: Bits) -> None:
        """Store the low bytes of words."""
        if n_bytes == _WORD_BYTES and not _differ_in_word(lanes.at):
            at = (lanes.at + offset) // _WORD_BYTES
            self.values.view(np.uint32)[lanes.owner, at] = words
            self.known.view(np.uint32)[lanes.owner, at] = np.where(known, _ALL_BYTES, np.uint32(0))
            self._touched.view(np.uint32)[at] = _ALL_BYTES
            return
        for byte in range(n_bytes):
            at = lanes.at + (offset + byte)
            self.values[lanes.owner, at] = (words >> np.uint32(8 * byte)).astype(np.uint8)
            self.known[lanes.owner, at] = known
            self._touched[at] = True

    def _forget(self, lanes: _Lanes, offset: int, n_bytes: int) -> None:
        """Nothing is known of these bytes any more."""
        at = lanes.at + offset
        low, high = int(at.min()), int(at.max()) + n_bytes
        if not self._touched[low:high].any():
            return
        for byte in range(n_bytes):
            self.known[lanes.owner, at + byte] = False
        self._touched[low:high] = self.known[:, low:high].any(axis=0)

    def _combine(self, access: Access, lanes: _Lanes, words: list[Value], unknown: list[Value]) -> bool:
        """Carry out an atomic on known words; False where that cannot be done."""
        counts = access.operation == "POPC"  # POPC.INC: each lane adds one
        if access.width_bytes != 4 or len(words) != (not counts) or (lanes.at & 3).any():
            return False
        if any(origin is not _FULLY_KNOWN for origin in unknown) and any(o.any() for o in unknown):
            return False
        if not self.known[lanes.owner, lanes.at].all():
            return False
        added = lanes.of(np.ones((1, 1), dtype=np.uint32) if counts else words[0])
        _OPERATIONS[access.operation].at(self.values.view(np.uint32), (lanes.owner, lanes.at >> 2), added)
        return True

    # ---- loads -----------------------------------------------------------------------------------

    def load(self, access: Access, view: View, addresses: Addresses) -> list[Loaded]:
        """What the group loads, register by register."""
        places: IntArray = np.zeros((1, 1), dtype=np.int64)
        if len(self.values) > 1:
            places, addresses = self.ctas[view.group.rows][:, None], view.flat(addresses)
        addresses = within_cta(addresses)
        inside = addresses + np.uint64(access.width_bytes) <= self.n_bytes
        at = np.where(inside, addresses, 0).astype(np.int64)
        found: list[Loaded] = []
        are_words = access.width_bytes >= _WORD_BYTES and not _differ_in_word(at)
        for place in range(len(access.results)):
            if are_words:
                target = np.minimum(at // _WORD_BYTES + place, self.n_bytes // _WORD_BYTES - 1)
                value = self.values.view(np.uint32)[places, target]
                known = inside & (self.known.view(np.uint32)[places, target] == _ALL_BYTES)
            else:
                value, known = self._bytes(places, at + _WORD_BYTES * place, access.width_bytes, inside)
            if access.is_signed and access.width_bytes < 4:
                sign = np.uint32(1 << (8 * access.width_bytes - 1))
                value = (value ^ sign) - sign
            origin = None
            if not known.all():
                origin = view.shaped(np.where(known, 0, uneven(access.row)).astype(np.int32))
            found.append(Loaded(view.shaped(value), origin))
        return found

    def _bytes(self, places: IntArray, at: IntArray, width: int, inside: Bits) -> tuple[Value, Bits]:
        """The word of the bytes there, and whether all of them are known."""
        value = np.zeros(np.broadcast_shapes(at.shape, places.shape), dtype=np.uint32)
        known = np.broadcast_to(inside, value.shape)
        for byte in range(min(_WORD_BYTES, width)):
            target = np.minimum(at + byte, self.n_bytes - 1)
            value |= self.values[places, target].astype(np.uint32) << np.uint32(8 * byte)
            known = known & self.known[places, target]
        return value, known


def _differ_in_word(at: IntArray) -> bool:
    """Some of these places are not those of words."""
    return bool((at & (_WORD_BYTES - 1)).any())


_FULLY_KNOWN: Origins = np.zeros((1, 1), dtype=np.int32)


def stores_known(access: Access, view: View) -> bool:
    """Some of what is stored is known."""
    if access.kind is not OpKind.STORE or access.n_matrices or view.group.doubts:
        return False
    words = [stored(view, slot) for slot in access.data]
    return any(word.origin is None or not word.origin.all() for word in words)
