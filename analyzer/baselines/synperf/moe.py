"""Tasks of SGLang's fused mixture of experts, a Triton kernel, and the configuration it picks by default.

Tokens are sorted by expert; each expert's are padded to blocks of BLOCK_SIZE_M rows, and a task is one block
times BLOCK_SIZE_N output columns. Blocks multiply their padding too: SynPerf's theoretical time, which its
published list of underperforming points allows to be recomputed, is exactly that of the padded products.
Routing is taken as balanced (entry i of the flat list goes to expert i mod E).

Default configuration, for data types of 16 bits: 64 x 64 x 32, and 16 x 32 x 64 where there are no more
tokens than experts; 8-bit with one scale per tensor 128 x 256 x 128, and 64 x 128 x 128; with scales per
block 64 x 128 x 128. SGLang ships tuned configurations for some models and GPUs, which take precedence
there and are not known here. Facts: sgl-project/sglang,
layers/moe/fused_moe_triton/fused_moe_triton_config.py.
"""

import numpy as np
from msgspec import Struct

from analyzer.operators.batches import Column, MoeBatch
from analyzer.operators.names import DataType, MoeProduct
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import SchedulingPolicy, TaskTable, tabulate_equal_tasks
from analyzer.operators.task_demand import stack_demand


class MoeConfiguration(Struct, frozen=True):
    """Block sizes of the fused kernel, per row."""

    block_m: Column
    block_n: Column
    block_k: Column


def choose_moe_configuration(batch: MoeBatch) -> MoeConfiguration:
    """Return the default configuration of each row."""
    few = batch.m <= batch.experts
    if batch.dtype is DataType.FP8_BLOCK:
        large = small = (64.0, 128.0, 128.0)
    elif batch.dtype in (DataType.FP8, DataType.INT8):
        large, small = (128.0, 256.0, 128.0), (64.0, 128.0, 128.0)
    else:
        large, small = (64.0, 64.0, 32.0), (16.0, 32.0, 64.0)
    return MoeConfiguration(*(np.where(few, less, more) for less, more in zip(small, large, strict=True)))


def count_expert_blocks(batch: MoeBatch, block_m: Column) -> Column:
    """Return how many blocks of rows all experts have together, balanced."""
    entries = batch.m * batch.topk
    each, busier = np.floor(entries / batch.experts), entries % batch.experts
    blocks: Column = busier * np.ceil((each + 1) / block_m) + (batch.experts - busier) * np.ceil(
        each / block_m
    )
    return blocks


def decompose_moe(
    batch: MoeBatch, figures: PipeFigures, configuration: MoeConfiguration | None = None
) -> TaskTable:
    """Return the tasks of one of the two products (w13 or w2), one group of equal tasks per row.

    `which` = both has the tasks of both products, as if each of them did its share of both.
    """
    chosen = configuration or choose_moe_configuration(batch)
    blocks = count_expert_blocks(batch, chosen.block_m)
    n_tasks, demand = np.zeros(len(batch)), np.zeros((len(batch), 4))
    products = [(batch.hidden, 2.0 * batch.intermediate), (batch.intermediate, batch.hidden)]
    wanted = {MoeProduct.W13: products[:1], MoeProduct.W2: products[1:], MoeProduct.BOTH: products}
    for k, n in wanted[batch.which]:
        tasks = blocks * np.ceil(n / chosen.block_n)
        padded_k = np.ceil(k / chosen.block_k) * chosen.block_k
        ops = 2.0 * chosen.block_m * chosen.block_n * padded_k
        loads = k * (
            chosen.block_m * batch.dtype.activation_bytes + chosen.block_n * batch.dtype.weight_bytes
        )
        demand += tasks[:, None] * stack_demand(ops, 0.0, 0.0, loads)
        n_tasks += tasks
    return tabulate_equal_tasks(n_tasks, demand / n_tasks[:, None], SchedulingPolicy.HARDWARE, 1)
