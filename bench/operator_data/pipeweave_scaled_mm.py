"""Rows of SynPerf's FP8 products (`scaled_mm_fp8.parquet`) as measured batches.

Source: zksainx/pipeweave @55e03178, Apache-2.0: vLLM 0.11's block-scaled product on H20 and H800, kernel
durations of the PyTorch profiler in us, the same inputs back to back.
"""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analyzer.operators.batches import ProductBatch
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator
from operator_data.aiconfigurator_gemm import make_shape_keys

DATASET = "pipeweave"
_GPUS = {"H20": "h20", "H800": "h800-sxm"}


def load_scaled_products(folder: Path) -> list[MeasuredBatch]:
    """Return the products of each GPU; rows with one (n, k) share a shape key.

    folder: that holds `scaled_mm_fp8.parquet`.
    """
    table = pq.read_table(folder / "scaled_mm_fp8.parquet")
    batches = []
    for gpu, key in _GPUS.items():
        rows = table.filter(pc.equal(table["gpu"], gpu))
        m, n, k, time_us = (
            rows[column].to_numpy().astype(np.float64) for column in ("m", "n", "k", "time_us")
        )
        batches.append(
            MeasuredBatch(
                dataset=DATASET,
                gpu=key,
                batch=ProductBatch(Operator.SCALED_MM, DataType.FP8_BLOCK, m, n, k, np.ones(len(m))),
                time_us=time_us,
                shape_keys=make_shape_keys(n, k),
                timing=Timing.KERNEL,
            )
        )
    return batches
