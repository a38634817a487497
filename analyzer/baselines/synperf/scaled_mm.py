"""Tasks of vLLM's block-scaled FP8 product, a CUTLASS kernel (vLLM 0.11).

On sm_90 it has tiles of 128 x 128 x 128, clusters of two CTAs along n that share a tile of A, two cooperating
groups of warps that multiply, and so one CTA in an SM. Tiles go to resident CTAs by CUTLASS's static
persistent scheduler, in pairs: an odd number of tiles along n is rounded up. A tile that hangs over an edge
multiplies in full and loads what is there. How well that describes the kernel: on H20 the measured times of
8,409 shapes are 3.0 us + waves · (1.2 us + 8.9 ns · k) within 0.7 % on average, where waves are those of the
pairs (1.0 % without the rounding); H800, whose clock gives way to power, within 5.8 %.

Facts: vllm-project/vllm, csrc/quantization/cutlass_w8a8/c3x/scaled_mm_blockwise_sm90_fp8_dispatch.cuh (tile,
cluster, schedule). Some versions take stream-K where k > 3 n; the measured times show whole waves there too,
so it is left out. Other architectures are taken to be alike.
"""

import numpy as np

from analyzer.operators.batches import ProductBatch
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable, tabulate_equal_tasks
from analyzer.operators.task_demand import stack_demand

_TILE = 128.0
_SCALE_BYTES = 4.0  # of A: one per row and 128 along k; of B: one per block of 128 x 128
_CLUSTER_N = 2.0  # CTAs


def decompose_scaled_mm(batch: ProductBatch, figures: PipeFigures) -> TaskTable:
    """Return the tasks of block-scaled FP8 products, one group of equal tasks per row."""
    m_tiles, n_tiles = np.ceil(batch.m / _TILE), np.ceil(batch.n / _TILE)
    tiles = m_tiles * np.ceil(n_tiles / _CLUSTER_N) * _CLUSTER_N * batch.batch
    steps = np.ceil(batch.k / _TILE)
    # Means over the tiles: those at an edge load less.
    a_rows, b_rows = batch.m / m_tiles, batch.n / n_tiles
    scale_bytes = _SCALE_BYTES * steps * (a_rows + 1.0)
    demand = stack_demand(
        tensor=2.0 * _TILE * _TILE * (steps * _TILE),
        fma=_TILE * _TILE * steps,  # of FP32 sums, scaled once per 128 along k
        xu=0.0,
        load_bytes=batch.dtype.activation_bytes * batch.k * (a_rows + b_rows) + scale_bytes,
    )
    return tabulate_equal_tasks(tiles, demand, SchedulingPolicy.PERSISTENT, 1)
