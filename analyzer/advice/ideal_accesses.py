"""Accesses to memory as they could be: as few sectors and wavefronts as the bytes that lanes ask for.

*Ideal* is what Nsight Compute calls so: a request of n bytes takes n / 32 sectors and n / 128 wavefronts, but
at least one, and not more than it takes in fact (lanes that read the same word share it).

Fewer sectors change what the caches do. Two cases lie behind a request with too many:

- the rest of its sectors is used by nobody (`a[32 * i]`): then the ideal access fetches as much less;
- other requests use it (a column of a matrix): then the L1 may have served them, and the same bytes are
  fetched.

The touched part of the sectors, which the cache simulation counts, tells them apart: of the sectors that went
beyond a cache, that part still does, spread over fewer requested ones.
"""

from collections.abc import Collection, Mapping

import numpy as np
from msgspec.structs import replace

from analyzer.advice.edited_input import edit_input
from analyzer.demand.access_bytes import (
    AccessBytes,
    count_ideal_sectors,
    count_ideal_wavefronts,
)
from analyzer.demand.hit_rates import HitRates, KernelHitRates
from analyzer.execution.footprint.request_cost import SECTOR_BYTES, WAVEFRONT_BYTES
from analyzer.execution.profile.execution_profile import ExecutionProfile, GlobalTraffic, MemoryAccess
from analyzer.ir.arrays import FloatArray, make_read_only
from analyzer.ir.opcode import GLOBAL_SPACES, SHARED_SPACES
from analyzer.models.interface import ModelInput

_SECTORS_PER_LINE = 4


def with_ideal_wavefronts(model_input: ModelInput, rows: Collection[int]) -> ModelInput:
    """Return an input in which accesses of some rows to shared memory have no bank conflicts."""
    profile = model_input.profile
    if profile is None:
        return model_input
    shared_bytes = model_input.access_bytes.shared_bytes.copy()
    accesses = []
    for access in profile.accesses:
        ideal = count_ideal_wavefronts(access)
        runs = float(profile.block_executions[model_input.cfg.block_of[access.row]])
        if access.row in rows and access.space in SHARED_SPACES and ideal is not None and runs:
            least = ideal * WAVEFRONT_BYTES / runs
            shared_bytes[access.row] = min(shared_bytes[access.row], least)
            access = replace(access, wavefronts=round(ideal))
        accesses.append(access)
    return edit_input(
        model_input,
        profile=replace(profile, accesses=tuple(accesses)),
        access_bytes=_with_column(model_input.access_bytes, shared_bytes=shared_bytes),
    )


def with_ideal_sectors(model_input: ModelInput, rows: Collection[int]) -> ModelInput:
    """Return an input in which accesses of some rows to global memory are coalesced."""
    profile = model_input.profile
    if profile is None:
        return model_input
    global_bytes = model_input.access_bytes.global_bytes.copy()
    accesses, kept_shares = [], dict[int, float]()
    for access in profile.accesses:
        ideal = count_ideal_sectors(access)
        if access.row in rows and access.space in GLOBAL_SPACES and ideal and access.sectors:
            kept_shares[access.row] = ideal / access.sectors
            global_bytes[access.row] *= ideal / access.sectors
            access = _make_coalesced_access(access, ideal)
        accesses.append(access)
    edited = replace(profile, accesses=tuple(accesses), traffic=_make_coalesced_traffic(profile, kept_shares))
    before, after = profile.traffic, edited.traffic
    return edit_input(
        model_input,
        profile=edited,
        access_bytes=replace(
            _with_column(model_input.access_bytes, global_bytes=global_bytes),
            unique_global_bytes=_count_unique_bytes(after, model_input.access_bytes),
        ),
        cache_rates=_make_coalesced_rates(model_input.cache_rates, kept_shares),
        dram_read_sectors=_scale_sectors(
            model_input.dram_read_sectors,
            None if before is None else before.read_unique_sectors,
            None if after is None else after.read_unique_sectors,
            sum(access.sectors or 0 for access in accesses if not access.is_store),
        ),
        dram_written_sectors=_scale_sectors(
            model_input.dram_written_sectors,
            None if before is None else before.written_unique_sectors,
            None if after is None else after.written_unique_sectors,
            sum(access.sectors or 0 for access in accesses if access.is_store),
        ),
    )


def _make_coalesced_access(access: MemoryAccess, ideal_sectors: float) -> MemoryAccess:
    wavefronts = count_ideal_wavefronts(access)
    return replace(
        access,
        sectors=round(ideal_sectors),
        wavefronts=None if wavefronts is None else round(wavefronts),
    )


def _make_coalesced_traffic(
    profile: ExecutionProfile, kept_shares: Mapping[int, float]
) -> GlobalTraffic | None:
    """Return the grid's traffic with distinct bytes packed into sectors, on the sides that were edited."""
    traffic = profile.traffic
    if traffic is None:
        return None
    sides = {access.is_store for access in profile.accesses if access.row in kept_shares}
    reads = _pack_sectors(traffic.read_unique_bytes, traffic.read_unique_sectors, is_edited=False in sides)
    writes = _pack_sectors(
        traffic.written_unique_bytes, traffic.written_unique_sectors, is_edited=True in sides
    )
    total = traffic.unique_sectors
    if total is not None:
        before = (traffic.read_unique_sectors or 0) + (traffic.written_unique_sectors or 0)
        total = round(total * ((reads or 0) + (writes or 0)) / before) if before else total
    return replace(traffic, read_unique_sectors=reads, written_unique_sectors=writes, unique_sectors=total)


def _pack_sectors(unique_bytes: int | None, sectors: int | None, *, is_edited: bool) -> int | None:
    if not is_edited or unique_bytes is None or sectors is None:
        return sectors
    return min(sectors, -(-unique_bytes // SECTOR_BYTES))


def _count_unique_bytes(traffic: GlobalTraffic | None, moved: AccessBytes) -> float | None:
    if traffic is None or traffic.read_unique_sectors is None or traffic.written_unique_sectors is None:
        return moved.unique_global_bytes
    return float(traffic.read_unique_sectors + traffic.written_unique_sectors) * SECTOR_BYTES


def _scale_sectors(
    sectors: float | None, unique: int | None, unique_after: int | None, requested_after: int
) -> float | None:
    """Scale sectors that DRAM moves with the distinct ones; not more than are requested then."""
    if sectors is None or not unique or unique_after is None:
        return sectors
    return max(float(unique_after), min(sectors * unique_after / unique, float(requested_after)))


def _make_coalesced_rates(
    rates: KernelHitRates | None, kept_shares: Mapping[int, float]
) -> KernelHitRates | None:
    if rates is None:
        return None
    by_row = {
        row: _make_coalesced_hit_rates(found, kept_shares[row]) if row in kept_shares else found
        for row, found in rates.by_row.items()
    }
    return replace(rates, by_row=by_row)


def _make_coalesced_hit_rates(rates: HitRates, kept_share: float) -> HitRates:
    """Return the rates of an access with fewer sectors, see the module docstring."""
    kept = rates.sector_utilization / kept_share
    l1_miss_rate = min(1.0, rates.l1_miss_rate * kept)
    dram_share = min(l1_miss_rate, rates.dram_share * kept)
    n_sectors = max(rates.n_requests, round(rates.n_sectors * kept_share))
    lines = max(1.0, n_sectors / max(1, rates.n_requests) / _SECTORS_PER_LINE)
    return HitRates(
        n_requests=rates.n_requests,
        n_sectors=n_sectors,
        l1_hit_rate=1.0 - l1_miss_rate,
        l2_hit_rate=1.0 - dram_share / l1_miss_rate if l1_miss_rate else 0.0,
        l1_request_share=1.0 - l1_miss_rate,
        l2_request_share=l1_miss_rate - dram_share,
        dram_request_share=dram_share,
        lines_per_request=min(rates.lines_per_request, lines),
        sector_utilization=1.0,
        store_sector_utilization=1.0,
    )


def _with_column(moved: AccessBytes, **columns: FloatArray) -> AccessBytes:
    make_read_only(*(column for column in columns.values() if isinstance(column, np.ndarray)))
    return replace(moved, **columns)
