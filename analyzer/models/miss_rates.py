"""Miss rates of global memory requests: which level serves them, and how long loads take then.

Sources, the best first: the cache simulation of recorded addresses; distinct bytes of the grid; the kind of
code. Each gives the share of requested bytes that goes beyond the L1, and the share that comes from DRAM.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.demand.hit_rates import MemoryLatencies
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.hardware.l2_retention import read_l2_retention
from analyzer.ir.opcode import BULK_WRITE_SEMANTICS, GLOBAL_SPACES, Opcode, Semantics
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.interface import ModelInput

# Share of global bytes that DRAM serves where addresses are unknown: all for code that touches data once, a
# part if shared memory or tensor cores show that neighboring CTAs use tiles again.
STREAMING_DRAM_SHARE = 1.0
TILED_DRAM_SHARE = 0.25


class MissRates(Struct, frozen=True):
    """Shares of requests to global memory that miss in the caches."""

    l1_miss_rate: float
    dram_share: float  # of all requests, not of those that miss the L1

    def with_scaled_dram_share(self, factor: float) -> "MissRates":
        """Return the rates with another share of requests that come from DRAM."""
        return MissRates(self.l1_miss_rate, self.dram_share * factor)


ALL_IN_L1 = MissRates(0.0, 0.0)
ALL_IN_DRAM = MissRates(1.0, 1.0)


def compute_memory_latency_cycles(model_input: ModelInput, miss_rates: MissRates) -> float:
    """Return the latency of a global load: the mean of L1, L2 and DRAM by the shares served there."""
    l1 = model_input.arch.memory.l1_latency_cycles.value
    l2, dram = _find_l2_latency_cycles(model_input), _compute_dram_latency_cycles(model_input)
    return l1 + (l2 - l1) * miss_rates.l1_miss_rate + (dram - l2) * miss_rates.dram_share


def _find_l2_latency_cycles(model_input: ModelInput) -> float:
    return (model_input.gpu.file.memory.l2_latency_cycles or model_input.arch.memory.l2_latency_cycles).value


def _compute_dram_latency_cycles(model_input: ModelInput) -> float:
    memory, path = model_input.gpu.file.memory, model_input.arch.memory
    rated_cycles = (memory.dram_latency_cycles or path.dram_latency_cycles).value
    l2 = _find_l2_latency_cycles(model_input)
    return l2 + scale_dram_cycles_to_clock(model_input, rated_cycles - l2)


def scale_dram_cycles_to_clock(model_input: ModelInput, rated_clock_cycles: float) -> float:
    """Convert DRAM cycles from the GPU's usual SM clock to the launch's own: their time is the same."""
    if model_input.clock_mhz is None:
        return rated_clock_cycles
    return (
        rated_clock_cycles
        * model_input.clock_mhz
        / model_input.gpu.find_clock_mhz(tensor=model_input.dominant_tensor_rate).value
    )


def estimate_miss_rates(model_input: ModelInput) -> MissRates:
    """Estimate miss rates from simulated caches, else from distinct bytes or the kind of code (no L1 hits).

    Data that fit into the L2 come from DRAM once, others once per wave of CTAs; code without tiles reads its
    neighbors' bytes while the L2 holds them.
    """
    simulated = _average_simulated_miss_rates(model_input)
    if simulated is not None:
        return simulated
    unique_share = compute_unique_byte_share(model_input)
    if unique_share is None:
        return _guess_miss_rates(model_input)
    unique = model_input.access_bytes.unique_global_bytes or 0.0
    if model_input.dram_read_sectors is not None and unique:
        refetched_sectors = max(0.0, model_input.dram_read_sectors - _count_unique_read_sectors(model_input))
        refetches_per_unique_byte = refetched_sectors * SECTOR_BYTES / unique
        return MissRates(1.0, min(1.0, unique_share * (1.0 + refetches_per_unique_byte)))
    fits = unique <= model_input.gpu.file.l2.size_bytes.value or not _is_tiled(model_input)
    return MissRates(1.0, unique_share if fits else min(1.0, unique_share * max(1.0, model_input.waves)))


def _guess_miss_rates(model_input: ModelInput) -> MissRates:
    """Return assumed miss rates for unknown addresses, by kind of code."""
    return MissRates(1.0, TILED_DRAM_SHARE if _is_tiled(model_input) else STREAMING_DRAM_SHARE)


def _is_tiled(model_input: ModelInput) -> bool:
    demand = model_input.demand
    return demand.tensor_fma > 0 or demand.shared_bytes > demand.global_bytes


def compute_load_latencies(model_input: ModelInput, cold_share: float = 1.0) -> dict[int, float]:
    """Return the average memory access time of loads whose hits were simulated (AMALI's AMAT), by row.

    Predicated-off loads take as long as L1 hits (assumed).
    cold_share: part of the misses of both caches that comes from DRAM.
    """
    l1 = model_input.arch.memory.l1_latency_cycles.value
    predicated_off = dict.fromkeys(np.flatnonzero(model_input.access_bytes.is_predicated_off).tolist(), l1)
    if model_input.cache_rates is None:
        return predicated_off
    latencies = MemoryLatencies(
        l1_cycles=l1,
        l2_cycles=_find_l2_latency_cycles(model_input),
        dram_cycles=_compute_dram_latency_cycles(model_input),
    )
    rates = model_input.cache_rates.by_row.items()
    served = {
        row: found.with_scaled_dram_share(cold_share).compute_amat_cycles(latencies) for row, found in rates
    }
    return predicated_off | served


def _average_simulated_miss_rates(model_input: ModelInput) -> MissRates | None:
    """Return miss rates of the grid's loads: the mean of instructions, weighted by requested bytes.

    An instruction without recorded requests has the miss rates that follow from the grid's distinct bytes. If
    these are not known, it has those of the recorded instructions; if its addresses are not known or it
    gathers rows, it has those assumed for the kind of code.
    """
    caches, profile = model_input.cache_rates, model_input.profile
    if caches is None or caches.loads is None or profile is None:
        return None
    unique_share = compute_unique_byte_share(model_input)
    known = MissRates(1.0, caches.loads.dram_share if unique_share is None else unique_share)
    unknown = _guess_miss_rates(model_input) if unique_share is None else known
    total = beyond = dram = 0.0
    for access in profile.accesses:
        if access.is_store or access.space not in GLOBAL_SPACES:
            continue
        rates = caches.by_row.get(access.row)
        served = rates or (unknown if access.sectors is None else known)
        if access.is_indirect:
            served = _estimate_gather_miss_rates(model_input, access)
        requested_bytes = _count_loaded_bytes(model_input, profile, access)
        total += requested_bytes
        beyond += requested_bytes * served.l1_miss_rate
        dram += requested_bytes * served.dram_share
    return MissRates(beyond / total, dram / total) if total else None


def find_gather_miss_rates(model_input: ModelInput) -> dict[int, MissRates]:
    """Return miss rates of gathers (requests at addresses that come from memory), by row.

    Recorded CTAs give the reuse within a CTA. Reuse between CTAs follows from the gathered indices, each of
    whose rows comes from DRAM once, and from the size of the table; if neither is known, from the kind of
    code.
    """
    if model_input.profile is None:
        return {}
    return {
        access.row: _estimate_gather_miss_rates(model_input, access)
        for access in model_input.profile.accesses
        if access.is_indirect
    }


def _estimate_gather_miss_rates(model_input: ModelInput, access: MemoryAccess) -> MissRates:
    assumed = _guess_miss_rates(model_input)
    recorded = None if model_input.cache_rates is None else model_input.cache_rates.by_row.get(access.row)
    l2_share = assumed.l1_miss_rate if recorded is None else recorded.l1_miss_rate
    dram_share = l2_share if recorded is None else recorded.dram_share
    has_known_indices = access.gathered_bytes is not None and access.bytes > 0
    dram_byte_share = (
        (access.gathered_bytes or 0) / access.bytes if has_known_indices else dram_share * assumed.dram_share
    )
    if access.table_bytes:
        table_miss_rate = max(
            access.first_touch_share, l2_share * _compute_table_miss_rate(model_input, access.table_bytes)
        )
        dram_byte_share = min(dram_byte_share, table_miss_rate) if has_known_indices else table_miss_rate
    return MissRates(l2_share, min(l2_share, dram_byte_share))


def _compute_table_miss_rate(model_input: ModelInput, table_bytes: float) -> float:
    """Return the part of a table that the L2 does not hold."""
    l2, kept_bytes = model_input.gpu.file.l2, read_l2_retention(model_input.gpu).kept_bytes
    if l2.scattered_share is not None:
        kept_bytes = l2.scattered_share.value * l2.size_bytes.value
    return 1.0 - min(1.0, kept_bytes / table_bytes)


def _count_loaded_bytes(model_input: ModelInput, profile: ExecutionProfile, access: MemoryAccess) -> float:
    """Count the bytes that the grid loads by one instruction; by its demand if sectors are unknown."""
    if access.sectors is not None:
        return access.sectors * SECTOR_BYTES
    executions = float(profile.block_executions[model_input.cfg.block_of[access.row]])
    return float(model_input.access_bytes.global_bytes[access.row]) * executions


def compute_unique_byte_share(model_input: ModelInput) -> float | None:
    """Return distinct over requested bytes of the grid; None where addresses are not known."""
    unique, block = model_input.access_bytes.unique_global_bytes, model_input.block
    if unique is None or block is None or model_input.grid is None:
        return None
    if model_input.execution_counts[mask_bulk_writes(model_input)].any():
        unique += count_unique_copied_bytes(model_input)
    warps = model_input.grid.count * -(-block.count // WARP_SIZE)
    requested_bytes = model_input.demand.global_bytes * warps
    return min(1.0, unique / requested_bytes) if requested_bytes else None


def mask_bulk_writes(model_input: ModelInput) -> NDArray[np.bool_]:
    """Return a mask of the instructions by which the copy engine writes to global memory, [n]."""
    kernel = model_input.kernel
    return kernel.form_table.make_opcode_mask(_is_bulk_write)[kernel.opcode_ids]


def _is_bulk_write(opcode: Opcode) -> bool:
    return opcode.semantics in BULK_WRITE_SEMANTICS


def count_unique_copied_bytes(model_input: ModelInput) -> float:
    """Count distinct bytes that TMA copies of unknown addresses bring, extrapolated from a wave of CTAs."""
    pipelines, profile = model_input.mbarrier_pipelines, model_input.profile
    if pipelines is None:
        return 0.0
    warps = model_input.grid_ctas * model_input.occupancy.warps_per_cta
    moved, utilization, weights = (
        model_input.access_bytes.global_bytes,
        model_input.access_bytes.box_sector_utilization,
        model_input.execution_counts,
    )
    known_rows = {access.row for access in profile.accesses if access.unique_bytes} if profile else set[int]()
    uses = pipelines.uses.items()
    copies = [row for row, use in uses if use.semantics is Semantics.MBARRIER_COPY and row not in known_rows]
    requested_bytes = sum(float(moved[row] * utilization[row] * weights[row]) for row in copies) * warps
    return requested_bytes * (1.0 if pipelines.distinct_tile_share is None else pipelines.distinct_tile_share)


def _count_unique_read_sectors(model_input: ModelInput) -> float:
    traffic = None if model_input.profile is None else model_input.profile.traffic
    return float(traffic.read_unique_sectors or 0) if traffic is not None else 0.0


def describe_miss_rates(model_input: ModelInput, miss_rates: MissRates, *, queues_atomics: bool) -> str:
    """Return the note of a report; queues_atomics: the model lets atomics on one address queue."""
    share = f"{miss_rates.dram_share:.0%}"
    beyond = "" if queues_atomics else "; atomics on one address lie outside the interval"
    if model_input.cache_rates is not None and _average_simulated_miss_rates(model_input) is not None:
        hits = f"{1.0 - miss_rates.l1_miss_rate:.0%}"
        part = "" if model_input.cache_rates.is_complete else ", of a part of their work"
        return (
            f"caches simulated on the addresses of the CTAs that one SM holds{part}: {hits} of loaded "
            f"sectors hit L1, {share} come from DRAM{beyond}"
        )
    if model_input.access_bytes.has_known_addresses:
        return (
            f"sectors and bank conflicts from executed addresses; none hits L1, {share} of global bytes come "
            f"from DRAM{beyond}"
        )
    guess = f"addresses unknown: accesses coalesced, none hits L1, {share} of global bytes come from DRAM"
    if model_input.profile is not None:
        return guess
    return f"{guess}; scattered accesses, bank conflicts and atomics on one address lie outside the interval"
