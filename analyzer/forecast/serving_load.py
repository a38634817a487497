"""Requests that reach a serving engine over time: lengths in tokens, and when each arrives."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class ArrivalProcess(StrEnum):
    """Where the arrival times come from; the value is its name in options and reports."""

    TRACE = "trace"  # a column of the trace
    POISSON = "poisson"  # exponential gaps: independent users
    UNIFORM = "uniform"  # equal gaps
    BURST = "burst"  # all at once: an offline batch


class ServingLoad(Struct, frozen=True):
    """Requests in the order of their arrival; three arrays of equal length."""

    arrival_s: NDArray[np.float64]  # ascending
    prompt_tokens: NDArray[np.int64]  # 1 or more
    output_tokens: NDArray[np.int64]  # 1 or more; the first comes from the prefill

    @property
    def n_requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    @property
    def rate_per_s(self) -> float:
        """Requests per second between the first and the last arrival; infinite where all arrive at once."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        return (self.n_requests - 1) / span_s if span_s > 0 else float("inf")


def make_load(
    arrival_s: Sequence[float], prompt_tokens: Sequence[int], output_tokens: Sequence[int]
) -> ServingLoad:
    """Return a load, sorted by arrival; requests that arrive together keep their order."""
    order = np.argsort(np.asarray(arrival_s, dtype=np.float64), kind="stable")
    return ServingLoad(
        np.asarray(arrival_s, dtype=np.float64)[order],
        np.asarray(prompt_tokens, dtype=np.int64)[order],
        np.asarray(output_tokens, dtype=np.int64)[order],
    )


def make_arrivals(process: ArrivalProcess, n_requests: int, rate_per_s: float, seed: int) -> list[float]:
    """Return arrival times in seconds, the first at 0.

    Times of two rates with one seed differ by a factor alone, so that latencies are compared on the same
    arrivals. rate_per_s: positive; without meaning for a burst. Raises ValueError for TRACE.
    """
    if process is ArrivalProcess.BURST:
        return [0.0] * n_requests
    if process is ArrivalProcess.UNIFORM:
        return [index / rate_per_s for index in range(n_requests)]
    if process is ArrivalProcess.POISSON:
        gaps = np.random.default_rng(seed).exponential(size=n_requests)
        gaps[0] = 0.0
        times: list[float] = (gaps.cumsum() / rate_per_s).tolist()
        return times
    raise ValueError("arrival times of a trace are read, not made")


def scale_rate(load: ServingLoad, rate_per_s: float) -> ServingLoad:
    """Return the same requests in the same order, their arrivals stretched or compressed to a rate.

    An infinite rate lets all arrive at once. Raises ValueError where all arrive at once already.
    """
    if rate_per_s == float("inf"):
        return ServingLoad(np.zeros(load.n_requests), load.prompt_tokens, load.output_tokens)
    if load.rate_per_s == float("inf"):
        raise ValueError("arrivals at one time have no rate to scale")
    times = (load.arrival_s - load.arrival_s[0]) * (load.rate_per_s / rate_per_s)
    return ServingLoad(times, load.prompt_tokens, load.output_tokens)


def repeat_load(load: ServingLoad, times: int) -> ServingLoad:
    """Return a load so many times one after the other, a mean gap between two."""
    period_s = (float(load.arrival_s[-1]) - float(load.arrival_s[0])) + 1 / load.rate_per_s
    starts = np.repeat(np.arange(times) * period_s, load.n_requests)
    prompts, outputs = (np.tile(column, times) for column in (load.prompt_tokens, load.output_tokens))
    return ServingLoad(np.tile(load.arrival_s, times) + starts, prompts, outputs)
