"""Where requests to global memory are served, and how long a load takes then."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.execution.profile import ExecutionProfile, MemoryAccess
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.ir.machine import WARP_LANES
from analyzer.ir.opcode import BULK_WRITES, GLOBAL_SPACES, Opcode, Semantics
from analyzer.models.base import Situation

# Share of global bytes that DRAM serves where addresses are unknown: all for code that touches data once,
# a part where shared memory or tensor cores show that tiles are used again by neighbours.
STREAMING_DRAM_SHARE = 1.0
TILED_DRAM_SHARE = 0.25


class Placement(Struct, frozen=True):
    """Where requests to global memory are served: the share that goes beyond L1, and beyond L2."""

    l2_share: float
    dram_share: float


ALL_IN_L1 = Placement(0.0, 0.0)
ALL_IN_DRAM = Placement(1.0, 1.0)


def memory_latency_cycles(situation: Situation, placement: Placement) -> float:
    """Latency of a global load: the mix of L1, L2 and DRAM by the shares served there."""
    l1 = situation.arch.memory.l1_latency_cycles.value
    l2, dram = _l2_latency_cycles(situation), _dram_latency_cycles(situation)
    return l1 + (l2 - l1) * placement.l2_share + (dram - l2) * placement.dram_share


def _l2_latency_cycles(situation: Situation) -> float:
    return (situation.gpu.file.memory.l2_latency_cycles or situation.arch.memory.l2_latency_cycles).value


def _dram_latency_cycles(situation: Situation) -> float:
    memory, path = situation.gpu.file.memory, situation.arch.memory
    usual = (memory.dram_latency_cycles or path.dram_latency_cycles).value
    l2 = _l2_latency_cycles(situation)
    return l2 + beyond_l2_cycles(situation, usual - l2)


def beyond_l2_cycles(situation: Situation, usual_cycles: float) -> float:
    """What lies beyond the L2 takes its time at any clock of the SM, so other cycles at the launch's own."""
    if situation.clock_mhz is None:
        return usual_cycles
    return usual_cycles * situation.clock_mhz / situation.gpu.clock(tensor=situation.tensor_rate).value


def assumed_placement(situation: Situation) -> Placement:
    """Where requests are served: by the simulated caches, else beyond L1 always, and beyond L2 by distinct
    bytes or by kind of code.

    What the L2 holds comes from DRAM once, and what it does not hold once per wave of CTAs; code without
    tiles reads its neighbours' bytes while they are there.
    """
    simulated = _simulated_placement(situation)
    if simulated is not None:
        return simulated
    distinct = _distinct_share(situation)
    if distinct is None:
        return _usual_placement(situation)
    unique = situation.moved.unique_bytes or 0.0
    if situation.dram_read_sectors is not None and unique:
        more = max(0.0, situation.dram_read_sectors - _read_unique_sectors(situation))
        again = more * SECTOR_BYTES / unique
        return Placement(1.0, min(1.0, distinct * (1.0 + again)))
    fits = unique <= situation.gpu.file.l2.size_bytes.value or not _is_tiled(situation)
    return Placement(1.0, distinct if fits else min(1.0, distinct * max(1.0, situation.waves)))


def _usual_placement(situation: Situation) -> Placement:
    """Where requests at unknown addresses are taken to be served."""
    return Placement(1.0, TILED_DRAM_SHARE if _is_tiled(situation) else STREAMING_DRAM_SHARE)


def _is_tiled(situation: Situation) -> bool:
    demand = situation.demand
    return demand.tensor_fma > 0 or demand.shared_bytes > demand.global_bytes


def load_latencies(situation: Situation, lost_share: float = 1.0) -> dict[int, float]:
    """Average memory access time in cycles of each load whose hits were simulated (AMALI's AMAT), by row.

    Those that ask for nothing take no longer than those that the L1 serves (assumed). lost_share: of what
    loads miss in the caches, the part that comes from DRAM.
    """
    l1 = situation.arch.memory.l1_latency_cycles.value
    idle = dict.fromkeys(np.flatnonzero(situation.moved.idle).tolist(), l1)
    if situation.caches is None:
        return idle
    from analyzer.demand.caches import Latencies

    latencies = Latencies(
        l1_cycles=l1,
        l2_cycles=_l2_latency_cycles(situation),
        dram_cycles=_dram_latency_cycles(situation),
    )
    rates = situation.caches.accesses.items()
    served = {row: found.with_less_dram(lost_share).amat_cycles(latencies) for row, found in rates}
    return idle | served


def _simulated_placement(situation: Situation) -> Placement | None:
    """Shares of the whole grid's loads: those of each instruction, weighted by the sectors it asks for.

    An instruction of which nothing was recorded is served as all requests of the grid are by distinct bytes;
    where these are not known as the recorded ones are, or, if its addresses are not or rows are looked up, as
    such code usually is.
    """
    caches, profile = situation.caches, situation.profile
    if caches is None or caches.loads is None or profile is None:
        return None
    distinct = _distinct_share(situation)
    known = Placement(1.0, caches.loads.dram_share if distinct is None else distinct)
    unknown = _usual_placement(situation) if distinct is None else known
    total = beyond = dram = 0.0
    for access in profile.accesses:
        if access.is_store or access.space not in GLOBAL_SPACES:
            continue
        rates = caches.accesses.get(access.row)
        served = rates or (unknown if access.sectors is None else known)
        if access.is_looked_up:
            served = _looked_up_placement(situation, access)
        asked = _loaded_bytes(situation, profile, access)
        total += asked
        beyond += asked * served.l2_share
        dram += asked * served.dram_share
    return Placement(beyond / total, dram / total) if total else None


def looked_up_placements(situation: Situation) -> dict[int, Placement]:
    """Of requests to places that words from memory name, by row: recorded CTAs tell what they themselves read
    again. What others do follows from the words, each of whose rows comes from DRAM once, and from the table;
    where neither is known from the kind of code.
    """
    if situation.profile is None:
        return {}
    return {
        access.row: _looked_up_placement(situation, access)
        for access in situation.profile.accesses
        if access.is_looked_up
    }


def _looked_up_placement(situation: Situation, access: MemoryAccess) -> Placement:
    usual = _usual_placement(situation)
    recorded = None if situation.caches is None else situation.caches.accesses.get(access.row)
    l2_share = usual.l2_share if recorded is None else recorded.l2_share
    dram_share = l2_share if recorded is None else recorded.dram_share
    named = access.row_bytes is not None and access.bytes > 0
    lost = (access.row_bytes or 0) / access.bytes if named else dram_share * usual.dram_share
    if access.table_bytes:
        of_table = max(access.new_share, l2_share * _beyond_l2(situation, access.table_bytes))
        lost = min(lost, of_table) if named else of_table
    return Placement(l2_share, min(l2_share, lost))


def _beyond_l2(situation: Situation, table_bytes: float) -> float:
    """The part of a table that the L2 does not hold."""
    kept = l2_kept_share(situation) * situation.gpu.file.l2.size_bytes.value
    return 1.0 - min(1.0, kept / table_bytes)


def l2_kept_share(situation: Situation) -> float:
    """What of the L2 is there when it is read again: the product's own figure, else its architecture's."""
    return (situation.gpu.file.l2.kept_share or situation.arch.memory.l2_kept_share).value


def _loaded_bytes(situation: Situation, profile: ExecutionProfile, access: MemoryAccess) -> float:
    """Of the whole grid; where sectors are not known, those that the demand takes an execution to move."""
    if access.sectors is not None:
        return access.sectors * SECTOR_BYTES
    runs = float(profile.block_warps[situation.cfg.block_of[access.row]])
    return float(situation.moved.global_bytes[access.row]) * runs


def _distinct_share(situation: Situation) -> float | None:
    """Distinct bytes of the grid over all that it asks for; None where addresses are not known."""
    unique, block = situation.moved.unique_bytes, situation.block
    if unique is None or block is None or situation.grid is None:
        return None
    if situation.weights[bulk_writes(situation)].any():
        unique += copied_unique_bytes(situation)
    warps = situation.grid.count * -(-block.count // WARP_LANES)
    asked = situation.demand.global_bytes * warps
    return min(1.0, unique / asked) if asked else None


def bulk_writes(situation: Situation) -> NDArray[np.bool_]:
    """Instructions by which the copy engine writes to global memory, [n]."""
    kernel = situation.kernel
    return kernel.vocabulary.mask(_writes_in_bulk)[kernel.opcode_ids]


def _writes_in_bulk(opcode: Opcode) -> bool:
    return opcode.semantics in BULK_WRITES


def copied_unique_bytes(situation: Situation) -> float:
    """Different bytes that the copy engine brings, as far as a wave of CTAs tells; of copies alone whose
    addresses nobody knows.
    """
    rings, profile = situation.rings, situation.profile
    if rings is None:
        return 0.0
    warps = situation.grid_ctas * situation.occupancy.warps_per_cta
    moved, density, weights = situation.moved.global_bytes, situation.moved.density, situation.weights
    placed = {access.row for access in profile.accesses if access.unique_bytes} if profile else set[int]()
    uses = rings.uses.items()
    copies = [row for row, use in uses if use.meaning is Semantics.MBARRIER_COPY and row not in placed]
    asked = sum(float(moved[row] * density[row] * weights[row]) for row in copies) * warps
    return asked * (1.0 if rings.distinct_share is None else rings.distinct_share)


def _read_unique_sectors(situation: Situation) -> float:
    traffic = None if situation.profile is None else situation.profile.traffic
    return float(traffic.read_unique_sectors or 0) if traffic is not None else 0.0


def placement_note(situation: Situation, placement: Placement, *, queues_atomics: bool) -> str:
    """What a report says of it; queues_atomics: the model knows that requests to one address queue."""
    share = f"{placement.dram_share:.0%}"
    beyond = "" if queues_atomics else "; atomics on one address lie outside the interval"
    if situation.caches is not None and _simulated_placement(situation) is not None:
        hits = f"{1.0 - placement.l2_share:.0%}"
        part = "" if situation.caches.is_complete else ", of a part of their work"
        return (
            f"caches simulated on the addresses of the CTAs that one SM holds{part}: {hits} of loaded "
            f"sectors hit L1, {share} come from DRAM{beyond}"
        )
    if situation.moved.is_known:
        return (
            f"sectors and bank conflicts from executed addresses; none hits L1, {share} of global bytes come "
            f"from DRAM{beyond}"
        )
    return (
        f"addresses unknown: accesses coalesced, none hits L1, {share} of global bytes come from DRAM; "
        "scattered accesses, bank conflicts and atomics on one address lie outside the interval"
    )
