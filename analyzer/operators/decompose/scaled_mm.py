"""Tasks of vLLM's block-scaled FP8 product, a CUTLASS kernel (vLLM 0.11).

On sm_90 it has tiles of 128 x 128 x 128, pairs of CTAs along n that share a tile of A, two cooperating
groups of warps that multiply, and so one CTA in an SM. Tiles go to resident CTAs by CUTLASS's static
persistent scheduler; where k > 3 n it is stream-K, which shares the steps along k evenly over the SMs,
at least eight to each. A tile that hangs over an edge multiplies in full and loads what is there.

Facts: vllm-project/vllm, csrc/quantization/cutlass_w8a8/c3x/scaled_mm_blockwise_sm90_fp8_dispatch.cuh
(tile, cluster, k > 3 n), CUTLASS 4 (least steps of stream-K). Other architectures are taken to be alike.
"""

import numpy as np

from analyzer.operators.batches import ProductBatch
from analyzer.operators.decompose.task_demand import stack_demand
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable, tabulate_equal_tasks

_TILE = 128.0
_SCALE_BYTES = 4.0  # of A: one per row and 128 along k; of B: one per block of 128 x 128
_LEAST_STREAM_K_STEPS = 8.0


def decompose_scaled_mm(batch: ProductBatch, figures: PipeFigures) -> TaskTable:
    """Return the tasks of block-scaled FP8 products, one group of equal tasks per row."""
    m_tiles, n_tiles = np.ceil(batch.m / _TILE), np.ceil(batch.n / _TILE)
    tiles, steps = m_tiles * n_tiles * batch.batch, np.ceil(batch.k / _TILE)
    tile_ops = 2.0 * _TILE * _TILE * (steps * _TILE)
    # Means over the tiles: those at an edge load less.
    a_rows, b_rows = batch.m / m_tiles, batch.n / n_tiles
    scale_bytes = _SCALE_BYTES * steps * (a_rows + 1.0)
    tile_bytes = batch.dtype.activation_bytes * batch.k * (a_rows + b_rows) + scale_bytes
    promotions = _TILE * _TILE * steps  # of FP32 sums, scaled once per 128 along k
    shares = np.minimum(figures.sm_count, np.maximum(1.0, tiles * steps // _LEAST_STREAM_K_STEPS))
    n_tasks = np.where(batch.k > 3.0 * batch.n, shares, tiles)
    per_tile = stack_demand(tile_ops, promotions, 0.0, tile_bytes)
    return tabulate_equal_tasks(n_tasks, per_tile * (tiles / n_tasks)[:, None], SchedulingPolicy.PERSISTENT, 1)
