"""Shared memory while warpgroup products (wgmma) read their operands there.

The tensor cores of an SM fetch B, and A unless it lies in registers, from shared memory through the banks
that the load/store path needs, and go first. While a product runs, what is left of the banks' cycles serves
LDS, STS, SHFL and LDGSTS, and the writes of what LDGSTS bring: they take longer by so much. SHFL takes 4.2
times as long beside m64n64k16 with both operands in shared memory, which needs all of these cycles.

The invariant: products are added in the order in which they run, so the first window that ends after a time
is the one that this time lies in, or the next one.

Example: m64n128k16 with A in registers fetches 128 rows of 32 bytes in 32 of its 64 cycles. A request of 4
cycles that begins meanwhile takes 8.
"""

from collections import deque


class OperandReads:
    """Times in which products read operands, and the share of the banks' cycles that they take."""

    __slots__ = ("min_free_share", "windows")

    def __init__(self, min_free_share: float) -> None:
        self.min_free_share = min_free_share  # of the banks' cycles that the load/store path has in any case
        self.windows: deque[tuple[float, float, float]] = deque()  # begin, end, share

    def add(self, begin: float, end: float, share: float) -> None:
        """Add a product that runs from `begin` to `end`."""
        self.windows.append((begin, end, share))

    def find_end(self, begin: float, cycles: float) -> float:
        """Return when the banks have served a request of so many cycles that begins at `begin`."""
        windows = self.windows
        while windows and windows[0][1] <= begin:
            windows.popleft()
        for start, end, share in windows:
            if begin + cycles <= start:
                break
            if begin < start:
                cycles -= start - begin
                begin = start
            free_share = max(self.min_free_share, 1.0 - share)
            if cycles <= (end - begin) * free_share:
                return begin + cycles / free_share
            cycles -= (end - begin) * free_share
            begin = end
        return begin + cycles
