"""Simulate how the tasks of a kernel are spread over SMs (SynPerf, section IV-B, equation 2).

A task is what one CTA of an ordinary kernel does, or one tile of a persistent kernel. Three schedulers:

- HARDWARE: the GPU's own, as measurements of several papers suggest it. CTAs go to the SMs in turn, one to
  each, then a second one to each, until every SM holds as many as fit (`slots_per_sm`); after that a CTA goes
  to the SM where one finishes first.
- PERSISTENT: as many CTAs as fit are launched; CTA c computes tiles c, c + CTAs, c + 2 CTAs, ...
- MIN_HEAP: the plan of FlashInfer's FlashAttention-3: tasks in the plan's order, each to the CTA with the
  least cost so far, one CTA to an SM.

HARDWARE and MIN_HEAP are the same greedy list scheduling, over slots and over SMs: a heap holds the time at
which each slot becomes free. A heap entry is one integer, time · slots + slot, so that ties go to the lower
slot, and a million tasks take well under a second. Invariant: every task is on exactly one SM. Equal tasks
need no simulation under any of the three: SM j of S gets ceil((n - j) / S) of n of them.

Example: costs 3, 1, 1, 1 on two SMs of one slot. Task 0 goes to SM 0; tasks 1, 2 and 3 all to SM 1, which is
free at 1, 2 and 3: per SM 3 and 3.
"""

from enum import StrEnum
from heapq import heapreplace

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column

_TIME_STEPS = float(1 << 44)  # of the sum of all costs: times slots, still below 2**63
_MOST_SLOTS = 1 << 18


class SchedulingPolicy(StrEnum):
    """Who gives tasks to SMs, and how."""

    HARDWARE = "hardware"
    PERSISTENT = "persistent"
    MIN_HEAP = "min_heap"


class TaskTable(Struct, frozen=True):
    """The tasks of the rows of a batch: groups of equal tasks, in the order in which they are scheduled.

    Row i has groups offsets[i] to offsets[i + 1], each with `repeats` tasks, and the whole list of them
    `rounds` times (once per head, where a kernel's grid has the heads outside).
    """

    offsets: NDArray[np.int64]  # rows + 1
    repeats: Column  # per group
    demand: NDArray[np.float64]  # groups x resources, of one task
    cost: Column  # per group: what a scheduler balances, in any unit
    rounds: Column  # per row
    slots_per_sm: Column  # per row: CTAs that fit into an SM at a time
    policy: SchedulingPolicy

    def __len__(self) -> int:
        return len(self.rounds)


class TaskDistribution(Struct, frozen=True):
    """What tasks sum up to, over the GPU and on the SM with the most of each resource."""

    n_tasks: Column  # per row
    total: NDArray[np.float64]  # rows x resources
    max_sm: NDArray[np.float64]  # rows x resources


def tabulate_equal_tasks(
    n_tasks: Column, demand: NDArray[np.float64], policy: SchedulingPolicy, slots_per_sm: float
) -> TaskTable:
    """Return the table of rows that have `n_tasks` equal tasks each; `demand` is rows x resources of one."""
    n_rows = len(n_tasks)
    return TaskTable(
        offsets=np.arange(n_rows + 1, dtype=np.int64),
        repeats=n_tasks,
        demand=demand,
        cost=np.ones(n_rows),
        rounds=np.ones(n_rows),
        slots_per_sm=np.full(n_rows, slots_per_sm),
        policy=policy,
    )


def distribute_tasks(tasks: TaskTable, sm_count: int) -> TaskDistribution:
    """Return what the tasks of each row sum up to over the GPU and on its most loaded SM."""
    n_groups = np.diff(tasks.offsets)
    per_row = np.repeat(np.arange(len(tasks)), n_groups)
    n_tasks = _sum_groups(per_row, tasks.repeats[:, None], len(tasks))[:, 0] * tasks.rounds
    total = _sum_groups(per_row, tasks.demand * tasks.repeats[:, None], len(tasks)) * tasks.rounds[:, None]
    max_sm = np.zeros_like(total)
    equal = np.flatnonzero(n_groups == 1)
    first = tasks.offsets[equal]
    max_sm[equal] = np.ceil(n_tasks[equal] / sm_count)[:, None] * tasks.demand[first]
    for row in np.flatnonzero(n_groups > 1):
        max_sm[row] = sum_over_sms(tasks, int(row), sm_count).max(axis=0)
    return TaskDistribution(n_tasks, total, max_sm)


def sum_over_sms(tasks: TaskTable, row: int, sm_count: int) -> NDArray[np.float64]:
    """Return SMs x resources: what one row's tasks sum up to on each SM."""
    groups = slice(tasks.offsets[row], tasks.offsets[row + 1])
    repeats, rounds = tasks.repeats[groups].astype(np.int64), int(tasks.rounds[row])
    group_of_task = np.tile(np.repeat(np.arange(len(repeats)), repeats), rounds)
    sms = assign_tasks(
        tasks.cost[groups][group_of_task], sm_count, int(tasks.slots_per_sm[row]), tasks.policy
    )
    return _sum_groups(sms, tasks.demand[groups][group_of_task], sm_count)


def assign_tasks(
    costs: Column, sm_count: int, slots_per_sm: int, policy: SchedulingPolicy
) -> NDArray[np.int64]:
    """Return the SM of each task, in the tasks' order, under a scheduler; the three are described above."""
    if policy is SchedulingPolicy.MIN_HEAP:
        return _assign_greedily(costs, sm_count)
    n_slots = sm_count * max(1, slots_per_sm)
    n_tasks = len(costs)
    if policy is SchedulingPolicy.PERSISTENT or n_tasks <= n_slots or not np.ptp(costs):
        slots = np.arange(n_tasks, dtype=np.int64) % min(n_slots, max(1, n_tasks))
    else:
        slots = _assign_greedily(costs, n_slots)
    sms: NDArray[np.int64] = slots % sm_count
    return sms


def _assign_greedily(costs: Column, n_slots: int) -> NDArray[np.int64]:
    """Return the slot of each task: always the one that is free first, the lowest of those."""
    assert n_slots <= _MOST_SLOTS
    steps = np.maximum(1, costs * (_TIME_STEPS / max(float(costs.sum()), 1e-300)))
    increments = (steps.astype(np.int64) * n_slots).tolist()
    heap = list(range(n_slots))
    # `heapreplace` returns what was least: its remainder is the slot that took the task.
    taken = [heapreplace(heap, heap[0] + increment) for increment in increments]
    slots: NDArray[np.int64] = np.array(taken, dtype=np.int64) % n_slots
    return slots


def _sum_groups(groups: NDArray[np.int64], values: NDArray[np.float64], n_groups: int) -> NDArray[np.float64]:
    """Return groups x columns: the sums of the rows of `values` that are in each group."""
    sums = np.empty((n_groups, values.shape[1]))
    for column in range(values.shape[1]):
        sums[:, column] = np.bincount(groups, values[:, column], n_groups)
    return sums
