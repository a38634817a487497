"""The rate of requests that an engine sustains, and the rate at which an objective still holds.

The **saturated throughput** is what the engine completes per second while requests wait at all times. Below
it the queue is finite, above it it grows without limit (the saturation rule, Baccelli and Foss, 1995), so
it bounds both searches:

- the **sustainable rate** is the highest at which the backlog does not grow (`serving_statistics.is_stable`);
- the **goodput** for a share is the highest rate at which at least this share of the requests meets the
  objective (Zhong et al., DistServe, 2024, whose shares are 90 and 99 %).

Two batches that arrive at once tell it, the second twice the first: n more requests take so much longer,
and what the engine needs to fill and to drain cancels. The requests are repeated until they are several
times as many as run at once.

Both are bisected with the same requests and the same arrivals stretched or compressed, to
`RELATIVE_TOLERANCE` of the saturated throughput. More load is taken to be worse, which holds but for the
noise of one sample of arrivals. Every run is kept, so a curve of latency against rate comes with them.

Example: service of 0.1 s, one request at a time. Saturated: 10 requests/s. With Poisson arrivals and at
most 0.15 s to the first token for 90 %, the goodput is where the 90th percentile of an M/D/1 queue's wait
is 0.05 s.
"""

from collections.abc import Callable

import numpy as np

from analyzer.forecast.continuous_batching import ServingRun
from analyzer.forecast.serving_load import ServingLoad, repeat_load, scale_rate
from analyzer.forecast.serving_statistics import (
    LatencyTarget,
    compute_duration_s,
    compute_growth,
    compute_latencies,
    find_met,
    is_stable,
)

RELATIVE_TOLERANCE = 1 / 128
_BATCHES = 8  # as many requests as run at once, so many times
_MAX_SATURATING_REQUESTS = 40_000
_QUARTERS = 4  # of a run: what `compute_growth` compares
_FILLS = 16  # as many requests as run at once, so many times, in a repeated load
_MAX_REPEATED_REQUESTS = 20_000
_GROWTH_TOLERANCE = 0.02  # of the arrivals
Simulate = Callable[[ServingLoad], ServingRun]


class RateSearch:
    """Runs of one load at many rates; a rate is simulated once."""

    def __init__(self, load: ServingLoad, simulate: Simulate) -> None:
        """Take a load whose arrivals have a rate, and what simulates one."""
        self._load, self._simulate = load, simulate
        self._runs: dict[float, ServingRun] = {}
        self.saturated_rate, self._most_running = find_saturated_rate(load, simulate)

    @property
    def runs(self) -> dict[float, ServingRun]:
        """What has been simulated, by ascending rate."""
        return dict(sorted(self._runs.items()))

    def run_at(self, rate: float) -> ServingRun:
        """Return the run at a rate, in requests per second."""
        if rate not in self._runs:
            self._runs[rate] = self._simulate(scale_rate(self._load, rate))
        return self._runs[rate]

    def find_sustainable_rate(self) -> float:
        """Return the highest rate at which the backlog does not grow, at most the saturated throughput.

        The load is repeated, so that each quarter of a run has the same arrivals (then chance cannot make a
        backlog look as if it grew) and the first half is enough to fill the batch. Large loads are as they
        are.
        """
        times = self._count_periods()
        step, rate_per_s = self.saturated_rate * RELATIVE_TOLERANCE, self._load.rate_per_s
        periods = repeat_load(self._load, times)

        def is_sustained(rate: float) -> bool:
            run = self._simulate(scale_rate(periods, rate * periods.rate_per_s / rate_per_s))
            return compute_growth(run) <= _GROWTH_TOLERANCE if times > 1 else is_stable(run)

        if is_sustained(self.saturated_rate):
            return self.saturated_rate
        return self._bisect(is_sustained, round(1 / RELATIVE_TOLERANCE)) * step

    def _count_periods(self) -> int:
        """Return how often the load is repeated: a multiple of four, or once if it is large."""
        most = _MAX_REPEATED_REQUESTS // self._load.n_requests // _QUARTERS * _QUARTERS
        wanted = -(-_FILLS * self._most_running // (_QUARTERS * self._load.n_requests)) * _QUARTERS
        return max(1, min(most, wanted))

    def find_goodput(self, target: LatencyTarget, share: float) -> float:
        """Return the highest rate at which a share of the requests meets the objective; 0 if none does.

        At most the saturated throughput: above it only a short run meets anything.
        """

        step = self.saturated_rate * RELATIVE_TOLERANCE

        def is_met(rate: float) -> bool:
            return bool(find_met(compute_latencies(self.run_at(rate)), target).mean() >= share)

        return self._bisect(is_met, round(1 / RELATIVE_TOLERANCE) + 1) * step

    def _bisect(self, holds: Callable[[float], bool], fails: int) -> int:
        """Return the highest multiple of the step, below `fails`, at which a condition holds; else 0."""
        step = self.saturated_rate * RELATIVE_TOLERANCE
        low, high = 0, fails  # neither is simulated
        while high - low > 1:
            middle = (low + high) // 2
            if holds(middle * step):
                low = middle
            else:
                high = middle
        return low


def find_saturated_rate(load: ServingLoad, simulate: Simulate) -> tuple[float, int]:
    """Return the requests per second that an engine completes while others wait, and how many run at once."""
    running = int(simulate(_repeat_at_once(load, 1)).history.running.max())
    wanted = -(-_BATCHES * running // load.n_requests)
    times = max(1, min(wanted, _MAX_SATURATING_REQUESTS // (2 * load.n_requests)))
    single, double = (simulate(_repeat_at_once(load, count)) for count in (times, 2 * times))
    rate = times * load.n_requests / (compute_duration_s(double) - compute_duration_s(single))
    return rate, int(double.history.running.max())


def _repeat_at_once(load: ServingLoad, times: int) -> ServingLoad:
    """Return the requests of a load so many times over, in their order, all at time 0."""
    prompts, outputs = (np.tile(column, times) for column in (load.prompt_tokens, load.output_tokens))
    return ServingLoad(np.zeros(len(prompts)), prompts, outputs)
