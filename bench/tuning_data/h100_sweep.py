"""Sweeps of three Triton kernels on one H100, and WaveTune's own plan of a product there (traces/h100).

The sweeps (`sweep.jsonl.xz`) try tile sizes x warps x stages on shapes of real models: GEMM (28 shapes, 432
configurations), fused MoE (20 shapes, 1,032 configurations), attention without and with a causal mask (5 and
6 shapes, 120 configurations); the time is the warm median of 7. About a fifth of the launches was never
tried (the order was random), some do not fit the SM. The plan (`measurements.jsonl.xz`, family
wavetune) has waves 1 to 12, three sub-intervals, four loop counts, six tiles, four pairs of warps and stages:
3,456 times.
"""

import json
import lzma
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.tuning.kernel_space import Integers, find_kernel
from analyzer.tuning.samples import Samples

GPU = "h100-sxm"
N_SMS = 132
_FOLDER = Path(__file__).resolve().parents[2] / "traces" / "h100"
_CONFIG = re.compile(r"(\d+)x(\d+)(?:x(\d+))?(?:_g(\d+))?_w(\d+)_s(\d+)$")
# Name of the sweep: its kernel, and which records it has.
SWEEPS = {
    "gemm": "gemm",
    "grouped_gemm": "grouped_gemm",
    "attention": "flash_attention",
    "causal attention": "flash_attention",
}


def load_sweep(name: str) -> Samples:
    """Return the rows of one of SWEEPS that have a time, sorted."""
    return _load_sweeps()[name]


@cache
def _load_sweeps() -> dict[str, Samples]:
    rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in SWEEPS}
    times: dict[str, list[float]] = {name: [] for name in SWEEPS}
    for record in _read_records("sweep.jsonl.xz"):
        if record["status"] == "ok":
            name, shape = _describe(record["family"], record["work"])
            rows[name].append((*shape, *_read_config(record["case_id"])))
            times[name].append(record["time_us_median"])
    return {name: _make_samples(SWEEPS[name], rows[name], times[name]) for name in SWEEPS}


def load_plan() -> Samples:
    """Return WaveTune's plan of a bf16 product, measured warm."""
    rows, times = [], []
    for record in _read_records("measurements.jsonl.xz"):
        if record.get("family") == "wavetune" and record["status"] == "ok":
            work = record["work"]
            rows.append((work["M"], work["N"], work["K"], *work["macro"], *work["micro"]))
            times.append(record["time_us_warm_median"])
    return _make_samples("gemm", rows, times)


def split_shapes(samples: Samples) -> Integers:
    """Return the half (0 or 1) of each row: distinct shapes, sorted, belong to the halves by turns."""
    halves: Integers = samples.number_shapes()[1] % 2
    return halves


def _read_records(name: str) -> Iterator[dict[str, Any]]:
    with lzma.open(_FOLDER / name, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _describe(family: str, work: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    """Return the name of the sweep and the inputs, in the order of the kernel's space."""
    match family:
        case "gemm":
            return "gemm", (work["M"], work["N"], work["K"])
        case "moe":
            return "grouped_gemm", (work["T"], work["E"], work["topk"], work["N"], work["K"])
        case _:
            name = "causal attention" if work["causal"] else "attention"
            return name, (work["B"], work["H"], work["S"], work["SK"])


def _read_config(case_id: str) -> tuple[int, ...]:
    """Return macro and micro parameters of `.../128x256x64_g16_w8_s3`."""
    found = _CONFIG.search(case_id)
    assert found is not None, case_id
    return tuple(int(value) for value in found.groups() if value is not None)


def _make_samples(kernel: str, rows: list[tuple[int, ...]], times: list[float]) -> Samples:
    space = find_kernel(kernel).space
    table, time_us = np.array(rows, dtype=np.int64), np.array(times)
    order = np.lexsort(table.T[::-1])
    table, time_us = table[order], time_us[order]
    n_inputs = len(space.inputs)
    n_macro = n_inputs + len(space.macro_parameters)
    return Samples(space, GPU, table[:, :n_inputs], table[:, n_inputs:n_macro], table[:, n_macro:], time_us)
