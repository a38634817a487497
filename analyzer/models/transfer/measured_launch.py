"""A launch measured on one GPU: what is known of it without its code."""

from enum import StrEnum

from msgspec import Struct


class Timing(StrEnum):
    """How a time was measured; the value is its name in tables and on the command line."""

    INTERVAL = "interval"  # from one launch to the next, as CUDA events around a loop of launches give it
    KERNEL = "kernel"  # of the kernel alone, as CUPTI and the PyTorch profiler give it
    NCU = "ncu"  # Nsight Compute's gpu__time_duration, each launch by itself


class MeasuredLaunch(Struct, frozen=True, kw_only=True):
    """One launch and its time on the source GPU; None where a figure is not known."""

    grid_ctas: int
    block_threads: int
    registers: int | None  # per thread
    shared_bytes: int  # per CTA, static and dynamic
    flops: float | None  # floating-point operations of the whole grid
    moved_bytes: float | None  # between the SMs and device memory
    time_us: float
    timing: Timing = Timing.INTERVAL
