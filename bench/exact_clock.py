"""A clock of serving that asks for every step: what `analyzer.forecast.step_clock` is measured against."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from analyzer.forecast.operator_calls import Phase
from analyzer.forecast.step_clock import MakeStep, StepLengths, StepShape, StepTimer

_US_PER_S = 1e6


class ExactClock:
    """Asks for every step with the lengths that it has; slow, the standard for `BucketedClock`."""

    def __init__(self, make_step: MakeStep, timer: StepTimer) -> None:
        self._make_step, self._timer = make_step, timer
        self.n_timed = 0  # steps that were asked for

    def time_step(self, shape: StepShape, list_lengths: Callable[[], StepLengths]) -> float:
        """Return the duration of one step, in seconds."""
        return self._time(shape.phase, [list_lengths()])[0]

    def time_decode_run(
        self, shape: StepShape, list_lengths: Callable[[], StepLengths], steps: int
    ) -> NDArray[np.float64]:
        """Return the durations of consecutive decode steps, in seconds."""
        first = list_lengths()
        lengths = [
            StepLengths(first.query_lengths, tuple(length + index for length in first.kv_lengths))
            for index in range(steps)
        ]
        return np.array(self._time(Phase.DECODE, lengths))

    def _time(self, phase: Phase, lengths: Sequence[StepLengths]) -> list[float]:
        self.n_timed += len(lengths)
        steps = [self._make_step(phase, each.query_lengths, each.kv_lengths) for each in lengths]
        return [time.total_us / _US_PER_S for time in self._timer(steps)]
