"""Costs by hand, targets, the best and the Pareto front against their definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.forecast.comparison import (
    Candidate,
    LatencyTargets,
    RunTimes,
    compute_run_cost,
    compute_token_cost,
    find_best,
    find_pareto,
    list_missed,
)


def test_costs_by_hand():
    cost = compute_run_cost(2.5, gpus=8, total_ms=36_000.0)
    assert cost == pytest.approx(0.2)
    assert compute_token_cost(cost, 20_000) == pytest.approx(10.0)


def test_a_target_is_missed_above_its_limit():
    times = RunTimes(ttft_ms=500.0, tpot_ms=20.5, total_ms=3000.0)
    assert list_missed(times, LatencyTargets(ttft_ms=500.0)) == ()
    assert list_missed(times, LatencyTargets(tpot_ms=20.0)) == ("TPOT 20.5 ms > 20 ms",)
    assert list_missed(RunTimes(1.0, None, 1.0), LatencyTargets(tpot_ms=0.1)) == ()


candidates = st.lists(
    st.builds(
        Candidate,
        cost=st.none() | st.integers(0, 5).map(float),
        gpus=st.integers(1, 4),
        total_ms=st.integers(1, 5).map(float),
        meets_targets=st.booleans(),
    ),
    max_size=8,
)


@given(candidates)
def test_best_and_front_are_as_defined(found):
    priced = [c for c in found if c.cost is not None]
    counted = priced or found
    cost = {id(c): c.cost if c.cost is not None else c.gpus for c in found}
    best, front = find_best(found), find_pareto(found)
    meeting = [c for c in counted if c.meets_targets]
    if not meeting:
        assert best is None
    else:
        chosen = found[best]
        assert chosen.meets_targets
        key = (cost[id(chosen)], chosen.total_ms)
        assert key == min((cost[id(c)], c.total_ms) for c in meeting)
    for c, is_front in zip(found, front, strict=True):
        point = (cost[id(c)], c.total_ms)
        others = {(cost[id(o)], o.total_ms) for o in counted} - {point}
        is_beaten = any(o[0] <= point[0] and o[1] <= point[1] for o in others)
        assert is_front == ((c in counted) and not is_beaten)
