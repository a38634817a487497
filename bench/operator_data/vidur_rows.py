"""Load the norms, SiLU-and-multiply and additions of Vidur's profiles (../shared/data/vidur), fp16.

Kernel times by the profiler, on A40 and A100 at one to 4096 tokens; medians. The kernels are those of
sarathi-serve (an early vLLM), not FlashInfer's: an outside check of sizes and of additions, no more. With
several tensor-parallel workers norms stay whole, and the columns of SiLU are split.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.batches import ElementwiseBatch, OperatorBatch, RowwiseBatch
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator

DATASET = "vidur"
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "vidur"
GPU_KEYS = {"a40": "a40", "a100": "a100-80gb-sxm"}
_TIMES = {
    Operator.RMSNORM: "input_layernorm.median",
    Operator.SILU_MUL: "mlp_act.median",
    Operator.ELEMENTWISE: "add.median",
}
_COLUMNS = ("gpu", "n_embd", "n_expanded_embd", "use_gated_mlp", "num_tokens", "num_tensor_parallel_workers")

Table = dict[str, NDArray[Any]]


def load_rows(folder: Path = FOLDER) -> list[MeasuredBatch]:
    """Return one batch per operator and GPU, of models with gated layers; a shape key is one shape."""
    table = _read_table(folder / "compute_mlp.parquet")
    return [_make_batch(table, operator, gpu, key) for operator in _TIMES for gpu, key in GPU_KEYS.items()]


def _make_batch(table: Table, operator: Operator, gpu: str, key: str) -> MeasuredBatch:
    time_us = 1e3 * table[_TIMES[operator]]
    where = np.flatnonzero((table["gpu"] == gpu) & (table["use_gated_mlp"] == 1) & (time_us > 0))
    tokens, hidden = table["num_tokens"][where], table["n_embd"][where]
    columns = hidden
    batch: OperatorBatch
    if operator is Operator.SILU_MUL:
        workers = table["num_tensor_parallel_workers"][where]
        columns = 2.0 * table["n_expanded_embd"][where] / workers
    if operator is Operator.ELEMENTWISE:
        batch = ElementwiseBatch(operator, DataType.FP16, tokens * hidden, np.full(len(where), 2.0))
    else:
        batch = RowwiseBatch(operator, DataType.FP16, tokens, columns)
    keys = (columns * 1_000_003 + tokens).astype(np.int64)
    return MeasuredBatch(DATASET, key, batch, time_us[where], keys, Timing.KERNEL)


def _read_table(path: Path) -> Table:
    import pyarrow.parquet as pq

    columns = pq.read_table(path, columns=[*_COLUMNS, *_TIMES.values()]).to_pydict()
    table: Table = {"gpu": np.array(columns["gpu"])}
    for name in (*_COLUMNS[1:], *_TIMES.values()):
        table[name] = np.array(
            [np.nan if value is None else value for value in columns[name]], dtype=np.float64
        )
    return table
