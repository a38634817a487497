"""Contents of shared memory, byte by byte, for kernels whose addresses or branches depend on them.

Invariant: while all CTAs store the same, one row of bytes represents all of them; the first store that
differs gives each CTA a row of its own.

A byte is unset, known, or a placeholder: what stands for an unknown word in a run that puts values in place
of these (`RandomData`). A placeholder is loaded as it was stored, and remains unknown.
"""

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.lowering.step import Value, WordArray
from analyzer.execution.machine.register_state import (
    Deltas,
    RegisterView,
    UnknownOrigins,
    make_divergent_origin,
)
from analyzer.ir.arrays import Addresses, BoolArray, IntArray
from analyzer.ir.opcode import OpKind
from analyzer.ir.scheduling import WARP_SIZE

_WORD_BYTES = 4
_UNSET, _KNOWN, _PLACEHOLDER = 0, 1, 2  # states of a byte
_WORD_OF_BYTES = np.uint32(0x01010101)  # times a state: a word of four such bytes
_CTA_OFFSET_MASK = np.uint64(0xFFFFFF)  # the bits above are the rank of the CTA in its cluster
ByteStates = NDArray[np.uint8]
PlaceholderFinder = Callable[[UnknownOrigins], BoolArray]
_ATOMIC_OPERATIONS = {
    "OR": np.bitwise_or,
    "AND": np.bitwise_and,
    "XOR": np.bitwise_xor,
    "ADD": np.add,
    "POPC": np.add,
}


def extract_cta_offsets(addresses: Addresses) -> Addresses:
    """Return offsets within the shared memory of the CTA that an address names."""
    found: Addresses = addresses & _CTA_OFFSET_MASK
    return found


class SharedMemoryTooLargeError(Exception):
    """Raised if the CTAs of a batch differ in shared memory and together need too much room."""


def align_shared_bytes(shared_bytes: int) -> int:
    """Return the bytes kept for one CTA's shared memory."""
    return -(-shared_bytes // 16) * 16


class AbstractWord(Struct, frozen=True, eq=False):
    """A word in each lane (see `RegisterState`)."""

    value: Value
    origin: UnknownOrigins | None
    delta: Deltas | None = None


def read_abstract_word(view: RegisterView, slot: int) -> AbstractWord:
    """Return what a store writes: a register, or zero for RZ."""
    if slot < 0:
        return AbstractWord(np.zeros((1, 1), dtype=np.uint32), None)
    return AbstractWord(view.read_value(slot), view.read_origin(slot), view.read_delta(slot))


class _StoreLanes(Struct, frozen=True, eq=False):
    """Lanes that take part in a store; [n] are the active lanes within bounds."""

    memory_rows: IntArray  # [n], row of `SharedMemory.values`
    byte_offsets: IntArray  # [n]
    active: BoolArray  # [n_warp, 32]
    is_in_bounds: BoolArray  # of the active lanes

    def select(self, rows: Value) -> Value:
        """Return these lanes of an array of rows, [n]."""
        taken: Value = np.broadcast_to(rows, self.active.shape)[self.active][self.is_in_bounds]
        return taken


class SharedMemory:
    """Shared memory of all CTAs of a batch, and which of its bytes are known.

    Raises SharedMemoryTooLargeError if the CTAs need rows of their own with more than `capacity_bytes`.
    ctas: index of each warp's CTA in the batch.
    reserved_bytes: bytes of the system before a CTA's own.
    find_placeholders: returns where unknown words of these origins are placeholders; None if nowhere.
    """

    def __init__(
        self,
        ctas: IntArray,
        shared_bytes: int,
        reserved_bytes: int,
        capacity_bytes: int | None = None,
        find_placeholders: PlaceholderFinder | None = None,
    ) -> None:
        n_bytes = align_shared_bytes(shared_bytes)
        self.cta_indices, self.n_ctas, self.n_bytes = ctas, int(ctas[-1]) + 1, n_bytes
        self.is_too_large = capacity_bytes is not None and self.n_ctas * n_bytes > max(
            capacity_bytes, n_bytes
        )
        self.values = np.zeros((1, n_bytes), dtype=np.uint8)  # [1 or n_cta, byte], as `states`
        self.states = np.full((1, n_bytes), _UNSET, dtype=np.uint8)
        self.reserved_bytes = reserved_bytes
        self.states[:, :reserved_bytes] = _KNOWN  # the system's own bytes are zero at first
        self._touched = self.states[0] != _UNSET  # bytes that may be set in some CTA
        self._find_placeholders = find_placeholders
        self._placeholder_origin = 0  # joint one of all placeholders

    # ---- what is known ---------------------------------------------------------------------------

    def has_known_bytes(self, addresses: Addresses | None, width_bytes: int) -> bool:
        """Return whether a byte in the range of these addresses may be known; None: any stored byte."""
        if addresses is None:
            return bool(self._touched[self.reserved_bytes :].any())
        within = extract_cta_offsets(addresses)
        return bool(self._touched[int(within.min()) : int(within.max()) + width_bytes].any())

    def forget_all(self, view: RegisterView) -> None:
        """Make all bytes of the group's CTAs unknown."""
        self._match_memory_rows(view, [])
        self.states[np.unique(self._find_memory_rows(view))] = _UNSET

    def forget_all_ctas(self) -> None:
        """Make all bytes of all CTAs unknown."""
        self.states[:] = _UNSET

    def _find_memory_rows(self, view: RegisterView) -> IntArray:
        """Return the row of `values` of each warp of a group."""
        places = self.cta_indices[view.group.warp_indices]
        return places if len(self.values) > 1 else np.zeros_like(places)

    def _match_memory_rows(self, view: RegisterView, arrays: list[Value]) -> list[Value]:
        """Return arrays with one row per warp: of one CTA while all CTAs store the same, else of all CTAs.

        Gives each CTA its own row of memory once they differ.
        """
        if len(self.values) == 1:
            uniform_rows = view.find_cta_uniform_rows(arrays)
            if uniform_rows is not None:
                return uniform_rows
            self._split_by_cta()
        return [view.to_warp_rows(array) for array in arrays]

    def _split_by_cta(self) -> None:
        """Make a row of bytes for each CTA; pages that are never touched take no memory."""
        if self.is_too_large:
            raise SharedMemoryTooLargeError(f"{self.n_ctas} CTAs")
        end = int(np.flatnonzero(self._touched).max(initial=-1)) + 1
        values, states = self.values[:, :end], self.states[:, :end]
        self.values = np.zeros((self.n_ctas, self.n_bytes), dtype=np.uint8)
        self.states = np.zeros((self.n_ctas, self.n_bytes), dtype=np.uint8)
        self.values[:, :end], self.states[:, :end] = values, states

    # ---- stores ----------------------------------------------------------------------------------

    def store(
        self, access: LoweredAccess, view: RegisterView, active: BoolArray, addresses: Addresses | None
    ) -> None:
        """Store what the group stores; if addresses are unknown, all bytes of its CTAs become unknown."""
        if addresses is None:
            self.forget_all(view)
            return
        data = [read_abstract_word(view, slot) for slot in access.data_slots]
        is_plain = has_known_store_data(access, view, find_placeholders=self._find_placeholders)
        if not is_plain and not self.has_known_bytes(addresses, access.width_bytes):
            return
        origins = [_FULLY_KNOWN if word.origin is None else word.origin for word in data]
        active, table, *rest = self._match_memory_rows(
            view, [active, addresses, *(word.value for word in data), *origins]
        )
        words, unknown = rest[: len(data)], rest[len(data) :]
        lanes = self._make_store_lanes(view, access, active, table)
        if not lanes.byte_offsets.size:
            return
        if (
            access.atomic_operation
            and not view.group.speculations
            and self._apply_atomic(access, lanes, words, unknown)
        ):
            return
        for place in range(max(1, access.width_bytes // 4)):
            n_bytes = min(4, access.width_bytes)
            if is_plain and place < len(data):
                states = self._find_states(lanes.select(unknown[place]))
                self._write_bytes(lanes, 4 * place, n_bytes, lanes.select(words[place]), states)
            else:
                self._forget_bytes(lanes, 4 * place, n_bytes)

    def _make_store_lanes(
        self, view: RegisterView, access: LoweredAccess, active: BoolArray, addresses: Addresses
    ) -> _StoreLanes:
        """Return the lanes that take part in a store."""
        n_rows = len(view.group.warp_indices)
        places = self._find_memory_rows(view)
        if len(self.values) == 1:
            n_rows //= self.n_ctas
            places = places[:n_rows]
        shape = (n_rows, WARP_SIZE)
        active = np.broadcast_to(active, shape)
        at = extract_cta_offsets(np.broadcast_to(addresses, shape)[active]).astype(np.int64)
        owner = np.broadcast_to(places[:, None], shape)[active]
        inside = at + access.width_bytes <= self.n_bytes
        return _StoreLanes(owner[inside], at[inside], active, inside)

    def _find_states(self, origins: UnknownOrigins) -> ByteStates:
        """Return the states of words with these origins."""
        states: ByteStates = np.where(origins == 0, _KNOWN, _UNSET).astype(np.uint8)
        if self._find_placeholders is not None:
            held = self._find_placeholders(origins)
            states[held] = _PLACEHOLDER
            self._placeholder_origin = max(self._placeholder_origin, int(origins[held].max(initial=0)))
        return states

    def _write_bytes(
        self, lanes: _StoreLanes, offset: int, n_bytes: int, words: WordArray, states: ByteStates
    ) -> None:
        """Write the low bytes of words."""
        if n_bytes == _WORD_BYTES and not _has_unaligned(lanes.byte_offsets):
            at = (lanes.byte_offsets + offset) // _WORD_BYTES
            self.values.view(np.uint32)[lanes.memory_rows, at] = words
            self.states.view(np.uint32)[lanes.memory_rows, at] = states * _WORD_OF_BYTES
            self._touched.view(np.uint32)[at] = _WORD_OF_BYTES
            return
        for byte in range(n_bytes):
            at = lanes.byte_offsets + (offset + byte)
            self.values[lanes.memory_rows, at] = (words >> np.uint32(8 * byte)).astype(np.uint8)
            self.states[lanes.memory_rows, at] = states
            self._touched[at] = True

    def _forget_bytes(self, lanes: _StoreLanes, offset: int, n_bytes: int) -> None:
        """Make these bytes unknown."""
        at = lanes.byte_offsets + offset
        low, high = int(at.min()), int(at.max()) + n_bytes
        if not self._touched[low:high].any():
            return
        for byte in range(n_bytes):
            self.states[lanes.memory_rows, at + byte] = _UNSET
        self._touched[low:high] = self.states[:, low:high].any(axis=0)

    def _apply_atomic(
        self, access: LoweredAccess, lanes: _StoreLanes, words: list[Value], unknown: list[Value]
    ) -> bool:
        """Execute an atomic on known words; return False if that is not possible."""
        counts = access.atomic_operation == "POPC"  # POPC.INC: each lane adds one
        if access.width_bytes != 4 or len(words) != (not counts) or (lanes.byte_offsets & 3).any():
            return False
        if any(origin is not _FULLY_KNOWN for origin in unknown) and any(o.any() for o in unknown):
            return False
        if (self.states[lanes.memory_rows, lanes.byte_offsets] != _KNOWN).any():
            return False
        added = lanes.select(np.ones((1, 1), dtype=np.uint32) if counts else words[0])
        _ATOMIC_OPERATIONS[access.atomic_operation].at(
            self.values.view(np.uint32), (lanes.memory_rows, lanes.byte_offsets >> 2), added
        )
        return True

    # ---- loads -----------------------------------------------------------------------------------

    def load(self, access: LoweredAccess, view: RegisterView, addresses: Addresses) -> list[AbstractWord]:
        """Return what the group loads, one word per register."""
        places: IntArray = np.zeros((1, 1), dtype=np.int64)
        if len(self.values) > 1:
            places, addresses = (
                self.cta_indices[view.group.warp_indices][:, None],
                view.to_warp_rows(addresses),
            )
        addresses = extract_cta_offsets(addresses)
        inside = addresses + np.uint64(access.width_bytes) <= self.n_bytes
        at = np.where(inside, addresses, 0).astype(np.int64)
        found: list[AbstractWord] = []
        are_words = access.width_bytes >= _WORD_BYTES and not _has_unaligned(at)
        for place in range(len(access.result_slots)):
            if are_words:
                target = np.minimum(at // _WORD_BYTES + place, self.n_bytes // _WORD_BYTES - 1)
                value = self.values.view(np.uint32)[places, target]
                states = np.where(inside, self._load_word_states(places, target), _UNSET)
            else:
                value, states = self._load_bytes(places, at + _WORD_BYTES * place, access.width_bytes, inside)
            if access.is_signed and access.width_bytes < 4:
                sign = np.uint32(1 << (8 * access.width_bytes - 1))
                value = (value ^ sign) - sign
            origin = None
            if (states != _KNOWN).any():
                unset = np.int32(make_divergent_origin(access.row))
                held = np.where(states == _PLACEHOLDER, np.int32(self._placeholder_origin), unset)
                origin = view.from_warp_rows(np.where(states == _KNOWN, np.int32(0), held))
            found.append(AbstractWord(view.from_warp_rows(value), origin))
        return found

    def _load_word_states(self, places: IntArray, words: IntArray) -> ByteStates:
        """Return the states of aligned words."""
        found: WordArray = self.states.view(np.uint32)[places, words]
        if self._find_placeholders is None:
            known: ByteStates = (found == _KNOWN * _WORD_OF_BYTES).astype(np.uint8)
            return known
        four = found[..., None].view(np.uint8)
        return _join_states(four.min(axis=-1), four.max(axis=-1))

    def _load_bytes(
        self, places: IntArray, at: IntArray, width: int, inside: BoolArray
    ) -> tuple[Value, ByteStates]:
        """Return the words of the bytes at these offsets, and their states."""
        value = np.zeros(np.broadcast_shapes(at.shape, places.shape), dtype=np.uint32)
        least: ByteStates = np.full(value.shape, _PLACEHOLDER, dtype=np.uint8)
        most: ByteStates = np.zeros(value.shape, dtype=np.uint8)
        for byte in range(min(_WORD_BYTES, width)):
            target = np.minimum(at + byte, self.n_bytes - 1)
            value |= self.values[places, target].astype(np.uint32) << np.uint32(8 * byte)
            states = self.states[places, target]
            least, most = np.minimum(least, states), np.maximum(most, states)
        return value, np.where(inside, _join_states(least, most), _UNSET)


def _join_states(least: ByteStates, most: ByteStates) -> ByteStates:
    """Return the states of words from those of their bytes: one unset byte leaves all unset."""
    joint: ByteStates = np.where(least == _UNSET, _UNSET, most).astype(np.uint8)
    return joint


def _has_unaligned(at: IntArray) -> bool:
    """Return whether some offsets are not aligned to words."""
    return bool((at & (_WORD_BYTES - 1)).any())


_FULLY_KNOWN: UnknownOrigins = np.zeros((1, 1), dtype=np.int32)


def has_known_store_data(
    access: LoweredAccess, view: RegisterView, find_placeholders: PlaceholderFinder | None = None
) -> bool:
    """Return whether some of the stored data is known, or a placeholder (see `SharedMemory`)."""
    if access.kind is not OpKind.STORE or access.n_matrices or view.group.speculations:
        return False
    words = [read_abstract_word(view, slot) for slot in access.data_slots]
    return any(
        word.origin is None
        or not word.origin.all()
        or (find_placeholders is not None and find_placeholders(word.origin).any())
        for word in words
    )
