"""Tasks of any Triton kernel, as decomposed from its code, as rows of SynPerf's task table (equation 1).

Tasks stand in launch order, runs of equal ones together. An SM's scheduler sees their cost: the cycles of the
pipe that a task keeps busy longest.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable
from analyzer.operators.task_demand import stack_demand
from analyzer.tiles.decomposition import TaskDecomposition
from analyzer.tiles.work import Quantity

_LEAST_COST = 1e-9


def tabulate_programs(tasks: TaskDecomposition, figures: PipeFigures, slots_per_sm: int) -> TaskTable:
    """Return the tasks of a launch as one row; slots_per_sm: CTAs that fit into an SM."""
    columns = [
        np.array([each.amounts[quantity] for each in tasks.classes], dtype=np.float64)
        for quantity in (
            Quantity.MMA_FMA,
            Quantity.FMA_OPERATIONS,
            Quantity.XU_OPERATIONS,
            Quantity.BYTES_LOADED,
        )
    ]
    demand = stack_demand(2.0 * columns[0], *columns[1:])
    order = tasks.class_of_program
    starts = np.concatenate(([0], np.flatnonzero(np.diff(order)) + 1))
    groups = order[starts]
    repeats = np.diff(np.append(starts, len(order))).astype(np.float64)
    return TaskTable(
        offsets=np.array([0, len(starts)], dtype=np.int64),
        repeats=repeats,
        demand=demand[groups],
        cost=compute_costs(demand, figures)[groups],
        rounds=np.ones(1),
        slots_per_sm=np.array([float(slots_per_sm)]),
        policy=SchedulingPolicy.HARDWARE,
    )


def compute_costs(demand: NDArray[np.float64], figures: PipeFigures) -> NDArray[np.float64]:
    """Return the cycles of each row of a demand on its busiest pipe, with an SM's share of the L2."""
    l2_bytes_per_cycle = figures.l2_gbps * 1e3 / figures.clock_mhz / figures.sm_count
    throughputs = np.array(
        [
            figures.tensor_ops_per_cycle,
            figures.fma_ops_per_cycle,
            figures.xu_ops_per_cycle,
            l2_bytes_per_cycle,
        ]
    )
    costs: NDArray[np.float64] = np.maximum((demand / throughputs).max(axis=1), _LEAST_COST)
    return costs
