"""Bytes that each instruction moves per execution: from addresses, else as if lanes were adjacent."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace
from numpy.typing import NDArray

from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.demand.tma_copies import TmaBox
from analyzer.execution.footprint.request_cost import SECTOR_BYTES, WAVEFRONT_BYTES
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.flow.cfg import Cfg
from analyzer.ir.arrays import FloatArray, make_read_only
from analyzer.ir.opcode import GLOBAL_SPACES, MEMORY_KINDS, SHARED_SPACES, AddressSpace, Opcode, OpKind
from analyzer.ir.scheduling import SchedClass

_PER_LANE_KINDS = MEMORY_KINDS - {OpKind.BULK_COPY, OpKind.TEXTURE}


class AccessBytes(Struct, frozen=True, kw_only=True, eq=False):
    """Bytes of one execution of each instruction by a warp; all arrays are [n] and read-only."""

    global_bytes: FloatArray  # whole sectors
    shared_bytes: FloatArray  # passes at the full width of shared memory
    local_bytes: FloatArray  # whole sectors
    constant_passes: FloatArray  # of a constant load, one for each distinct word; 1 if not known
    tma_requests: FloatArray  # requests of the copy engine to the L2, 0 if not known
    box_sector_utilization: FloatArray  # requested part of the sectors of TMA boxes without a tensor map
    is_predicated_off: NDArray[np.bool_]  # executed, but with no lane that passes the guard
    has_known_addresses: bool  # all of it follows from addresses
    unique_global_bytes: float | None  # distinct sectors that the grid reads, and writes; None: not known


def compute_access_bytes(
    cfg: Cfg,
    costs: OpcodeCosts,
    profile: ExecutionProfile | None,
    copied_bytes: Mapping[int, float],
    boxes: Mapping[int, TmaBox],
    matrix_share: float = 1.0,
) -> AccessBytes:
    """Compute bytes per execution from a profile; accesses that it does not know have adjacent lanes.

    copied_bytes, boxes: of one execution of copy-engine instructions, by row.
    matrix_share: see `MemorySubsystem.matrix_conflict_share`.
    """
    ids = cfg.kernel.opcode_ids
    found = AccessBytes(
        global_bytes=costs.global_bytes[ids],
        shared_bytes=costs.shared_bytes[ids],
        local_bytes=costs.local_bytes[ids],
        constant_passes=np.ones(len(ids)),
        tma_requests=np.zeros(len(ids)),
        box_sector_utilization=np.ones(len(ids)),
        is_predicated_off=np.zeros(len(ids), dtype=np.bool_)
        if profile is None
        else _find_predicated_off(cfg, profile),
        has_known_addresses=profile is not None,
        unique_global_bytes=_count_unique_global_bytes(profile),
    )
    if profile is None:
        return _with_read_only_arrays(found)
    for access in profile.accesses:
        if cfg.kernel.find_opcode(access.row).space is AddressSpace.GENERIC:
            found.global_bytes[access.row] = 0.0  # set below if it accesses global memory
    for column in (found.global_bytes, found.shared_bytes, found.local_bytes):
        column[found.is_predicated_off] = 0.0
    known = [_apply_access(access, cfg, profile, found) for access in profile.accesses]
    is_matrix = cfg.kernel.form_table.make_opcode_mask(_is_shared_matrix_access)[ids]
    min_bytes = np.minimum(costs.shared_bytes[ids], found.shared_bytes)
    matrix_bytes = np.maximum(found.shared_bytes * matrix_share, min_bytes)
    found.shared_bytes[is_matrix] = matrix_bytes[is_matrix]
    known_rows = {access.row for access in profile.accesses if access.sectors is not None}
    for row, n_bytes in copied_bytes.items():
        if row not in known_rows:
            found.global_bytes[row] = n_bytes
    for row, box in boxes.items():
        if row not in known_rows:
            found.global_bytes[row] = box.sector_bytes
            found.tma_requests[row] = box.n_l2_requests
            found.box_sector_utilization[row] = box.n_bytes / box.sector_bytes
    return _with_read_only_arrays(replace(found, has_known_addresses=all(known)))


def _with_read_only_arrays(found: AccessBytes) -> AccessBytes:
    make_read_only(*(value for value in astuple(found) if isinstance(value, np.ndarray)))
    return found


def _is_shared_matrix_access(opcode: Opcode) -> bool:
    return opcode.sched_class is SchedClass.SHARED_MATRIX


def _has_lane_addresses(opcode: Opcode) -> bool:
    return opcode.kind in _PER_LANE_KINDS


def _find_predicated_off(cfg: Cfg, profile: ExecutionProfile) -> NDArray[np.bool_]:
    """Return a mask of guarded accesses that were executed without an active lane, [n]."""
    kernel = cfg.kernel
    accessed_rows = {access.row for access in profile.accesses}
    found = kernel.form_table.make_opcode_mask(_has_lane_addresses)[kernel.opcode_ids]
    for row in np.flatnonzero(found).tolist():
        is_executed = row < len(cfg.block_of) and profile.block_executions[cfg.block_of[row]] > 0
        found[row] = is_executed and row not in accessed_rows and not kernel.decode_form(row).is_unconditional
    return found


def _apply_access(access: MemoryAccess, cfg: Cfg, profile: ExecutionProfile, found: AccessBytes) -> bool:
    """Set the bytes of one access; return whether its addresses are known."""
    executions = float(profile.block_executions[cfg.block_of[access.row]])
    if not executions:
        return True
    if access.space in SHARED_SPACES:
        return _set_bytes_per_execution(
            found.shared_bytes, access.row, access.wavefronts, WAVEFRONT_BYTES / executions
        )
    if access.space in GLOBAL_SPACES:
        if cfg.kernel.find_opcode(access.row).kind is OpKind.BULK_COPY:
            found.tma_requests[access.row] = (access.wavefronts or 0) / executions
        return _set_bytes_per_execution(
            found.global_bytes, access.row, access.sectors, SECTOR_BYTES / executions
        )
    if access.space is AddressSpace.CONSTANT:
        if access.wavefronts is not None:
            found.constant_passes[access.row] = max(1.0, access.wavefronts / executions)
        return True
    if access.space is AddressSpace.LOCAL:
        return _set_bytes_per_execution(
            found.local_bytes, access.row, access.sectors, SECTOR_BYTES / executions
        )
    return True


def _set_bytes_per_execution(column: FloatArray, row: int, count: int | None, factor: float) -> bool:
    if count is None:
        return False
    column[row] = count * factor
    return True


def _count_unique_global_bytes(profile: ExecutionProfile | None) -> float | None:
    traffic = None if profile is None else profile.traffic
    if traffic is None or traffic.read_unique_sectors is None or traffic.written_unique_sectors is None:
        return None
    return float(traffic.read_unique_sectors + traffic.written_unique_sectors) * SECTOR_BYTES


def count_ideal_sectors(access: MemoryAccess) -> float | None:
    """Return the fewest sectors for the bytes of an access; None where its addresses are unknown."""
    return _count_ideal_units(access, access.sectors, SECTOR_BYTES)


def count_ideal_wavefronts(access: MemoryAccess) -> float | None:
    """Return the fewest wavefronts for the bytes of an access; None where its addresses are unknown."""
    return _count_ideal_units(access, access.wavefronts, WAVEFRONT_BYTES)


def _count_ideal_units(access: MemoryAccess, actual: int | None, unit_bytes: int) -> float | None:
    """Return the units that the requested bytes fill, at least one per request, at most the actual ones."""
    if actual is None:
        return None
    if access.space is AddressSpace.CONSTANT:
        return float(min(actual, access.requests))  # all lanes read the same word
    return min(float(actual), max(float(access.requests), access.bytes / unit_bytes))
