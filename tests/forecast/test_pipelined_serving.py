"""Batches in flight, one for each stage of a pipeline."""

import numpy as np
import pytest
from serving_clocks import AffineClock

from analyzer.forecast.batch_schedulers import make_scheduler
from analyzer.forecast.continuous_batching import ServingRun, simulate_serving
from analyzer.forecast.deployment import Framework
from analyzer.forecast.engine_state import EngineLimits
from analyzer.forecast.pipelined_serving import simulate_pipeline
from analyzer.forecast.rate_search import find_saturated_rate
from analyzer.forecast.serving_load import ArrivalProcess, ServingLoad, make_arrivals, make_load
from analyzer.forecast.serving_statistics import compute_latencies, make_timeline

CLOCK = AffineClock()
LIMITS = EngineLimits(chunk_tokens=2048, max_running=16, kv_capacity_tokens=100_000, block_tokens=16)


def simulate(load: ServingLoad, stages: int, framework: Framework = Framework.VLLM) -> ServingRun:
    return simulate_pipeline(load, LIMITS, stages, framework, CLOCK)


@pytest.mark.parametrize("framework", list(Framework))
def test_two_stages_serve_two_halves_at_once(framework: Framework) -> None:
    whole = simulate(make_load([0.0] * 8, [100] * 8, [30] * 8), 2, framework)
    half = simulate(make_load([0.0] * 4, [100] * 4, [30] * 4), 1, framework)
    assert whole.end_s == pytest.approx(np.full(8, half.end_s[0]))
    assert whole.first_token_s == pytest.approx(np.full(8, half.first_token_s[0]))
    assert (whole.steps, whole.busy_s) == (2 * half.steps, pytest.approx(half.busy_s))
    assert int(whole.history.running.max()) == 8


def test_one_stage_is_the_engine_itself() -> None:
    load = make_load([0.0, 0.1, 0.4], [300, 20, 700], [10, 40, 5])
    alone = simulate_serving(load, LIMITS, make_scheduler(Framework.VLLM), CLOCK)
    assert simulate(load, 1).end_s == pytest.approx(alone.end_s)


@pytest.mark.parametrize("stages", [2, 4])
def test_what_is_merged_still_obeys_littles_law(stages: int) -> None:
    count = 203
    random = np.random.default_rng(0)
    load = make_load(
        make_arrivals(ArrivalProcess.POISSON, count, 20.0, 1),
        random.integers(10, 900, count).tolist(),
        random.integers(1, 80, count).tolist(),
    )
    run = simulate(load, stages)
    assert run.request_seconds == pytest.approx(compute_latencies(run).end_to_end_ms.sum() / 1e3)
    assert run.gap_counts.sum() == (load.output_tokens - 1).sum()
    assert run.prefilled_tokens == load.prompt_tokens.sum()
    whole = make_timeline(run, 1)
    duration_s = float(run.end_s.max() - load.arrival_s[0])
    in_engine_s = float((run.end_s - run.scheduled_s).sum())
    assert whole.running[0] * duration_s == pytest.approx(in_engine_s, rel=0.02)
    assert 0 < whole.kv_share[0] < 1


def test_more_batches_in_flight_complete_more() -> None:
    """Twice the steps at once, each of half the batch: less than twice as many where steps are weights alone."""
    load = make_load(make_arrivals(ArrivalProcess.UNIFORM, 64, 1.0, 0), [64] * 64, [64] * 64)
    one, two = (find_saturated_rate(load, lambda each, n=n: simulate(each, n))[0] for n in (1, 2))
    assert one < two < 2.2 * one
