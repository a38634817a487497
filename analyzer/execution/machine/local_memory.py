"""Contents of the stack, thread by thread: a word is a slot of the registers, so it may grow as they do.

A word that is stored or loaded in parts (bytes, half words) becomes four slots, one for each byte: of each is
known on its own whether it has a value.

Invariant: no two slots hold the same byte; a byte that no thread has stored has no slot, or is unknown there.

    STL [R1], R4          word 0: one slot
    STL.U16 [R1+0x2], R5  word 0: four slots; bytes 2 and 3 from R5
    LDL R6, [R1]          the four together
"""

from collections.abc import Iterable

import numpy as np

from analyzer.execution.footprint.hashing import sort_unique
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.lowering.step import Value
from analyzer.execution.machine.budget import StopExecution
from analyzer.execution.machine.cta_batch import CtaBatch
from analyzer.execution.machine.register_state import (
    RegisterView,
    UnknownOrigins,
    collapse_uniform_axes,
    join_origins,
    make_divergent_origin,
)
from analyzer.execution.machine.shared_memory import AbstractWord, read_abstract_word
from analyzer.ir.arrays import Addresses, BoolArray

_MAX_STACK_OFFSETS = 64
_MAX_STACK_WORDS = 2048  # a deeper recursion is taken to have no end
_WORD_BYTES = 4
_BYTE_MASK = np.uint32(0xFF)
_BYTE_BITS = 8


class LocalMemory:
    """The stack of all threads of a batch; offsets are those of a thread."""

    def __init__(self, batch: CtaBatch) -> None:
        self.batch = batch
        self.word_slots: dict[int, int] = {}  # by offset of a whole word
        self.byte_slots: dict[int, tuple[int, ...]] = {}  # by offset of a word that is kept in bytes
        self.speculative_slots: set[int] = set()  # slots that were stored speculatively

    def copy(self) -> "LocalMemory":
        """Return a copy with the same slots; both record speculative stores in one place."""
        other = LocalMemory(self.batch)
        other.word_slots, other.byte_slots = dict(self.word_slots), dict(self.byte_slots)
        other.speculative_slots = self.speculative_slots
        return other

    @property
    def slots(self) -> list[int]:
        """Slots of all words and bytes."""
        return [*self.word_slots.values(), *(slot for four in self.byte_slots.values() for slot in four)]

    # ---- stores ----------------------------------------------------------------------------------

    def forget(self, access: LoweredAccess, view: RegisterView, lanes: BoolArray | None) -> None:
        """Make all of the stack unknown in some lanes; None: in all of the group."""
        unknown = np.full((1, 1), make_divergent_origin(access.row), dtype=np.int32)
        for slot in self.slots:
            view.write(slot, view.read_value(slot), unknown, None, lanes)

    def store(
        self, access: LoweredAccess, view: RegisterView, active: BoolArray, addresses: Addresses | None
    ) -> None:
        """Keep what lanes store; if an offset is unknown or there are too many, all becomes unknown."""
        width = access.width_bytes
        offsets = None if addresses is None else find_stack_offsets(view, active, addresses, width)
        if addresses is None or offsets is None:
            self.forget(access, view, None if view.group.has_all_lanes else view.mask)
            return
        for offset in offsets:
            here = active
            if len(offsets) > 1:
                here = active & (view.to_warp_rows(addresses) == np.uint64(offset))
            lanes = None if bool((here == view.group.mask).all()) else view.from_warp_rows(here)
            for place, source in enumerate(access.data_slots):
                word = read_abstract_word(view, source)
                self._store_word(offset + _WORD_BYTES * place, min(width, _WORD_BYTES), word, view, lanes)

    def _store_word(
        self, offset: int, n_bytes: int, word: AbstractWord, view: RegisterView, lanes: BoolArray | None
    ) -> None:
        """Store the low bytes of a word."""
        base = offset - offset % _WORD_BYTES
        if n_bytes == _WORD_BYTES and base not in self.byte_slots:
            self._write(self._add_word(base, view), word, view, lanes)
            return
        four = self._split_word(base, view)
        for byte in range(n_bytes):
            part = word.value >> np.uint32(_BYTE_BITS * byte) & _BYTE_MASK
            self._write(four[offset - base + byte], AbstractWord(part, word.origin), view, lanes)

    def _write(self, slot: int, word: AbstractWord, view: RegisterView, lanes: BoolArray | None) -> None:
        if view.group.speculations:
            self.speculative_slots.add(slot)
        view.write(slot, word.value, word.origin, word.delta, lanes)

    def _add_word(self, offset: int, view: RegisterView) -> int:
        """Return the slot of a whole word; a new one is unknown."""
        if offset not in self.word_slots:
            self._check_size()
            self.word_slots[offset] = view.state.add_unset_slot(self.batch.unset_stack_origin)
        return self.word_slots[offset]

    def _split_word(self, offset: int, view: RegisterView) -> tuple[int, ...]:
        """Return the slots of the bytes of a word, which is kept in bytes from now on."""
        if offset in self.byte_slots:
            return self.byte_slots[offset]
        self._check_size()
        view.flush()
        state, whole = view.state, self.word_slots.pop(offset, None)
        four = tuple(state.add_unset_slot(self.batch.unset_stack_origin) for _ in range(_WORD_BYTES))
        self.byte_slots[offset] = four
        for byte, slot in enumerate(four):
            if whole is not None:
                value = state.values[whole] >> np.uint32(_BYTE_BITS * byte) & _BYTE_MASK
                state.values[slot] = collapse_uniform_axes(value)
                state.origins[slot] = state.origins[whole]
        if whole in self.speculative_slots:
            self.speculative_slots.update(four)
        return four

    def _check_size(self) -> None:
        """Raise StopExecution if too many words are in use."""
        if len(self.word_slots) + len(self.byte_slots) >= _MAX_STACK_WORDS:
            raise StopExecution(f"stopped when more than {_MAX_STACK_WORDS:,} words of the stack were in use")

    # ---- loads -----------------------------------------------------------------------------------

    def load(
        self, access: LoweredAccess, view: RegisterView, active: BoolArray, addresses: Addresses
    ) -> list[AbstractWord] | None:
        """Return what lanes load, one word per register; None if their offsets are too many."""
        width = access.width_bytes
        offsets = find_stack_offsets(view, active, addresses, width)
        if offsets is None:
            return None
        found: list[AbstractWord] = []
        for place in range(len(access.result_slots)):
            words = [
                self._load_word(offset + _WORD_BYTES * place, min(width, _WORD_BYTES), view)
                for offset in offsets
            ]
            word = words[0] if len(words) == 1 else None
            if word is None:
                word = _select_words(access, view, addresses, zip(offsets, words, strict=True))
            found.append(_extend_sign(word, width) if access.is_signed else word)
        return found

    def _load_word(self, offset: int, n_bytes: int, view: RegisterView) -> AbstractWord | None:
        """Return bytes of a word in the lowest bits; None if nothing was stored there."""
        base, first = offset - offset % _WORD_BYTES, offset % _WORD_BYTES
        four, whole = self.byte_slots.get(base), self.word_slots.get(base)
        if four is not None:
            value: Value = np.zeros((1, 1), dtype=np.uint32)
            origin: UnknownOrigins | None = None
            for byte, slot in enumerate(four[first : first + n_bytes]):
                value = value | view.read_value(slot) << np.uint32(_BYTE_BITS * byte)
                origin = join_origins(origin, view.read_origin(slot))
            return AbstractWord(value, origin)
        if whole is None:
            return None
        word = read_abstract_word(view, whole)
        if n_bytes == _WORD_BYTES:
            return word
        mask = np.uint32((1 << _BYTE_BITS * n_bytes) - 1)
        return AbstractWord(word.value >> np.uint32(_BYTE_BITS * first) & mask, word.origin)

    def cuts_growing_word(
        self, access: LoweredAccess, view: RegisterView, active: BoolArray, addresses: Addresses | None
    ) -> bool:
        """Return whether an access takes or keeps a part of a word that grows from iteration to iteration."""
        offsets = () if addresses is None else find_stack_offsets(view, active, addresses, access.width_bytes)
        n_words = max(1, access.width_bytes // _WORD_BYTES)
        bases = [
            offset - offset % _WORD_BYTES + _WORD_BYTES * place
            for offset in offsets or ()
            for place in range(n_words)
        ]
        if access.width_bytes >= _WORD_BYTES and not any(base in self.byte_slots for base in bases):
            return False
        slots = [*access.data_slots, *(self.word_slots[base] for base in bases if base in self.word_slots)]
        return any(slot >= 0 and view.read_delta(slot) is not None for slot in slots)


def _select_words(
    access: LoweredAccess,
    view: RegisterView,
    addresses: Addresses,
    words: Iterable[tuple[int, AbstractWord | None]],
) -> AbstractWord:
    """Return for each lane the word at its offset, unknown where there is none."""
    value: Value = np.zeros((1, 1), dtype=np.uint32)
    origin: UnknownOrigins = np.full((1, 1), make_divergent_origin(access.row), dtype=np.int32)
    for offset, word in words:
        if word is not None:
            here = addresses == np.uint64(offset)
            value = np.where(here, word.value, value)
            origin = np.where(here, 0 if word.origin is None else word.origin, origin).astype(np.int32)
    return AbstractWord(value, origin)


def _extend_sign(word: AbstractWord, width_bytes: int) -> AbstractWord:
    """Return a byte or half word sign-extended."""
    if width_bytes >= _WORD_BYTES:
        return word
    sign = np.uint32(1 << (_BYTE_BITS * width_bytes - 1))
    return AbstractWord((word.value ^ sign) - sign, word.origin)


def find_stack_offsets(
    view: RegisterView, active: BoolArray, addresses: Addresses, width_bytes: int
) -> list[int] | None:
    """Return the distinct stack offsets of active lanes, [n_warp, 32].

    None if they are too many, or one is not aligned to the access, or to words for a wider one.
    """
    if addresses.size == 1:
        found = addresses.reshape(1)
    else:
        found = sort_unique(np.broadcast_to(view.to_warp_rows(addresses), active.shape)[active])
    unaligned = found & np.uint64(min(max(width_bytes, 1), _WORD_BYTES) - 1)
    return found.tolist() if 0 < len(found) <= _MAX_STACK_OFFSETS and not unaligned.any() else None
