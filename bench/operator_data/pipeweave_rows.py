"""Load SynPerf's rows of fused add and RMSNorm and of SiLU-and-multiply (../shared/data/pipeweave/rows).

Kernel durations by the PyTorch profiler, ten runs of the same inputs back to back; bf16. `dim` of SiLU is
the width of its input. RMSNorm is FlashInfer's FusedAddRMSNorm, in place.
"""

import csv
from pathlib import Path

import numpy as np

from analyzer.operators.batches import RowwiseBatch
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import DataType, Operator
from operator_data.gpu_keys import PIPEWEAVE

DATASET = "pipeweave rows"
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "pipeweave" / "rows"
_FILES = {Operator.FUSED_ADD_RMSNORM: "rmsnorm.csv", Operator.SILU_MUL: "silu.csv"}


def load_rows(folder: Path = FOLDER) -> list[MeasuredBatch]:
    """Return one batch per operator and GPU; a shape key is one (rows, columns)."""
    batches = []
    for operator, name in _FILES.items():
        with (folder / name).open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        for gpu, key in PIPEWEAVE.items():
            own = [(float(x["seq"]), float(x["dim"]), float(x["time_us"])) for x in lines if x["gpu"] == gpu]
            rows, columns, time_us = np.array(own).T
            keys = (columns * 1_000_003 + rows).astype(np.int64)
            batch = RowwiseBatch(operator, DataType.BF16, rows, columns)
            batches.append(MeasuredBatch(DATASET, key, batch, time_us, keys, Timing.KERNEL))
    return batches
