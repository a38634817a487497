"""Recorded executions as values: what an instruction tracer wrote of one kernel launch, as columns.

A trace of millions of lines has a few hundred distinct instructions; each is held once, and the run itself
is arrays of indices into them. Addresses stay compressed until somebody asks for them.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.scheduling import WARP_SIZE

ZERO_REGISTER = 255  # R255: how the tracer prints RZ
FIRST_UNIFORM_REGISTER = 256  # UR0 among the registers of an instruction
ZERO_UNIFORM_REGISTER = FIRST_UNIFORM_REGISTER + 63  # UR63: URZ

IdArray = NDArray[np.int32]
IntArray = NDArray[np.int64]
MaskArray = NDArray[np.uint32]
WordArray = NDArray[np.uint64]
LaneArray = NDArray[np.bool_]


class TraceHeader(Struct, frozen=True, kw_only=True):
    """The lines above the instructions; None where the tracer was too old to write one.

    shared_bytes counts static and dynamic shared memory together; binary_version is 90 for sm_90.
    """

    name: str
    kernel_id: int
    grid: Dim3
    block: Dim3
    shared_bytes: int | None = None
    registers: int | None = None
    binary_version: int | None = None
    stream: int = 0
    shared_base: int = 0
    local_base: int = 0
    nvbit_version: str = ""
    tracer_version: str = ""
    has_source_lines: bool = False

    @property
    def arch(self) -> str:
        """`sm_90`; empty where the trace does not say."""
        return "" if self.binary_version is None else f"sm_{self.binary_version}"

    @property
    def launch(self) -> Launch:
        return Launch(grid=self.grid, block=self.block, dynamic_shared_bytes=self.shared_bytes)

    @property
    def warps_per_cta(self) -> int:
        return -(-self.block.count // WARP_SIZE)

    @property
    def n_warps(self) -> int:
        """Warps of the whole grid, traced or not."""
        return self.grid.count * self.warps_per_cta


class TracedInstruction(Struct, frozen=True, kw_only=True):
    """One distinct instruction of a trace.

    pc: byte offset in its function, as traced; address: the same, but for code that another function's
    offsets collide with, which is put behind it. Registers are numbers of the general file,
    uniform ones (traced from NVBit 1.8 on) plus `FIRST_UNIFORM_REGISTER`.
    width_bytes: bytes of one lane where the tracer lists addresses, else 0; line: of the source, 0 if
    unknown.
    """

    pc: int
    address: int
    mnemonic: str
    destinations: tuple[int, ...]
    sources: tuple[int, ...]
    width_bytes: int
    immediate: int = 0
    source_line: int = 0


class AddressTable(Struct, frozen=True, kw_only=True, eq=False):
    """Addresses of warp-wide accesses, one row each: the first active lane's, and the way to the others.

    strides[a]: step from each active lane to the next, where offsets[a] == offsets[a + 1]; otherwise
    deltas[offsets[a]:offsets[a + 1]] are those steps, one for each active lane but the first.
    """

    bases: WordArray
    strides: IntArray
    delta_offsets: IntArray
    deltas: IntArray

    def __len__(self) -> int:
        return len(self.bases)

    def decompress(self, ids: IntArray, masks: MaskArray) -> tuple[WordArray, LaneArray]:
        """Addresses [n, 32] and active lanes [n, 32] of accesses `ids`; inactive lanes have any address."""
        active = unpack_lane_masks(masks)
        later = active & (np.cumsum(active, axis=1) > 1)
        steps = np.where(later, self.strides[ids][:, None], 0)
        sizes = self.delta_offsets[ids + 1] - self.delta_offsets[ids]
        if listed := int(sizes.sum()):
            begins = np.cumsum(sizes) - sizes
            places = np.arange(listed) + np.repeat(self.delta_offsets[ids] - begins, sizes)
            steps[later & (sizes > 0)[:, None]] = self.deltas[places]
        addresses = self.bases[ids][:, None] + np.cumsum(steps, axis=1).astype(np.uint64)
        return addresses, active


class WarpTrace(Struct, frozen=True, eq=False):
    """What one warp ran, in order: instructions by their place in `Trace.instructions`, and active lanes."""

    warp_id: int
    instruction_ids: IdArray
    masks: MaskArray


class Trace(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One launch, warp by warp.

    ids[n], masks[n]: instructions in the order in which each warp ran them, all warps one after the other;
    warp w of `warps` (CTA * warps_per_cta + warp in CTA) owns [starts[w], starts[w + 1]).
    access_at: places in ids that have addresses, ascending; access_ids: their rows of `addresses`.
    """

    path: str
    header: TraceHeader
    instructions: tuple[TracedInstruction, ...]
    instruction_ids: IdArray
    masks: MaskArray
    warp_ids: IntArray
    warp_starts: IntArray
    access_positions: IntArray
    address_rows: IntArray
    addresses: AddressTable

    def __len__(self) -> int:
        return len(self.instruction_ids)

    def __iter__(self) -> Iterator[WarpTrace]:
        for place, warp in enumerate(self.warp_ids.tolist()):
            own = slice(int(self.warp_starts[place]), int(self.warp_starts[place + 1]))
            yield WarpTrace(warp, self.instruction_ids[own], self.masks[own])

    @cached_property
    def cta_ids(self) -> IntArray:
        """Linear numbers of the CTAs that were traced, ascending."""
        return np.unique(self.warp_ids // self.header.warps_per_cta)


class MemoryCopy(Struct, frozen=True):
    """A copy to the device between two launches, from the list of kernels."""

    address: int
    size_bytes: int


def unpack_lane_masks(masks: MaskArray) -> LaneArray:
    """Masks [n] as lanes [n, 32]; bit 0 is lane 0."""
    bits = np.ascontiguousarray(masks, dtype="<u4").view(np.uint8).reshape(len(masks), 4)
    return np.unpackbits(bits, axis=1, bitorder="little").view(np.bool_)


def pack_lane_masks(active: LaneArray) -> MaskArray:
    """Lanes [n, 32] as masks [n]."""
    packed = np.packbits(np.ascontiguousarray(active), axis=1, bitorder="little")
    return packed.view("<u4").reshape(len(active)).astype(np.uint32)


def compress_addresses(addresses: WordArray, active: LaneArray) -> AddressTable:
    """Rows [n, 32] as a table: a stride where active lanes are neighbours and steps equal, else steps."""
    counts = active.sum(axis=1)
    listed = addresses[active]
    ends = np.cumsum(counts)
    begins = ends - counts
    bases = np.zeros(len(counts), dtype=np.uint64)
    bases[counts > 0] = listed[begins[counts > 0]]
    steps = np.zeros(len(listed), dtype=np.int64)
    steps[1:] = (listed[1:] - listed[:-1]).view(np.int64)
    steps_of = np.repeat(np.arange(len(counts)), counts)
    is_first = np.zeros(len(listed), dtype=bool)
    is_first[begins[counts > 0]] = True
    later, later_of = steps[~is_first], steps_of[~is_first]
    strides = np.zeros(len(counts), dtype=np.int64)
    several = counts > 1
    strides[several] = steps[begins[several] + 1]
    differs = np.bincount(later_of[later != strides[later_of]], minlength=len(counts)) > 0
    spread = active.argmax(axis=1) + counts != WARP_SIZE - active[:, ::-1].argmax(axis=1)
    small = np.abs(strides) < 1 << 31
    by_stride = (counts == 0) | (several & ~differs & ~spread & small)
    strides[~by_stride] = 0
    sizes = np.where(by_stride, 0, np.maximum(counts - 1, 0))
    return AddressTable(
        bases=bases,
        strides=strides,
        delta_offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        deltas=later[~by_stride[later_of]],
    )
