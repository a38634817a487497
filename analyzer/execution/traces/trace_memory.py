"""Memory accesses of a trace: sectors, wavefronts and distinct bytes of each memory instruction.

- Global memory: distinct 32-byte sectors of each request, four per wavefront.
- Local memory: the same, with lanes interleaved word by word as hardware stores them.
- Shared memory: wavefronts by bank conflicts.
- A generic access is shared if its address is in the shared window that the trace's header names.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.footprint.footprint import Footprint
from analyzer.execution.footprint.grid_traffic import RequestedBytes, build_grid_traffic
from analyzer.execution.footprint.request_cost import (
    count_atomic_wavefronts,
    count_global_wavefronts,
    count_matrix_wavefronts,
    count_same_word_lanes,
    count_sectors,
    count_shared_wavefronts,
)
from analyzer.execution.profile.execution_profile import GlobalTraffic, MemoryAccess
from analyzer.execution.profile.provenance import Provenance
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import Addresses, IntArray
from analyzer.ir.opcode import (
    ATOMIC_KINDS,
    GLOBAL_SPACES,
    MEMORY_KINDS,
    SHARED_SPACES,
    AddressSpace,
    Opcode,
    OpKind,
)
from analyzer.ir.scheduling import WARP_SIZE, SchedClass
from analyzer.ir.trace import LaneArray, Trace, TraceHeader, unpack_lane_masks
from analyzer.isa.register_operands import is_zero_fill

_MAX_BATCH_ACCESSES = 1 << 15
_SHARED_WINDOW_BYTES = 1 << 24
_SECTORS_PER_WAVEFRONT = 4
_LOCAL_ROW_BYTES = 128
_READ_KINDS = (OpKind.LOAD, OpKind.ASYNC_COPY, OpKind.ATOMIC)
_WRITE_KINDS = (OpKind.STORE, OpKind.REDUCTION, OpKind.ATOMIC)


class _InstructionTotals(Struct):
    """Sums over the requests of one instruction."""

    opcode: Opcode
    width_bytes: int
    footprint: Footprint = field(default_factory=Footprint)
    requests: int = 0
    lanes: int = 0
    sectors: int = 0
    wavefronts: float = 0.0
    has_addresses: bool = True


class MeasuredAccesses(Struct, frozen=True):
    """Memory accesses of a trace."""

    accesses: tuple[MemoryAccess, ...]  # by ascending row
    footprints: Mapping[int, Footprint]  # bytes of global memory, by row, where all addresses are known


def measure_accesses(
    trace: Trace, cfg: Cfg, rows: IntArray, scale: float, provenance: Provenance
) -> MeasuredAccesses:
    """Measure all memory instructions that accessed anything, scaled to the grid.

    Distinct bytes are unknown unless the whole grid was traced (`provenance` is TRACED).

    rows: the kernel's row of each traced instruction, negative if it has none.
    scale: CTAs of the grid per traced CTA.
    """
    found: dict[int, _InstructionTotals] = {}
    for number, executed, accesses in _group_by_instruction(trace):
        row = int(rows[number])
        if row < 0:
            continue
        opcode = cfg.kernel.find_opcode(row)
        width = opcode.width_bytes or trace.instructions[number].width_bytes
        sums = found.setdefault(row, _InstructionTotals(opcode, width))
        masks = trace.masks[executed]
        sums.requests += int(np.count_nonzero(masks))
        sums.lanes += sum(int(np.count_nonzero(masks >> np.uint32(lane) & 1)) for lane in range(WARP_SIZE))
        sums.has_addresses &= np.count_nonzero(
            trace.masks[trace.access_positions[accesses]]
        ) == np.count_nonzero(masks)
        for begin in range(0, len(accesses), _MAX_BATCH_ACCESSES):
            some = accesses[begin : begin + _MAX_BATCH_ACCESSES]
            lanes = trace.addresses.decompress(
                trace.address_rows[some], trace.masks[trace.access_positions[some]]
            )
            _measure_requests(sums, trace.header, *lanes)
    for row, sums in _find_unlisted_accesses(trace, cfg, rows):
        found.setdefault(row, sums)
    found = {row: sums for row, sums in found.items() if sums.requests}
    is_whole = provenance is Provenance.TRACED
    listed: list[MemoryAccess] = []
    for row, sums in sorted(found.items()):
        access = _build_access(row, sums, scale, provenance, is_whole)
        is_copy = sums.opcode.kind is OpKind.ASYNC_COPY
        if not (is_copy and is_zero_fill(cfg.kernel.decode_form(row).operands)):
            listed.append(access)
        if is_copy:
            listed.append(_make_shared_side(access))
    has_footprint = {
        r: s for r, s in found.items() if is_whole and s.has_addresses and s.opcode.space in GLOBAL_SPACES
    }
    return MeasuredAccesses(tuple(listed), {row: sums.footprint for row, sums in has_footprint.items()})


def _find_unlisted_accesses(
    trace: Trace, cfg: Cfg, rows: IntArray
) -> Iterator[tuple[int, _InstructionTotals]]:
    """Yield the totals of memory instructions that were traced without addresses."""
    listed = np.unique(trace.instruction_ids[trace.access_positions])
    lanes = np.bincount(
        trace.instruction_ids, weights=unpack_lane_masks(trace.masks).sum(axis=1), minlength=len(rows)
    )
    requests = np.bincount(trace.instruction_ids[trace.masks != 0], minlength=len(rows))
    for number in np.setdiff1d(np.flatnonzero(requests), listed).tolist():
        row = int(rows[number])
        if row < 0:
            continue
        opcode = cfg.kernel.find_opcode(row)
        if opcode.kind in MEMORY_KINDS and opcode.space is not AddressSpace.CONSTANT:
            own = _InstructionTotals(opcode, opcode.width_bytes, has_addresses=False)
            own.requests, own.lanes = int(requests[number]), int(lanes[number])
            yield row, own


def _group_by_instruction(trace: Trace) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield each instruction with addresses, its positions in the trace and in `access_positions`."""
    access_instruction = trace.instruction_ids[trace.access_positions]
    order = np.argsort(access_instruction, kind="stable")
    numbers, begins = np.unique(access_instruction[order], return_index=True)
    is_memory = np.zeros(len(trace.instructions), dtype=bool)
    is_memory[numbers] = True
    places = np.flatnonzero(is_memory[trace.instruction_ids])
    places = places[np.argsort(trace.instruction_ids[places], kind="stable")]
    firsts = np.searchsorted(trace.instruction_ids[places], np.append(numbers, len(trace.instructions)))
    ends = np.append(begins[1:], len(order))
    for place, number in enumerate(numbers.tolist()):
        executed = places[firsts[place] : firsts[place + 1]]
        yield number, executed, order[begins[place] : ends[place]]


def _measure_requests(
    sums: _InstructionTotals, header: TraceHeader, addresses: Addresses, active: LaneArray
) -> None:
    """Add the sectors, wavefronts and footprint of some requests of one instruction.

    addresses, active: [n_request, 32].
    """
    space, width = sums.opcode.space, sums.width_bytes
    if space in SHARED_SPACES:
        sums.wavefronts += float(_count_shared_wavefronts(sums.opcode, addresses, active, width).sum())
        return
    if space is AddressSpace.LOCAL:
        sectors = _count_local_sectors(addresses, active, width)
        sums.wavefronts += float(np.maximum(sectors / _SECTORS_PER_WAVEFRONT, sectors > 0).sum())
    else:
        if space is AddressSpace.GENERIC and header.shared_base:
            inside = active & (addresses - np.uint64(header.shared_base) < _SHARED_WINDOW_BYTES)
            if inside.any():
                sums.wavefronts += float(
                    _count_shared_wavefronts(sums.opcode, addresses, inside, width).sum()
                )
                active = active & ~inside
        sectors = count_sectors(addresses, active, width)
        count_wavefronts = (
            count_same_word_lanes if sums.opcode.kind in ATOMIC_KINDS else count_global_wavefronts
        )
        sums.wavefronts += float(count_wavefronts(addresses, active, width).sum())
        sums.footprint.add(addresses, active, width)
    sums.sectors += int(sectors.sum())


def _count_shared_wavefronts(opcode: Opcode, addresses: Addresses, active: LaneArray, width: int) -> IntArray:
    if opcode.sched_class is SchedClass.SHARED_MATRIX:
        return count_matrix_wavefronts(addresses, active, max(1, opcode.width_bytes // 4))
    if opcode.kind in ATOMIC_KINDS:
        return count_atomic_wavefronts(addresses, active, width)
    return count_shared_wavefronts(addresses, active, width)


def _count_local_sectors(addresses: Addresses, active: LaneArray, width: int) -> IntArray:
    """Count the sectors of local requests: the same word of all 32 lanes is contiguous, 128 bytes."""
    lane = np.arange(WARP_SIZE, dtype=np.uint64)[None, :] * np.uint64(4)
    total = np.zeros(len(addresses), dtype=np.int64)
    for word in range(max(1, width // 4)):
        at = addresses + np.uint64(4 * word)
        placed = (at >> np.uint64(2)) * np.uint64(_LOCAL_ROW_BYTES) + lane + (at & np.uint64(3))
        total += count_sectors(placed, active, min(4, width))
    return total


def _build_access(
    row: int, sums: _InstructionTotals, scale: float, provenance: Provenance, is_whole: bool
) -> MemoryAccess:
    """Scale an instruction's totals to the grid.

    is_whole: the whole grid was traced, so distinct bytes are known.
    """
    space, known = sums.opcode.space or AddressSpace.GENERIC, sums.has_addresses
    unique = sums.footprint.count_unique_bytes() if known and is_whole and space in GLOBAL_SPACES else None
    return MemoryAccess(
        row=row,
        space=space,
        is_store=sums.opcode.kind in (OpKind.STORE, OpKind.REDUCTION),
        requests=round(sums.requests * scale),
        lanes=round(sums.lanes * scale),
        bytes=round(sums.lanes * scale) * sums.width_bytes,
        sectors=round(sums.sectors * scale) if known and space not in SHARED_SPACES else None,
        wavefronts=round(sums.wavefronts * scale) if known else None,
        unique_bytes=unique,
        provenance=provenance if known else Provenance.UNKNOWN,
        address_provenance=provenance if known else Provenance.UNKNOWN,
    )


def _make_shared_side(copied: MemoryAccess) -> MemoryAccess:
    """Return the shared side of an asynchronous copy, whose addresses are not traced."""
    return replace(
        copied,
        space=AddressSpace.SHARED,
        is_store=True,
        sectors=None,
        wavefronts=None,
        unique_bytes=None,
        provenance=Provenance.UNKNOWN,
        address_provenance=Provenance.UNKNOWN,
    )


def measure_global_traffic(measured: MeasuredAccesses, cfg: Cfg) -> GlobalTraffic:
    """Sum the traffic of global memory; an atomic both reads and writes, a reduction writes."""
    directions: list[RequestedBytes] = []
    for kinds in (_READ_KINDS, _WRITE_KINDS):
        own = [
            access
            for access in measured.accesses
            if access.space in GLOBAL_SPACES and cfg.kernel.find_opcode(access.row).kind in kinds
        ]
        known = [measured.footprints[access.row] for access in own if access.row in measured.footprints]
        n_bytes = sum(access.bytes for access in own)
        directions.append(RequestedBytes(n_bytes, known if len(known) == len(own) else None))
    return build_grid_traffic(*directions)
