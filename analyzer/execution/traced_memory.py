"""What the memory instructions of a trace asked for: sectors, passes, distinct bytes.

Global memory: distinct 32-byte sectors of each request, four to a pass. Local memory: lanes interleaved word
by word, as hardware stores it. Shared memory: passes by bank conflicts. A generic access counts as shared
where it falls into the shared window that the header names.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.execution.asking import Asked, traffic_of
from analyzer.execution.footprint import Footprint
from analyzer.execution.profile import MemoryAccess, Traffic
from analyzer.execution.provenance import Provenance
from analyzer.execution.requests import (
    atomic_wavefronts,
    global_wavefronts,
    lanes_on_a_word,
    matrix_wavefronts,
    sectors_per_request,
    shared_wavefronts,
)
from analyzer.flow.cfg import Cfg
from analyzer.ir.machine import WARP_LANES, SchedClass
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, MEMORY_KINDS, Opcode, OpKind, Space
from analyzer.ir.trace import IntArray, LaneArray, Trace, TraceHeader, WordArray, active_lanes

_AT_ONCE = 1 << 15
_WINDOW_BYTES = 1 << 24
_SECTORS_PER_PASS = 4
_ROW_BYTES = 128
_SHARED = (Space.SHARED, Space.DISTRIBUTED_SHARED)
_READS = (OpKind.LOAD, OpKind.ASYNC_COPY, OpKind.ATOMIC)
_WRITES = (OpKind.STORE, OpKind.REDUCTION, OpKind.ATOMIC)


class _Sums(Struct):
    """One instruction's requests, added up."""

    opcode: Opcode
    width_bytes: int
    footprint: Footprint = field(default_factory=Footprint)
    requests: int = 0
    lanes: int = 0
    sectors: int = 0
    passes: float = 0.0
    is_known: bool = True


class Measured(Struct, frozen=True):
    """Accesses in row order, and the bytes of global memory that each touched, where they are all known."""

    accesses: tuple[MemoryAccess, ...]
    footprints: dict[int, Footprint]


def measure_accesses(
    trace: Trace, cfg: Cfg, rows: IntArray, scale: float, provenance: Provenance
) -> Measured:
    """All memory instructions that touched something, scaled to the grid.

    Distinct bytes are left open where not all of the grid was traced (`provenance` is not traced).
    """
    found: dict[int, _Sums] = {}
    for number, executed, accesses in _by_instruction(trace):
        row = int(rows[number])
        if row < 0:
            continue
        opcode = cfg.kernel.opcode(row)
        width = opcode.width_bytes or trace.instructions[number].width_bytes
        sums = found.setdefault(row, _Sums(opcode, width))
        masks = trace.masks[executed]
        sums.requests += int(np.count_nonzero(masks))
        sums.lanes += sum(int(np.count_nonzero(masks >> np.uint32(lane) & 1)) for lane in range(WARP_LANES))
        sums.is_known &= np.count_nonzero(trace.masks[trace.access_at[accesses]]) == np.count_nonzero(masks)
        for begin in range(0, len(accesses), _AT_ONCE):
            some = accesses[begin : begin + _AT_ONCE]
            lanes = trace.addresses.lanes(trace.access_ids[some], trace.masks[trace.access_at[some]])
            _measure(sums, trace.header, *lanes)
    for row, sums in _silent(trace, cfg, rows):
        found.setdefault(row, sums)
    found = {row: sums for row, sums in found.items() if sums.requests}
    is_whole = provenance is Provenance.TRACED
    listed: list[MemoryAccess] = []
    for row, sums in sorted(found.items()):
        listed.append(_access(row, sums, scale, provenance, is_whole))
        if sums.opcode.kind is OpKind.ASYNC_COPY:
            listed.append(_other_side(listed[-1]))
    has_footprint = {
        r: s for r, s in found.items() if is_whole and s.is_known and s.opcode.space in GLOBAL_SPACES
    }
    return Measured(tuple(listed), {row: sums.footprint for row, sums in has_footprint.items()})


def _silent(trace: Trace, cfg: Cfg, rows: IntArray) -> Iterator[tuple[int, _Sums]]:
    """Memory instructions that ran without addresses: how often, and in how many lanes."""
    listed = np.unique(trace.ids[trace.access_at])
    lanes = np.bincount(trace.ids, weights=active_lanes(trace.masks).sum(axis=1), minlength=len(rows))
    requests = np.bincount(trace.ids[trace.masks != 0], minlength=len(rows))
    for number in np.setdiff1d(np.flatnonzero(requests), listed).tolist():
        row = int(rows[number])
        if row < 0:
            continue
        opcode = cfg.kernel.opcode(row)
        if opcode.kind in MEMORY_KINDS and opcode.space is not Space.CONSTANT:
            own = _Sums(opcode, opcode.width_bytes, is_known=False)
            own.requests, own.lanes = int(requests[number]), int(lanes[number])
            yield row, own


def _by_instruction(trace: Trace) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Instructions with addresses: number, places where they ran, and their rows of `access_at`."""
    of = trace.ids[trace.access_at]
    order = np.argsort(of, kind="stable")
    numbers, begins = np.unique(of[order], return_index=True)
    is_memory = np.zeros(len(trace.instructions), dtype=bool)
    is_memory[numbers] = True
    places = np.flatnonzero(is_memory[trace.ids])
    places = places[np.argsort(trace.ids[places], kind="stable")]
    firsts = np.searchsorted(trace.ids[places], np.append(numbers, len(trace.instructions)))
    ends = np.append(begins[1:], len(order))
    for place, number in enumerate(numbers.tolist()):
        executed = places[firsts[place] : firsts[place + 1]]
        yield number, executed, order[begins[place] : ends[place]]


def _measure(sums: _Sums, header: TraceHeader, addresses: WordArray, active: LaneArray) -> None:
    space, width = sums.opcode.space, sums.width_bytes
    if space in _SHARED:
        sums.passes += float(_shared_passes(sums.opcode, addresses, active, width).sum())
        return
    if space is Space.LOCAL:
        sectors = _local_sectors(addresses, active, width)
        sums.passes += float(np.maximum(sectors / _SECTORS_PER_PASS, sectors > 0).sum())
    else:
        if space is Space.GENERIC and header.shared_base:
            inside = active & (addresses - np.uint64(header.shared_base) < _WINDOW_BYTES)
            if inside.any():
                sums.passes += float(_shared_passes(sums.opcode, addresses, inside, width).sum())
                active = active & ~inside
        sectors = sectors_per_request(addresses, active, width)
        passes_of = lanes_on_a_word if sums.opcode.kind in ATOMIC_KINDS else global_wavefronts
        sums.passes += float(passes_of(addresses, active, width).sum())
        sums.footprint.add(addresses, active, width)
    sums.sectors += int(sectors.sum())


def _shared_passes(opcode: Opcode, addresses: WordArray, active: LaneArray, width: int) -> IntArray:
    if opcode.sched is SchedClass.SHARED_MATRIX:
        return matrix_wavefronts(addresses, active, max(1, opcode.width_bytes // 4))
    if opcode.kind in ATOMIC_KINDS:
        return atomic_wavefronts(addresses, active, width)
    return shared_wavefronts(addresses, active, width)


def _local_sectors(addresses: WordArray, active: LaneArray, width: int) -> IntArray:
    lane = np.arange(WARP_LANES, dtype=np.uint64)[None, :] * np.uint64(4)
    total = np.zeros(len(addresses), dtype=np.int64)
    for word in range(max(1, width // 4)):
        at = addresses + np.uint64(4 * word)
        placed = (at >> np.uint64(2)) * np.uint64(_ROW_BYTES) + lane + (at & np.uint64(3))
        total += sectors_per_request(placed, active, min(4, width))
    return total


def _access(row: int, sums: _Sums, scale: float, provenance: Provenance, is_whole: bool) -> MemoryAccess:
    space, known = sums.opcode.space or Space.GENERIC, sums.is_known
    unique = sums.footprint.unique_bytes() if known and is_whole and space in GLOBAL_SPACES else None
    return MemoryAccess(
        row=row,
        space=space,
        is_store=sums.opcode.kind in (OpKind.STORE, OpKind.REDUCTION),
        requests=round(sums.requests * scale),
        lanes=round(sums.lanes * scale),
        bytes=round(sums.lanes * scale) * sums.width_bytes,
        sectors=round(sums.sectors * scale) if known and space not in _SHARED else None,
        wavefronts=round(sums.passes * scale) if known else None,
        unique_bytes=unique,
        provenance=provenance if known else Provenance.UNKNOWN,
    )


def _other_side(copied: MemoryAccess) -> MemoryAccess:
    """What an asynchronous copy does to shared memory, of which no address is traced."""
    return replace(
        copied,
        space=Space.SHARED,
        is_store=True,
        sectors=None,
        wavefronts=None,
        unique_bytes=None,
        provenance=Provenance.UNKNOWN,
    )


def measure_traffic(measured: Measured, cfg: Cfg) -> Traffic:
    """Global memory as a whole; an atomic both reads and writes, a reduction writes."""
    every: list[Asked] = []
    for kinds in (_READS, _WRITES):
        own = [
            access
            for access in measured.accesses
            if access.space in GLOBAL_SPACES and cfg.kernel.opcode(access.row).kind in kinds
        ]
        known = [measured.footprints[access.row] for access in own if access.row in measured.footprints]
        n_bytes = sum(access.bytes for access in own)
        every.append(Asked(n_bytes, known if len(known) == len(own) else None))
    return traffic_of(*every)
