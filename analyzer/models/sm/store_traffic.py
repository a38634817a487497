"""Compute the part of stores to global memory that goes on from the L2 to the DRAM.

A sector goes to the DRAM once for all stores that meet in it. One that is written in part costs more, since
the rest has to be read. One that an atomic adds to is read and written.
"""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.profile.execution_profile import MemoryAccess
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, Semantics
from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import MissRates

_FULL_SECTOR_MIN_DENSITY = 0.99


class _StoreShares(Struct, frozen=True):
    """Sectors of one store instruction."""

    sectors: int  # requested
    share: float  # of these, different ones that leave an SM
    density: float  # written part of them
    is_accumulating: bool  # adds to what is in memory
    is_mergeable: bool  # other CTAs may write the rest of a sector


def compute_store_dram_shares(
    model_input: ModelInput, looked_up: Mapping[int, MissRates]
) -> dict[int, float]:
    """Compute the sectors that the DRAM moves for one that a store requests, by row.

    looked_up: miss rates of rows whose addresses come from memory.
    """
    if model_input.profile is None:
        return {}
    found = {
        access.row: _measure_store(model_input, access, access.sectors, looked_up.get(access.row))
        for access in model_input.profile.accesses
        if access.space in GLOBAL_SPACES and access.is_store and access.sectors
    }
    merged_share, whole = _compute_merged_share(model_input, found), _compute_written_density(model_input)
    partly_written = _compute_partial_write_factor(model_input)
    shares: dict[int, float] = {}
    for row, stored in found.items():
        is_joined = stored.is_mergeable and merged_share < _FULL_SECTOR_MIN_DENSITY
        share = stored.share * (merged_share if is_joined else 1.0)
        density = max(stored.density, whole) if is_joined else stored.density
        if stored.is_accumulating:
            shares[row] = share * 2.0  # what it adds to comes from there, and goes back whole
        else:
            shares[row] = share if density >= _FULL_SECTOR_MIN_DENSITY else share * partly_written
    return shares


def _measure_store(
    model_input: ModelInput, access: MemoryAccess, sectors: int, looked_up: MissRates | None
) -> _StoreShares:
    rates = None if model_input.cache_rates is None else model_input.cache_rates.by_row.get(access.row)
    density, stored = (
        (1.0, 1.0) if rates is None else (rates.sector_utilization, rates.store_sector_utilization)
    )
    share = (access.unique_bytes or access.bytes) / (stored * sectors * SECTOR_BYTES)
    if access.unique_sectors is not None:
        share = access.unique_sectors / sectors
    elif looked_up is not None:
        share = looked_up.dram_share
    opcode = model_input.kernel.find_opcode(access.row)
    adds = opcode.kind in ATOMIC_KINDS or opcode.semantics is Semantics.BULK_REDUCTION
    joins = access.unique_sectors is None and looked_up is None and not adds
    return _StoreShares(sectors, min(1.0, share), density, adds, joins)


def _compute_merged_share(model_input: ModelInput, found: Mapping[int, _StoreShares]) -> float:
    """Compute the share of sectors from the SMs that leave the L2: CTAs of other SMs fill them up there."""
    handed = sum(stored.share * stored.sectors for stored in found.values())
    if (
        model_input.dram_written_sectors is None
        or not handed
        or not all(one.is_mergeable for one in found.values())
    ):
        return 1.0
    return min(1.0, model_input.dram_written_sectors / handed)


def _compute_written_density(model_input: ModelInput) -> float:
    """Compute the written part of the sectors that the grid writes to."""
    traffic = None if model_input.profile is None else model_input.profile.traffic
    if traffic is None or not traffic.written_unique_sectors or traffic.written_unique_bytes is None:
        return 0.0
    return traffic.written_unique_bytes / (traffic.written_unique_sectors * SECTOR_BYTES)


def _compute_partial_write_factor(model_input: ModelInput) -> float:
    """Compute the sectors that the DRAM moves for a partly written one that the launch does not read."""
    traffic = None if model_input.profile is None else model_input.profile.traffic
    unread = 1.0
    if traffic is not None and traffic.unique_sectors is not None and traffic.written_unique_sectors:
        only_written = traffic.unique_sectors - (traffic.read_unique_sectors or 0)
        unread = only_written / traffic.written_unique_sectors
    return 1.0 + (model_input.arch.memory.partial_write_factor.value - 1.0) * unread
