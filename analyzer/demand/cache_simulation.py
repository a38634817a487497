"""Cache simulation (AMALI's Cache Simulator): which level serves the sectors of each instruction.

The caches are those of Table 2 of AMALI (Cao et al., ISCA 2025): an L1 of 128-byte lines in 32-byte sectors,
64 ways, write-through, and a sectored write-back L2 of 16 ways, both LRU. "Streaming" is taken to mean that a
miss never stalls another request, and that a sector is present from its request on. A request that finds its
sector while that is still being filled is a hit, but waits for the rest of the fill (`pending_fills`). Stores
go to the L2 and leave the L1 as it is, except stores to local memory, which allocate in the L1 (assumed:
that memory belongs to one thread, and spills are read back).

The L2 sees the L1 misses of one SM only. Reuse between SMs is not simulated but taken from the whole grid
(`GridReuse`): of the sectors that all SMs request, the distinct ones come from DRAM once if they fit into the
L2, else once in each window of CTAs, and never more than this SM alone would miss. If the L2 does not hold
what all concurrent CTAs touch, this SM has its part of it, so that a row which is read twice may come twice;
`rereads` tells of what is read again after the recording ended.

Example, one load executed twice with the same 4 sectors, in empty caches:

    first execution    4 sectors miss L1 and L2: from DRAM
    second execution   4 sectors hit the L1
    result             l1_hit_rate 0.5, dram_share 0.5
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.demand.hit_rates import HitRates, KernelHitRates
from analyzer.demand.l1_policies import L1Policy
from analyzer.demand.pending_fills import CacheFillTiming, FillWaits, compute_fill_waits
from analyzer.demand.rereads import Rereads, find_rereads
from analyzer.demand.sectored_cache import CacheGeometry, find_hits
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.traces.address_streams import AddressStream
from analyzer.hardware.schema import Arch
from analyzer.ir.arrays import Addresses, BoolArray, FloatArray, IntArray
from analyzer.ir.opcode import GLOBAL_SPACES
from analyzer.ir.scheduling import SchedClass

_PAGE_BYTES = np.uint64(1 << 20)
_DRAM_LEVEL = 2
_MAX_PARTIAL_SECTOR_UTILIZATION = 0.5  # touched part of sectors, up to which others may touch the rest
_WRITE_POLICIES = frozenset({L1Policy.WRITE_NO_ALLOCATE, L1Policy.WRITE_ALLOCATE})
_READ_POLICIES = frozenset({L1Policy.READ_ALLOCATE, L1Policy.READ_NO_ALLOCATE})
_ALLOCATE_POLICIES = frozenset({L1Policy.READ_ALLOCATE, L1Policy.WRITE_ALLOCATE})
_LOOKUP_POLICIES = _READ_POLICIES | _ALLOCATE_POLICIES | _WRITE_POLICIES


class CacheHierarchy(Struct, frozen=True):
    """Geometry of the caches as the recorded CTAs see them."""

    l1: CacheGeometry
    l2: CacheGeometry
    contended_l2: CacheGeometry | None = None  # part of the L2 that is theirs while others run
    # The same while all that run at a time read their data again; None: the L2 holds these.
    rereading_l2: CacheGeometry | None = None
    fill_timing: CacheFillTiming | None = None  # None: fills take no time

    def with_l2_contention(
        self, stream: AddressStream, sectors_at_once: float, kept_share: float
    ) -> "CacheHierarchy":
        """Return a hierarchy whose L2 is shared with other CTAs, if it does not hold what all of them touch.

        sectors_at_once: distinct sectors that all concurrent CTAs touch.
        kept_share: part of the L2 that keeps its data.
        """
        touched_bytes = sectors_at_once * self.l2.sector_bytes
        if touched_bytes <= self.l2.size_bytes * kept_share:
            return self
        return replace(self, contended_l2=self._find_l2_part(stream.sectors, sectors_at_once, kept_share))

    def with_rereading_ctas(
        self, stream: AddressStream, read_sectors_at_once: float, kept_share: float
    ) -> "CacheHierarchy":
        """Return a hierarchy whose L2 does not hold what all concurrent CTAs read.

        read_sectors_at_once: distinct sectors that they read; kept_share: see `with_l2_contention`.
        """
        l2 = self._find_l2_part(stream.sectors[~stream.is_store], read_sectors_at_once, kept_share)
        # of sectors, not of lines: other SMs read the rest of a line
        return replace(self, rereading_l2=replace(l2, line_bytes=l2.sector_bytes))

    def _find_l2_part(self, recorded: Addresses, sectors_at_once: float, kept_share: float) -> CacheGeometry:
        """Return the part of the L2 that recorded sectors have among those of all concurrent CTAs."""
        part = min(1.0, len(np.unique(recorded)) / sectors_at_once)
        return replace(self.l2, size_bytes=int(self.l2.size_bytes * kept_share * part))


def build_cache_hierarchy(
    arch: Arch,
    *,
    l2_bytes: float,
    shared_bytes_in_use: float,
    ctas_per_sm: int,
    n_recorded: int,
    warps_per_cta: int = 0,
    l2_latency_cycles: float | None = None,
) -> CacheHierarchy:
    """Build cache geometries from the figures of an architecture.

    The L1 is the SM's memory less the smallest carveout that holds `shared_bytes_in_use`, the shared memory
    of all resident CTAs. If fewer CTAs are recorded than resident, they have their part of it.
    warps_per_cta: 0 for fills that take no time.
    l2_latency_cycles: L2 latency of the GPU; the architecture's if None.
    """
    memory = arch.memory
    l1_ways, l2_ways = int(memory.l1_ways.value), int(memory.l2_ways.value)
    line, sector = int(memory.line_bytes.value), int(memory.sector_bytes.value)
    part = min(1.0, n_recorded / max(1, ctas_per_sm))
    carveout_bytes = arch.shared_carveouts.find_carveout_bytes(shared_bytes_in_use)
    left = max(0.0, memory.l1_shared_bytes_per_sm.value - carveout_bytes) * part
    return CacheHierarchy(
        l1=CacheGeometry(size_bytes=int(left), line_bytes=line, sector_bytes=sector, ways=l1_ways),
        l2=CacheGeometry(size_bytes=int(l2_bytes), line_bytes=line, sector_bytes=sector, ways=l2_ways),
        fill_timing=_build_fill_timing(arch, warps_per_cta * ctas_per_sm, l2_latency_cycles, part)
        if warps_per_cta
        else None,
    )


def _build_fill_timing(
    arch: Arch, warps: int, l2_latency_cycles: float | None, part: float
) -> CacheFillTiming:
    """Build the timing of fills; warps: resident on an SM; part: recorded share of them."""
    subcores = arch.limits.subcores_per_sm.value
    path_cycles = arch.sched[SchedClass.GLOBAL_LOAD].issue_cycles.value / subcores
    return CacheFillTiming(
        l2_fill_cycles=l2_latency_cycles or arch.memory.l2_latency_cycles.value,
        warp_turn_cycles=max(1.0, warps / subcores),
        request_issue_cycles=path_cycles / part,
    )


class GridReuse(Struct, frozen=True):
    """Reuse of sectors by the whole grid."""

    # Distinct over requested sectors by row where known, as if all bytes of each sector were touched.
    distinct_share: Mapping[int, float]
    requested_sectors: Mapping[int, float] = field(default_factory=dict)  # by row
    unique_sectors: float | None = None  # distinct sectors of all reads; None: not known
    # Sectors of all reads that come from DRAM, some more than once (`traffic.dram_windows`); None: not known.
    dram_sectors: float | None = None
    n_ctas: float = 0.0  # that have work; 0: not known
    cta_read_sectors: float | None = None  # distinct ones of a CTA; None: not known
    # Distinct bytes and sectors of a request of loads whose addresses do not depend on other loads, by row.
    patterns: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    n_waves: float = 1.0  # of the CTAs that have
    # Distinct over requested sectors by row where the distinct sectors themselves were counted.
    distinct_sector_share: Mapping[int, float] = field(default_factory=dict)

    def with_dram_refetches(self, times: float) -> "GridReuse":
        """Return the reuse for an L2 that loses sectors to other CTAs before they are read again.

        times: DRAM sectors with these losses over those without.
        """
        if self.dram_sectors is None:
            return self
        return replace(self, dram_sectors=self.dram_sectors * max(1.0, times))

    def dram_share(self, row: int, utilization: float) -> float | None:
        """Return the share of an instruction's sectors that come from DRAM; None: not known.

        utilization: part of its sectors that the instruction itself touches, above 0.
        """
        share = self._find_distinct_share(row, utilization)
        return None if share is None else min(1.0, share * self._dram_refetch_factor)

    def _find_distinct_share(self, row: int, utilization: float) -> float | None:
        """Return the distinct sectors of an instruction over those that it requests; None: not known."""
        if (share := self.distinct_sector_share.get(row)) is not None:
            return share
        share = self.distinct_share.get(row)
        return None if share is None else share / utilization

    def find_waited_share(self, row: int, utilization: float) -> float:
        """Return the part of an instruction's misses for which all that wait for them wait for the DRAM.

        CTAs that share data ask for them in step: one misses the L2, and the others of its wave wait for the
        same fill. A table that each CTA reads in whole is in the L2 when its first wave is over.
        utilization: see `dram_share`.
        """
        share = self._find_distinct_share(row, utilization)
        if share is None or not self.n_ctas:
            return 1.0
        requested = self.requested_sectors.get(row, 0.0)
        is_table = share * requested <= requested / self.n_ctas
        return 1.0 / self.n_waves if is_table else 1.0

    def compute_dram_share_of_misses(
        self, missed: Mapping[int, float], utilizations: Mapping[int, float]
    ) -> dict[int, float]:
        """Return the part of each instruction's own misses that comes from DRAM, 1 without any reuse, by row.

        The grid's DRAM sectors are given first to instructions that touch most of their sectors: a partial
        sector at the edge of a tile hits what the next tile brings. If more is touched in partial sectors
        than in whole ones, the partial ones are no edges: adjacent CTAs request the same sectors again after
        they were evicted, and each word comes once. Instructions that the recorded CTAs do not execute take
        their part too, as if none of theirs hit.
        missed[row]: share of its sectors that miss; utilizations[row]: touched part of them.
        """
        if self.dram_sectors is None:
            return dict.fromkeys(missed, 1.0)
        requested = {row: missed.get(row, 1.0) * n for row, n in self.requested_sectors.items()}
        partial_rows = {
            row: utilizations[row]
            for row in requested
            if utilizations.get(row, 1.0) <= _MAX_PARTIAL_SECTOR_UTILIZATION
        }
        whole = sum(n for row, n in requested.items() if row not in partial_rows)
        if sum(requested[row] * utilization for row, utilization in partial_rows.items()) > whole:
            requested |= {row: requested[row] * utilization for row, utilization in partial_rows.items()}
        left, shares = self.dram_sectors, dict[int, float]()
        for is_partial in (False, True):
            rows_of_kind = [row for row in requested if (row in partial_rows) is is_partial]
            total = sum(requested[row] for row in rows_of_kind)
            share = min(1.0, left / total) if total else 1.0
            shares |= {row: share for row in rows_of_kind if row in missed}
            left = max(0.0, left - total)
        return shares

    @property
    def _dram_refetch_factor(self) -> float:
        if not self.unique_sectors or self.dram_sectors is None:
            return 1.0
        return max(1.0, self.dram_sectors / self.unique_sectors)


def compute_grid_reuse(
    profile: ExecutionProfile,
    l2: CacheGeometry,
    dram_sectors: float | None,
    *,
    n_ctas: float = 0.0,
    n_waves: float = 1.0,
    cta_read_sectors: float | None = None,
) -> GridReuse | None:
    """Compute the reuse of an executed profile; None if nothing is known.

    dram_sectors, n_ctas, n_waves, cta_read_sectors: see `GridReuse`.

    If the distinct sectors of all reads are not known, only instructions whose own bytes fit into the L2
    count, such as reads of a table by all CTAs.
    """
    traffic = profile.traffic
    if traffic is None:
        return None
    reads = [access for access in profile.accesses if _is_global_read(access) and access.sectors]
    knows_all = traffic.read_unique_sectors is not None or dram_sectors is not None
    most_bytes = math.inf if knows_all else l2.size_bytes
    shares = {
        access.row: min(1.0, access.unique_bytes / l2.sector_bytes / access.sectors)
        for access in reads
        if access.unique_bytes is not None and access.sectors and access.unique_bytes <= most_bytes
    }
    if not knows_all and not shares:
        return None
    return GridReuse(
        distinct_share=shares,
        distinct_sector_share={
            access.row: access.unique_sectors / access.sectors
            for access in reads
            if access.row in shares and access.unique_sectors and access.sectors
        },
        requested_sectors={access.row: float(access.sectors or 0) for access in reads},
        unique_sectors=traffic.read_unique_sectors,
        dram_sectors=dram_sectors,
        n_ctas=n_ctas,
        patterns={
            access.row: (float(access.unique_bytes), round((access.sectors or 0) / access.requests, 2))
            for access in reads
            if access.unique_bytes and access.requests and not access.is_indirect
        },
        n_waves=n_waves,
        cta_read_sectors=cta_read_sectors,
    )


def _is_global_read(access: MemoryAccess) -> bool:
    return access.space in GLOBAL_SPACES and not access.is_store


def simulate_caches(
    stream: AddressStream,
    policies: Sequence[L1Policy],
    hierarchy: CacheHierarchy,
    reuse: GridReuse | None = None,
) -> KernelHitRates:
    """Simulate the caches on a stream and return its hit rates.

    policies[row]: see `find_l1_policies`.
    reuse: None if no data are shared with other SMs.
    """
    in_l1 = _find_l1_hits(stream, policies, hierarchy.l1)
    in_l2 = np.zeros(len(stream), dtype=np.bool_)
    beyond = ~in_l1
    every = np.ones(int(beyond.sum()), dtype=np.bool_)
    in_l2[beyond] = find_hits(stream.sectors[beyond], stream.request_numbers[beyond], every, hierarchy.l2)
    reads = ~_mask_policies(stream, policies, _WRITE_POLICIES)
    rereads = _find_rereads(stream, reads, in_l1, hierarchy, reuse)
    refetches = rereads.dram_factor
    if hierarchy.contended_l2 is not None:
        n_uncontended_misses = int(np.count_nonzero(reads & beyond & ~in_l2))
        in_l2[beyond] = find_hits(
            stream.sectors[beyond], stream.request_numbers[beyond], every, hierarchy.contended_l2
        )
        refetches = max(
            refetches, int(np.count_nonzero(reads & beyond & ~in_l2)) / max(1, n_uncontended_misses)
        )
    reuse = reuse and reuse.with_dram_refetches(refetches)
    levels = np.where(in_l1, 0, np.where(in_l2, 1, 2)).astype(np.int64)
    fills = _mask_policies(stream, policies, _ALLOCATE_POLICIES)
    rows, which = np.unique(stream.rows.astype(np.int64), return_inverse=True)
    waits = compute_fill_waits(stream, levels, fills, hierarchy.fill_timing)
    kept, waited = _compute_kept_dram_shares(stream, levels, rows, which, reuse)
    own_waited = np.maximum(kept, rereads.waiting_share)
    table = _ServiceLevels.count(stream, levels, waits, rows, which, kept, own_waited, waited)
    utilizations = _compute_sector_utilizations(stream, table.rows)
    lines = _count_lines_per_request(stream, table.rows, hierarchy.l1)
    found: dict[int, HitRates] = {}
    for row, utilization, n_lines in zip(
        table.rows.tolist(), utilizations.tolist(), lines.tolist(), strict=True
    ):
        found[row] = table.compute_hit_rates(row, n_lines, utilization)
    for row, utilization in _compute_store_utilizations(stream, policies).items():
        found[row] = replace(found[row], store_sector_utilization=utilization)
    if reuse is not None:
        missed = {row: rates.dram_share for row, rates in found.items()}
        touched = dict(zip(table.rows.tolist(), utilizations.tolist(), strict=True))
        for row, share in reuse.compute_dram_share_of_misses(missed, touched).items():
            found[row] = found[row].with_scaled_dram_share(share)
    reading = [found[row] for row in found if policies[row] not in _WRITE_POLICIES]
    if not stream.is_complete and reuse is not None:
        found |= _find_rates_of_alike(found, reuse)
    return KernelHitRates(
        by_row=found,
        loads=_combine_hit_rates(reading),
        total=_combine_hit_rates(found.values()),
        is_complete=stream.is_complete,
    )


def _find_rates_of_alike(found: Mapping[int, HitRates], reuse: GridReuse) -> dict[int, HitRates]:
    """Return the rates of loads that a recording was cut before, where recorded ones load the same.

    Such are the copies of an unrolled loop: each asks for the same number of distinct bytes by requests of
    the same size.
    """
    recorded: dict[tuple[float, float], list[HitRates]] = {}
    for row, load in reuse.patterns.items():
        if row in found:
            recorded.setdefault(load, []).append(found[row])
    return {
        row: mean
        for row, load in reuse.patterns.items()
        if row not in found and (mean := _combine_hit_rates(recorded.get(load, ()))) is not None
    }


def _find_rereads(
    stream: AddressStream,
    reads: BoolArray,
    in_l1: BoolArray,
    hierarchy: CacheHierarchy,
    reuse: GridReuse | None,
) -> Rereads:
    """Find what CTAs read again after the recording was cut; see `rereads`.

    reads: mask of the stream's reads.
    """
    rereading_l2 = hierarchy.rereading_l2
    if stream.is_complete or rereading_l2 is None or reuse is None or not reuse.cta_read_sectors:
        return Rereads()
    beyond = reads & ~in_l1
    recorded, missed = (np.bincount(stream.rows[mask]).tolist() for mask in (reads, beyond))
    asked = sum(
        reuse.requested_sectors.get(row, 0.0) * n / recorded[row] for row, n in enumerate(missed) if n
    )
    times = asked / (reuse.n_ctas * reuse.cta_read_sectors) if reuse.n_ctas else 1.0
    return find_rereads(
        stream.sectors[beyond], stream.request_numbers[beyond], hierarchy.l1, rereading_l2, times
    )


def _compute_kept_dram_shares(
    stream: AddressStream,
    levels: IntArray,
    rows: IntArray,
    which: NDArray[np.intp],
    reuse: GridReuse | None,
) -> tuple[FloatArray, FloatArray]:
    """Return the part of each instruction's DRAM sectors that other CTAs have not brought before.

    The second array is the part of its misses for which other instructions wait until the DRAM serves them.
    rows, which: the instructions, and which of them each entry of the stream is of.
    """
    kept, waited = np.ones(len(rows)), np.ones(len(rows))
    if reuse is None:
        return kept, waited
    own_shares = np.bincount(which, levels == _DRAM_LEVEL) / np.bincount(which)
    utilizations = _compute_sector_utilizations(stream, rows, by_row=True)
    for place, (row, own_share) in enumerate(zip(rows.tolist(), own_shares.tolist(), strict=True)):
        share = reuse.dram_share(row, float(utilizations[place]))
        if share is not None and own_share:
            kept[place] = min(1.0, share / own_share)
            waited[place] = reuse.find_waited_share(row, float(utilizations[place]))
    return kept, waited


def _mask_policies(
    stream: AddressStream, policies: Sequence[L1Policy], wanted: frozenset[L1Policy]
) -> BoolArray:
    """Return a mask of the entries whose instructions have one of these policies."""
    return np.array([policy in wanted for policy in policies], dtype=np.bool_)[stream.rows]


def _compute_sector_utilizations(
    stream: AddressStream, rows: IntArray, *, by_row: bool = False
) -> NDArray[np.float64]:
    """Return the touched part of each instruction's sectors, by whichever instruction.

    by_row: the part that the instruction itself touches.
    """
    if not len(stream):
        return np.zeros(0)
    keys = (stream.sectors, stream.rows) if by_row else (stream.sectors,)
    parts = _compute_touched_shares(stream.word_masks, keys)
    which = np.searchsorted(rows, stream.rows)
    found: NDArray[np.float64] = np.bincount(which, parts) / np.bincount(which)
    return found


def _compute_store_utilizations(stream: AddressStream, policies: Sequence[L1Policy]) -> dict[int, float]:
    """Return the part of each store's sectors that any store writes, by row."""
    chosen = _mask_policies(stream, policies, _WRITE_POLICIES)
    if not chosen.any():
        return {}
    parts = _compute_touched_shares(stream.word_masks[chosen], (stream.sectors[chosen],))
    rows, which = np.unique(stream.rows[chosen], return_inverse=True)
    means = np.bincount(which, parts) / np.bincount(which)
    return dict(zip(rows.tolist(), means.tolist(), strict=True))


def _compute_touched_shares(words: NDArray[np.uint8], keys: tuple[NDArray[Any], ...]) -> NDArray[np.float64]:
    """Return for each entry the part of its sector that all entries with equal keys touch."""
    order = np.lexsort(keys)
    new = np.zeros(len(words), dtype=np.bool_)
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    new[0] = True
    touched = np.bitwise_or.reduceat(words[order], np.flatnonzero(new))
    parts = np.empty(len(words))
    parts[order] = np.unpackbits(touched[:, None], axis=1).mean(axis=1)[np.cumsum(new) - 1]
    return parts


def _count_lines_per_request(
    stream: AddressStream, rows: IntArray, shape: CacheGeometry
) -> NDArray[np.float64]:
    """Return the distinct lines of a request, the mean over the requests of each instruction."""
    if not len(stream):
        return np.zeros(0)
    lines = stream.sectors // shape.line_bytes
    order = np.lexsort((lines, stream.request_numbers))
    lines, requests = lines[order], stream.request_numbers[order]
    is_new = np.ones(len(lines), dtype=np.bool_)
    is_new[1:] = (np.diff(lines) != 0) | (np.diff(requests) != 0)
    which = np.searchsorted(rows, stream.rows[order])
    starts = np.ones(len(lines), dtype=np.bool_)
    starts[1:] = np.diff(requests) != 0
    found: NDArray[np.float64] = np.bincount(which, is_new) / np.bincount(which, starts)
    return found


def _find_l1_hits(stream: AddressStream, policies: Sequence[L1Policy], shape: CacheGeometry) -> BoolArray:
    """Return a mask of the entries that hit the L1; stores never do."""
    is_lookup, fills, reads = (
        np.array([policy in chosen for policy in policies], dtype=np.bool_)
        for chosen in (_LOOKUP_POLICIES, _ALLOCATE_POLICIES, _READ_POLICIES)
    )
    looked_up = is_lookup[stream.rows]
    found = np.zeros(len(stream), dtype=np.bool_)
    rows = stream.rows[looked_up]
    sectors = _separate_epochs(stream.sectors[looked_up], stream.l1_epochs[looked_up])
    found[looked_up] = find_hits(sectors, stream.request_numbers[looked_up], fills[rows], shape) & reads[rows]
    return found


def _separate_epochs(sectors: Addresses, epochs: IntArray) -> Addresses:
    """Return other addresses after each invalidation of the cache, so that nothing before it is found.

    The places of sectors within a large page, which decide their sets, stay.
    """
    if not epochs.any():
        return sectors
    page, place = np.divmod(sectors, _PAGE_BYTES)
    pages, which = np.unique(page, return_inverse=True)
    numbers = epochs.astype(np.uint64) * np.uint64(len(pages)) + which.astype(np.uint64)
    return numbers * _PAGE_BYTES + place


class _ServiceLevels(Struct, frozen=True, eq=False):
    """Sectors and requests of each instruction by the level that serves them: L1, L2, DRAM."""

    rows: IntArray
    sectors: IntArray  # [row, 3]
    requests: NDArray[np.float64]  # [row, 3], by the level that they wait for
    kept: NDArray[np.float64]  # [row]: part of its DRAM sectors that other CTAs have not brought before

    @classmethod
    def count(
        cls,
        stream: AddressStream,
        levels: IntArray,
        waits: FillWaits,
        rows: IntArray,
        which: NDArray[np.intp],
        kept: FloatArray,
        own_waited: FloatArray,
        waited: FloatArray,
    ) -> "_ServiceLevels":
        """Count the entries of a stream; levels: of each entry, 0 to 2.

        rows, which, kept, waited: see `_compute_kept_dram_shares`. A request waits for the DRAM as often as
        its own misses do, own_waited, or those of another instruction whose fill it waits for.
        """
        starts = np.flatnonzero(np.diff(stream.request_numbers, prepend=-1))
        late = waits.levels + waits.remaining_share - 1.0  # a request waits for its slowest sector
        slowest = np.maximum.reduceat(late, starts) if len(starts) else late
        level = np.ceil(slowest).astype(np.int64)
        left = np.where(level > 0, slowest - level + 1.0, 1.0)
        requests = _weigh_by_level(which[starts], level, left, len(rows))
        sizes = np.diff(starts, append=len(stream))
        fillers = np.searchsorted(rows, waits.filling_rows)
        of_entry = np.where(fillers == which, own_waited[which], waited[fillers])
        others = np.where(late == np.repeat(slowest, sizes), of_entry, 0.0)
        kept_part = np.maximum.reduceat(others, starts) if len(starts) else others
        brought = np.where(level == _DRAM_LEVEL, left * (1.0 - kept_part), 0.0)
        brought = np.bincount(which[starts], brought, len(rows))
        requests[:, _DRAM_LEVEL] -= brought
        requests[:, _DRAM_LEVEL - 1] += brought
        return cls(rows, _count_by_level(which, levels, len(rows)), requests, kept)

    def compute_hit_rates(self, row: int, lines: float, utilization: float) -> HitRates:
        """Return the hit rates of a row."""
        place = int(np.searchsorted(self.rows, row))
        sectors, requests = self.sectors[place].tolist(), self.requests[place].tolist()
        n_sectors, n_requests = sum(sectors), round(sum(requests))
        beyond = sectors[1] + sectors[2]
        return HitRates(
            n_requests=n_requests,
            n_sectors=n_sectors,
            l1_hit_rate=sectors[0] / n_sectors,
            l2_hit_rate=max(0.0, 1.0 - sectors[2] * float(self.kept[place]) / beyond) if beyond else 0.0,
            l1_request_share=requests[0] / n_requests,
            l2_request_share=requests[1] / n_requests,
            dram_request_share=requests[2] / n_requests,
            lines_per_request=lines,
            sector_utilization=utilization,
        )


def _count_by_level(which: NDArray[np.intp], levels: IntArray, n_rows: int) -> IntArray:
    counts: IntArray = np.bincount(which * 3 + levels, minlength=n_rows * 3).reshape(n_rows, 3)
    return counts


def _weigh_by_level(
    which: NDArray[np.intp], levels: IntArray, left: NDArray[np.float64], n_rows: int
) -> NDArray[np.float64]:
    """Count requests by level, each by the part of its fill that is left; the rest counts as L1 hits."""
    counts = np.bincount(which * 3 + levels, left, n_rows * 3).astype(np.float64).reshape(n_rows, 3)
    counts[:, 0] += np.bincount(which, 1.0 - left, n_rows)
    return counts


def _combine_hit_rates(rates: Iterable[HitRates]) -> HitRates | None:
    """Return the mean rates of several instructions, weighted by their sectors or requests."""
    every = tuple(rates)
    sectors = sum(one.n_sectors for one in every)
    requests = sum(one.n_requests for one in every)
    if not sectors:
        return None
    l1 = sum(one.l1_hit_rate * one.n_sectors for one in every) / sectors
    dram = sum(one.dram_share * one.n_sectors for one in every) / sectors
    return HitRates(
        n_requests=requests,
        n_sectors=sectors,
        l1_hit_rate=l1,
        l2_hit_rate=max(0.0, 1.0 - dram / (1.0 - l1)) if l1 < 1.0 else 0.0,
        l1_request_share=sum(one.l1_request_share * one.n_requests for one in every) / requests,
        l2_request_share=sum(one.l2_request_share * one.n_requests for one in every) / requests,
        dram_request_share=sum(one.dram_request_share * one.n_requests for one in every) / requests,
        lines_per_request=sum(one.lines_per_request * one.n_requests for one in every) / requests,
        sector_utilization=sum(one.sector_utilization * one.n_sectors for one in every) / sectors,
    )
