"""The serving simulation against closed forms, queueing theory, and what every run must conserve."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_clocks import CONSTANT, AffineClock

from analyzer.forecast.batch_schedulers import make_scheduler
from analyzer.forecast.continuous_batching import ServingRun, simulate_serving
from analyzer.forecast.deployment import Framework
from analyzer.forecast.engine_state import EngineLimits, EngineState, StepPlan
from analyzer.forecast.serving_load import ArrivalProcess, ServingLoad, make_arrivals, make_load, scale_rate
from analyzer.forecast.serving_statistics import (
    LatencyTarget,
    compute_growth,
    compute_latencies,
    describe_gaps,
    find_met,
    is_stable,
    make_timeline,
)
from analyzer.forecast.step_clock import StepClock, StepShape

CLOCK = AffineClock()
ROOMY = EngineLimits(chunk_tokens=8192, max_running=64, kv_capacity_tokens=10**7, block_tokens=16)
ONE_AT_A_TIME = EngineLimits(chunk_tokens=8192, max_running=1, kv_capacity_tokens=10**6, block_tokens=1)
both_frameworks = pytest.mark.parametrize("framework", list(Framework))


def simulate(
    load: ServingLoad,
    framework: Framework,
    limits: EngineLimits = ROOMY,
    clock: StepClock = CLOCK,
    **options: object,
) -> ServingRun:
    return simulate_serving(load, limits, make_scheduler(framework), clock, **options)


def time_prefill(prompts: int, tokens: int) -> float:
    pairs = prompts * tokens * (tokens + 1) / 2
    return CLOCK.time_step(StepShape(prompts, prompts * tokens, pairs), lambda: None)


def time_decodes(batch: int, prompt: int, output: int) -> float:
    shape = StepShape(decodes=batch, decode_kv_tokens=batch * (prompt + 1))
    return float(CLOCK.time_decode_run(shape, pytest.fail, output - 1).sum())


@both_frameworks
def test_one_request_is_a_prefill_and_its_decode_steps(framework: Framework) -> None:
    run = simulate(make_load([3.0], [1000], [50]), framework)
    assert run.first_token_s[0] == pytest.approx(3.0 + time_prefill(1, 1000))
    assert run.end_s[0] == pytest.approx(run.first_token_s[0] + time_decodes(1, 1000, 50))
    assert (run.steps, run.prefilled_tokens) == (50, 1000)


@both_frameworks
def test_equal_requests_at_once_are_one_batch(framework: Framework) -> None:
    run = simulate(make_load([0.0] * 8, [500] * 8, [40] * 8), framework)
    assert run.first_token_s == pytest.approx(np.full(8, time_prefill(8, 500)))
    assert run.end_s == pytest.approx(run.first_token_s + time_decodes(8, 500, 40))


@both_frameworks
def test_a_prompt_in_chunks_takes_the_steps_of_its_chunks(framework: Framework) -> None:
    limits = EngineLimits(chunk_tokens=256, max_running=4, kv_capacity_tokens=10**6, block_tokens=16)
    run = simulate(make_load([0.0], [1000], [1]), framework, limits)
    shapes = [
        StepShape(1, tokens, tokens * (256 * index + (tokens + 1) / 2))
        for index, tokens in enumerate([256] * 3 + [232])
    ]
    assert run.end_s[0] == pytest.approx(sum(CLOCK.time_step(shape, lambda: None) for shape in shapes))


@both_frameworks
def test_a_chunk_as_long_as_the_prompts_changes_nothing(framework: Framework) -> None:
    """Requests so far apart that no two prefill together."""
    load = make_load([0.0, 5.0, 10.0], [700, 900, 300], [20, 30, 10])
    for tight in (900, 8192):
        limits = EngineLimits(chunk_tokens=tight, max_running=8, kv_capacity_tokens=10**6, block_tokens=16)
        assert simulate(load, framework, limits).end_s == pytest.approx(simulate(load, framework).end_s)


def test_vllm_decodes_beside_a_prefill_and_sglang_after_it() -> None:
    """The second request arrives while the first decodes: its prefill is a mixed step, or a step of its own."""
    load = make_load([0.0, 0.05], [100, 2000], [100, 2])
    waits = {framework: np.nan for framework in Framework}
    for framework in Framework:
        run = simulate(load, framework)
        waits[framework] = run.first_token_s[1] - load.arrival_s[1]
        gaps = describe_gaps(run)
        assert gaps is not None
        prefill_s = time_prefill(1, 2000)
        assert gaps.max / 1e3 == pytest.approx(
            prefill_s + (CLOCK.fixed_s if framework is Framework.SGLANG else 0.0), rel=0.01
        )
    assert waits[Framework.VLLM] == pytest.approx(waits[Framework.SGLANG], rel=0.01)


@both_frameworks
def test_a_queue_of_constant_gaps_and_service_never_waits_below_capacity(framework: Framework) -> None:
    """D/D/1: service of 10 steps of 10 ms."""
    for rate, waits in ((9.9, False), (20.0, True)):
        load = make_load(make_arrivals(ArrivalProcess.UNIFORM, 200, rate, 0), [64] * 200, [10] * 200)
        run = simulate(load, framework, ONE_AT_A_TIME, CONSTANT)
        queue_s = run.scheduled_s - load.arrival_s
        expected = np.arange(200) * (0.1 - 1 / rate) if waits else np.zeros(200)
        # An arrival that meets the engine idle starts at once.
        assert queue_s == pytest.approx(expected, abs=1e-9)
        assert is_stable(run) is not waits


@both_frameworks
def test_a_queue_of_random_gaps_waits_as_pollaczek_and_khinchine_say(framework: Framework) -> None:
    """M/D/1: the mean wait is load · service / (2 (1 - load)), within what 10,000 arrivals scatter."""
    n_requests, service_s, load_share = 10_000, 0.02, 0.6
    arrivals = make_arrivals(ArrivalProcess.POISSON, n_requests, load_share / service_s, seed=7)
    load = make_load(arrivals, [64] * n_requests, [2] * n_requests)
    run = simulate(load, framework, ONE_AT_A_TIME, CONSTANT)
    queue_s = run.scheduled_s - load.arrival_s
    lindley = [0.0]
    for earlier, later in pairwise(arrivals):
        lindley.append(max(0.0, lindley[-1] + service_s - (later - earlier)))
    assert queue_s == pytest.approx(np.array(lindley), abs=1e-9)
    assert queue_s.mean() == pytest.approx(load_share * service_s / (2 * (1 - load_share)), rel=0.08)
    assert is_stable(run)


@both_frameworks
def test_an_overload_grows_by_what_is_too_much(framework: Framework) -> None:
    """At twice the capacity half of the arrivals stay."""
    load = make_load(make_arrivals(ArrivalProcess.UNIFORM, 400, 20.0, 0), [64] * 400, [10] * 400)
    run = simulate(load, framework, ONE_AT_A_TIME, CONSTANT)
    assert compute_growth(run) == pytest.approx(0.5, rel=0.02)
    assert not is_stable(run)


@st.composite
def engine_runs(draw: st.DrawFn) -> tuple[ServingLoad, EngineLimits]:
    count = draw(st.integers(1, 30))
    integers = lambda low, high: st.lists(st.integers(low, high), min_size=count, max_size=count)  # noqa: E731
    prompts, outputs = draw(integers(1, 300)), draw(integers(1, 60))
    arrivals = draw(st.lists(st.floats(0, 3), min_size=count, max_size=count))
    block = draw(st.sampled_from([1, 16]))
    max_running = draw(st.integers(1, 16))
    largest = max(prompt + output for prompt, output in zip(prompts, outputs, strict=True)) + 2 * block
    limits = EngineLimits(
        chunk_tokens=draw(st.integers(max(max_running, block), 512)),
        max_running=max_running,
        kv_capacity_tokens=largest + draw(st.integers(0, 600)),
        block_tokens=block,
    )
    return make_load(arrivals, prompts, outputs), limits


@settings(max_examples=60, deadline=None)
@given(case=engine_runs(), framework=st.sampled_from(Framework))
def test_every_run_conserves(case: tuple[ServingLoad, EngineLimits], framework: Framework) -> None:
    load, limits = case
    tokens = np.zeros(load.n_requests, dtype=np.int64)

    def observe(state: EngineState, plan: StepPlan, *, start_s: float, steps: int, end_s: float) -> None:
        assert 0 <= state.free_blocks <= limits.n_blocks
        assert state.n_running <= limits.max_running
        held = [*state.held_tokens, *state.decoding.list_held().tolist()]
        assert sum(-(-each // limits.block_tokens) for each in held) == limits.n_blocks - state.free_blocks
        rows = sum(chunk.tokens for chunk in plan.prefills) + (len(state.decoding) if plan.decodes else 0)
        assert rows <= limits.chunk_tokens
        assert framework is Framework.VLLM or not (plan.prefills and plan.decodes)
        assert steps == 1 or not plan.prefills
        for chunk in plan.prefills:
            tokens[chunk.request] += chunk.tokens

    run = simulate(load, framework, limits, observe=observe)
    latencies = compute_latencies(run)
    # Every request ends, after it was begun, after it arrived.
    assert np.all(latencies.queue_ms >= 0)
    assert np.all(run.first_token_s > run.scheduled_s)
    assert np.all(run.end_s >= run.first_token_s)
    # Tokens: each prompt once, what was dropped once more, and what a dropped request had not fed back yet.
    assert run.prefilled_tokens == tokens.sum()
    fed_late = run.prefilled_tokens - load.prompt_tokens.sum() - run.recomputed_tokens
    assert 0 <= fed_late <= run.preemptions.sum()
    assert np.all(tokens >= load.prompt_tokens)
    assert np.all(tokens[run.preemptions == 0] == load.prompt_tokens[run.preemptions == 0])
    # A gap for each token after the first.
    assert run.gap_counts.sum() == (load.output_tokens - 1).sum()
    # Little's law: requests in the system, counted over time, are the sum of their times in it.
    assert run.request_seconds == pytest.approx(latencies.end_to_end_ms.sum() / 1e3)
    # Work conservation: the engine idles only while it has no request.
    events = sorted(
        [(time, 1) for time in load.arrival_s.tolist()] + [(time, -1) for time in run.end_s.tolist()],
        key=lambda each: (each[0], -each[1]),
    )
    present, occupied_s, last_s = 0, 0.0, 0.0
    for time_s, change in events:
        occupied_s += (time_s - last_s) if present else 0.0
        present, last_s = present + change, time_s
    assert run.busy_s == pytest.approx(occupied_s)
    timeline = make_timeline(run, 10)
    assert np.all(timeline.kv_share <= 1.0 + 1e-9)


class _StepwiseClock(AffineClock, frozen=True):
    """Refuses to look further than one step: the simulation takes each by itself."""


@settings(max_examples=25, deadline=None)
@given(case=engine_runs(), framework=st.sampled_from(Framework))
def test_jumps_over_decode_steps_are_exact(
    case: tuple[ServingLoad, EngineLimits], framework: Framework
) -> None:
    load, limits = case
    jumped = simulate(load, framework, limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EngineState, "count_steps_that_fit", lambda self, most: 1)
        single = simulate(load, framework, limits)
    assert jumped.steps == single.steps
    assert jumped.end_s == pytest.approx(single.end_s)
    assert jumped.first_token_s == pytest.approx(single.first_token_s)
    assert np.array_equal(jumped.preemptions, single.preemptions)
    assert jumped.gap_counts.sum() == single.gap_counts.sum()


def test_vllm_preempts_the_last_admitted_and_recomputes_what_was_taken() -> None:
    """Two requests of 10 + 20 tokens in 40: at 40 tokens held the second gives way.

    The first takes 9 of its 20 tokens' blocks until it ends, the last ones first; 11 are found again.
    """
    limits = EngineLimits(chunk_tokens=64, max_running=4, kv_capacity_tokens=40, block_tokens=1)
    run = simulate(make_load([0.0, 0.0], [10, 10], [20, 20]), Framework.VLLM, limits)
    assert run.preemptions.tolist() == [0, 1]
    assert run.recomputed_tokens == 9
    assert run.prefilled_tokens == 10 + 10 + 9 + 1  # with the token that had not been fed back
    assert run.scheduled_s[1] == 0.0
    assert run.end_s[0] < run.end_s[1]


def test_sglang_reserves_the_output_before_it_admits() -> None:
    """The same two requests: the second waits until the first has ended, and none is retracted."""
    limits = EngineLimits(chunk_tokens=64, max_running=4, kv_capacity_tokens=40, block_tokens=1)
    run = simulate(make_load([0.0, 0.0], [10, 10], [20, 20]), Framework.SGLANG, limits)
    assert run.preemptions.sum() == 0
    assert run.scheduled_s[1] == pytest.approx(run.end_s[0])


def test_sglang_retracts_the_request_with_the_fewest_outputs() -> None:
    """The fourth request is admitted beside 0.7 of what the others still generate; all of it does not fit."""
    load = make_load([0.0, 0.1, 0.2, 0.3], [10] * 4, [2000] * 4)
    limits = EngineLimits(chunk_tokens=512, max_running=16, kv_capacity_tokens=6600, block_tokens=1)
    run = simulate(load, Framework.SGLANG, limits)
    assert run.preemptions.tolist() == [0, 0, 0, 1]
    assert run.prefilled_tokens == load.prompt_tokens.sum() + run.recomputed_tokens + 1
    assert run.end_s[3] > run.end_s[:3].max()


def test_rates_scale_the_same_arrivals() -> None:
    slow = make_arrivals(ArrivalProcess.POISSON, 50, 2.0, seed=1)
    assert make_arrivals(ArrivalProcess.POISSON, 50, 4.0, seed=1) == pytest.approx(
        [time / 2 for time in slow]
    )
    load = make_load(slow, [1] * 50, [1] * 50)
    assert scale_rate(load, 5.0).rate_per_s == pytest.approx(5.0)
    assert scale_rate(load, float("inf")).arrival_s.tolist() == [0.0] * 50


def test_an_objective_is_met_by_request() -> None:
    run = simulate(make_load([0.0, 0.0, 9.0], [100, 4000, 10], [10, 10, 1]), Framework.SGLANG)
    latencies = compute_latencies(run)
    assert np.isnan(latencies.tpot_ms[2])
    limit = float(latencies.ttft_ms[2]) + 1
    assert find_met(latencies, LatencyTarget(ttft_ms=limit)).tolist() == [False, False, True]
    assert find_met(latencies, LatencyTarget(tpot_ms=0.001)).tolist() == [False, False, True]
