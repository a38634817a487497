"""Instruction traces of one kernel launch, as columns.

A trace of millions of lines has a few hundred distinct instructions. Each is held once, and the run is an
array of indices into them. Addresses stay compressed until they are asked for: 32 lanes at
base + lane * stride are two numbers.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.ir.arrays import Addresses, IdArray, IntArray
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.scheduling import WARP_SIZE

ZERO_REGISTER = 255  # R255: how the tracer prints RZ
FIRST_UNIFORM_REGISTER = 256  # UR0 among the registers of an instruction
ZERO_UNIFORM_REGISTER = FIRST_UNIFORM_REGISTER + 63  # UR63: URZ

MaskArray = NDArray[np.uint32]
LaneArray = NDArray[np.bool_]


class TraceHeader(Struct, frozen=True, kw_only=True):
    """Header lines of a trace; None for a line that older tracers do not write."""

    name: str
    kernel_id: int
    grid: Dim3
    block: Dim3
    shared_bytes: int | None = None  # static and dynamic, per CTA
    registers: int | None = None  # per thread
    binary_version: int | None = None  # 90 for sm_90
    stream: int = 0  # CUDA stream
    shared_base: int = 0  # generic address of the shared window
    local_base: int = 0  # generic address of the local window
    nvbit_version: str = ""
    tracer_version: str = ""
    has_source_lines: bool = False
    rejected_lines: tuple[str, ...] = ()  # such as `nregs = 21955`, whose values no kernel has

    @property
    def arch(self) -> str:
        """The architecture, such as `sm_90`; empty if the trace does not say."""
        return "" if self.binary_version is None else f"sm_{self.binary_version}"

    @property
    def launch(self) -> Launch:
        """The launch that was traced; all shared memory counts as dynamic."""
        return Launch(grid=self.grid, block=self.block, dynamic_shared_bytes=self.shared_bytes)

    @property
    def warps_per_cta(self) -> int:
        """Warps of one CTA, the last one perhaps not full."""
        return -(-self.block.count // WARP_SIZE)

    @property
    def n_warps(self) -> int:
        """Warps of the whole grid, traced or not."""
        return self.grid.count * self.warps_per_cta


class TracedInstruction(Struct, frozen=True, kw_only=True):
    """One distinct instruction of a trace.

    Registers are numbers of the general file; uniform ones (traced from NVBit 1.8 on) have
    `FIRST_UNIFORM_REGISTER` added.
    """

    pc: int  # byte offset in its function, as traced
    address: int  # the same, moved behind all others if functions collide (see `trace_parser`)
    mnemonic: str
    destinations: tuple[int, ...]
    sources: tuple[int, ...]
    width_bytes: int  # that one lane accesses, 0 if the tracer lists no addresses
    immediate: int = 0
    source_line: int = 0  # 0 if unknown


class AddressTable(Struct, frozen=True, kw_only=True, eq=False):
    """Compressed addresses of n warp-wide accesses.

    The lanes of access a are at bases[a] plus the sum of steps so far. The steps are all strides[a] if
    delta_offsets[a] == delta_offsets[a + 1]; else they are deltas[delta_offsets[a]:delta_offsets[a + 1]].
    """

    bases: Addresses  # [n], address of the first active lane
    strides: IntArray  # [n], bytes from an active lane to the next
    delta_offsets: IntArray  # [n + 1], into `deltas`
    deltas: IntArray  # bytes from an active lane to the next, for all active lanes but the first

    def __len__(self) -> int:
        return len(self.bases)

    def decompress(self, ids: IntArray, masks: MaskArray) -> tuple[Addresses, LaneArray]:
        """Return addresses [n, 32] and active lanes [n, 32] of accesses `ids`.

        masks: [n], active lanes; addresses of inactive lanes are undefined.
        """
        active = unpack_lane_masks(masks)
        later = active & (np.cumsum(active, axis=1) > 1)
        steps = np.where(later, self.strides[ids][:, None], 0)
        sizes = self.delta_offsets[ids + 1] - self.delta_offsets[ids]
        if listed := int(sizes.sum()):
            begins = np.cumsum(sizes) - sizes
            positions = np.arange(listed) + np.repeat(self.delta_offsets[ids] - begins, sizes)
            steps[later & (sizes > 0)[:, None]] = self.deltas[positions]
        addresses = self.bases[ids][:, None] + np.cumsum(steps, axis=1).astype(np.uint64)
        return addresses, active


class WarpTrace(Struct, frozen=True, eq=False):
    """The instructions that one warp executed, in order."""

    warp_id: int  # CTA * warps_per_cta + warp in the CTA
    instruction_ids: IdArray  # [n], into `Trace.instructions`
    masks: MaskArray  # [n], active lanes


class Trace(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One launch: the n executed warp instructions, warp after warp, each warp's in order of execution."""

    path: str
    header: TraceHeader
    instructions: tuple[TracedInstruction, ...]  # distinct, by address
    instruction_ids: IdArray  # [n], into `instructions`
    masks: MaskArray  # [n], active lanes
    warp_ids: IntArray  # [n_warp], ascending: CTA * warps_per_cta + warp in the CTA
    warp_starts: IntArray  # [n_warp + 1]: the i-th warp has executed [warp_starts[i], warp_starts[i + 1])
    access_positions: IntArray  # [n_access], ascending: executed instructions with addresses
    address_rows: IntArray  # [n_access]: their rows of `addresses`
    addresses: AddressTable

    def __len__(self) -> int:
        return len(self.instruction_ids)

    def __iter__(self) -> Iterator[WarpTrace]:
        for index, warp in enumerate(self.warp_ids.tolist()):
            own = slice(int(self.warp_starts[index]), int(self.warp_starts[index + 1]))
            yield WarpTrace(warp, self.instruction_ids[own], self.masks[own])

    @cached_property
    def cta_ids(self) -> IntArray:
        """Linear indices of the traced CTAs, ascending."""
        return np.unique(self.warp_ids // self.header.warps_per_cta)


class MemoryCopy(Struct, frozen=True):
    """A copy to the device between two launches, as the list of kernels records it."""

    address: int
    size_bytes: int


def unpack_lane_masks(masks: MaskArray) -> LaneArray:
    """Return masks [n] as lanes [n, 32]; bit 0 is lane 0."""
    bits = np.ascontiguousarray(masks, dtype="<u4").view(np.uint8).reshape(len(masks), 4)
    return np.unpackbits(bits, axis=1, bitorder="little").view(np.bool_)


def pack_lane_masks(active: LaneArray) -> MaskArray:
    """Return lanes [n, 32] as masks [n]."""
    packed = np.packbits(np.ascontiguousarray(active), axis=1, bitorder="little")
    return packed.view("<u4").reshape(len(active)).astype(np.uint32)


def compress_addresses(addresses: Addresses, active: LaneArray) -> AddressTable:
    """Compress rows [n, 32]: to a stride if active lanes are contiguous and steps equal, else to steps."""
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
