"""Extremes of what unknown addresses can do: the least and the most that a launch may ask of memory.

Where the addresses of a request depend on something that nobody gave, its lanes may all read one sector or
one each, and its bytes may all hit the L1 or all come from DRAM. A model that is asked for both ends gives
the interval of the report.

    request of 32 lanes, unknown stride     least: 1 sector, hits L1     most: 32 sectors, from DRAM
    lanes side by side, in an unknown row   least: as counted            most: one sector more each
"""

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from analyzer.demand.hit_rates import HitRates, KernelHitRates
from analyzer.execution.footprint.request_cost import SECTOR_BYTES, WAVEFRONT_BYTES
from analyzer.execution.profile.execution_profile import ExecutionProfile, GlobalTraffic, MemoryAccess
from analyzer.execution.profile.provenance import INEXACT_PROVENANCES, Provenance
from analyzer.execution.profile.work_assumption import MAX_UNKNOWN_TRIPS, MIN_UNKNOWN_TRIPS, WorkAssumption
from analyzer.ir.arrays import FloatArray
from analyzer.ir.module import Kernel
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, MEMORY_KINDS, AddressSpace, Opcode, OpKind
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.interface import ModelInput

_WORD_BYTES = 4


def list_unknown_accesses(profile: ExecutionProfile, kernel: Kernel) -> tuple[MemoryAccess, ...]:
    """Return the accesses whose addresses are not known; bulk copies are costed by their size instead."""
    return tuple(
        access
        for access in profile.accesses
        if access.address_provenance in INEXACT_PROVENANCES
        and access.requests
        and kernel.find_opcode(access.row).kind is not OpKind.BULK_COPY
        and not (profile.is_sample and access.address_provenance is Provenance.ASSUMED)
    )


def with_extreme_accesses(
    profile: ExecutionProfile, kernel: Kernel, unknown: Iterable[MemoryAccess], assumption: WorkAssumption
) -> ExecutionProfile:
    """Return a profile in which unknown accesses make the fewest or the most requests to memory.

    Nothing is known of the bytes that its requests share, and its branches count as decided: the range of
    what they may do is that between both extremes.
    """
    rows = {(access.row, access.space) for access in unknown}
    accesses = tuple(
        _bound_access(access, kernel.find_opcode(access.row).kind, assumption)
        if (access.row, access.space) in rows
        else access
        for access in profile.accesses
    )
    traffic = None
    if assumption is WorkAssumption.LEAST and profile.traffic is not None:
        traffic = GlobalTraffic(
            read_bytes=profile.traffic.read_bytes,
            read_unique_bytes=0,
            written_bytes=profile.traffic.written_bytes,
            written_unique_bytes=0,
            read_unique_sectors=0,
            written_unique_sectors=0,
            unique_sectors=0,
        )
    return replace(profile, accesses=accesses, traffic=traffic, unknown_branches=())


def _bound_access(access: MemoryAccess, kind: OpKind, assumption: WorkAssumption) -> MemoryAccess:
    """Return an access with the fewest or the most sectors and passes; atomics may meet on one word."""
    lane_bytes = access.bytes / access.lanes if access.lanes else 0.0
    most_sectors = access.lanes * max(1, round(lane_bytes / SECTOR_BYTES))
    sectors, passes = access.requests, access.requests
    has_pattern = access.address_provenance is Provenance.ASSUMED and access.sectors is not None
    if assumption is WorkAssumption.MOST:
        sectors, passes = most_sectors, max(access.lanes, access.wavefronts or 0)
        if has_pattern:
            sectors = min(most_sectors, (access.sectors or 0) + access.requests)
    if has_pattern or (access.address_provenance is Provenance.ASSUMED and access.wavefronts is not None):
        passes = access.wavefronts or passes
        sectors = max(sectors, access.sectors or 0)
    meets = assumption is WorkAssumption.LEAST or kind in ATOMIC_KINDS
    is_off_chip = access.space in GLOBAL_SPACES or access.space is AddressSpace.LOCAL
    return replace(
        access,
        sectors=sectors if is_off_chip else access.sectors,
        wavefronts=passes,
        unique_bytes=_WORD_BYTES if meets else None,
        is_indirect=False,
        gathered_bytes=None,
        table_bytes=None,
    )


def with_extreme_caches(model_input: ModelInput, assumption: WorkAssumption) -> ModelInput:
    """Return an input whose accesses to global memory all hit the L1, or all come from DRAM."""
    profile = model_input.profile
    accesses = () if profile is None else profile.accesses
    in_global = [access for access in accesses if access.space in GLOBAL_SPACES and access.requests]
    by_row = {access.row: _make_hit_rates(access, assumption) for access in in_global}
    if not by_row:
        return model_input
    loads = next((by_row[access.row] for access in in_global if not access.is_store), None)
    rates = KernelHitRates(by_row=by_row, loads=loads, total=next(iter(by_row.values())))
    return replace(model_input, cache_rates=rates, dram_read_sectors=None, dram_written_sectors=None)


def _make_hit_rates(access: MemoryAccess, assumption: WorkAssumption) -> HitRates:
    is_hit = float(assumption is WorkAssumption.LEAST)
    sectors = max(1, access.sectors or 1)
    used = 1.0 if is_hit else min(1.0, access.bytes / (sectors * SECTOR_BYTES))
    return HitRates(
        n_requests=access.requests,
        n_sectors=sectors,
        l1_hit_rate=is_hit,
        l2_hit_rate=is_hit,
        l1_request_share=is_hit,
        l2_request_share=0.0,
        dram_request_share=1.0 - is_hit,
        lines_per_request=max(1.0, sectors / max(1, access.requests)) if not is_hit else 1.0,
        sector_utilization=used,
        store_sector_utilization=used,
    )


def compute_static_work_factors(model_input: ModelInput, assumption: WorkAssumption) -> FloatArray:
    """Return by how much the executions of each instruction may be fewer or more, without a launch, [n].

    Loops of which nothing is known take as few or as many trips as `WorkAssumption` says, of nested ones one.
    """
    cfg, loops = model_input.cfg, model_input.loop_forest.loops
    by_block = np.ones(len(cfg.blocks))
    for trip in model_input.block_counts.trips:
        if trip.provenance is not Provenance.ASSUMED or trip.rule is not None or trip.count <= 1:
            continue
        inside = list(loops[trip.loop].blocks)
        if assumption is WorkAssumption.MOST:
            by_block[inside] = np.maximum(by_block[inside], MAX_UNKNOWN_TRIPS / trip.count)
        else:
            by_block[inside] *= MIN_UNKNOWN_TRIPS / trip.count
    factors = np.ones(len(model_input.kernel))
    factors[: len(cfg.block_of)] = by_block[np.array(cfg.block_of)]
    return factors


def with_extreme_static_accesses(model_input: ModelInput, assumption: WorkAssumption) -> ModelInput:
    """Return an input without a launch whose requests take the fewest or the most sectors and passes."""
    moved, is_most = model_input.access_bytes, assumption is WorkAssumption.MOST
    n_units = WARP_SIZE if is_most else 1
    kernel = model_input.kernel
    has_lanes = kernel.form_table.make_opcode_mask(_has_lane_addresses)[kernel.opcode_ids]

    def bound(column: FloatArray, unit_bytes: int) -> FloatArray:
        bounded = np.where(column > 0, float(n_units * unit_bytes), 0.0)
        chosen = np.maximum(column, bounded) if is_most else np.minimum(column, bounded)
        return np.where(has_lanes, chosen, column)

    access_bytes = replace(
        moved,
        global_bytes=bound(moved.global_bytes, SECTOR_BYTES),
        shared_bytes=bound(moved.shared_bytes, WAVEFRONT_BYTES),
    )
    return replace(model_input, access_bytes=access_bytes)


def _has_lane_addresses(opcode: Opcode) -> bool:
    return opcode.kind in MEMORY_KINDS and opcode.kind not in (OpKind.BULK_COPY, OpKind.TEXTURE)
