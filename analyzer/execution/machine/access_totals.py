"""Requests of one memory instruction as they are logged, and their sums."""

from math import prod
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.footprint.footprint import Footprint, Stride
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.machine.register_state import WarpIndices
from analyzer.execution.machine.unknown_words import AddressConfidence
from analyzer.ir.arrays import Addresses, BoolArray, IntArray
from analyzer.ir.opcode import AddressSpace, OpKind

_MIN_SCATTERED_LANE_SHARE = 0.9  # sectors per lane from which on each lane counts as having its own

READ_KINDS = frozenset({OpKind.LOAD, OpKind.ATOMIC})
WRITE_KINDS = frozenset({OpKind.STORE, OpKind.REDUCTION, OpKind.ATOMIC})

AccessKey = tuple[int, AddressSpace, int]  # row, space, bytes per lane: copies of one row differ in size


class AccessLogEntry(Struct, eq=False):
    """Requests of one access by some warps, which may repeat; arrays are as small as they are uniform."""

    rows: WarpIndices | None  # None for all warps of the batch
    active: BoolArray
    addresses: Addresses | None  # None where they are unknown
    steps: IntArray | None = None  # bytes from one repetition to the next, None for 0
    counts: IntArray | None = None  # repetitions of each warp, None for 1
    is_cta_uniform: bool = False  # the same warps of every CTA, as `LockstepGroup.common_warp_ids`
    inner_strides: tuple[Stride, ...] = ()  # further repetitions, along accelerated inner loops

    def make_repeated(self, times: IntArray, cta_shape: tuple[int, int]) -> "AccessLogEntry | None":
        """Return the entry with counts `times[warp]`, without warps of count 0; None if none is left."""
        counts = times if self.rows is None else times[self.rows]
        if bool((counts > 0).all()):
            return replace(self, counts=counts)
        rows = np.arange(len(times), dtype=np.int64) if self.rows is None else self.rows
        stays = np.flatnonzero(counts)
        if not len(stays):
            return None

        def kept(array: NDArray[Any]) -> NDArray[Any]:
            """Return the rows of the warps that repeat."""
            if array.ndim > 2:
                array = flatten_to_warp_rows(array, (*cta_shape, len(rows) // prod(cta_shape)))
            return array if len(array) == 1 else array[stays]

        return AccessLogEntry(
            rows=rows[stays],
            active=kept(self.active),
            addresses=None if self.addresses is None else kept(self.addresses),
            steps=None if self.steps is None else kept(self.steps),
            counts=counts[stays],
            inner_strides=self.inner_strides,
        )

    @property
    def n_addresses(self) -> int:
        """Number of addresses that it holds."""
        return 0 if self.addresses is None else max(self.active.size, self.addresses.size)

    def try_merge(self, other: "AccessLogEntry") -> bool:
        """Absorb `other` if it continues this entry by one step in all lanes; return whether it does."""
        own, more = self.find_uniform_stride(), other.find_uniform_stride()
        if own is None or more is None or not self._has_same_lanes(other):
            return False
        assert self.addresses is not None
        assert other.addresses is not None
        moved = other.addresses - self.addresses
        delta = moved[(slice(0, 1),) * moved.ndim]
        step = int(delta.view(np.int64).reshape(1)[0])
        if own.count > 1:
            step = own.step
            if int(delta.reshape(1)[0]) != step * own.count % (1 << 64):
                return False
        if (more.count > 1 and more.step != step) or not bool((moved == delta).all()):
            return False
        self.steps = np.full((1, 1), step, dtype=np.int64)
        self.counts = np.full(1, own.count + more.count, dtype=np.int64)
        return True

    def find_uniform_stride(self) -> "UniformStride | None":
        """Return step and count if they are the same for all lanes and warps, else None."""
        if self.addresses is None or self.inner_strides or (self.steps is not None and self.steps.size > 1):
            return None
        count = 1
        if self.counts is not None:
            count = int(self.counts[0])
            if len(self.counts) > 1 and bool((self.counts != count).any()):
                return None
        return UniformStride(0 if self.steps is None else int(self.steps.reshape(1)[0]), count)

    def _has_same_lanes(self, other: "AccessLogEntry") -> bool:
        """Return whether two entries have the same warps and active lanes."""
        if self.addresses is None or other.addresses is None or self.addresses.shape != other.addresses.shape:
            return False
        if self.rows is not other.rows and not (
            self.rows is not None and other.rows is not None and np.array_equal(self.rows, other.rows)
        ):
            return False
        return self.active is other.active or np.array_equal(self.active, other.active)


def flatten_to_warp_rows(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Reshape an array of [CTA row, CTA column, warp, lanes] to [n_warp, lanes], or to one row for all."""
    if array.ndim == 2:
        return array
    if array.shape[:3] == (1, 1, 1):
        first: NDArray[Any] = array[0, 0]
        return first
    whole = array if array.shape[:3] == shape else np.broadcast_to(array, (*shape, array.shape[3]))
    return whole.reshape(-1, array.shape[3])


class UniformStride(Struct, frozen=True):
    """A step in bytes and a count, the same for all lanes and warps."""

    step: int
    count: int


class AccessTotals(Struct, eq=False):
    """Sums of one access over the grid."""

    access: LoweredAccess
    requests: float = 0.0
    lanes: float = 0.0
    sectors: float = 0.0  # of no use if `trust` is NONE
    wavefronts: float = 0.0  # likewise
    lines: float = 0.0  # likewise, of global memory but for bulk copies
    trust: AddressConfidence = AddressConfidence.EXACT
    index_loads: frozenset[int] = frozenset()  # rows of loads whose unknown words select what is accessed
    is_speculative: bool = False  # runs, or may run, on an assumption
    is_exhaustive: bool = True  # all requests were looked at, not only some of them
    misaligned_address: int | None = None  # no multiple of the width: the hardware would fault
    base_address: int | None = None  # with zero for unknown words, None if addresses depend on none
    first_address: int | None = None  # of the first request, with zero for unknown words
    origins: frozenset[int] = frozenset()  # of unknown words that addresses or guards depend on
    footprint: Footprint = field(default_factory=Footprint)
    entries: list[AccessLogEntry] = field(default_factory=list)

    def add_sources(self, other: "AccessTotals") -> None:
        """Add where another part's addresses come from."""
        self.index_loads |= other.index_loads
        self.origins |= other.origins
        self.first_address = other.first_address if self.first_address is None else self.first_address

    @property
    def is_scattered(self) -> bool:
        """True if nearly each lane accesses a sector of its own."""
        return self.sectors >= _MIN_SCATTERED_LANE_SHARE * self.lanes

    @property
    def has_usable_footprint(self) -> bool:
        """True if the footprint says which bytes are touched, possibly by assumption."""
        return self.trust >= AddressConfidence.LOCATION

    @property
    def has_complete_footprint(self) -> bool:
        """True if the footprint holds all bytes that are touched."""
        return self.has_usable_footprint and self.is_exhaustive and self.access.address is not None
