"""Words that stand for those of memory that nobody knows, where addresses hang on them: random ones.

Lanes that gather by an index, scatter to a bin or follow a hash read words of their own. What they ask for
then depends on how these lie to each other, of which data say nothing; they are taken to lie at random: as
many sectors, conflicts and lanes on one word as random numbers give. A word is the same wherever its place
is read again, so that lanes that read one index go to one row, and code bounds them: a byte is below 256,
and what is masked stays below its mask. Where the table that they lead into has a known size, they stay
inside. Words that are computed with in floating point are numbers from 0 to 1 where lanes have their own, as
coordinates and samples often are, and else 0, a short distance (`UnknownWords`). Results of atomics count up:
nothing stands for them.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.binding.image_builder import ConstantImage
from analyzer.execution.lowering.segments import CompiledKernel, LoweredAccess
from analyzer.execution.lowering.step import BoolArray, WordArray
from analyzer.execution.machine.register_state import DIVERGENT_FLAG, UnknownOrigins
from analyzer.execution.machine.unknown_words import UnknownWords
from analyzer.ir.opcode import OpKind

Addresses = NDArray[np.uint64]

_WORD_BYTES = 4
_SPLITMIX64_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NONNEGATIVE_MASK = np.uint32(0x7FFFFFFF)  # an index is no negative number
_PITCH_MASK, _POINTER_MASK = np.uint32(0x7FFFFFF8), np.uint32(0x7FFFFF00)
_UNIT_SCALE = np.float32(2.0**-32)


class TargetBuffer(Struct, frozen=True):
    """Memory of a known size that an access leads into."""

    address: int
    size_bytes: int


def find_target_buffers(
    image: ConstantImage, bases: Iterable[tuple[int, int | None]]
) -> dict[int, TargetBuffer]:
    """Tables of a known size, by row; bases: where the row would go if unknown words were zero."""
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
    """Random words for what loads of a kernel bring; tables: that rows of instructions lead into.

    has_pitches: what a whole warp reads is a multiple of eight, as pitches of matrices are. Eight bytes that
    it reads are a multiple of 256, as pointers are.
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
        """Whether random words stand for what this instruction loads."""
        kernel = self._kernel.cfg.kernel
        return row < len(kernel) and kernel.find_opcode(row).kind is OpKind.LOAD

    def covers_unknowns(self, origin: UnknownOrigins, active: BoolArray) -> bool:
        """Whether all that is unknown of some addresses has random words for it."""
        found = np.unique(np.where(active, origin, 0))
        return all(self.has_random_data((one & ~DIVERGENT_FLAG) - 1) for one in found.tolist() if one)

    def make_words(self, access: LoweredAccess, addresses: Addresses, *, is_uniform: bool) -> list[WordArray]:
        """What stands there, register by register; is_even: the lanes of a warp read the same."""
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
        """Places that hardware allows, within the table that the access leads into if its size is known."""
        if (table := self._target_buffers.get(access.row)) is not None:
            first = np.uint64(table.address)
            addresses = first + (addresses - first) % np.uint64(table.size_bytes)
        width = access.width_bytes
        return addresses if width & (width - 1) else addresses & ~np.uint64(width - 1)


def _make_random_words(places: Addresses) -> WordArray:
    """SplitMix64's mixing of each place (see `make_hash_factors`)."""
    mixed = places
    for factor, shift in zip(_SPLITMIX64_FACTORS, (30, 27), strict=True):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * factor
    return (mixed ^ mixed >> np.uint64(31)).astype(np.uint32)


def _make_unit_floats(words: WordArray) -> WordArray:
    """A floating-point number from 0 to 1, in its bits."""
    return (words.astype(np.float32) * _UNIT_SCALE).view(np.uint32)


def _narrow_words(words: WordArray, access: LoweredAccess) -> WordArray:
    """A byte or half a word, extended by its sign where the load does so."""
    bits = np.uint32(8 * access.width_bytes)
    words = words & ((np.uint32(1) << bits) - np.uint32(1))
    if not access.is_signed:
        return words
    sign = np.uint32(1) << (bits - np.uint32(1))
    return (words ^ sign) - sign
