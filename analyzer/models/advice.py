"""Advice: findings with the cycles that acting on them may gain, and the instructions that show them."""

import numpy as np
from msgspec import Struct

from analyzer.hardware.occupancy import OccupancyLimiter
from analyzer.isa.register_operands import format_register_unit
from analyzer.models.bounds import LATENCY_BOUND
from analyzer.models.interface import ModelInput, Prediction, Stall
from analyzer.models.timeline import WarpTimeline
from analyzer.models.wait_causes import STALL_BY_CAUSE, WaitCause

MAX_FINDINGS = 5
_MIN_GAIN_SHARE = 0.03
_MAX_FINDINGS_PER_CAUSE = 2
_SORT_DECIMALS = 3  # findings that differ by less are sorted by row, so that any machine gives one order


class Finding(Struct, frozen=True):
    """One piece of advice."""

    text: str
    gain_cycles: float
    row: int | None  # the instruction that shows it; None for the kernel as a whole


def find_advice(
    model_input: ModelInput, prediction: Prediction, timeline: WarpTimeline | None
) -> tuple[Finding, ...]:
    """Return at most five findings, the largest gain first; a gain is an upper estimate.

    timeline: None where no waits of a warp are known: then no finding is about them.
    """
    findings = [
        *(() if timeline is None else _find_waits(model_input, prediction, timeline)),
        *_find_occupancy_limits(model_input, prediction),
        *_find_spills(model_input, prediction),
        *_find_tail_wave(model_input, prediction),
    ]
    worthwhile = [f for f in findings if f.gain_cycles >= _MIN_GAIN_SHARE * prediction.cycles]
    return tuple(sorted(worthwhile, key=lambda f: -round(f.gain_cycles, _SORT_DECIMALS))[:MAX_FINDINGS])


def _find_waits(model_input: ModelInput, prediction: Prediction, timeline: WarpTimeline) -> list[Finding]:
    """Find the waits that cost one warp most; none unless latency bounds the kernel."""
    if prediction.bound != LATENCY_BOUND:
        return []
    warp_cycles = sum(timeline.sum_by_stall(model_input.execution_counts).values())
    scale = (
        prediction.cycles * (1 - _compute_stall_share(prediction, Stall.LAUNCH)) / warp_cycles
        if warp_cycles
        else 0.0
    )
    found = []
    for cause in (WaitCause.LONG_SCOREBOARD, WaitCause.SHORT_SCOREBOARD, WaitCause.GMMA, WaitCause.MATH_PIPE):
        row_cycles = timeline.waits[:, cause] * model_input.execution_counts
        for row in np.argsort(-row_cycles.round(_SORT_DECIMALS), kind="stable")[
            :_MAX_FINDINGS_PER_CAUSE
        ].tolist():
            if row_cycles[row] > 0:
                found.append(
                    Finding(
                        _describe_wait(model_input, timeline, cause, row), float(row_cycles[row]) * scale, row
                    )
                )
    return found


def _describe_wait(model_input: ModelInput, timeline: WarpTimeline, cause: WaitCause, row: int) -> str:
    kernel = model_input.kernel
    producer = int(timeline.producers[row])
    stall = STALL_BY_CAUSE[cause].value
    if producer < 0:
        return f"{kernel.find_opcode(row).mnemonic} waits: {stall}"
    form = kernel.decode_form(producer)
    register = format_register_unit(form.defs[0]) if form.defs else "its result"
    address = int(kernel.addresses[producer])
    return (
        f"{kernel.find_opcode(row).mnemonic} waits for {form.opcode.mnemonic} at {address:#06x} "
        f"({register}): {stall}; start it earlier or give other warps work"
    )


def _compute_stall_share(prediction: Prediction, stall: Stall) -> float:
    return prediction.cpi_stack.get(stall, 0.0) / prediction.cycles if prediction.cycles else 0.0


def _find_occupancy_limits(model_input: ModelInput, prediction: Prediction) -> list[Finding]:
    """Find whether one more resident CTA would help: if latency is the bound and several waves run."""
    occupancy = model_input.occupancy
    is_limited = occupancy.limiter in {OccupancyLimiter.REGISTERS, OccupancyLimiter.SHARED_MEMORY}
    if prediction.bound != LATENCY_BOUND or not is_limited or prediction.waves <= 1:
        return []
    gain = prediction.cycles * (1 - occupancy.ctas_per_sm / (occupancy.ctas_per_sm + 1))
    text = (
        f"occupancy is {occupancy.theoretical_occupancy:.0%}, limited by {occupancy.limiter.value} "
        f"(CTAs per SM: {occupancy.ctas_per_sm}); room for one more would hide more latency"
    )
    return [Finding(text, gain, None)]


def _find_spills(model_input: ModelInput, prediction: Prediction) -> list[Finding]:
    demand = model_input.demand
    if not demand.local_bytes:
        return []
    width = model_input.arch.memory.l1_bytes_per_cycle_per_sm.value
    warps = model_input.occupancy.warps_per_sm * max(1.0, prediction.waves)
    gain = min(demand.local_bytes * warps / width, prediction.cycles)
    lanes_bytes = demand.local_bytes / 32
    return [Finding(f"local memory: {lanes_bytes:,.0f} bytes per thread spilled or indexed", gain, None)]


def _find_tail_wave(model_input: ModelInput, prediction: Prediction) -> list[Finding]:
    """Find a last wave that leaves SMs idle."""
    waves = prediction.waves
    full = int(waves)
    if model_input.grid is None or waves <= 1 or waves == full:
        return []
    idle = 1 - (waves - full)
    gain = prediction.cycles * idle / (full + 1)
    return [Finding(f"tail: the last of {full + 1} waves fills {waves - full:.0%} of the GPU", gain, None)]
