"""Pipelines of mbarriers in the simulation of an SM: who waits for a phase, and whose arrival ends it.

A warp counts its own waits and arrivals at each pipeline; the n-th wait is for the n-th phase. A phase ends
at its latest arrival, whichever order the arrivals are simulated in. A wait for a phase that has ended costs
nothing but the time up to that end; for one that has not, the warp is kept until an arrival ends a phase,
and then looks again.

Where nothing moves any more, arrivals are missing that come from elsewhere: those of the other CTA of a pair,
for which a warp waits before it allocates tensor memory. Then the waits go on that no warp of this CTA could
end, since all that arrive there wait there too. Example: warp 1 waits for the other CTA, warps 2 to 5 for the
products of warp 1: warp 1 goes on, and warps 2 to 5 wait for its products.
"""

from collections.abc import Sequence
from heapq import heappush

from analyzer.models.sm.resource_demand import StepKind
from analyzer.models.sm.simulated_warp import (
    DeferredWait,
    EventHeap,
    SimulatedCta,
    SimulatedStep,
    SimulatedWarp,
    StepPhase,
)
from analyzer.models.sm.simulation_state import ROUNDING_TOLERANCE, SmParameters
from analyzer.models.sm.warp_program import WarpProgram
from analyzer.models.wait_causes import WaitCause

_BARRIER = int(WaitCause.BARRIER)
_HAS_ISSUED = int(StepPhase.HAS_ISSUED)
_COMMIT_KIND, _WAIT_KIND = int(StepKind.MBARRIER_COMMIT), int(StepKind.MBARRIER_WAIT)


class Mbarriers:
    """Operations of warps on the pipelines of their CTAs."""

    __slots__ = ("arriving_roles", "heap", "pipelines", "read_release_cycles")

    def __init__(
        self, parameters: SmParameters, heap: EventHeap, warp_programs: Sequence[WarpProgram]
    ) -> None:
        self.pipelines, self.heap = parameters.pipelines, heap
        self.read_release_cycles = parameters.read_release_cycles
        self.arriving_roles: list[set[int]] = [set() for _ in self.pipelines]
        for role, program in enumerate(warp_programs):
            for pipeline, kind in zip(program.pipeline, program.kind, strict=True):
                if pipeline >= 0 and kind != _WAIT_KIND:
                    self.arriving_roles[pipeline].add(role)

    def serve_wait(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float | None:
        """Wait for the next phase: here, or where the scoreboard is needed that the test writes."""
        if warp.takes_part(step):
            if not warp.is_waiting_for_phase:
                warp.wait_counts[step.pipeline] += step.share
            phase = int(warp.wait_counts[step.pipeline] + ROUNDING_TOLERANCE)
            if step.write_scoreboard >= 0:
                warp.deferred_waits.append(
                    DeferredWait(step.write_scoreboard, step.pipeline, phase, step.latency_cycles)
                )
            else:
                ready = self._find_phase_end(warp, step, phase, at)
                if ready is None:
                    return None
                time += max(0.0, ready - at)
                at = max(at, ready)
                step.wait_cycles[_BARRIER] += at - warp.blocked_since
        if step.uses_scoreboards:
            done = at + step.latency_cycles
            warp.write_scoreboards(step, done, done)
        return time

    def _find_phase_end(
        self, warp: SimulatedWarp, step: SimulatedStep, phase: int, at: float
    ) -> float | None:
        """Return when a phase ended; where it has not, keep the warp at this step and return None."""
        if not warp.is_waiting_for_phase:
            warp.is_waiting_for_phase, warp.blocked_since = True, at
        ready = warp.cta.pipeline_phases[step.pipeline].find_phase_end(phase, warp)
        if ready is None:
            warp.phase = _HAS_ISSUED
        else:
            warp.is_waiting_for_phase = False
        return ready

    def serve_arrival(self, warp: SimulatedWarp, step: SimulatedStep, at: float, time: float) -> float:
        """Arrive at once, or for a commit when the warp's asynchronous products have ended."""
        done = released = at + step.latency_cycles
        if step.kind == _COMMIT_KIND:
            released = at + self.read_release_cycles  # the commit waits for products; its warp does not
            if warp.products.last_end > at:
                done += warp.products.last_end - at
        self.arrive(warp, step, done)
        if step.uses_scoreboards:
            warp.write_scoreboards(step, done, released)
        return time

    def arrive(self, warp: SimulatedWarp, step: SimulatedStep, time: float) -> None:
        """Count the arrivals of a step; where they end a phase, release the warps that wait there."""
        if not step.arrivals or not warp.takes_part(step):
            return
        phases, pipeline = warp.cta.pipeline_phases[step.pipeline], self.pipelines[step.pipeline]
        arrived = warp.arrival_counts[step.pipeline] + ROUNDING_TOLERANCE
        number = int(arrived / pipeline.arrivals_by_role[warp.role]) if pipeline.arrivals_by_role else None
        warp.arrival_counts[step.pipeline] += step.arrivals
        if not phases.add_arrivals(step.arrivals, time, pipeline.arrivals_per_phase, number):
            return
        for other in phases.waiting_warps:  # each checks again whether this was its phase
            heappush(self.heap, (max(phases.phase_ends[-1], other.blocked_since), other.turn, other))
        phases.waiting_warps = []

    def release_hopeless_waits(self, cta: SimulatedCta) -> None:
        """Let the warps of a CTA go on that wait for phases which nothing will end."""
        waiting_roles = [{warp.role for warp in phases.waiting_warps} for phases in cta.pipeline_phases]
        kept = set[int]().union(*waiting_roles)
        hopeless = [
            phases
            for phases, waiting, arriving in zip(
                cta.pipeline_phases, waiting_roles, self.arriving_roles, strict=True
            )
            if waiting and not arriving & (kept - waiting)
        ]
        for phases in hopeless or cta.pipeline_phases:
            phases.n_free_waits += bool(phases.waiting_warps)
            for warp in phases.waiting_warps:
                heappush(self.heap, (warp.blocked_since, warp.turn, warp))
            phases.waiting_warps = []
