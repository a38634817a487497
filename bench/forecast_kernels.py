"""Terms of a step's time against rows of single kernels: products over rows, attention in decoding."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from markdown import render_table
from numpy.typing import NDArray

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.operators import ours
from analyzer.models.operators.served import predict_served
from analyzer.operators.batches import AttentionBatch, ProductBatch, RaggedLengths
from analyzer.operators.names import AttentionKind, Backend, DataType, Operator

Column = NDArray[np.float64]

_SEED, _ROWS = 0, 3000  # of each GPU, drawn at random
_LEAST_WEIGHTS, _LEAST_SIDE, _LEAST_WIDTH = 2e7, 1024, 4096
_ROW_BINS = ((1, 16), (17, 64), (65, 256), (257, 1024), (1025, 4096), (4097, 1 << 20))
_BYTE_BINS = ((1e7, 3e7), (3e7, 1e8), (1e8, 3e8), (3e8, 1e12))
_PRODUCTS = (
    ("a100-80gb-sxm", "a100_sxm", "sglang", "0.5.10"),
    ("l40s", "l40s", "sglang", "0.5.14"),
    ("h100-sxm", "h100_sxm", "sglang", "0.5.14"),
    ("b200", "b200_sxm", "sglang", "0.5.14"),
)
_DECODES = (
    ("l40s", "l40s", "flashinfer"),
    ("h100-sxm", "h100_sxm", "fa3"),
    ("b200", "b200_sxm", "trtllm_mha"),
)


def judge_products(folder: Path) -> str:
    """Return the table of products."""
    rows = []
    for key, gpu, framework, version in _PRODUCTS:
        filters = [("gemm_dtype", "=", "bfloat16"), ("gpu", "=", gpu), ("fw", "=", framework)]
        table = _read(
            folder / "gemm_perf.parquet", [*filters, ("ver", "=", version)], ("m", "n", "k", "latency")
        )
        m, n, k = table["m"], table["n"], table["k"]
        kept = _draw((n * k >= _LEAST_WEIGHTS) & (n >= _LEAST_SIDE) & (k >= _LEAST_SIDE))
        predicted = _time_products(m[kept], n[kept], k[kept], load_gpu(key), Backend(framework))
        errors = np.log(predicted / (1e3 * table["latency"][kept]))
        rows.append((key, str(len(kept)), *_describe(errors, m[kept], _ROW_BINS)))
    return render_table(("GPU", "rows", *(_name(low, high) for low, high in _ROW_BINS)), rows)


def judge_vidur(folder: Path) -> str:
    """Return the table of products of layers: those whose hidden width is 4096 and more."""
    table = _read_layers(folder / "compute_mlp.parquet")
    width, inner = table["n_embd"], table["n_expanded_embd"] / table["num_tensor_parallel_workers"]
    heads = width / table["num_tensor_parallel_workers"]
    sides = {
        "mlp_up_proj": ((1.0 + table["use_gated_mlp"]) * inner, width),
        "mlp_down_proj": (width, inner),
        "attn_post_proj": (width, heads),
    }
    rows = []
    for key, gpu in (("a100-80gb-sxm", "a100"), ("a40", "a40")):
        product_gpu = load_gpu(key)
        for name, (n, k) in sides.items():
            time_us = 1e3 * table[f"{name}.median"]
            kept = _draw((table["gpu"] == float(gpu == "a40")) & (time_us > 0) & (width >= _LEAST_WIDTH))
            tokens = table["num_tokens"][kept]
            errors = np.log(_time_products(tokens, n[kept], k[kept], product_gpu, None) / time_us[kept])
            rows.append((f"{key} {name}", str(len(kept)), *_describe(errors, tokens, _ROW_BINS)))
    return render_table(("GPU", "rows", *(_name(low, high) for low, high in _ROW_BINS)), rows)


def _read_layers(path: Path) -> dict[str, Column]:
    """Return the columns of Vidur's layers; `gpu` is 1 of A40 and 0 of A100."""
    names = ("n_embd", "n_expanded_embd", "use_gated_mlp", "num_tokens", "num_tensor_parallel_workers")
    times = ("mlp_up_proj.median", "mlp_down_proj.median", "attn_post_proj.median")
    found = pq.read_table(path, columns=["gpu", *names, *times]).to_pydict()
    table = {
        name: np.array([np.nan if value is None else value for value in found[name]], dtype=np.float64)
        for name in (*names, *times)
    }
    return table | {"gpu": np.array([float(gpu == "a40") for gpu in found["gpu"]])}


def judge_decode_attention(folder: Path) -> str:
    """Return the table of attention in decoding."""
    columns = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "latency")
    rows = []
    for key, gpu, kernel in _DECODES:
        filters = [
            ("gpu", "=", gpu),
            ("fw", "=", "sglang"),
            ("kernel_source", "=", kernel),
            ("head_dim", "=", 128),
            ("kv_cache_dtype", "=", "bfloat16"),
        ]
        table = _read(folder / "generation_attention_perf.parquet", filters, (*columns, "window_size"))
        keys = table["isl"] + table["step"]
        moved = table["batch_size"] * keys * table["num_key_value_heads"] * 512.0
        kept = _draw((np.nan_to_num(table["window_size"]) == 0) & (moved >= _BYTE_BINS[0][0]))
        errors = np.log(_time_decodes(table, kept, load_gpu(key)) / (1e3 * table["latency"][kept]))
        rows.append((f"{key} {kernel}", str(len(kept)), *_describe(errors, moved[kept], _BYTE_BINS)))
    head = (
        "GPU",
        "rows",
        *(
            f"{low / 1e6:.0f} to {high / 1e6:.0f}" if high < 1e12 else f"{low / 1e6:.0f} and more"
            for low, high in _BYTE_BINS
        ),
    )
    return render_table(head, rows)


def _time_decodes(table: dict[str, Column], rows: NDArray[np.int64], gpu: Gpu) -> Column:
    """Return times of SGLang's decodes as they were measured: called again and again, with a warm L2."""
    counts = table["batch_size"][rows].astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    lengths = np.repeat((table["isl"] + table["step"])[rows], counts)
    batch = AttentionBatch(
        Operator.ATTENTION,
        DataType.BF16,
        AttentionKind.GENERIC,
        RaggedLengths(np.ones(len(lengths)), offsets),
        RaggedLengths(lengths, offsets),
        heads=table["num_heads"][rows],
        kv_heads=table["num_key_value_heads"][rows],
        head_dim=table["head_dim"][rows],
        backend=Backend.SGLANG,
    )
    return ours.predict(batch, gpu).time_us


def _time_products(m: Column, n: Column, k: Column, gpu: Gpu, backend: Backend | None) -> Column:
    batch = ProductBatch(Operator.GEMM, DataType.BF16, m, n, k, np.ones(len(m)), backend)
    return predict_served(batch, gpu).time_us


def _read(path: Path, filters: list[tuple[str, str, Any]], columns: Sequence[str]) -> dict[str, Column]:
    table = pq.read_table(path, filters=filters, columns=list(columns))
    return {name: table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in columns}


def _draw(where: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return rows that fulfil a condition, `_ROWS` at most, drawn at random."""
    rows = np.flatnonzero(where)
    if len(rows) <= _ROWS:
        return rows
    return np.sort(np.random.default_rng(_SEED).choice(rows, _ROWS, replace=False))


def _describe(errors: Column, sizes: Column, bins: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    cells = []
    for low, high in bins:
        found = errors[(sizes >= low) & (sizes <= high)]
        cells.append(
            f"{100 * np.median(found):+.0f}, {100 * np.mean(np.abs(found)):.0f}" if len(found) else "-"
        )
    return tuple(cells)


def _name(low: int, high: int) -> str:
    return f"{low} to {high}" if high < 1 << 20 else f"{low} and more"
