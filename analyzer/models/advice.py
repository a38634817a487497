"""Findings worth acting on, each with the cycles that it may gain and the instruction that shows it."""

import numpy as np
from msgspec import Struct

from analyzer.hardware.occupancy import Limiter
from analyzer.isa.roles import storage_name
from analyzer.models.base import Prediction, Situation, Stall
from analyzer.models.bounds import LATENCY
from analyzer.models.causes import STALL_OF, Cause
from analyzer.models.walk import WarpWalk

MAX_FINDINGS = 5
_MIN_SHARE = 0.03
_MAX_PER_CAUSE = 2
_DECIMALS = 3  # what differs by less comes in the order of the listing, on any machine


class Finding(Struct, frozen=True):
    """row: the instruction that shows it, None for the kernel as a whole."""

    text: str
    gain_cycles: float
    row: int | None


def find_advice(situation: Situation, prediction: Prediction, walk: WarpWalk) -> tuple[Finding, ...]:
    """At most five findings, the largest gain first; a gain is an upper estimate."""
    findings = [
        *_waits(situation, prediction, walk),
        *_occupancy(situation, prediction),
        *_spills(situation, prediction),
        *_tail(situation, prediction),
    ]
    worth = [f for f in findings if f.gain_cycles >= _MIN_SHARE * prediction.cycles]
    return tuple(sorted(worth, key=lambda f: -round(f.gain_cycles, _DECIMALS))[:MAX_FINDINGS])


def _waits(situation: Situation, prediction: Prediction, walk: WarpWalk) -> list[Finding]:
    """The waits that cost one warp most; they cost the kernel so only where latency binds."""
    if prediction.bound != LATENCY:
        return []
    own = sum(walk.stack(situation.weights).values())
    scale = prediction.cycles * (1 - _share(prediction, Stall.LAUNCH)) / own if own else 0.0
    found = []
    for cause in (Cause.LONG, Cause.SHORT, Cause.GMMA, Cause.MATH):
        cost = walk.waits[:, cause] * situation.weights
        for row in np.argsort(-cost.round(_DECIMALS), kind="stable")[:_MAX_PER_CAUSE].tolist():
            if cost[row] > 0:
                found.append(Finding(_wait_text(situation, walk, cause, row), float(cost[row]) * scale, row))
    return found


def _wait_text(situation: Situation, walk: WarpWalk, cause: Cause, row: int) -> str:
    kernel = situation.kernel
    producer = int(walk.producer[row])
    stall = STALL_OF[cause].value
    if producer < 0:
        return f"{kernel.opcode(row).mnemonic} waits: {stall}"
    form = kernel.form(producer)
    register = storage_name(form.written[0]) if form.written else "its result"
    address = int(kernel.addresses[producer])
    return (
        f"{kernel.opcode(row).mnemonic} waits for {form.opcode.mnemonic} at {address:#06x} "
        f"({register}): {stall}; start it earlier or give other warps work"
    )


def _share(prediction: Prediction, stall: Stall) -> float:
    return prediction.cpi_stack.get(stall, 0.0) / prediction.cycles if prediction.cycles else 0.0


def _occupancy(situation: Situation, prediction: Prediction) -> list[Finding]:
    """One more resident CTA hides more latency, where latency binds and several waves run."""
    occupancy = situation.occupancy
    limited = occupancy.limiter in {Limiter.REGISTERS, Limiter.SHARED}
    if prediction.bound != LATENCY or not limited or prediction.waves <= 1:
        return []
    gain = prediction.cycles * (1 - occupancy.ctas_per_sm / (occupancy.ctas_per_sm + 1))
    text = (
        f"occupancy is {occupancy.share:.0%}, limited by {occupancy.limiter.value} "
        f"(CTAs per SM: {occupancy.ctas_per_sm}); room for one more would hide more latency"
    )
    return [Finding(text, gain, None)]


def _spills(situation: Situation, prediction: Prediction) -> list[Finding]:
    demand = situation.demand
    if not demand.local_bytes:
        return []
    width = situation.arch.memory.l1_bytes_per_cycle_per_sm.value
    warps = situation.occupancy.warps_per_sm * max(1.0, prediction.waves)
    gain = min(demand.local_bytes * warps / width, prediction.cycles)
    lanes_bytes = demand.local_bytes / 32
    return [Finding(f"local memory: {lanes_bytes:,.0f} bytes per thread spilled or indexed", gain, None)]


def _tail(situation: Situation, prediction: Prediction) -> list[Finding]:
    """The last wave leaves SMs idle."""
    waves = prediction.waves
    full = int(waves)
    if situation.grid is None or waves <= 1 or waves == full:
        return []
    idle = 1 - (waves - full)
    gain = prediction.cycles * idle / (full + 1)
    return [Finding(f"tail: the last of {full + 1} waves fills {waves - full:.0%} of the GPU", gain, None)]
