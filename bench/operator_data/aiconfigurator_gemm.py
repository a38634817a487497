"""Rows of aiconfigurator's table of matrix products (`gemm_perf.parquet`) as measured batches.

Taken is one framework and one version per GPU, since versions of a library differ by 1 to 6 % on the same
shape: TensorRT-LLM's newest. In BF16 the frameworks call the same library and agree within 1 to 5 % (median);
in FP8 TensorRT-LLM's time has the quantization of the activations in it (a floor of 12 us), vLLM's and
SGLang's has not. Source: ai-dynamo/aiconfigurator @095f58a, Apache-2.0; latency in ms, by CUDA events around
replays of a CUDA graph.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator
from operator_data.gpu_keys import AICONFIGURATOR

DATASET = "aiconfigurator"
FRAMEWORK = "trtllm"
_NEWEST = {"a100_sxm": "1.0.0"}
_NEWEST_OTHERWISE = "1.3.0rc20"
DATA_TYPES = {
    "bfloat16": DataType.BF16,
    "fp8": DataType.FP8,
    "fp8_block": DataType.FP8_BLOCK,
    "nvfp4": DataType.NVFP4,
    "int8_wo": DataType.INT8_WEIGHTS,
    "int4_wo": DataType.INT4_WEIGHTS,
    "sq": DataType.INT8,
}


def load_products(folder: Path, framework: str = FRAMEWORK) -> list[MeasuredBatch]:
    """Return the products of each GPU and data type; rows with one (n, k) share a shape key.

    folder: that holds `gemm_perf.parquet`. framework: "trtllm", "vllm" or "sglang", each in the newest
    version of a GPU.
    """
    table = pq.read_table(folder / "gemm_perf.parquet", filters=[("fw", "=", framework), ("m", ">", 0)])
    batches = []
    for gpu, key in AICONFIGURATOR.items():
        of_gpu = table.filter(pc.equal(table["gpu"], gpu))
        for name, dtype in DATA_TYPES.items():
            of_type = of_gpu.filter(pc.equal(of_gpu["gemm_dtype"], name))
            if framework == FRAMEWORK:
                of_type = of_type.filter(pc.equal(of_type["ver"], _NEWEST.get(gpu, _NEWEST_OTHERWISE)))
            elif of_type.num_rows:
                newest = max(of_type["ver"].unique().to_pylist(), key=_split_version)
                of_type = of_type.filter(pc.equal(of_type["ver"], newest))
            if of_type.num_rows:
                batches.append(_make_batch(key, dtype, of_type))
    return batches


def _split_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _make_batch(gpu: str, dtype: DataType, table: pa.Table) -> MeasuredBatch:
    m, n, k, latency_ms = (
        table[column].to_numpy().astype(np.float64) for column in ("m", "n", "k", "latency")
    )
    return MeasuredBatch(
        dataset=DATASET,
        gpu=gpu,
        batch=ProductBatch(Operator.GEMM, dtype, m, n, k, np.ones(len(m))),
        time_us=1e3 * latency_ms,
        shape_keys=make_shape_keys(n, k),
        timing=Timing.INTERVAL,
    )


def make_shape_keys(n: Column, k: Column) -> NDArray[np.int64]:
    """Return one number per (n, k)."""
    return n.astype(np.int64) * 2**32 + k.astype(np.int64)
