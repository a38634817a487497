"""Schedulers of tasks: partition, bounds of greedy scheduling, closed forms, speed."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.operators.scheduling import (
    SchedulingPolicy,
    TaskTable,
    assign_tasks,
    distribute_tasks,
    sum_over_sms,
    tabulate_equal_tasks,
)

COSTS = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=200).map(np.array)
SMS = st.integers(1, 20)
SLOTS = st.integers(1, 4)
POLICIES = st.sampled_from(list(SchedulingPolicy))


def table_of(costs: np.ndarray, slots: int, policy: SchedulingPolicy, rounds: int = 1) -> TaskTable:
    n = len(costs)
    return TaskTable(
        offsets=np.array([0, n]),
        repeats=np.ones(n),
        demand=np.stack([costs, np.ones(n)], axis=1),
        cost=costs,
        rounds=np.array([float(rounds)]),
        slots_per_sm=np.array([float(slots)]),
        policy=policy,
    )


@given(COSTS, SMS, SLOTS, POLICIES)
@settings(max_examples=100, deadline=None)
def test_every_task_is_on_one_sm(costs: np.ndarray, sms: int, slots: int, policy: SchedulingPolicy) -> None:
    sums = sum_over_sms(table_of(costs, slots, policy), 0, sms)
    assert sums.shape == (sms, 2)
    assert sums[:, 1].sum() == len(costs)
    assert sums[:, 0].sum() == pytest.approx(costs.sum())


@given(COSTS, SMS)
@settings(max_examples=100, deadline=None)
def test_greedy_is_within_twice_the_optimum(costs: np.ndarray, sms: int) -> None:
    for policy in (SchedulingPolicy.MIN_HEAP, SchedulingPolicy.HARDWARE):
        loads = sum_over_sms(table_of(costs, 1, policy), 0, sms)[:, 0]
        assert loads.max() <= (costs.sum() / sms + costs.max()) * (1 + 1e-9)
        assert loads.max() >= max(costs.sum() / sms, costs.max()) * (1 - 1e-9)


@given(st.integers(1, 300), SMS, SLOTS, POLICIES)
@settings(max_examples=100, deadline=None)
def test_equal_tasks_follow_the_closed_form(n: int, sms: int, slots: int, policy: SchedulingPolicy) -> None:
    assigned = assign_tasks(np.ones(n), sms, slots, policy)
    counts = np.bincount(assigned, minlength=sms)
    np.testing.assert_array_equal(counts, (n - np.arange(sms) + sms - 1) // sms)
    table = tabulate_equal_tasks(np.array([float(n)]), np.array([[3.0]]), policy, slots)
    assert distribute_tasks(table, sms).max_sm[0, 0] == 3.0 * counts.max()


def test_refill_goes_to_the_sm_that_finishes_first() -> None:
    costs = np.array([3.0, 1.0, 1.0, 1.0])
    assert assign_tasks(costs, 2, 1, SchedulingPolicy.HARDWARE).tolist() == [0, 1, 1, 1]
    assert assign_tasks(costs, 2, 1, SchedulingPolicy.PERSISTENT).tolist() == [0, 1, 0, 1]
    # With two slots the first four tasks go round, and none waits.
    assert assign_tasks(costs, 2, 2, SchedulingPolicy.HARDWARE).tolist() == [0, 1, 0, 1]


def test_rounds_repeat_the_list_of_tasks() -> None:
    costs = np.array([2.0, 1.0])
    once = distribute_tasks(table_of(np.tile(costs, 3), 1, SchedulingPolicy.HARDWARE), 4)
    rounds = distribute_tasks(table_of(costs, 1, SchedulingPolicy.HARDWARE, rounds=3), 4)
    np.testing.assert_allclose(rounds.total, once.total)
    np.testing.assert_allclose(rounds.max_sm, once.max_sm)
    assert rounds.n_tasks[0] == 6


def test_a_million_tasks_are_scheduled_in_time() -> None:
    start = time.perf_counter()
    equal = tabulate_equal_tasks(np.array([1e6]), np.ones((1, 4)), SchedulingPolicy.HARDWARE, 2)
    assert distribute_tasks(equal, 132).max_sm[0, 0] == np.ceil(1e6 / 132)
    assert time.perf_counter() - start < 0.01
    costs = np.random.default_rng(0).uniform(1, 100, 1_000_000)
    start = time.process_time()
    distribute_tasks(table_of(costs, 2, SchedulingPolicy.HARDWARE), 132)
    assert time.process_time() - start < 2.0  # half a second; slow machines are given room
