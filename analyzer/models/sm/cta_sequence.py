"""CTAs of one SM that follow each other in its slots: how many have begun and ended, and when.

Full waves are skipped where as many of them take the same as those before them. Example: waves end at 100,
210, 310, 410 and 510 cycles. The two behind the first one take 210 cycles, the next two 200, 5 % less, so
more waves are simulated.
"""

from analyzer.models.sm.simulation_state import SimulationResult, SmParameters

# At least so many waves behind the first one are compared, and as many as have so many steps; two are enough
# after many steps.
_LEAST_WAVES, _LEAST_STEPS, _MANY_STEPS, _TOLERANCE = 4, 30_000, 60_000, 0.005
# Least steps after which the pace of warps is looked at, see `fast_forward`; fewer CTAs have more of them.
_LEAST_PACE_STEPS, _ALL_PACE_STEPS = 20_000, 300_000


class CtaSequence:
    """CTAs of an SM in the order in which they are launched."""

    __slots__ = ("last_end", "last_start", "n_ctas", "n_ended", "n_full", "n_launched", "n_slots", "result")

    def __init__(self, n_ctas: int, n_full: int, parameters: SmParameters, result: SimulationResult) -> None:
        self.n_ctas, self.n_full, self.n_slots = n_ctas, n_full, parameters.ctas_per_sm
        self.n_launched = self.n_ended = 0
        self.last_start = -parameters.cta_start_interval_cycles
        self.last_end = -parameters.cta_end_interval_cycles
        self.result = result

    @property
    def pace_steps(self) -> int:
        """Steps after which the pace of warps is looked at."""
        return max(_LEAST_PACE_STEPS, _ALL_PACE_STEPS // min(self.n_ctas, _LEAST_WAVES * self.n_slots))

    def end_cta(self, time: float) -> None:
        """Note the end of a CTA."""
        self.n_ended += 1
        self.result.ended_ctas.append(self.n_ended)
        self.result.cta_end_cycles.append(time)

    def skip_waves(self) -> float:
        """Skip full waves of CTAs, and return the cycles that they take; 0 where none can be skipped."""
        ends, n_steps = self.result.cta_end_cycles, self.result.n_steps
        n_waves = (self.n_full - self.n_launched) // self.n_slots
        half = (len(ends) // self.n_slots - 1) // 2 * self.n_slots
        least = 1 if n_steps >= _MANY_STEPS else _LEAST_WAVES // 2
        if n_waves < 1 or n_steps < _LEAST_STEPS or half < least * self.n_slots:
            return 0.0
        cycles, before = ends[-1] - ends[-1 - half], ends[-1 - half] - ends[-1 - 2 * half]
        if abs(cycles - before) > _TOLERANCE * cycles:
            return 0.0
        skipped = n_waves * self.n_slots / (2 * half) * (cycles + before)
        self.n_launched += n_waves * self.n_slots
        self.n_ended += n_waves * self.n_slots
        self.result.ended_ctas[-1] = self.n_ended
        ends[-1] += skipped
        return skipped
