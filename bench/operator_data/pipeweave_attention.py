"""Load the attention rows that SynPerf's authors published (PipeWeave): FlashInfer 0.4.1, bf16, causal."""

import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from analyzer.operators.batches import AttentionBatch, RaggedLengths
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import AttentionKind, DataType, Operator
from operator_data.gpu_keys import PIPEWEAVE


def load(data: Path) -> list[MeasuredBatch]:
    """Return `rows/attention.csv` under `data` (the folder `pipeweave`), a batch per GPU and kind.

    Times are kernel durations of the PyTorch profiler in microseconds. A shape key is one head layout.
    """
    groups: defaultdict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with (data / "rows" / "attention.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups[PIPEWEAVE[row["gpu"]], row["attention_type"]].append(row)
    return [_make_batch(gpu, AttentionKind(kind), rows) for (gpu, kind), rows in sorted(groups.items())]


def _make_batch(gpu: str, kind: AttentionKind, rows: list[dict[str, str]]) -> MeasuredBatch:
    heads, kv_heads, head_dim, time_us = (
        np.array([float(row[name]) for row in rows]) for name in ("nh", "nkv", "hd", "time_us")
    )
    return MeasuredBatch(
        dataset="pipeweave",
        gpu=gpu,
        batch=AttentionBatch(
            operator=Operator.ATTENTION,
            dtype=DataType.BF16,
            kind=kind,
            q_lengths=_read_lengths(rows, "q_lengths"),
            kv_lengths=_read_lengths(rows, "kv_lengths"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
        ),
        time_us=time_us,
        shape_keys=(heads * 1e6 + kv_heads * 1e3 + head_dim).astype(np.int64),
        timing=Timing.KERNEL,
    )


def _read_lengths(rows: list[dict[str, str]], name: str) -> RaggedLengths:
    lists = [np.array(json.loads(row[name]), dtype=np.float64) for row in rows]
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in lists])))
    return RaggedLengths(np.concatenate(lists), offsets.astype(np.int64))
