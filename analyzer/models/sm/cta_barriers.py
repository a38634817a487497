"""Barriers of a CTA in the simulation of an SM.

A barrier counts the warps that have come to it. Those that come before the last one are kept; the last one
releases them at the time at which it came itself. A warp that ends no longer counts for the barrier of the
whole CTA.
"""

from heapq import heappush

from analyzer.models.sm.memory_resources import LoadStorePath
from analyzer.models.sm.simulated_warp import (
    BarrierState,
    EventHeap,
    SimulatedCta,
    SimulatedStep,
    SimulatedWarp,
    StepPhase,
)
from analyzer.models.sm.warp_program import WHOLE_CTA_KEY, CtaBarrier
from analyzer.models.wait_causes import WaitCause

_BARRIER = int(WaitCause.BARRIER)
_IS_SERVED = int(StepPhase.IS_SERVED)


class CtaBarriers:
    """Barriers of all CTAs; requests reach them on the load/store path."""

    __slots__ = ("heap", "path")

    def __init__(self, heap: EventHeap, path: LoadStorePath) -> None:
        self.heap, self.path = heap, path

    def arrive(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float | None:
        """Bring a warp to a barrier; keep it unless it is the last one, or only arrives."""
        self.path.pass_barrier(step, at)
        if step.barrier.waits:
            time += step.latency_cycles
        if not self._count_arrival(warp, step.barrier, time):
            warp.phase, warp.blocked_since = _IS_SERVED, time
            return None
        if step.uses_scoreboards:
            warp.write_scoreboards(step, time, time)
        return time

    def _count_arrival(self, warp: SimulatedWarp, barrier: CtaBarrier, time: float) -> bool:
        """Count a warp, and return whether it goes on; the last one releases the others."""
        cta = warp.cta
        state = cta.barriers.get(barrier.key)
        if state is None:
            state = cta.barriers[barrier.key] = BarrierState()
        state.n_arrived += 1
        if state.n_arrived < (barrier.n_warps or cta.n_warps_left):
            if barrier.waits:
                state.waiting_warps.append(warp)
            return not barrier.waits
        self.release(state, time)
        return True

    def release(self, state: BarrierState, time: float) -> None:
        """Let the warps at a barrier go on."""
        for warp in state.waiting_warps:
            warp.steps[warp.position].wait_cycles[_BARRIER] += max(0.0, time - warp.blocked_since)
            heappush(self.heap, (max(time, warp.blocked_since), warp.turn, warp))
        state.waiting_warps, state.n_arrived = [], 0

    def remove_warp(self, cta: SimulatedCta, time: float) -> None:
        """Release the barrier of a whole CTA that waits only for the warp that has just ended."""
        state = cta.barriers.get(WHOLE_CTA_KEY)
        if state is not None and state.waiting_warps and state.n_arrived == cta.n_warps_left:
            self.release(state, time)
