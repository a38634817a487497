"""PyTorch's operations against the models of operators, as a table of `warplens validate`."""

import json
from collections.abc import Iterator
from pathlib import Path

from predictions import write_table

import analyzer
from analyzer.report.validation_schema import CaseEntry
from groundtruth.records import GPU, Record, read_measurements

MODELS = ("ours", "synperf", "linear", "roofline")
COLUMNS = (
    *("case", "suite", "operator", "gpu", "dtype", "m", "n", "k", "kind", "q_lengths", "kv_lengths"),
    *("heads", "kv_heads", "head_dim", "rows", "columns", "elements", "inputs", "timing", "time_us"),
)
_DTYPES = {"bf16": "bf16", "f16": "fp16", "tf32": "tf32", "f32": "fp32", "e4m3": "fp8"}
_ROW_WISE = {"rms_norm": "rmsnorm", "layer_norm": "layernorm", "softmax": "softmax"}
_ELEMENTWISE_INPUTS = {"silu": 1, "gelu": 1, "add": 2, "mul": 2}


def validate_operations(folder: Path) -> tuple[CaseEntry, ...]:
    """Return the operations that `predict` has an operator for, with all models' answers."""
    table = folder / "library.csv"
    rows = [dict.fromkeys(COLUMNS, "") | row for record in _read_operations() for row in _make_rows(record)]
    write_table(table, rows)
    return analyzer.validate(table, models=MODELS, jobs=1).cases


def count_operations() -> int:
    """Return how many operations were timed, with those that no operator of ours describes."""
    return sum(1 for _ in _read_operations())


def _read_operations() -> Iterator[Record]:
    return (r for r in read_measurements() if r["record"] == "library" and r["status"] == "ok")


def _make_rows(record: Record) -> Iterator[dict[str, object]]:
    """Yield the row of an operation; none for one that is not in our operators."""
    work, kernel = record["work"], record["kernel"]
    dtype = _DTYPES[work["dtype"]]
    row = {
        "case": record["case_id"],
        "gpu": GPU,
        "dtype": dtype,
        "timing": "kernel",
        "time_us": record["time_us_median"],
    }
    if kernel == "gemm":
        sizes = {"m": work["M"], "n": work["N"], "k": work["K"]}
        yield row | sizes | {"operator": "gemm", "suite": f"gemm {dtype}"}
    elif kernel == "sdpa" and work["causal"]:
        yield row | _describe_attention(work) | {"suite": f"attention, causal, {work['backend']}"}
    elif kernel in _ROW_WISE:
        sizes = {"rows": work["rows"], "columns": work["cols"]}
        yield row | sizes | {"operator": _ROW_WISE[kernel], "suite": kernel}
    elif kernel in _ELEMENTWISE_INPUTS:
        sizes = {"elements": work["rows"] * work["cols"], "inputs": _ELEMENTWISE_INPUTS[kernel]}
        yield row | sizes | {"operator": "elementwise", "suite": "silu, gelu, add, mul"}


def _describe_attention(work: Record) -> dict[str, object]:
    lengths = json.dumps([work["S"]] * work["B"])
    return {
        "operator": "attention",
        "kind": "fa2_ragged",
        "q_lengths": lengths,
        "kv_lengths": lengths,
        "heads": work["H"],
        "kv_heads": work.get("HKV", work["H"]),
        "head_dim": work["D"],
    }
