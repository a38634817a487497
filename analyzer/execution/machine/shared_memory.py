"""Contents of shared memory, byte by byte, for kernels whose addresses or branches depend on them.

Invariant: while all CTAs store the same, one row of bytes represents all of them; the first store that
differs gives each CTA a row of its own.

A byte is unset, known, or a placeholder: what stands for an unknown word in a run that puts values in place
of these (`RandomData`). A placeholder is loaded as it was stored, and remains unknown.
"""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.lowering.step import Value, WordArray
from analyzer.execution.machine.register_state import (
    Deltas,
    RegisterView,
    UnknownOrigins,
    join_origins,
    make_divergent_origin,
    make_doubt_origin,
)
from analyzer.execution.machine.warp_order import AccessOrder, WarpOrder, WordLanes
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
    warps: IntArray  # [n], in the batch
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
    order: of the warps of the batch, by which loads are in doubt.
    find_placeholders: returns where unknown words of these origins are placeholders; None if nowhere.
    """

    def __init__(
        self,
        ctas: IntArray,
        shared_bytes: int,
        reserved_bytes: int,
        order: WarpOrder,
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
        self.cell_bytes = _WORD_BYTES  # of which order is kept; 1 once a part of a word is stored
        self.accesses = AccessOrder(order, 1, n_bytes // _WORD_BYTES)

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
        n_cells = -(-end // self.cell_bytes)
        self.accesses = self.accesses.spread(self.n_ctas, self.n_bytes // self.cell_bytes, n_cells)

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
                self._write_bytes(lanes, 4 * place, n_bytes, lanes.select(words[place]), states, access.row)
            else:
                self._forget_bytes(lanes, 4 * place, n_bytes, access.row)

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
        warps = np.broadcast_to(view.group.warp_indices[:n_rows, None], shape)[active]
        return _StoreLanes(owner[inside], at[inside], warps[inside], active, inside)

    def _find_states(self, origins: UnknownOrigins) -> ByteStates:
        """Return the states of words with these origins."""
        states: ByteStates = np.where(origins == 0, _KNOWN, _UNSET).astype(np.uint8)
        if self._find_placeholders is not None:
            held = self._find_placeholders(origins)
            states[held] = _PLACEHOLDER
            self._placeholder_origin = max(self._placeholder_origin, int(origins[held].max(initial=0)))
        return states

    def _write_bytes(
        self, lanes: _StoreLanes, offset: int, n_bytes: int, words: WordArray, states: ByteStates, row: int
    ) -> None:
        """Write the low bytes of words; row: of the store."""
        if n_bytes == _WORD_BYTES and not _has_unaligned(lanes.byte_offsets):
            at = (lanes.memory_rows, (lanes.byte_offsets + offset) // _WORD_BYTES)
            values, flags = self.values.view(np.uint32), self.states.view(np.uint32)
            new_flags = states * _WORD_OF_BYTES
            changes = (values[at] != words) | (flags[at] != _KNOWN * _WORD_OF_BYTES) | (states != _KNOWN)
            disputed = self._note_store(lanes, offset, n_bytes, changes, row)
            values[at], flags[at] = words, new_flags
            self._touched.view(np.uint32)[at[1]] = _WORD_OF_BYTES
            self._dispute(lanes, offset, n_bytes, disputed | (values[at] != words) | (flags[at] != new_flags))
            return
        self._divide_cells()
        for byte in range(n_bytes):
            place = (lanes.memory_rows, lanes.byte_offsets + (offset + byte))
            parts = (words >> np.uint32(8 * byte)).astype(np.uint8)
            changes = (self.values[place] != parts) | (self.states[place] != _KNOWN) | (states != _KNOWN)
            disputed = self._note_store(lanes, offset + byte, 1, changes, row)
            self.values[place], self.states[place] = parts, states
            self._touched[place[1]] = True
            self._dispute(lanes, offset + byte, 1, disputed | (self.values[place] != parts))

    # ---- order of accesses -----------------------------------------------------------------------

    def _divide_cells(self) -> None:
        """Keep the order of accesses by bytes from now on."""
        if self.cell_bytes == 1:
            return
        self.cell_bytes, end = 1, self.n_bytes // _WORD_BYTES
        self.accesses = self.accesses.spread(len(self.values), self.n_bytes, end, _WORD_BYTES)

    def _list_cells(self, lanes: _StoreLanes, offset: int, n_bytes: int) -> Iterator[WordLanes]:
        """Yield the cells of a store, from an offset on."""
        for byte in range(0, n_bytes, self.cell_bytes):
            cells = (lanes.byte_offsets + (offset + byte)) // self.cell_bytes
            yield WordLanes(lanes.memory_rows, cells, lanes.warps)

    def _note_store(
        self, lanes: _StoreLanes, offset: int, n_bytes: int, changes: BoolArray, row: int, operation: str = ""
    ) -> BoolArray:
        """Note a store; return the lanes whose bytes are disputed, see `AccessOrder.store`."""
        disputed = np.zeros(len(changes), dtype=bool)
        for cells in self._list_cells(lanes, offset, n_bytes):
            disputed |= self.accesses.store(cells, changes, row, operation)
        return disputed

    def _dispute(self, lanes: _StoreLanes, offset: int, n_bytes: int, disputed: BoolArray) -> None:
        """Note that it is not known which of several values came last."""
        if disputed.any():
            for cells in self._list_cells(lanes, offset, n_bytes):
                self.accesses.dispute(cells.select(disputed))

    def _forget_bytes(self, lanes: _StoreLanes, offset: int, n_bytes: int, row: int) -> None:
        """Make these bytes unknown; row: of the store."""
        at = lanes.byte_offsets + offset
        low, high = int(at.min()), int(at.max()) + n_bytes
        if not self._touched[low:high].any():
            return
        if n_bytes < _WORD_BYTES or _has_unaligned(at):
            self._divide_cells()
        self._note_store(lanes, offset, n_bytes, np.ones(len(at), dtype=bool), row)
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
        everywhere = np.ones(len(lanes.byte_offsets), dtype=bool)
        disputed = self._note_store(lanes, 0, _WORD_BYTES, everywhere, access.row, access.atomic_operation)
        self._dispute(lanes, 0, _WORD_BYTES, disputed)
        added = lanes.select(np.ones((1, 1), dtype=np.uint32) if counts else words[0])
        _ATOMIC_OPERATIONS[access.atomic_operation].at(
            self.values.view(np.uint32), (lanes.memory_rows, lanes.byte_offsets >> 2), added
        )
        return True

    # ---- loads -----------------------------------------------------------------------------------

    def load(
        self, access: LoweredAccess, view: RegisterView, addresses: Addresses, active: BoolArray
    ) -> list[AbstractWord]:
        """Return what the group loads, one word per register."""
        given = addresses
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
            if (states == _KNOWN).any():
                doubt = self._find_doubts(access, view, given, active, _WORD_BYTES * place)
                origin = join_origins(origin, doubt)
            found.append(AbstractWord(view.from_warp_rows(value), origin))
        return found

    def _find_doubts(
        self, access: LoweredAccess, view: RegisterView, addresses: Addresses, active: BoolArray, offset: int
    ) -> UnknownOrigins | None:
        """Note that a group loads bytes; return the origin of those that are in doubt, None without any.

        offset: of these bytes from the addresses.
        """
        warps, arrays = view.group.warp_indices, [addresses, active]
        uniform = view.find_cta_uniform_rows(arrays) if len(self.values) == 1 else None
        at, lanes_here = [view.to_warp_rows(one) for one in arrays] if uniform is None else uniform
        is_alike = uniform is not None and view.group.has_same_warps_in_ctas
        warps = warps[: view.n_first_cta_warps] if is_alike else warps
        if at.shape[1] == 1:
            lanes_here = np.logical_or.reduce(lanes_here, axis=1, keepdims=True)
        shape = (len(warps), at.shape[1])
        first = np.broadcast_to(extract_cta_offsets(at).astype(np.int64), shape)
        here = np.broadcast_to(lanes_here, shape) & (first + access.width_bytes <= self.n_bytes)
        offsets = first + offset
        memory_rows = np.broadcast_to(self._find_memory_rows(view)[: len(warps), None], shape)
        lanes = WordLanes(memory_rows[here], offsets[here], np.broadcast_to(warps[:, None], shape)[here])
        if not lanes.cells.size:
            return None
        if access.width_bytes < _WORD_BYTES or _has_unaligned(lanes.cells):
            self._divide_cells()
        doubtful = np.zeros(len(lanes.cells), dtype=bool)
        for byte in range(0, min(_WORD_BYTES, access.width_bytes), self.cell_bytes):
            cells = (lanes.cells + byte) // self.cell_bytes
            doubtful |= self.accesses.load(WordLanes(lanes.rows, cells, lanes.warps), access.row)
        if not doubtful.any():
            return None
        origin = np.zeros(shape, dtype=np.int32)
        origin[here] = np.where(doubtful, make_doubt_origin(access.row), 0)
        return origin[None, None] if is_alike else view.from_warp_rows(origin)

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
