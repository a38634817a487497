"""Sectors that a grid reads from DRAM where it does not fit into the L2.

CTAs that follow each other share what they read while it is in the L2. So the grid is cut into windows of
CTAs, in the order in which they are handed out, each as large as the L2 holds the bytes of, and never smaller
than what all SMs run at a time, which go through shared tiles in step. Each window brings what it touches
once, in whole sectors: those that the rims of two tiles cut are one. They are counted of as many CTAs as run
at a time, and of half as many, by abstract execution: from the two a straight line gives what larger windows
touch, shared operands once and rims of tiles in proportion.
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.access_log import MemoryLog
from analyzer.execution.guesses import Guesser
from analyzer.execution.profile import ExecutionProfile
from analyzer.execution.requests import SECTOR_BYTES
from analyzer.execution.task import ExecutionOptions, Task
from analyzer.execution.touched import Touched, touched_by, touched_in
from analyzer.ir.launch import Dim3
from analyzer.pipeline.executing import Prepared

_STEP_LIMIT = 20_000
_LEAST_GROWTH = 1 / SECTOR_BYTES  # of what CTAs touch: they never stop to touch more
_WAVES = (1, 2, 4, 8)  # the first planes of a grid are often idle


class _Seen(Struct, frozen=True):
    """Distinct sectors of the first CTAs of a grid, and of about half of them."""

    n_whole: int
    n_half: int
    whole: Touched
    half: Touched


class Windows(Struct, frozen=True, eq=False):
    """Windows of the CTAs of one executed launch, whose requests are in `log` where they were kept."""

    ready: Prepared
    profile: ExecutionProfile
    log: MemoryLog | None = None

    def dram_read_sectors(self, wave_ctas: int, kept_bytes: float) -> float | None:
        """Sectors that all windows read, None where not known.

        wave_ctas: CTAs that all SMs run at a time; kept_bytes: that the L2 holds.
        """
        grid, traffic = self.profile.launch.grid, self.profile.traffic
        if grid is None or traffic is None:
            return None
        unique, both = traffic.read_unique_sectors, traffic.unique_sectors
        kept_sectors = kept_bytes / SECTOR_BYTES
        if unique is not None and ((both or unique) <= kept_sectors or grid.count <= wave_ctas):
            return float(unique)
        seen = self._first_reads(grid, wave_ctas)
        if seen is None:
            return None if unique is None else unique * max(1.0, grid.count / wave_ctas)
        n_more = seen.n_whole - seen.n_half
        slope = max(0.0, (seen.whole.read_sectors - seen.half.read_sectors) / n_more)
        shared = max(0.0, seen.whole.read_sectors - slope * seen.n_whole)
        growth = max(_LEAST_GROWTH, (seen.whole.both_sectors - seen.half.both_sectors) / n_more)
        most = seen.n_whole + max(0.0, kept_sectors - seen.whole.both_sectors) / growth
        window = min(float(grid.count), most)
        return max(float(unique or 0), grid.count * (shared / window + slope))

    def _first_reads(self, grid: Dim3, wave_ctas: int) -> "_Seen | None":
        """What the first wave touches, or more where it reads nothing; None where that is not known."""
        for times in _WAVES:
            whole = _part(grid, times * wave_ctas)
            half = _part(grid, whole.count // 2)
            if half.count >= whole.count:
                return None
            found = touched_in(self.log, (whole, half)) if self.log else self._executed((whole, half))
            if found is None:
                return None
            if found[-1].read_sectors:
                return _Seen(whole.count, half.count, *found)
            if whole.count >= grid.count:
                return None
        return None

    def _executed(self, windows: tuple[Dim3, ...]) -> tuple[Touched, ...] | None:
        """The same of the CTAs executed by themselves."""
        ready = self.ready
        options = ExecutionOptions(guesser=Guesser(ready.compiled), step_limit=_STEP_LIMIT)
        task = Task(ready.compiled, ready.image, replace(ready.shape, grid=windows[0]), options)
        return touched_by(task, windows, self.profile.boxes)


def _part(grid: Dim3, n_ctas: int) -> Dim3:
    """About so many CTAs of a grid, the first ones: whole rows, and whole planes, where there are as many."""
    n_ctas = max(1, min(n_ctas, grid.count))
    if n_ctas < grid.x:
        return Dim3(n_ctas)
    rows = min(grid.y * grid.z, math.ceil(n_ctas / grid.x))
    if rows < grid.y:
        return Dim3(grid.x, rows)
    return Dim3(grid.x, grid.y, min(grid.z, math.ceil(rows / grid.y)))
