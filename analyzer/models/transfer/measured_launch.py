"""A launch measured on one GPU: what is known of it without its code."""

import re

from msgspec import Struct

from analyzer.ir.launch import Timing

_ATOMICS = re.compile("atomic|histogram|bincount", re.I)


class MeasuredLaunch(Struct, frozen=True, kw_only=True):
    """One launch and its time on the source GPU; None where a figure is not known."""

    kernel: str = ""  # its name
    grid_ctas: int
    block_threads: int
    registers: int | None  # per thread
    shared_bytes: int  # per CTA, static and dynamic
    flops: float | None  # floating-point operations of the whole grid
    moved_bytes: float | None  # between the SMs and device memory
    time_us: float
    timing: Timing = Timing.INTERVAL

    @property
    def is_of_atomics(self) -> bool:
        """True if the name says that atomic operations are the work."""
        return _ATOMICS.search(self.kernel) is not None

    @property
    def l2_is_cold(self) -> bool:
        """True if no data of the launch before are left in the L2: Nsight Compute flushes it."""
        return self.timing is Timing.NCU
