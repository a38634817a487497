"""Tasks of FlashInfer's RMSNorm, fused-add RMSNorm, and SiLU-and-multiply: one CTA to a row.

Instructions per element follow from the arithmetic. RMSNorm: x^2 summed (1), scaled by the row's factor and
by the weight (2), and the residual added (1) where it is fused; one reciprocal root per row.
SiLU-and-multiply of the input's halves g and u: g / (1 + exp(-g)) · u has an exponential and a reciprocal,
and four more. CTAs that fit: threads alone limit them, at 2,048 (1,536 on sm_86 and sm_89) to an SM.
"""

import numpy as np

from analyzer.operators.batches import Column, RowwiseBatch
from analyzer.operators.names import Operator
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable, tabulate_equal_tasks
from analyzer.operators.task_demand import stack_demand


def decompose_rmsnorm(batch: RowwiseBatch, figures: PipeFigures) -> TaskTable:
    """Return the tasks of RMSNorm, with or without the addition of a residual."""
    fused = batch.operator is Operator.FUSED_ADD_RMSNORM
    loaded = batch.columns * batch.dtype.activation_bytes * (3.0 if fused else 2.0)  # with the weight
    demand = stack_demand(0.0, batch.columns * (4.0 if fused else 3.0), 1.0, loaded)
    return _tabulate_rows(batch.rows, demand)


def decompose_silu_mul(batch: RowwiseBatch, figures: PipeFigures) -> TaskTable:
    """Return the tasks of SiLU-and-multiply; `columns` is the width of its input, gate and up."""
    outputs = batch.columns / 2.0
    loaded = batch.columns * batch.dtype.activation_bytes
    return _tabulate_rows(batch.rows, stack_demand(0.0, 4.0 * outputs, 2.0 * outputs, loaded))


def _tabulate_rows(rows: Column, demand: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> TaskTable:
    return tabulate_equal_tasks(rows, demand, SchedulingPolicy.HARDWARE, 1)
