"""Shared memory while warpgroup products (wgmma) read their operands there.

The tensor cores of an SM fetch B, and A unless it lies in registers, from shared memory through the banks
that the load/store path needs, and go first. While a product runs, what is left of the banks' cycles serves
LDS, STS, SHFL and LDGSTS, and the writes of what LDGSTS bring: they take longer by so much. SHFL takes 4.2
times as long beside m64n64k16 with both operands in shared memory, which needs all of these cycles.

A request also waits for operands that were queued before it: a chain of SHFL takes 24 cycles each alone, 74
beside m64n32k16, 56 beside m64n64k16, 42 beside m64n128k16, 26 to 29 with A in registers. So the queue holds
the reads of two products of 24 cycles or of one of 32. Where products leave cycles free, a request meets
reads in `share` of the time, and half of a product's then.

The invariant: products are added in the order in which they run, so the first window that ends after a time
is the one that this time lies in, or the next one.

Example: m64n128k16 with A in registers fetches 128 rows of 32 bytes in 32 of its 64 cycles. A request of 4
cycles that begins meanwhile takes 8.
"""

from collections import deque

_FULL_SHARE = 0.9  # of the banks' cycles: operands are queued all the time
_GAP_CYCLES = 1.0  # between products that follow each other


class OperandReads:
    """Times in which products read operands, and the share of the banks' cycles that they take."""

    __slots__ = ("min_free_share", "queue_cycles", "windows")

    def __init__(self, min_free_share: float, queue_cycles: float) -> None:
        self.queue_cycles = queue_cycles  # of operands that are queued before a request; 0: it waits for none
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

    def find_wait(self, begin: float) -> float:
        """Return how long a request that begins at `begin` waits for operands that are queued before it."""
        windows = self.windows
        while windows and windows[0][1] <= begin:
            windows.popleft()
        if not self.queue_cycles or not windows or windows[0][0] > begin:
            return 0.0
        start, end, share = windows[0]
        read_cycles = share * (end - start)
        if share < _FULL_SHARE:
            return share * read_cycles / 2.0
        wait = max(1.0, self.queue_cycles // read_cycles) * (end - start)
        for start, following, _ in windows:
            if start > end + _GAP_CYCLES or end - begin >= wait:
                break
            end = following
        return min(wait, end - begin)
