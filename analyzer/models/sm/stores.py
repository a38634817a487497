"""Of what stores to global memory ask for, the part that goes on from the L2 to the DRAM."""

from collections.abc import Mapping

from msgspec import Struct

from analyzer.execution.profile import MemoryAccess
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.ir.opcode import ATOMIC_KINDS, GLOBAL_SPACES, Semantics
from analyzer.models.base import Situation
from analyzer.models.placement import Placement

_WHOLE = 0.99


class _Stored(Struct, frozen=True):
    """share: of the sectors that an instruction asks for, those that leave one SM's CTAs; density: touched
    part of them; adds: to what is there; joins: sectors of which other CTAs may write the rest.
    """

    sectors: int
    share: float
    density: float
    adds: bool
    joins: bool


def stored_shares(situation: Situation, looked_up: Mapping[int, Placement]) -> dict[int, float]:
    """Sectors that the DRAM moves for one that a store asks for, by row.

    looked_up: where rows of tables lie that words from memory name.
    """
    if situation.profile is None:
        return {}
    found = {
        access.row: _stored(situation, access, access.sectors, looked_up.get(access.row))
        for access in situation.profile.accesses
        if access.space in GLOBAL_SPACES and access.is_store and access.sectors
    }
    joined, whole = _joined_part(situation, found), _grid_density(situation)
    partly_written = _partial_write_factor(situation)
    shares: dict[int, float] = {}
    for row, stored in found.items():
        is_joined = stored.joins and joined < _WHOLE
        share = stored.share * (joined if is_joined else 1.0)
        density = max(stored.density, whole) if is_joined else stored.density
        if stored.adds:
            shares[row] = share * 2.0  # what it adds to comes from there, and goes back whole
        else:
            shares[row] = share if density >= _WHOLE else share * partly_written
    return shares


def _stored(situation: Situation, access: MemoryAccess, sectors: int, looked_up: Placement | None) -> _Stored:
    rates = None if situation.caches is None else situation.caches.accesses.get(access.row)
    density, stored = (1.0, 1.0) if rates is None else (rates.density, rates.stored_density)
    share = (access.unique_bytes or access.bytes) / (stored * sectors * SECTOR_BYTES)
    if access.unique_sectors is not None:
        share = access.unique_sectors / sectors
    elif looked_up is not None:
        share = looked_up.dram_share
    opcode = situation.kernel.opcode(access.row)
    adds = opcode.kind in ATOMIC_KINDS or opcode.semantics is Semantics.BULK_REDUCTION
    joins = access.unique_sectors is None and looked_up is None and not adds
    return _Stored(sectors, min(1.0, share), density, adds, joins)


def _joined_part(situation: Situation, found: Mapping[int, _Stored]) -> float:
    """Of the sectors that leave the SMs, those that leave the L2: CTAs elsewhere write the rest of them."""
    handed = sum(stored.share * stored.sectors for stored in found.values())
    if situation.dram_written_sectors is None or not handed or not all(one.joins for one in found.values()):
        return 1.0
    return min(1.0, situation.dram_written_sectors / handed)


def _grid_density(situation: Situation) -> float:
    """Written part of the sectors that the grid writes to."""
    traffic = None if situation.profile is None else situation.profile.traffic
    if traffic is None or not traffic.written_unique_sectors or traffic.written_unique_bytes is None:
        return 0.0
    return traffic.written_unique_bytes / (traffic.written_unique_sectors * SECTOR_BYTES)


def _partial_write_factor(situation: Situation) -> float:
    """Sectors that the DRAM moves for one that is written in part, unless the launch reads it as well."""
    traffic = None if situation.profile is None else situation.profile.traffic
    unread = 1.0
    if traffic is not None and traffic.unique_sectors is not None and traffic.written_unique_sectors:
        only_written = traffic.unique_sectors - (traffic.read_unique_sectors or 0)
        unread = only_written / traffic.written_unique_sectors
    return 1.0 + (situation.arch.memory.partial_write_factor.value - 1.0) * unread
