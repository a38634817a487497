"""Random words in place of unknown words of memory, for addresses that depend on them.

Lanes that gather by an index, scatter to a bin or follow a hash load words of their own. How their addresses
lie to each other then depends on data that are unknown. They are assumed to be random: sectors, bank
conflicts and lanes at one word are those of random numbers.

1. A word is a hash of its address: lanes that load the same index access the same row.
2. The code bounds it: a byte is below 256, a masked word below its mask.
3. If the buffer that the access leads into has a known size, its addresses stay inside.
4. Words that are read as floating point are numbers from 0 to 1 if each lane loads its own (coordinates and
   samples often are), and else 0, a short distance (see `UnknownWords`).
5. Results of atomics have no random words: they count up.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.segments import CompiledKernel, LoweredAccess
from analyzer.execution.lowering.step import WordArray
from analyzer.execution.machine.register_state import DIVERGENT_FLAG, UnknownOrigins
from analyzer.execution.machine.unknown_words import UnknownWords
from analyzer.ir.arrays import Addresses, BoolArray
from analyzer.ir.opcode import OpKind

_LOADING_KINDS = (OpKind.LOAD, OpKind.ASYNC_COPY)
_WORD_BYTES = 4
_SPLITMIX64_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NONNEGATIVE_MASK = np.uint32(0x7FFFFFFF)  # an index is not negative
_PITCH_MASK, _POINTER_MASK = np.uint32(0x7FFFFFF8), np.uint32(0x7FFFFF00)
_UNIT_SCALE = np.float32(2.0**-32)


class TargetBuffer(Struct, frozen=True):
    """A buffer of known size that an access leads into."""

    address: int
    size_bytes: int


def find_target_buffers(
    image: ConstantImage, bases: Iterable[tuple[int, int | None]]
) -> dict[int, TargetBuffer]:
    """Return buffers of known size by the row of the instruction that accesses them.

    bases: rows, and their address with zero for unknown words.
    """
    found: dict[int, TargetBuffer] = {}
    for row, base in bases:
        if base is None:
            continue
        place = int(image.find_allocations(np.array([base], dtype=np.uint64).view(np.int64))[0])
        size = None if place < 0 else image.allocations[place].size_bytes
        if size:
            found[row] = TargetBuffer(image.allocations[place].address, size)
    return found


class RandomData:
    """Random words for the loads of a kernel.

    target_buffers: by the row of the access that leads into them.
    has_pitches: 4-byte words that a whole warp loads are multiples of 8, as pitches of matrices are. The low
        word of 8 bytes that it loads is always a multiple of 256, as in pointers.
    """

    def __init__(
        self,
        kernel: CompiledKernel,
        words: UnknownWords,
        target_buffers: Mapping[int, TargetBuffer] | None = None,
        *,
        has_pitches: bool = False,
    ) -> None:
        self._kernel, self._unknown_words, self._has_pitches = kernel, words, has_pitches
        self._target_buffers = target_buffers or {}

    def has_random_data(self, row: int) -> bool:
        """Return whether an instruction loads words that are random if unknown."""
        kernel = self._kernel.cfg.kernel
        return row < len(kernel) and kernel.find_opcode(row).kind in _LOADING_KINDS

    def covers_unknowns(self, origin: UnknownOrigins, active: BoolArray) -> bool:
        """Return whether all unknown words that some addresses depend on have random words."""
        found = np.unique(np.where(active, origin, 0))
        return all(self._is_random(one) for one in found.tolist() if one)

    def find_random_lanes(self, origin: UnknownOrigins) -> BoolArray:
        """Return where words of these origins are random ones."""
        random = [one for one in np.unique(origin).tolist() if one and self._is_random(one)]
        lanes: BoolArray = np.isin(origin, random)
        return lanes

    def _is_random(self, origin: int) -> bool:
        return self.has_random_data((origin & ~DIVERGENT_FLAG) - 1)

    def make_words(self, access: LoweredAccess, addresses: Addresses, *, is_uniform: bool) -> list[WordArray]:
        """Return the words at these addresses, one array per register.

        is_uniform: the lanes of a warp load the same.
        """
        found = []
        is_number = self._unknown_words.is_read_as_float(access.row)
        for place in range(len(access.result_slots)):
            word = _make_random_words(addresses + np.uint64(_WORD_BYTES * place))
            if is_number:
                found.append(np.zeros_like(word) if is_uniform else _make_unit_floats(word))
                continue
            word = word & _NONNEGATIVE_MASK
            if access.width_bytes < _WORD_BYTES:
                word = _narrow_words(word, access)
            elif is_uniform and access.width_bytes > _WORD_BYTES:
                word &= _POINTER_MASK if place % 2 == 0 else _NONNEGATIVE_MASK
            elif is_uniform and self._has_pitches:
                word &= _PITCH_MASK
            found.append(word)
        return found

    def fit_addresses(self, access: LoweredAccess, addresses: Addresses) -> Addresses:
        """Align addresses to the access width, within the buffer that the access leads into if known."""
        if (table := self._target_buffers.get(access.row)) is not None:
            first = np.uint64(table.address)
            addresses = first + (addresses - first) % np.uint64(table.size_bytes)
        width = access.width_bytes
        return addresses if width & (width - 1) else addresses & ~np.uint64(width - 1)


def _make_random_words(places: Addresses) -> WordArray:
    """Hash each address with the mixing function of SplitMix64 (Steele et al., OOPSLA 2014)."""
    mixed = places
    for factor, shift in zip(_SPLITMIX64_FACTORS, (30, 27), strict=True):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * factor
    return (mixed ^ mixed >> np.uint64(31)).astype(np.uint32)


def _make_unit_floats(words: WordArray) -> WordArray:
    """Return the bits of floating-point numbers from 0 to 1."""
    return (words.astype(np.float32) * _UNIT_SCALE).view(np.uint32)


def _narrow_words(words: WordArray, access: LoweredAccess) -> WordArray:
    """Return the low 8 or 16 bits of words, sign-extended if the load does so."""
    bits = np.uint32(8 * access.width_bytes)
    words = words & ((np.uint32(1) << bits) - np.uint32(1))
    if not access.is_signed:
        return words
    sign = np.uint32(1) << (bits - np.uint32(1))
    return (words ^ sign) - sign
