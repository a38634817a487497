"""Sectors that a grid reads from DRAM and writes to it, if its data do not fit into the L2.

CTAs that are dispatched one after another share what they read while the L2 holds it. So the grid is split
into windows of CTAs in dispatch order. A window is as large as the L2 holds the sectors of, and at least the
CTAs that all SMs run at a time, which read shared tiles in step. Each window brings each sector that it
touches once. In the same way, partially written sectors leave the L2 once for each window.

The sectors of a window are extrapolated linearly from two samples, the CTAs that run at a time and half as
many: shared operands count once, tiles in proportion to the CTAs. If the L2 holds many more CTAs, as many as
it seems to hold are sampled again, since CTAs may share data with others far from them.

Example: 100 CTAs touch 1500 sectors, 50 of them 1000. Each CTA adds 10, and 500 are shared. Windows of 200
CTAs touch 2500 each; a grid of 1000 CTAs has 5 of them and reads 12500 sectors.
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.acceleration.branch_decisions import BranchDecider
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.prepared_launch import PreparedLaunch
from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.execution.profile.idle_warps import split_by_work
from analyzer.execution.sampling.cta_samples import make_grid_prefix
from analyzer.execution.sampling.execution_task import ExecutionOptions, ExecutionTask
from analyzer.execution.sampling.touched_sectors import (
    TouchedSectors,
    execute_touched_sectors,
    find_touched_in_log,
)
from analyzer.ir.launch import Dim3
from analyzer.ir.opcode import GLOBAL_SPACES

_SAMPLE_STEP_LIMIT = 20_000
_MIN_NEW_SECTORS_PER_CTA = 1 / SECTOR_BYTES  # further CTAs always touch some more
_SAMPLED_WAVES = (1, 2, 4, 8, 16, 32, 64)  # tried in turn, as the first planes of a grid are often idle
_RESAMPLE_WINDOW_RATIO = 1.5  # of window to sample, from which CTAs are sampled again
_MAX_RESAMPLES = 3


class DramTraffic(Struct, frozen=True, kw_only=True):
    """DRAM traffic of a grid; None: not known."""

    read_sectors: float | None = None
    written_sectors: float | None = None  # written back by the L2
    concurrent_sectors: float | None = None  # distinct ones that the CTAs which run at a time touch
    # Distinct ones that these read, and a CTA alone; None too where the L2 holds what is read at a time.
    concurrent_read_sectors: float | None = None
    cta_read_sectors: float | None = None


class _TouchedSectorsSample(Struct, frozen=True):
    """Distinct sectors of the first CTAs of a grid, and of about half of them."""

    n_whole_ctas: int
    n_half_ctas: int
    whole: TouchedSectors
    half: TouchedSectors

    def count_sectors_in_windows(self, whole: int, half: int, n_ctas: float, window: float) -> float:
        """Return the sectors that all windows of a grid touch, from those of the samples, whole and half.

        window: CTAs of a window. Each CTA adds equally many sectors, each window the shared ones.
        """
        slope = max(0.0, self._find_new_sectors_per_cta(whole, half))
        return n_ctas * (max(0.0, whole - slope * self.n_whole_ctas) / window + slope)

    def find_window_ctas(self, kept_sectors: float, n_ctas: int, least_ctas: int) -> float:
        """Return how many CTAs of n_ctas the L2 holds the sectors of, and least_ctas at least."""
        growth = max(
            _MIN_NEW_SECTORS_PER_CTA,
            self._find_new_sectors_per_cta(self.whole.total_sectors, self.half.total_sectors),
        )
        more = (kept_sectors - self.whole.total_sectors) / growth
        return min(float(n_ctas), max(float(least_ctas), self.n_whole_ctas + more))

    def _find_new_sectors_per_cta(self, whole: int, half: int) -> float:
        return (whole - half) / (self.n_whole_ctas - self.n_half_ctas)


class CtaWindows(Struct, frozen=True, eq=False):
    """Windows of the CTAs of one executed launch."""

    prepared: PreparedLaunch
    profile: ExecutionProfile
    memory_log: AccessLog | None = None  # its requests; without them CTAs are executed again

    def count_dram_traffic(self, wave_ctas: int, kept_bytes: float) -> DramTraffic:
        """Count the sectors that all windows read and write.

        wave_ctas: CTAs that all SMs run at a time; kept_bytes: data that the L2 holds.
        """
        grid, traffic = self.profile.launch.grid, self.profile.traffic
        if grid is None or traffic is None:
            return DramTraffic()
        unique, both = traffic.read_unique_sectors, traffic.unique_sectors
        kept_sectors = kept_bytes / SECTOR_BYTES
        fits = unique is not None and ((both or unique) <= kept_sectors or grid.count <= wave_ctas)
        if unique is not None and (fits or not unique):
            stores = traffic.written_unique_sectors if fits else None
            found = DramTraffic(
                read_sectors=float(unique),
                written_sectors=stores,
                concurrent_sectors=float(both) if fits and both else None,
            )
            return self._add_concurrent_reads(found, float(unique), kept_sectors)
        gather_reads = self._find_gather_reads()
        if unique is not None and gather_reads:
            return DramTraffic(
                read_sectors=unique + sum(_count_refetched_sectors(one, kept_bytes) for one in gather_reads)
            )
        sample = self._sample_first_waves(grid, wave_ctas)
        if sample is None:
            return DramTraffic(
                read_sectors=None if unique is None else unique * max(1.0, grid.count / wave_ctas)
            )
        n_working = self._count_working_ctas(grid, sample)
        first = sample
        min_window_ctas = sample.n_whole_ctas
        window = sample.find_window_ctas(kept_sectors, grid.count, min_window_ctas)
        for _ in range(_MAX_RESAMPLES if self.memory_log else 0):  # executing them takes too long
            if window < _RESAMPLE_WINDOW_RATIO * sample.n_whole_ctas:
                break
            more = self._sample_ctas(grid, math.ceil(window))
            if more is None:
                break
            sample, window = more, more.find_window_ctas(kept_sectors, grid.count, min_window_ctas)
        whole, half = sample.whole, sample.half
        read = sample.count_sectors_in_windows(whole.read_sectors, half.read_sectors, n_working, window)
        written = sample.count_sectors_in_windows(
            whole.written_sectors, half.written_sectors, n_working, window
        )
        found = DramTraffic(
            read_sectors=max(float(unique or 0), read),
            written_sectors=max(float(traffic.written_unique_sectors or 0), written),
            concurrent_sectors=first.whole.total_sectors * wave_ctas / first.n_whole_ctas,
        )
        read_at_once = first.whole.read_sectors * wave_ctas / first.n_whole_ctas
        return self._add_concurrent_reads(found, read_at_once, kept_sectors)

    def _add_concurrent_reads(
        self, found: DramTraffic, read_at_once: float, kept_sectors: float
    ) -> DramTraffic:
        """Add what concurrent CTAs read, and the grid's first one, where the L2 does not hold it."""
        if read_at_once <= kept_sectors:
            return found
        touched = self._find_touched_sectors((Dim3(1, 1, 1),))
        if touched is None or not touched[0].read_sectors:
            return found
        return replace(
            found, concurrent_read_sectors=read_at_once, cta_read_sectors=float(touched[0].read_sectors)
        )

    def _count_working_ctas(self, grid: Dim3, sample: _TouchedSectorsSample) -> float:
        """Count the CTAs of a grid like those of its first waves: where many find no work, these are fewer.

        As many as ask for the grid's bytes, if each asks for what the first ones do on average; at least as
        many as have work.
        """
        n_warps = max(map(len, (one.warp_slot_counts for one in self.profile.warp_classes)), default=1)
        split = split_by_work(self.prepared.compiled.cfg, self.profile.warp_classes, n_warps)
        asked = sum(access.bytes for access in self.profile.accesses if _is_global_read(access))
        if not split.idle_cta_share or not sample.whole.asked_bytes:
            return float(grid.count)
        like_first = asked * sample.n_whole_ctas / sample.whole.asked_bytes
        return min(float(grid.count), max(like_first, grid.count * (1.0 - split.idle_cta_share)))

    def _find_gather_reads(self) -> list[MemoryAccess]:
        """Find reads of tables at unknown indices."""
        reads = [access for access in self.profile.accesses if not access.is_store]
        return [access for access in reads if access.is_indirect and access.table_bytes]

    def _sample_first_waves(self, grid: Dim3, wave_ctas: int) -> "_TouchedSectorsSample | None":
        """Sample the first wave, or more waves if it reads nothing; None: not known."""
        for times in _SAMPLED_WAVES:
            sample = self._sample_ctas(grid, times * wave_ctas)
            if sample is None or sample.half.read_sectors:
                return sample
            if sample.n_whole_ctas >= grid.count:
                return None
        return None

    def _sample_ctas(self, grid: Dim3, n_ctas: int) -> "_TouchedSectorsSample | None":
        """Sample about n_ctas CTAs and half of them; None: not known."""
        whole = make_grid_prefix(grid, n_ctas)
        half = make_grid_prefix(grid, whole.count // 2)
        if half.count >= whole.count:
            return None
        found = self._find_touched_sectors((whole, half))
        return None if found is None else _TouchedSectorsSample(whole.count, half.count, *found)

    def _find_touched_sectors(self, windows: tuple[Dim3, ...]) -> tuple[TouchedSectors, ...] | None:
        """Find what each window touches; None: not known."""
        if self.memory_log:
            return find_touched_in_log(self.memory_log, windows)
        return self._execute_ctas(windows)

    def _execute_ctas(self, windows: tuple[Dim3, ...]) -> tuple[TouchedSectors, ...] | None:
        """Execute the first CTAs of the grid and return what each window of them touches."""
        prepared = self.prepared
        options = ExecutionOptions(
            branch_decider=BranchDecider(prepared.compiled), step_limit=_SAMPLE_STEP_LIMIT
        )
        task = ExecutionTask(
            prepared.compiled, prepared.image, replace(prepared.shape, grid=windows[0]), options
        )
        return execute_touched_sectors(task, windows, self.profile.cta_boxes)


def _is_global_read(access: MemoryAccess) -> bool:
    return access.space in GLOBAL_SPACES and not access.is_store


def _count_refetched_sectors(access: MemoryAccess, kept_bytes: float) -> float:
    """Count sectors that random reads of a table fetch again: the L2 holds a part of it only."""
    table_miss_rate = 1.0 - min(1.0, kept_bytes / (access.table_bytes or 1.0))
    return (access.sectors or 0) * max(0.0, table_miss_rate - access.first_touch_share)
