"""The constant banks that a launch sees, word by word, and the allocations that its pointers lead to."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.binding.constant_banks import AddressWindows
from analyzer.ir.launch import TensorLayout
from analyzer.ir.module import Parameter

FIRST_ALLOCATION_ADDRESS = 0x7F00_0000_0000
ALLOCATION_SPACING_BYTES = 1 << 36
ANY_BANK = -1
_NO_WORDS = (np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int32))

BankWords = tuple[NDArray[np.uint32], NDArray[np.int32]]


class Allocation(Struct, frozen=True, kw_only=True, eq=False):
    """Memory that a pointer leads to: `label` as in `argument 0 (x)`; size and contents None where not known.

    fill: the word that stands everywhere in it, where that is known.

    is_parameter: the parameter itself, in constant bank 0, by its generic address (a tensor map).
    """

    address: int
    size_bytes: int | None
    label: str
    ordinal: int | None = None
    name: str = ""
    contents: NDArray[np.uint8] | None = None
    fill_word: int | None = None
    is_parameter: bool = False

    def contains(self, addresses: NDArray[np.uint64], n_bytes: int = 1) -> NDArray[np.bool_]:
        """Whether so many bytes from each address on belong to it."""
        last = np.uint64(self.end_address - n_bytes)
        found: NDArray[np.bool_] = (addresses >= np.uint64(self.address)) & (addresses <= last)
        return found

    @property
    def end_address(self) -> int:
        """The address after the last that is taken to belong to it."""
        return self.address + (ALLOCATION_SPACING_BYTES if self.size_bytes is None else self.size_bytes)


class MappedTensor(Struct, frozen=True):
    """A tensor that a TMA descriptor leads to, at `base`; address: generic one of the descriptor."""

    descriptor_address: int
    base_address: int
    layout: TensorLayout


class ConstantImage(Struct, frozen=True, kw_only=True, eq=False):
    """Constant banks of one launch. A word's origin is 0 where it is known, else its place in `unknowns`.

    allocations are in order of address; assumptions are sentences for the report; banks: values and origins
    of each bank's words; outside: the origin of words beyond them, by bank, that of other banks at ANY_BANK.
    surmises: words of which nothing is said, nor whether they are pointers, count as such. tensors: that
    descriptors lead to of which the user says what they stand for.
    """

    unknown_reasons: tuple[str, ...]
    allocations: tuple[Allocation, ...]
    assumptions: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    parameter_base: int
    banks: Mapping[int, BankWords]
    outside_origins: Mapping[int, int]
    windows: AddressWindows
    assumes_pointers: bool = False
    tensors: tuple[MappedTensor, ...] = ()

    @property
    def has_contents(self) -> bool:
        """Some allocation's contents are known."""
        return any(allocation.contents is not None for allocation in self.allocations)

    def read_words(
        self, bank: int, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """(values, origins) of the words at these byte offsets, rounded down to words; unknown ones are 0."""
        values, origins = self.banks.get(bank, _NO_WORDS)
        beyond = self._find_outside_origin(bank)
        if not len(values):
            return np.zeros(offsets.shape, dtype=np.uint32), np.full(offsets.shape, beyond, dtype=np.int32)
        places = offsets >> 2
        inside = (places >= 0) & (places < len(values))
        safe = np.where(inside, places, 0)
        return (
            np.where(inside, values[safe], np.uint32(0)),
            np.where(inside, origins[safe], np.int32(beyond)),
        )

    def read_word(self, bank: int, offset: int) -> tuple[int, int]:
        """(value, origin) of one word; see `read_words`."""
        values, origins = self.banks.get(bank, _NO_WORDS)
        place = offset >> 2
        if not 0 <= place < len(values):
            return 0, self._find_outside_origin(bank)
        return int(values[place]), int(origins[place])

    def find_allocations(self, addresses: NDArray[np.int64]) -> NDArray[np.int32]:
        """Place in `allocations` of the one that each address falls into, -1 where none does."""
        if not self.allocations:
            return np.full(addresses.shape, -1, dtype=np.int32)
        starts = np.array([a.address for a in self.allocations], dtype=np.int64)
        ends = np.array([a.end_address for a in self.allocations], dtype=np.int64)
        places = np.searchsorted(starts, addresses, side="right") - 1
        safe = np.maximum(places, 0)
        return np.where((places >= 0) & (addresses < ends[safe]), safe, -1).astype(np.int32)

    def _find_outside_origin(self, bank: int) -> int:
        return self.outside_origins.get(bank, self.outside_origins[ANY_BANK])
