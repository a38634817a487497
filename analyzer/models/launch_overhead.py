"""What a launch takes beside its CTAs, and the rate at which these are dispatched."""

from analyzer.ir.launch import Timing
from analyzer.models.interface import ModelInput


def compute_cta_dispatch_cycles(model_input: ModelInput, clock_mhz: float) -> float:
    """Return the cycles that dispatching all CTAs takes."""
    return model_input.grid_ctas / model_input.gpu.file.launch.ctas_per_us.value * clock_mhz


def compute_launch_overhead_cycles(model_input: ModelInput, clock_mhz: float) -> float:
    """Return the cycles of an empty kernel by the launch's timing.

    interval: of one that follows another, as the least part of their interval that nothing hides.
    kernel: of its own duration. ncu: of its duration by Nsight Compute, which holds a part of the launch;
    where that was not measured, of the least interval in a stream, because a launch that runs alone hides
    no part of it.
    """
    launch = model_input.gpu.file.launch
    match model_input.timing:
        case Timing.INTERVAL:
            found = launch.overhead_us
        case Timing.KERNEL:
            found = launch.kernel_us or launch.overhead_us
        case Timing.NCU:
            found = launch.ncu_us or launch.interval_us or launch.overhead_us
    return found.value * clock_mhz


def compute_idle_launch_cycles(model_input: ModelInput, clock_mhz: float, busy_cycles: float) -> float:
    """Return the cycles beside those in which SMs are busy: launches follow each other at intervals."""
    overhead = compute_launch_overhead_cycles(model_input, clock_mhz)
    interval = model_input.gpu.file.launch.interval_us
    if interval is None or model_input.timing is not Timing.INTERVAL:
        return overhead
    return max(overhead, interval.value * clock_mhz - busy_cycles)


def describe_timing(model_input: ModelInput) -> str | None:
    """Return a note on what the time is the time of; None where it is the launch interval."""
    match model_input.timing:
        case Timing.INTERVAL:
            return None
        case Timing.KERNEL:
            return "time: the kernel's own, as profilers record it, without the gap to the next launch"
        case Timing.NCU:
            return (
                "time: as Nsight Compute's duration of a launch alone, assumed to hold all of the launch "
                "floor; it flushes the caches where not told otherwise (--cold-l2)"
            )
