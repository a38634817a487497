"""SynPerf's features (its table IV): what tasks ask of each pipe, in operations, bytes and cycles.

Each kernel category looks at some math pipes and at the path to memory, over the whole GPU and on its most
loaded SM:

- math pipe p: N of the GPU and of the SM, and C = N / (SMs · Th) and N / Th (equations 4 and 5)
- memory: bytes loaded by all tasks, their cycles at the bandwidths of DRAM and L2; bytes of the SM, its
  cycles at an SM's share of DRAM and L2, and at the bandwidth of shared memory

Bytes are what tasks load, reused or not: two tiles that load the same rows count twice. Networks
get log2(1 + x).

Theoretical time, whose ratio to the measured time is the efficiency that is learned: the paper does not say
which of the limits it is. The published efficiencies of its fused MoE (underperforming_*.csv) are those of
the tensor pipe over the whole GPU, without memory, to four digits; so here it is the longest math pipe.
Norms and SiLU-and-multiply have hardly any arithmetic, and take the longer one of that and L2.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.baselines.synperf.attention import decompose_attention
from analyzer.baselines.synperf.gemm import decompose_gemm
from analyzer.baselines.synperf.moe import decompose_moe
from analyzer.baselines.synperf.rowwise import decompose_rmsnorm, decompose_silu_mul
from analyzer.baselines.synperf.scaled_mm import decompose_scaled_mm
from analyzer.operators.batches import Column, MoeBatch, OperatorBatch, ProductBatch
from analyzer.operators.names import DataType, Operator
from analyzer.operators.pipe_figures import PipeFigures
from analyzer.operators.scheduling import TaskDistribution, TaskTable, distribute_tasks
from analyzer.operators.task_demand import Pipe


class KernelCategory(StrEnum):
    """A kernel category of SynPerf: one network each; the value names its file of weights."""

    GEMM = "gemm"
    GEMM_FP32 = "gemm_fp32"  # not in the paper: the same network on CUDA cores
    SCALED_MM = "scaled_mm"
    ATTENTION = "attention"
    RMSNORM = "rmsnorm"
    SILU_MUL = "silu_mul"
    MOE = "moe"


class SynperfFeatures(Struct, frozen=True):
    """What a network reads of a batch on a GPU."""

    values: NDArray[np.float64]  # rows x features, log2(1 + x)
    theoretical_us: Column


Decompose = Callable[[Any, PipeFigures], TaskTable]

_DECOMPOSERS: dict[KernelCategory, Decompose] = {
    KernelCategory.GEMM: decompose_gemm,
    KernelCategory.GEMM_FP32: decompose_gemm,
    KernelCategory.SCALED_MM: decompose_scaled_mm,
    KernelCategory.ATTENTION: decompose_attention,
    KernelCategory.RMSNORM: decompose_rmsnorm,
    KernelCategory.SILU_MUL: decompose_silu_mul,
    KernelCategory.MOE: decompose_moe,
}
_MATH_PIPES: dict[KernelCategory, tuple[Pipe, ...]] = {  # the paper's table V
    KernelCategory.GEMM: (Pipe.TENSOR,),
    KernelCategory.GEMM_FP32: (Pipe.FMA,),
    KernelCategory.SCALED_MM: (Pipe.TENSOR,),
    KernelCategory.ATTENTION: (Pipe.TENSOR, Pipe.XU),
    KernelCategory.RMSNORM: (Pipe.FMA, Pipe.XU),
    KernelCategory.SILU_MUL: (Pipe.FMA, Pipe.XU),
    KernelCategory.MOE: (Pipe.TENSOR,),
}
_ROWWISE = (KernelCategory.RMSNORM, KernelCategory.SILU_MUL)
_HALF = (DataType.BF16, DataType.FP16)
_CATEGORY_OF_OPERATOR = {
    Operator.ATTENTION: KernelCategory.ATTENTION,
    Operator.RMSNORM: KernelCategory.RMSNORM,
    Operator.FUSED_ADD_RMSNORM: KernelCategory.RMSNORM,
    Operator.SILU_MUL: KernelCategory.SILU_MUL,
}


def find_category(batch: OperatorBatch) -> KernelCategory | None:
    """Return the kernel category of a batch, None where SynPerf has none (softmax, FP8 experts)."""
    if isinstance(batch, ProductBatch):
        if batch.dtype is DataType.FP8_BLOCK:
            return KernelCategory.SCALED_MM
        if batch.dtype is DataType.FP32:
            return KernelCategory.GEMM_FP32
        return KernelCategory.GEMM if batch.dtype in _HALF else None
    if batch.dtype not in _HALF:
        return None
    if isinstance(batch, MoeBatch):
        return KernelCategory.MOE
    return _CATEGORY_OF_OPERATOR.get(batch.operator)


def decompose(batch: OperatorBatch, category: KernelCategory, figures: PipeFigures) -> TaskTable:
    """Return the tasks of a batch by its category's decomposer."""
    return _DECOMPOSERS[category](batch, figures)


def compute_synperf_features(
    tasks: TaskTable, category: KernelCategory, figures: PipeFigures
) -> SynperfFeatures:
    """Return the features of a batch's tasks; their order is that of `list_feature_names`."""
    distribution = distribute_tasks(tasks, figures.sm_count)
    columns: list[Column] = []
    cycles = np.zeros(len(tasks))  # of the longest math pipe over the whole GPU
    for pipe in _MATH_PIPES[category]:
        throughput = figures.find_throughput(pipe)
        total, max_sm = distribution.total[:, pipe], distribution.max_sm[:, pipe]
        gpu_cycles = total / (figures.sm_count * throughput)
        columns += [total, gpu_cycles, max_sm, max_sm / throughput]
        cycles = np.maximum(cycles, gpu_cycles)
    memory = _compute_memory_features(distribution, figures)
    if category in _ROWWISE:
        cycles = np.maximum(cycles, memory[2])  # of the L2
    return SynperfFeatures(
        values=np.log2(1.0 + np.stack(columns + memory, axis=1)),
        theoretical_us=np.maximum(cycles, 1.0) / figures.clock_mhz,
    )


def list_feature_names(category: KernelCategory) -> tuple[str, ...]:
    """Return the names of a category's features."""
    math = [
        f"{pipe.name.lower()}_{name}"
        for pipe in _MATH_PIPES[category]
        for name in ("ops_gpu", "cycles_gpu", "ops_max_sm", "cycles_max_sm")
    ]
    memory = ["bytes_gpu", "dram_cycles_gpu", "l2_cycles_gpu"]
    memory += ["bytes_max_sm", "dram_cycles_max_sm", "l2_cycles_max_sm", "shared_cycles_max_sm"]
    return (*math, *memory)


def _compute_memory_features(distribution: TaskDistribution, figures: PipeFigures) -> list[Column]:
    """Return bytes and cycles of the GPU (bytes, DRAM, L2) and of the SM (bytes, DRAM, L2, shared memory)."""
    total, max_sm = distribution.total[:, Pipe.LOADS], distribution.max_sm[:, Pipe.LOADS]
    dram, l2 = (gbps * 1e3 / figures.clock_mhz for gbps in (figures.dram_gbps, figures.l2_gbps))
    sms = figures.sm_count
    return [
        total,
        total / dram,
        total / l2,
        max_sm,
        max_sm / (dram / sms),
        max_sm / (l2 / sms),
        max_sm / figures.shared_bytes_per_cycle,
    ]
