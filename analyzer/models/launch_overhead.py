"""Kernel launch latency and the rate at which CTAs are dispatched."""

import math

from analyzer.execution.binding.constant_reads import find_constant_reads
from analyzer.ir.launch import Timing
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.interface import ModelInput, Stall

_INSTRUCTION_BYTES = 16


def compute_launch_latency_cycles(model_input: ModelInput, clock_mhz: float) -> float:
    """Return KLL = s GS + k, s = alpha BS^2 - beta BS + gamma (AMALI, equations 27 and 28).

    GS is the CTAs of the grid, BS the warps of a CTA: in threads, AMALI's coefficients for the A100 would
    give thousands of cycles for each CTA of 1024. The paper prints a plus before beta; its authors' code
    (ShihengCao/AMALi @0770b0a) has a minus, by which CTAs of 1 to 8 warps start at the same rate, as they do
    where that was measured (docs/h100.md, launches); with the plus, 8 warps would take 1.4 times as long. The
    code also takes no latency at all for grids of 2,048 CTAs and more, of which the paper says nothing.
    For a GPU without coefficients, k is its launch overhead and s follows from the rate at which it
    dispatches CTAs of any size.
    """
    fit = model_input.gpu.file.launch.latency
    if fit is None:
        return compute_cta_dispatch_cycles(model_input, clock_mhz) + compute_launch_overhead_cycles(
            model_input, clock_mhz
        )
    warps = math.ceil(model_input.block_threads / WARP_SIZE)
    slope = fit.alpha.value * warps**2 - fit.beta.value * warps + fit.gamma.value
    return slope * model_input.grid_ctas + fit.intercept_cycles.value


def compute_cold_miss_shares(model_input: ModelInput) -> dict[Stall, float]:
    """Return the shares of KLL that are misses of the constant and of the instruction cache; they sum to 1.

    AMALI gives their sum alone. It is divided here by the cache lines that a cold start fetches: those of the
    constants that the code reads, and those of the code that runs.
    """
    memory = model_input.arch.memory
    words = find_constant_reads(model_input.kernel).words
    constant_line = memory.constant_line_bytes.value
    constants = len({word // constant_line for word in words})
    executed = int((model_input.execution_counts > 0).sum()) * _INSTRUCTION_BYTES
    code = max(1, math.ceil(executed / memory.line_bytes.value))
    return {
        Stall.IMC_MISS: constants / (constants + code),
        Stall.NO_INSTRUCTIONS: code / (constants + code),
    }


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
