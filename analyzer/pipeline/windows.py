"""Sectors that a grid reads from DRAM, and writes there, where it does not fit into the L2.

CTAs that follow each other share what they read while it is in the L2. So the grid is cut into windows of
CTAs, in the order in which they are handed out, each as large as the L2 holds the bytes of, and never smaller
than what all SMs run at a time, which go through shared tiles in step. Each window brings what it touches
once, in whole sectors: those that the rims of two tiles cut are one. They are counted of as many CTAs as run
at a time, and of half as many, by abstract execution: from the two a straight line gives what larger windows
touch, shared operands once and rims of tiles in proportion. Where the L2 holds many more, as many as it seems
to hold are looked at, and half of these: CTAs may share what they read with others far from them. Likewise
sectors that CTAs write in part leave the L2 once for each window.
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.access_log import MemoryLog
from analyzer.execution.guesses import Guesser
from analyzer.execution.profile import ExecutionProfile, MemoryAccess
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.sampling import first_ctas
from analyzer.execution.task import ExecutionOptions, Task
from analyzer.execution.touched import Touched, touched_by, touched_in
from analyzer.ir.launch import Dim3
from analyzer.pipeline.executing import Prepared

_STEP_LIMIT = 20_000
_LEAST_GROWTH = 1 / SECTOR_BYTES  # of what CTAs touch: they never stop to touch more
_WAVES = (1, 2, 4, 8, 16, 32, 64)  # the first planes of a grid are often idle
_FAR = 1.5  # what CTAs touch is looked at again where the L2 holds so many times as many
_LOOKS = 3


class DramTraffic(Struct, frozen=True, kw_only=True):
    """read, written: sectors that a grid reads from DRAM, and that the L2 hands on to it; at_once: distinct
    ones that the CTAs which run at a time read or write; None where not known.
    """

    read: float | None = None
    written: float | None = None
    at_once: float | None = None


class _Seen(Struct, frozen=True):
    """Distinct sectors of the first CTAs of a grid, and of about half of them."""

    n_whole: int
    n_half: int
    whole: Touched
    half: Touched

    def in_windows(self, whole: int, half: int, n_ctas: int, window: float) -> float:
        """Sectors that windows of so many CTAs touch, from those of the first CTAs, whole and half.

        Each further CTA touches as many as the first one, and all windows, however large, what is shared.
        """
        slope = max(0.0, self._growth(whole, half))
        return n_ctas * (max(0.0, whole - slope * self.n_whole) / window + slope)

    def window(self, kept_sectors: float, n_ctas: int, least_ctas: int) -> float:
        """CTAs of a grid of so many whose sectors the L2 holds, and never fewer than run at a time."""
        growth = max(_LEAST_GROWTH, self._growth(self.whole.both_sectors, self.half.both_sectors))
        more = (kept_sectors - self.whole.both_sectors) / growth
        return min(float(n_ctas), max(float(least_ctas), self.n_whole + more))

    def _growth(self, whole: int, half: int) -> float:
        return (whole - half) / (self.n_whole - self.n_half)


class Windows(Struct, frozen=True, eq=False):
    """Windows of the CTAs of one executed launch, whose requests are in `log` where they were kept."""

    ready: Prepared
    profile: ExecutionProfile
    log: MemoryLog | None = None

    def dram_traffic(self, wave_ctas: int, kept_bytes: float) -> DramTraffic:
        """What all windows read and write.

        wave_ctas: CTAs that all SMs run at a time; kept_bytes: that the L2 holds.
        """
        grid, traffic = self.profile.launch.grid, self.profile.traffic
        if grid is None or traffic is None:
            return DramTraffic()
        unique, both = traffic.read_unique_sectors, traffic.unique_sectors
        kept_sectors = kept_bytes / SECTOR_BYTES
        fits = unique is not None and ((both or unique) <= kept_sectors or grid.count <= wave_ctas)
        if unique is not None and (fits or not unique):
            stores = traffic.written_unique_sectors if fits else None
            return DramTraffic(
                read=float(unique), written=stores, at_once=float(both) if fits and both else None
            )
        looked_up = self._looked_up()
        if unique is not None and looked_up:
            return DramTraffic(read=unique + sum(_again(one, kept_bytes) for one in looked_up))
        seen = self._first_reads(grid, wave_ctas)
        if seen is None:
            return DramTraffic(read=None if unique is None else unique * max(1.0, grid.count / wave_ctas))
        at_once = seen.whole.both_sectors * wave_ctas / seen.n_whole
        least = seen.n_whole
        window = seen.window(kept_sectors, grid.count, least)
        for _ in range(_LOOKS if self.log else 0):  # executing them takes too long
            if window < _FAR * seen.n_whole:
                break
            more = self._reads(grid, math.ceil(window))
            if more is None:
                break
            seen, window = more, more.window(kept_sectors, grid.count, least)
        whole, half = seen.whole, seen.half
        read = seen.in_windows(whole.read_sectors, half.read_sectors, grid.count, window)
        written = seen.in_windows(whole.written_sectors, half.written_sectors, grid.count, window)
        return DramTraffic(
            read=max(float(unique or 0), read),
            written=max(float(traffic.written_unique_sectors or 0), written),
            at_once=at_once,
        )

    def _looked_up(self) -> list[MemoryAccess]:
        """Reads of tables at places that nobody knows."""
        reads = [access for access in self.profile.accesses if not access.is_store]
        return [access for access in reads if access.is_looked_up and access.table_bytes]

    def _first_reads(self, grid: Dim3, wave_ctas: int) -> "_Seen | None":
        """What the first wave touches, or more where it reads nothing; None where that is not known."""
        for times in _WAVES:
            seen = self._reads(grid, times * wave_ctas)
            if seen is None or seen.half.read_sectors:
                return seen
            if seen.n_whole >= grid.count:
                return None
        return None

    def _reads(self, grid: Dim3, n_ctas: int) -> "_Seen | None":
        """What about so many CTAs touch, and half of them; None where that is not known."""
        whole = first_ctas(grid, n_ctas)
        half = first_ctas(grid, whole.count // 2)
        if half.count >= whole.count:
            return None
        found = touched_in(self.log, (whole, half)) if self.log else self._executed((whole, half))
        return None if found is None else _Seen(whole.count, half.count, *found)

    def _executed(self, windows: tuple[Dim3, ...]) -> tuple[Touched, ...] | None:
        """The same of the CTAs executed by themselves."""
        ready = self.ready
        options = ExecutionOptions(guesser=Guesser(ready.compiled), step_limit=_STEP_LIMIT)
        task = Task(ready.compiled, ready.image, replace(ready.shape, grid=windows[0]), options)
        return touched_by(task, windows, self.profile.boxes)


def _again(access: MemoryAccess, kept_bytes: float) -> float:
    """Sectors that random places of a table bring beyond new ones: the L2 holds a part of it."""
    lost = 1.0 - min(1.0, kept_bytes / (access.table_bytes or 1.0))
    return (access.sectors or 0) * max(0.0, lost - access.new_share)
