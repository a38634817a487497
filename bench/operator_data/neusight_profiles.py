"""Read NeuSight's FP32 operator profiles: shapes, times, and the tile that each launch names.

Source: github.com/sitar-lab/NeuSight at 6945927, scripts/asplos/data and label, MIT licence (Georgia
Institute of Technology, Microsoft). Times are the mean of the fastest 5 of 25 calls of PyTorch 2.1 between
CUDA events: an interval, with the host's launch of 25 to 50 us in it.
"""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import Column, ElementwiseBatch, ProductBatch, RowwiseBatch
from analyzer.operators.names import DataType, Operator
from operator_data.gpu_keys import NEUSIGHT

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("WARPLENS_DATA", ROOT.parent / "shared" / "data")) / "neusight"
LEARNING, JUDGING, LABELS = (
    "nv_train_collect.parquet",
    "nv_test_public.parquet",
    "perop_labels_public.parquet",
)
_ONE_INPUT = frozenset(("addu", "divu", "mulu", "powu", "gelu", "relu", "tanh"))
_TWO_INPUTS = frozenset(("add", "div", "mul", "pow"))
_TILE_IN_NAME = re.compile(r"(\d+)x(\d+)")
_OPERATORS = {
    "bmm": Operator.BMM,
    "linear": Operator.GEMM,
    "ln": Operator.LAYERNORM,
    "softmax": Operator.SOFTMAX,
}


class ProfiledBatch(Struct, frozen=True):
    """Rows of one operator on one GPU, with the tile of each launch."""

    gpu: str
    batch: ProductBatch | RowwiseBatch | ElementwiseBatch
    time_us: Column
    tiles: NDArray[np.float64]  # rows x sizes, as `neusight.cut_tiles` takes them


@cache
def read_profiles(table: str, operator: Operator) -> tuple[ProfiledBatch, ...]:
    """Return the profiles of one operator in one of the tables, one batch per GPU."""
    columns = _read_columns(FOLDER / table)
    wanted = np.array([_find_operator(name) is operator for name in columns["OPName"]])
    wanted &= columns["Latency"] > 0.0
    found = []
    for device, key in NEUSIGHT.items():
        rows = np.flatnonzero(wanted & (columns["Device"] == device))
        if len(rows):
            found.append(
                _make_profile(key, operator, {name: column[rows] for name, column in columns.items()})
            )
    return tuple(found)


def _find_operator(name: str) -> Operator | None:
    if name in _ONE_INPUT or name in _TWO_INPUTS:
        return Operator.ELEMENTWISE
    return _OPERATORS.get(name)


@cache
def _read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """Return the columns as arrays, missing numbers as zeros."""
    names = [
        "OPName",
        "Device",
        "Kernel Name",
        "Latency",
        "Grid x",
        "Grid y",
        "Grid z",
        "B",
        "H",
        "M",
        "N",
        "K",
    ]
    table = pq.read_table(path, columns=names)
    found: dict[str, NDArray[Any]] = {}
    for name in names[:3]:
        found[name] = np.array(table[name].to_pylist(), dtype=object)
    for name in names[3:]:
        found[name] = np.array([value or 0.0 for value in table[name].to_pylist()], dtype=np.float64)
    return found


def _make_profile(gpu: str, operator: Operator, rows: Mapping[str, NDArray[Any]]) -> ProfiledBatch:
    """Return a batch; linear's reduction length is the column N, its output width K, as bmm's."""
    time_us = 1e3 * rows["Latency"]
    ctas = np.maximum(rows["Grid x"] * rows["Grid y"] * rows["Grid z"], 1.0)
    if operator in (Operator.BMM, Operator.GEMM):
        batched = operator is Operator.BMM
        product = ProductBatch(
            operator=operator,
            dtype=DataType.FP32,
            m=rows["M"] if batched else rows["M"] * rows["B"],
            n=rows["K"],
            k=rows["N"],
            batch=rows["B"] if batched else np.ones(len(time_us)),
        )
        tiles = np.array([_read_tile(name) for name in rows["Kernel Name"]])
        return ProfiledBatch(gpu=gpu, batch=product, time_us=time_us, tiles=tiles)
    if operator is Operator.ELEMENTWISE:
        inputs = np.array([2.0 if name in _TWO_INPUTS else 1.0 for name in rows["OPName"]])
        elements = ElementwiseBatch(
            operator=operator, dtype=DataType.FP32, elements=rows["B"] * rows["H"], inputs=inputs
        )
        tiles = np.ceil(elements.elements / ctas)[:, None]
        return ProfiledBatch(gpu=gpu, batch=elements, time_us=time_us, tiles=tiles)
    rowwise = RowwiseBatch(operator=operator, dtype=DataType.FP32, rows=rows["B"], columns=rows["H"])
    tiles = np.ceil(rowwise.rows / ctas)[:, None]
    return ProfiledBatch(gpu=gpu, batch=rowwise, time_us=time_us, tiles=tiles)


def _read_tile(kernel_name: str) -> tuple[float, float]:
    """Return the output columns and rows of a CTA, from names like `ampere_sgemm_128x64_tn`."""
    found = _TILE_IN_NAME.search(kernel_name)
    return (float(found[1]), float(found[2])) if found else (128.0, 128.0)


class LabelledBatch(Struct, frozen=True):
    """Rows of one operator inside whole models (forward passes), on one GPU."""

    gpu: str
    batch: ProductBatch | RowwiseBatch | ElementwiseBatch
    time_us: Column


def read_labels() -> tuple[LabelledBatch, ...]:
    """Return the measured operators inside whole models that one of the five families answers."""
    rows: dict[tuple[str, Operator], list[tuple[float, ...]]] = {}
    for row in pq.read_table(FOLDER / LABELS).to_pylist():
        gpu = NEUSIGHT.get(row["device"].replace("_", " "), "") or _KEYS_OF_LABELS.get(row["device"], "")
        found = _read_label(row) if gpu and row["fw_latency"] > 0 else None
        if found is not None:
            operator, sizes = found
            rows.setdefault((gpu, operator), []).append((1e3 * row["fw_latency"], *sizes))
    return tuple(_make_labelled(gpu, operator, np.array(found)) for (gpu, operator), found in rows.items())


_KEYS_OF_LABELS = {device.replace(" ", "_"): key for device, key in NEUSIGHT.items()}
_MODULE_LINEARS = re.compile(
    r"lm_head|query|key|value|dense|[qkvo]ut_proj|[qkv]_proj|fc\d|score|decoder$|_proj$"
)
_ELEMENTWISE_WORDS = ("add", "mul", "sub", "truediv", "tanh", "pow", "gelu", "relu")


def _read_label(row: Mapping[str, Any]) -> tuple[Operator, tuple[float, ...]] | None:
    """Return an operator and its sizes (products: batch, m, n, k), None for what has no family."""
    shapes = ast.literal_eval(row["input_shapes"])
    output = ast.literal_eval(row["output_shape"])
    if not shapes or not isinstance(output, tuple) or np.prod(output) <= 1:
        return None
    word = _read_word(row["target"])
    if word in ("matmul", "bmm") and len(shapes) == 2 and len(shapes[0]) >= 3:
        return Operator.BMM, (float(np.prod(output[:-2])), output[-2], output[-1], shapes[0][-1])
    if word == "addmm":
        return Operator.GEMM, (1.0, shapes[1][0], shapes[2][1], shapes[1][1])
    if row["op"] == "call_module":
        return _read_module(row["target"], shapes[0], output)
    if word == "softmax":
        return Operator.SOFTMAX, (float(np.prod(output[:-1])), output[-1])
    if word in _ELEMENTWISE_WORDS:
        full = sum(1 for shape in shapes if np.prod(shape) == np.prod(output))
        return (Operator.ELEMENTWISE, (float(np.prod(output)), float(full))) if full else None
    return None


def _read_word(target: str) -> str:
    """Return the function's name in `<built-in method matmul of type object at 0x15552dc96d80>`."""
    found = re.search(r"(?:built-in (?:function|method)|function) (\w+)", target)
    return found[1] if found else target


def _read_module(
    target: str, given: list[int], output: tuple[int, ...]
) -> tuple[Operator, tuple[float, ...]] | None:
    last = target.rsplit(".", 1)[-1]
    if re.search(r"ln_|LayerNorm|layer_norm", last):
        return Operator.LAYERNORM, (float(np.prod(output[:-1])), output[-1])
    if _MODULE_LINEARS.search(last):
        return Operator.GEMM, (1.0, float(np.prod(output[:-1])), output[-1], given[-1])
    return None


def _make_labelled(gpu: str, operator: Operator, rows: NDArray[np.float64]) -> LabelledBatch:
    time_us, sizes = rows[:, 0], rows[:, 1:].T
    batch: ProductBatch | RowwiseBatch | ElementwiseBatch
    if operator in (Operator.BMM, Operator.GEMM):
        count, m, n, k = sizes
        batch = ProductBatch(operator=operator, dtype=DataType.FP32, m=m, n=n, k=k, batch=count)
    elif operator is Operator.ELEMENTWISE:
        elements, inputs = sizes
        batch = ElementwiseBatch(operator=operator, dtype=DataType.FP32, elements=elements, inputs=inputs)
    else:
        count, width = sizes
        batch = RowwiseBatch(operator=operator, dtype=DataType.FP32, rows=count, columns=width)
    return LabelledBatch(gpu=gpu, batch=batch, time_us=time_us)


def iterate_tables() -> Iterator[str]:
    """Yield the names of the tables with profiles: to learn from, then to judge by."""
    yield from (LEARNING, JUDGING)
