"""Constant banks of a launch, word by word, and the allocations that its pointers lead to."""

import zlib
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.binding.constant_banks import AddressWindows
from analyzer.execution.binding.fill_patterns import find_pattern_period
from analyzer.execution.profile.missing_inputs import MissingInput
from analyzer.ir.launch import TensorLayout
from analyzer.ir.module import Parameter

FIRST_ALLOCATION_ADDRESS = 0x7F00_0000_0000
ALLOCATION_SPACING_BYTES = 1 << 36
_N_SYMBOL_PLACES = 1 << 20  # beyond all allocations, which are fewer
ANY_BANK = -1
_NO_WORDS = (np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int32))

BankWords = tuple[NDArray[np.uint32], NDArray[np.int32]]


class Allocation(Struct, frozen=True, kw_only=True, eq=False):
    """Memory that a pointer leads to."""

    address: int
    size_bytes: int | None  # None if unknown
    label: str  # as in messages, `argument 0 (x)`
    ordinal: int | None = None  # of the parameter
    name: str = ""  # of the parameter or module variable
    contents: NDArray[np.uint8] | None = None  # None if unknown; never modified
    fill_pattern: bytes | None = None  # its first 8 bytes, if these repeat throughout
    is_parameter: bool = False  # the parameter itself in constant bank 0, by generic address (a tensor map)

    def contains(self, addresses: NDArray[np.uint64], n_bytes: int = 1) -> NDArray[np.bool_]:
        """Return the mask of addresses from which `n_bytes` bytes lie in the allocation."""
        last = np.uint64(self.end_address - n_bytes)
        found: NDArray[np.bool_] = (addresses >= np.uint64(self.address)) & (addresses <= last)
        return found

    @property
    def end_address(self) -> int:
        """End of the allocation; without a size, the start of the next one."""
        return self.address + (ALLOCATION_SPACING_BYTES if self.size_bytes is None else self.size_bytes)


def make_symbol_address(symbol: str) -> int:
    """Return the address of a variable that only its name in the code tells, far from all others."""
    place = _N_SYMBOL_PLACES + zlib.crc32(symbol.encode()) % _N_SYMBOL_PLACES
    return FIRST_ALLOCATION_ADDRESS + place * ALLOCATION_SPACING_BYTES


class MappedTensor(Struct, frozen=True):
    """A tensor that a tensor map (TMA descriptor) describes."""

    descriptor_address: int  # generic
    base_address: int
    layout: TensorLayout


class ConstantImage(Struct, frozen=True, kw_only=True, eq=False):
    """Constant banks of one launch.

    Each word has an origin: 0 if it is known, else an index of `unknown_reasons`.
    """

    unknown_reasons: tuple[str, ...]
    missing_inputs: tuple[MissingInput | None, ...]  # that would give the words of each reason
    allocations: tuple[Allocation, ...]  # by ascending address
    assumptions: tuple[str, ...]  # sentences for the report
    parameters: tuple[Parameter, ...]
    parameter_base: int  # offset of the first parameter in bank 0
    banks: Mapping[int, BankWords]  # values and origins of all words, by bank
    outside_origins: Mapping[int, int]  # origin of words beyond a bank; of all other banks at ANY_BANK
    windows: AddressWindows
    assumes_pointers: bool = False  # a parameter of unknown type was assumed to be a pointer
    tensors: tuple[MappedTensor, ...] = ()  # whose layout the user gives

    def find_missing_input(self, bank: int, offset: int) -> MissingInput | None:
        """Return the input that would give an unknown word; None where it is known or nothing gives it."""
        return self.missing_inputs[self.read_word(bank, offset)[1]]

    @property
    def fill_period_bytes(self) -> int:
        """Bytes after which all filled allocations repeat, 1 without any."""
        patterns = (allocation.fill_pattern for allocation in self.allocations)
        return max((find_pattern_period(pattern) for pattern in patterns if pattern is not None), default=1)

    @property
    def has_contents(self) -> bool:
        """True if the contents of an allocation are known."""
        return any(allocation.contents is not None for allocation in self.allocations)

    def read_words(
        self, bank: int, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Return (values, origins) of the words that contain these byte offsets; unknown words are 0."""
        values, origins = self.banks.get(bank, _NO_WORDS)
        beyond = self._find_outside_origin(bank)
        if not len(values):
            return np.zeros(offsets.shape, dtype=np.uint32), np.full(offsets.shape, beyond, dtype=np.int32)
        positions = offsets >> 2
        inside = (positions >= 0) & (positions < len(values))
        safe = np.where(inside, positions, 0)
        return (
            np.where(inside, values[safe], np.uint32(0)),
            np.where(inside, origins[safe], np.int32(beyond)),
        )

    def read_word(self, bank: int, offset: int) -> tuple[int, int]:
        """Return (value, origin) of one word; see `read_words`."""
        values, origins = self.banks.get(bank, _NO_WORDS)
        position = offset >> 2
        if not 0 <= position < len(values):
            return 0, self._find_outside_origin(bank)
        return int(values[position]), int(origins[position])

    def find_allocations(self, addresses: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the index in `allocations` of the one that contains each address, -1 for none."""
        if not self.allocations:
            return np.full(addresses.shape, -1, dtype=np.int32)
        starts = np.array([a.address for a in self.allocations], dtype=np.int64)
        ends = np.array([a.end_address for a in self.allocations], dtype=np.int64)
        positions = np.searchsorted(starts, addresses, side="right") - 1
        safe = np.maximum(positions, 0)
        return np.where((positions >= 0) & (addresses < ends[safe]), safe, -1).astype(np.int32)

    def _find_outside_origin(self, bank: int) -> int:
        return self.outside_origins.get(bank, self.outside_origins[ANY_BANK])
