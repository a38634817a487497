"""AMALI's kernel launch latency (equations 27 and 28), and the stalls that it is divided into."""

import math

from analyzer.execution.binding.constant_reads import find_constant_reads
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.models.interface import ModelInput, Stall
from analyzer.models.launch_overhead import compute_cta_dispatch_cycles, compute_launch_overhead_cycles

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
