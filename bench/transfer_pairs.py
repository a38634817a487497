"""Launches measured on two GPUs, which judge transfer between them, and teach its intervals.

- `report`: the cross-GPU report's kernels on RTX 2080 Ti and RTX 4070 (no licence: judged on, never learned
  from), as their authors typed them, and with the launches as they were (`report16` of data/measured);
- `others`: kernels of PyTorch by NeuSight (MIT) on V100, T4 and A100, and tuning sweeps of Kernel Tuner
  (MIT) on RTX 2080 Ti, TITAN RTX, RTX 3060 Laptop, A100 and RTX A4000. They teach intervals.
"""

import csv
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from analyzer.evaluation.transfer_rows import TransferRow
from analyzer.ir.launch import Dim3

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
REPORT_CLASSES = {
    **dict.fromkeys(("vector_add", "saxpy", "strided_copy_8", "random_access"), "memory"),
    **dict.fromkeys(("naive_transpose", "shared_transpose"), "memory"),
    **dict.fromkeys(("matmul_naive", "matmul_tiled", "conv2d_3x3", "conv2d_7x7"), "compute"),
    **dict.fromkeys(("reduce_sum", "dot_product"), "reductions"),
    **dict.fromkeys(("histogram", "atomic_hotspot"), "atomics"),
    "vector_add_divergent": "special",  # shared_bank_conflict never ran
}
_REPORT_GPUS = {"2080ti": "rtx-2080-ti", "4070": "rtx-4070"}
_MEASURED_GPUS = {"RTX 2080 Ti": "rtx-2080-ti", "RTX 4070": "rtx-4070"}
_NEUSIGHT_GPUS = {
    "Tesla V100-PCIE-32GB": "v100-pcie",
    "Tesla T4": "t4",
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
}
_NEUSIGHT_KEYS = (
    *("OPName", "B", "H", "M", "N", "K", "Kernel Name"),
    *("Grid x", "Grid y", "Grid z", "Block x", "Block y"),
)
_TUNER_GPUS = {
    "NVIDIA GeForce RTX 2080 Ti": "rtx-2080-ti",
    "NVIDIA TITAN RTX": "titan-rtx",
    "NVIDIA GeForce RTX 3060 Laptop GPU": "rtx-3060-laptop",
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
    "NVIDIA RTX A4000": "rtx-a4000",
}
_TUNER_OUTCOMES = frozenset(
    ("time_ms", "status", "t_min", "t_med", "t_max", "t_std", "n_rep", "GFLOP/s", "GB/s", "compile_time_ms")
)
# NeuSight's times are of single calls from the host: below, they are the host's more than the kernel's.
_LEAST_NEUSIGHT_US = 100.0
_MOST_ROWS_PER_GROUP = 300  # of one kind of kernel and one pair of GPUs
_SIZE = 4096  # of the tuners' matrices and images


class Pair(Struct, frozen=True, kw_only=True):
    """One launch, its time on a source GPU, and what the target took."""

    kind: str  # class of kernels
    source: str  # keys of GPUs
    target: str
    row: TransferRow
    target_us: float
    arguments: str = ""  # of the launch, as JSON; empty where the code is not here


def _make_row(
    kernel: str, dims: tuple[Dim3, Dim3], resources: tuple[int, int], work: tuple[float, float], us: float
) -> TransferRow:
    """Return a row without a table. resources: registers and shared bytes; work: operations and bytes."""
    return TransferRow(
        line=1,
        fields=(),
        kernel=kernel,
        grid=dims[0],
        block=dims[1],
        registers=resources[0] or None,
        shared_bytes=resources[1],
        flops=work[0],
        moved_bytes=work[1],
        time_us=us,
    )


def load_typed_pairs() -> list[Pair]:
    """Return the report's rows as typed: sizes that both GPUs ran, in both directions."""
    groups: dict[tuple[str, str, str], dict[str, list[dict[str, str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with (DATA / "crossgpu_seed002" / "runs_2080ti_4070.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["kernel"] in REPORT_CLASSES:
                groups[row["kernel"], row["N"], row["rows"]][_REPORT_GPUS[row["gpu"]]].append(row)
    return [
        _make_typed_pair(row, source, target, of_gpu[target])
        for of_gpu in groups.values()
        for source, target in _list_directions(of_gpu)
        for row in of_gpu[source]
    ]


def _make_typed_pair(
    row: Mapping[str, str], source: str, target: str, others: Sequence[Mapping[str, str]]
) -> Pair:
    same = [other for other in others if other["iters"] == row["iters"]] or others
    target_us = 1e3 * sum(float(other["mean_ms"]) for other in same) / len(same)
    if len(same) == 1 and row["iters"] and not same[0]["iters"] and row["kernel"] == "atomic_hotspot":
        target_us *= float(row["iters"]) / 75.0  # a mean over runs of 50 and 100 iterations
    work = (float(row["FLOPs"]), float(row["BYTES"]))
    dims = (Dim3(int(row["grid_blocks"])), Dim3(int(row["block"])))
    resources = (int(row["regs"]), int(row["shmem"]))
    return Pair(
        kind=REPORT_CLASSES[row["kernel"]],
        source=source,
        target=target,
        row=_make_row(row["kernel"], dims, resources, work, 1e3 * float(row["mean_ms"])),
        target_us=target_us,
    )


def load_corrected_pairs() -> list[Pair]:
    """Return the report's kernels with their launches as they were, in both directions."""
    groups: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    with (DATA / "measured" / "cases.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["suite"] == "report16":
                groups[row["step"], row["config"]][_MEASURED_GPUS[row["gpu"]]] = row
    return [
        _make_corrected_pair(of_gpu[source], source, target, float(of_gpu[target]["time_us"]))
        for of_gpu in groups.values()
        for source, target in _list_directions(of_gpu)
    ]


def _make_corrected_pair(row: Mapping[str, str], source: str, target: str, target_us: float) -> Pair:
    dims = tuple(Dim3(*map(int, row[name].split(";"))) for name in ("grid", "block"))
    resources = (int(row["registers"]), int(row["static_shared_bytes"]))
    work = _count_report_work(row["step"], json.loads(row["config"]))
    # Named buffers held zeros.
    arguments = ["zeros" if str(value).startswith("@") else value for value in json.loads(row["arguments"])]
    return Pair(
        kind=REPORT_CLASSES[row["step"]],
        source=source,
        target=target,
        row=_make_row(row["step"], (dims[0], dims[1]), resources, work, float(row["time_us"])),
        target_us=target_us,
        arguments=json.dumps(arguments),
    )


def _count_report_work(kernel: str, config: Mapping[str, Any]) -> tuple[float, float]:
    """Return operations and bytes by the description of a kernel; a stride moves whole sectors."""
    n = float(config.get("N", 0))
    if kernel.startswith("matmul"):
        size = float(config["matN"])
        return 2 * size**3, 12 * size**2
    if kernel.startswith("conv"):
        pixels = float(config["H"] * config["W"])
        return 2 * config["K"] ** 2 * pixels, 8 * pixels
    if kernel.endswith("transpose"):
        return 0.0, 8.0 * config["rows"] * config["cols"]
    per_element = {
        "vector_add": (1, 12),
        "vector_add_divergent": (1, 12),
        "saxpy": (2, 12),
        "strided_copy_8": (0, 8),
        "random_access": (0, 8),
        "reduce_sum": (1, 4),
        "dot_product": (2, 8),
        "histogram": (0, 4),
        "atomic_hotspot": (0, 0),
    }
    flops, moved_bytes = per_element[kernel]
    return flops * n, moved_bytes * n


def _list_directions(of_gpu: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(source, target) for source in of_gpu for target in of_gpu if source != target]


def load_other_pairs() -> list[Pair]:
    """Return launches of other sources, at most so many for a kind and two GPUs, chosen with a fixed seed."""
    groups: dict[tuple[str, str, str], list[Pair]] = defaultdict(list)
    for pair in (*_read_neusight(), *_read_tuners()):
        groups[pair.kind, pair.source, pair.target].append(pair)
    chosen = random.Random(0)
    return [
        pair
        for _, pairs in sorted(groups.items())
        for pair in chosen.sample(pairs, min(len(pairs), _MOST_ROWS_PER_GROUP))
    ]


def _read_parquet(path: Path) -> Iterable[dict[str, Any]]:
    import pyarrow.parquet as parquet

    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def _read_neusight() -> Iterator[Pair]:
    """Yield PyTorch's kernels that have one name and one grid on two GPUs."""
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in _read_parquet(DATA / "neusight" / "nv_train_collect.parquet"):
        if row["Device"] in _NEUSIGHT_GPUS and row["Kernel Name"] and row["OPName"] != "conv":
            groups[tuple(row[name] for name in _NEUSIGHT_KEYS)][_NEUSIGHT_GPUS[row["Device"]]] = row
    for of_gpu in groups.values():
        for source, target in _list_directions(of_gpu):
            row, target_us = of_gpu[source], 1e3 * of_gpu[target]["Latency"]
            if min(1e3 * row["Latency"], target_us) < _LEAST_NEUSIGHT_US:
                continue
            operator = row["OPName"]
            dims = (Dim3(row["Grid x"], row["Grid y"], row["Grid z"]), Dim3(row["Block x"], row["Block y"]))
            launch = _make_row(operator, dims, (0, 0), _count_operator_work(row), 1e3 * row["Latency"])
            kind = operator if operator in ("bmm", "linear", "softmax", "ln") else "elementwise"
            yield Pair(kind=kind, source=source, target=target, row=launch, target_us=target_us)


def _count_operator_work(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return operations and bytes of an FP32 operator of PyTorch."""
    b, h = row["B"], row["H"]
    operator = row["OPName"]
    if operator in ("bmm", "linear"):
        m, n, k = row["M"], row["N"], row["K"]
        weights = n * k * (b if operator == "bmm" else 1)
        return 2.0 * b * m * n * k, 4.0 * (b * m * n + weights + b * m * k)
    elements = float(b * h)
    if operator in ("softmax", "ln"):
        return (5.0 if operator == "softmax" else 8.0) * elements, 8.0 * elements
    return elements, (12.0 if operator in ("add", "div", "mul", "pow") else 8.0) * elements


def _read_tuners() -> Iterator[Pair]:
    """Yield configurations of tuning sweeps that two GPUs ran."""
    for name, place in _TUNER_LAUNCHES.items():
        groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
        for row in _read_parquet(DATA / "kernel_tuner" / f"{name}.parquet"):
            # The second campaign of the convolutions carries another tuner's times.
            is_doubtful = name == "convolution" and row["file"].startswith("currently_unused/cachefiles/conv")
            if row["status"] == "ok" and row["device"] in _TUNER_GPUS and not is_doubtful:
                skipped = (*_TUNER_OUTCOMES, "device", "file")
                config = tuple(value for key, value in row.items() if key not in skipped)
                groups[config][_TUNER_GPUS[row["device"]]] = row
        for of_gpu in groups.values():
            for source, target in _list_directions(of_gpu):
                found = of_gpu[source]
                dims, work = place(found)
                launch = _make_row(name, dims, (0, 0), work, 1e3 * found["time_ms"])
                us = 1e3 * of_gpu[target]["time_ms"]
                yield Pair(kind=name, source=source, target=target, row=launch, target_us=us)


Placed = tuple[tuple[Dim3, Dim3], tuple[float, float]]


def _place_gemm(row: Mapping[str, Any]) -> Placed:
    dims = (Dim3(_SIZE // row["MWG"], _SIZE // row["NWG"]), Dim3(row["MDIMC"], row["NDIMC"]))
    return dims, (2.0 * _SIZE**3, 12.0 * _SIZE**2)


def _place_convolution(row: Mapping[str, Any]) -> Placed:
    block = Dim3(row["block_size_x"], row["block_size_y"])
    grid = Dim3(
        math.ceil(_SIZE / (block.x * row["tile_size_x"])), math.ceil(_SIZE / (block.y * row["tile_size_y"]))
    )
    return (grid, block), (2.0 * 15**2 * _SIZE**2, 8.0 * _SIZE**2)


def _place_dedispersion(row: Mapping[str, Any]) -> Placed:
    channels, samples, measures, row_bytes = 1536, 25_000, 2048, 25_650
    block = Dim3(row["block_size_x"], row["block_size_y"])
    grid = Dim3(
        math.ceil(samples / (block.x * row["tile_size_x"])),
        math.ceil(measures / (block.y * row["tile_size_y"])),
    )
    work = (float(channels * samples * measures), float(channels * row_bytes + 4 * samples * measures))
    return (grid, block), work


_TUNER_LAUNCHES: Mapping[str, Callable[[Mapping[str, Any]], Placed]] = {
    "gemm": _place_gemm,
    "convolution": _place_convolution,
    "dedispersion_milo": _place_dedispersion,
}
