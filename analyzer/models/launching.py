"""Kernel launch latency and the rate at which CTAs are handed out."""

import math

from analyzer.execution.constant_reads import constant_reads
from analyzer.ir.machine import WARP_LANES
from analyzer.models.base import Situation, Stall

_INSTRUCTION_BYTES = 16


def launch_latency_cycles(situation: Situation, clock_mhz: float) -> float:
    """KLL = s GS + k, s = alpha BS^2 + beta BS + gamma (AMALI, equations 27 and 28), BS in warps.

    BS only makes sense in warps (facts/kll.md). A GPU without coefficients takes k from its launch overhead
    and s from the rate at which it hands out CTAs, whatever their size.
    """
    fit = situation.gpu.file.launch.latency
    if fit is None:
        return dispatch_cycles(situation, clock_mhz) + overhead_cycles(situation, clock_mhz)
    warps = math.ceil(situation.block_threads / WARP_LANES)
    slope = fit.alpha.value * warps**2 + fit.beta.value * warps + fit.gamma.value
    return slope * situation.grid_ctas + fit.intercept_cycles.value


def miss_shares(situation: Situation) -> dict[Stall, float]:
    """How KLL divides into misses of the constant and of the instruction cache; shares sum to one.

    AMALI gives their sum alone. Here it is divided by the cache lines that a cold start fetches: of the
    constants that the code reads, and of the code that runs.
    """
    memory = situation.arch.memory
    words = constant_reads(situation.kernel).words
    constant_line = memory.constant_line_bytes.value
    constants = len({word // constant_line for word in words})
    executed = int((situation.weights > 0).sum()) * _INSTRUCTION_BYTES
    code = max(1, math.ceil(executed / memory.line_bytes.value))
    return {
        Stall.IMC_MISS: constants / (constants + code),
        Stall.NO_INSTRUCTIONS: code / (constants + code),
    }


def dispatch_cycles(situation: Situation, clock_mhz: float) -> float:
    """Cycles that handing out all CTAs takes."""
    return situation.grid_ctas / situation.gpu.file.launch.ctas_per_us.value * clock_mhz


def overhead_cycles(situation: Situation, clock_mhz: float) -> float:
    """Cycles around an empty kernel."""
    return situation.gpu.file.launch.overhead_us.value * clock_mhz
