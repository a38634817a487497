"""Rows of aiconfigurator's table of matrix products (`gemm_perf.parquet`) as measured batches.

One version of each framework and GPU is taken, the newest: versions of a library differ by 1 to 6 % on
the same shape. In BF16 the frameworks call one library and agree within 1 to 5 % (median); in FP8 the
quantization of the activations is in the time of TensorRT-LLM and vLLM (5.5 ns a row on H100 and B200).
vLLM's block-scaled FP8 is left out, for its times are the host's: 300 us on an L40S, 60 on an H100, 180 on a
B200 and 330 on a GB200, up to a thousand rows of 4096 x 4096. Source: ai-dynamo/aiconfigurator @095f58a,
Apache-2.0; latency in ms, by CUDA events around replays of a CUDA graph.
"""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analyzer.operators.batches import Column, ProductBatch
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import Backend, DataType, Operator
from operator_data.gpu_keys import AICONFIGURATOR

DATASET = "aiconfigurator"
DATA_TYPES = {
    "bfloat16": DataType.BF16,
    "fp8": DataType.FP8,
    "fp8_block": DataType.FP8_BLOCK,
    "nvfp4": DataType.NVFP4,
    "int8_wo": DataType.INT8_WEIGHTS,
    "int4_wo": DataType.INT4_WEIGHTS,
    "sq": DataType.INT8,
}

_OF_THE_HOST = {(Backend.VLLM, DataType.FP8_BLOCK)}


def load_products(folder: Path, backends: Sequence[Backend] = tuple(Backend)) -> list[MeasuredBatch]:
    """Return the products of each backend, GPU and data type; rows with one (n, k) share a shape key.

    folder: that holds `gemm_perf.parquet`.
    """
    table = pq.read_table(folder / "gemm_perf.parquet", filters=[("m", ">", 0)])
    batches = []
    for backend, (gpu, key), (name, dtype) in product(backends, AICONFIGURATOR.items(), DATA_TYPES.items()):
        if (backend, dtype) in _OF_THE_HOST:
            continue
        where = (pc.field("fw") == backend) & (pc.field("gpu") == gpu) & (pc.field("gemm_dtype") == name)
        rows = table.filter(where)
        if rows.num_rows:
            newest = max(rows["ver"].unique().to_pylist(), key=_split_version)
            batches.append(_make_batch(key, dtype, backend, rows.filter(pc.field("ver") == newest)))
    return batches


def _split_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _make_batch(gpu: str, dtype: DataType, backend: Backend, table: pa.Table) -> MeasuredBatch:
    m, n, k, latency_ms = (
        table[column].to_numpy().astype(np.float64) for column in ("m", "n", "k", "latency")
    )
    return MeasuredBatch(
        dataset=DATASET,
        gpu=gpu,
        batch=ProductBatch(Operator.GEMM, dtype, m, n, k, np.ones(len(m)), backend),
        time_us=1e3 * latency_ms,
        shape_keys=make_shape_keys(n, k),
        timing=Timing.INTERVAL,
    )


def make_shape_keys(n: Column, k: Column) -> NDArray[np.int64]:
    """Return one number per (n, k)."""
    return n.astype(np.int64) * 2**32 + k.astype(np.int64)
