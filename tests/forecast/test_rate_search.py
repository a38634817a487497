"""Sustainable rates and goodput against queueing theory."""

import math

import pytest
from serving_clocks import CONSTANT

from analyzer.forecast.batch_schedulers import make_scheduler
from analyzer.forecast.continuous_batching import ServingRun, simulate_serving
from analyzer.forecast.deployment import Framework
from analyzer.forecast.engine_state import EngineLimits
from analyzer.forecast.rate_search import RELATIVE_TOLERANCE, RateSearch, find_saturated_rate
from analyzer.forecast.serving_load import ArrivalProcess, ServingLoad, make_arrivals, make_load
from analyzer.forecast.serving_statistics import LatencyTarget

SERVICE_S = 0.1


def simulate(load: ServingLoad, *, batch: int = 1, framework: Framework = Framework.VLLM) -> ServingRun:
    limits = EngineLimits(chunk_tokens=8192, max_running=batch, kv_capacity_tokens=10**6, block_tokens=1)
    return simulate_serving(load, limits, make_scheduler(framework), CONSTANT)


def make_queue(process: ArrivalProcess, count: int = 400) -> ServingLoad:
    """Service of ten steps of 10 ms."""
    return make_load(make_arrivals(process, count, 1.0, seed=3), [8] * count, [10] * count)


@pytest.mark.parametrize("framework", list(Framework))
@pytest.mark.parametrize("batch", [1, 8])
def test_the_saturated_rate_is_that_of_full_batches(batch: int, framework: Framework) -> None:
    """Steps of a constant time: a batch takes as long as one request, in vLLM also if others prefill beside it."""
    found, running = find_saturated_rate(
        make_queue(ArrivalProcess.UNIFORM), lambda load: simulate(load, batch=batch, framework=framework)
    )
    assert found == pytest.approx(batch / SERVICE_S, rel=0.01)
    assert running == batch


def test_few_requests_tell_the_same_saturated_rate() -> None:
    load = make_load([0.0, 1.0], [8, 8], [10, 10])
    assert find_saturated_rate(load, lambda each: simulate(each, batch=8))[0] == pytest.approx(80.0, rel=0.01)


def test_a_queue_of_constant_gaps_sustains_its_capacity() -> None:
    search = RateSearch(make_queue(ArrivalProcess.UNIFORM), simulate)
    assert search.saturated_rate == pytest.approx(10.0)
    assert search.find_sustainable_rate() == pytest.approx(10.0)
    # The step of the prefill alone takes 10 ms; without a queue that is the time to the first token.
    assert search.find_goodput(LatencyTarget(ttft_ms=10.1), 0.99) == pytest.approx(10.0)
    assert search.find_goodput(LatencyTarget(ttft_ms=9.0), 0.9) == 0.0


def test_goodput_is_where_the_wait_of_random_arrivals_has_its_percentile() -> None:
    """M/D/1: P(wait <= t) = (1 - rate · service) exp(rate · t) for t below the service (Erlang)."""
    search = RateSearch(make_queue(ArrivalProcess.POISSON, 1_500), simulate)
    found = search.find_goodput(LatencyTarget(ttft_ms=60.0), 0.9)  # 10 ms of them the prefill
    assert (1 - found * SERVICE_S) * math.exp(found * 0.05) == pytest.approx(0.9, abs=0.02)
    assert set(search.runs) == {
        round(rate / (search.saturated_rate * RELATIVE_TOLERANCE))
        * search.saturated_rate
        * RELATIVE_TOLERANCE
        for rate in search.runs
    }


def test_chance_does_not_look_like_a_growing_backlog() -> None:
    search = RateSearch(make_queue(ArrivalProcess.POISSON, 100), simulate)
    assert search.find_sustainable_rate() == pytest.approx(10.0, rel=0.03)
