"""Latencies, throughput and stability of a simulated run, as benchmarks of serving engines define them.

| figure | of one request |
|---|---|
| queue time | arrival to the begin of its first step |
| TTFT | arrival to its first token |
| TPOT | first to last token, over the tokens after the first; none for one token |
| end-to-end | arrival to its last token |

The inter-token latency (ITL) is of each pair of tokens, not of a request: a prefill that holds up a hundred
decoding requests is a hundred long gaps.

**Stable** is a load whose backlog does not grow: in the last quarter of the time between first and last
arrival no more requests are in the system, on average, than in the quarter before, but for a twentieth of
those that arrived in a quarter and for two standard deviations of a Poisson count. At a load r times the
capacity the backlog grows by 1 - 1/r of the arrivals, so what is called unstable is above some 1.05 times
the capacity; short runs say little, which `is_long_enough` tells.
"""

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.forecast.continuous_batching import ServingRun
from analyzer.forecast.token_gaps import locate_gap

_GROWTH_TOLERANCE = 0.05  # of the arrivals in a quarter of the run
_LATENCIES_PER_RUN = 3.0  # that arrivals must span for the second half to be a steady state
_PERCENTILES = (0.5, 0.9, 0.99)


class Distribution(Struct, frozen=True):
    """Mean, percentiles (nearest rank or above) and maximum of a latency, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class LatencyTarget(Struct, frozen=True):
    """Service-level objective of a request; None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    @property
    def is_given(self) -> bool:
        """Whether there is a limit."""
        return self.ttft_ms is not None or self.tpot_ms is not None


class RequestLatencies(Struct, frozen=True):
    """Latencies of each request in milliseconds, by arrival; TPOT is NaN for one output token."""

    queue_ms: NDArray[np.float64]
    ttft_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]
    end_to_end_ms: NDArray[np.float64]


class Timeline(Struct, frozen=True):
    """Averages over equal intervals of the run."""

    start_s: NDArray[np.float64]
    running: NDArray[np.float64]
    waiting: NDArray[np.float64]
    kv_share: NDArray[np.float64]


def compute_latencies(run: ServingRun) -> RequestLatencies:
    """Return the latencies of every request."""
    arrival_s = run.load.arrival_s
    gaps = run.load.output_tokens - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_s = np.where(gaps > 0, (run.end_s - run.first_token_s) / gaps, np.nan)
    return RequestLatencies(
        (run.scheduled_s - arrival_s) * 1e3,
        (run.first_token_s - arrival_s) * 1e3,
        tpot_s * 1e3,
        (run.end_s - arrival_s) * 1e3,
    )


def describe(values: NDArray[np.float64]) -> Distribution | None:
    """Return the distribution of values; NaN are left out, None where nothing is left."""
    found = values[~np.isnan(values)]
    if not len(found):
        return None
    p50, p90, p99 = np.quantile(found, _PERCENTILES, method="higher").tolist()
    return Distribution(float(found.mean()), p50, p90, p99, float(found.max()))


def describe_gaps(run: ServingRun) -> Distribution | None:
    """Return the distribution of the inter-token latencies; percentiles within half a percent."""
    total = int((run.load.output_tokens - 1).sum())
    if not total:
        return None
    mean_s = float((run.end_s - run.first_token_s).sum()) / total
    p50, p90, p99 = (
        min(locate_gap(share, run.gap_counts), run.longest_gap_s) * 1e3 for share in _PERCENTILES
    )
    return Distribution(mean_s * 1e3, p50, p90, p99, run.longest_gap_s * 1e3)


def find_met(latencies: RequestLatencies, target: LatencyTarget) -> NDArray[np.bool_]:
    """Return for each request whether it meets the objective; one without TPOT meets any."""
    met = np.ones(len(latencies.ttft_ms), dtype=np.bool_)
    if target.ttft_ms is not None:
        met &= latencies.ttft_ms <= target.ttft_ms
    if target.tpot_ms is not None:
        met &= np.isnan(latencies.tpot_ms) | (latencies.tpot_ms <= target.tpot_ms)
    return met


def compute_duration_s(run: ServingRun) -> float:
    """Return the time from the first arrival to the last end."""
    return float(run.end_s.max() - run.load.arrival_s[0])


def compute_backlog(run: ServingRun) -> tuple[float, float]:
    """Return the mean number of requests in the system in the third and fourth quarter of the arrivals' time.

    Where all arrive at once, both are 0.
    """
    arrival_s, end_s = run.load.arrival_s, np.sort(run.end_s)
    first_s, last_s = float(arrival_s[0]), float(arrival_s[-1])
    if last_s <= first_s:
        return 0.0, 0.0
    edges = np.linspace(first_s, last_s, 5)[2:]
    # Requests in the system are arrivals less ends; the integral of either up to t is a sum of t - time.
    areas = [_sum_waits(arrival_s, edge) - _sum_waits(end_s, edge) for edge in edges.tolist()]
    quarter_s = (last_s - first_s) / 4
    # An empty system's integral does not grow, but by the rounding of its two sums, which may be negative.
    before, after = (max(0.0, areas[i + 1] - areas[i]) / quarter_s for i in range(2))
    return before, after


def compute_growth(run: ServingRun) -> float:
    """Return by how much the backlog grows, per arrival: 1 - 1/r at r times the capacity, about 0 below."""
    before, after = compute_backlog(run)
    return (after - before) / (run.load.n_requests / 4)


def _sum_waits(times_s: NDArray[np.float64], until_s: float) -> float:
    """Return the integral, up to a time, of how many of ascending times lie behind."""
    count = int(np.searchsorted(times_s, until_s, side="right"))
    return count * until_s - float(times_s[:count].sum())


def is_stable(run: ServingRun) -> bool:
    """Return whether the backlog does not grow, beyond what chance explains."""
    before, after = compute_backlog(run)
    return after - before <= _GROWTH_TOLERANCE * run.load.n_requests / 4 + 2 * math.sqrt(after)


def is_long_enough(run: ServingRun) -> bool:
    """Return whether the arrivals span several latencies, so that there is a steady state to judge."""
    span_s = float(run.load.arrival_s[-1] - run.load.arrival_s[0])
    return span_s >= _LATENCIES_PER_RUN * float(np.median(run.end_s - run.load.arrival_s))


def make_timeline(run: ServingRun, intervals: int) -> Timeline:
    """Return batch, queue and KV use over time."""
    history = run.history
    start_s = float(run.load.arrival_s[0])
    edges = np.linspace(start_s, float(history.end_s[-1]), intervals + 1)
    times = np.concatenate([[start_s], history.end_s])
    capacity = run.limits.n_blocks * run.limits.block_tokens
    columns = (history.running, history.waiting, history.held_tokens / capacity)
    averages = []
    for column in columns:
        area = np.concatenate([[0.0], (column * np.diff(times)).cumsum()])
        averages.append(np.diff(np.interp(edges, times, area)) / np.diff(edges))
    return Timeline(edges[:-1], *averages)
