"""Print simulated against published runs of serving engines.

    python bench/serving_published.py [--chip sxm|pcie]

`serving_published.csv` holds what the performance lab of gpustack/gpustack (Apache-2.0) reports of `vllm
bench serve` with random prompts of one length, all sent at once: vLLM 0.11.0 and SGLang 0.5.5.post1 on one
GPU (docs/performance-lab at commits 10e9444, 7ae332a). Neither step times nor schedulers were fitted to
them.

The pages say H100 (one of them SXM) and A100. What they measured is a PCIe card: a decode step of
Qwen3-32B, which reads 65.5 GB of weights, took 43.3 ms and 48.5 ms, 1.51 and 1.35 TB/s; the SXM cards have
3.35 and 2.04 TB/s, and other pages of the same lab show 2.3 TB/s on an H100 SXM. So `pcie` is what is
compared, and `sxm` shows the difference.

Left out: prompts of 128 tokens with 4 outputs (44 requests/s is what the HTTP front end lets through),
ShareGPT (whose lengths are not listed), TensorRT-LLM. Prompts are 3,996 and 1,996 tokens as counted by the
tool, outputs what came on average.
"""

import argparse
import csv
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import Struct
from tabulate import tabulate

from analyzer.forecast.batch_schedulers import make_scheduler
from analyzer.forecast.continuous_batching import ServingRun, simulate_serving
from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.engine_limits import GivenLimits, find_limits
from analyzer.forecast.model_config import read_model_config
from analyzer.forecast.operator_sequence import StepMaker
from analyzer.forecast.serving_load import make_load
from analyzer.forecast.serving_rates import find_rates
from analyzer.forecast.serving_statistics import compute_duration_s, compute_latencies
from analyzer.forecast.step_clock import BucketedClock, StepTable
from analyzer.forecast.step_times import time_steps
from analyzer.forecast.token_gaps import locate_gap
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.names import DataType

_TABLE = Path(__file__).with_name("serving_published.csv")
_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151936,
    "hidden_size": 5120,
}  # fmt: skip
_CONFIGS = {
    "Qwen3-14B": _QWEN3 | {"intermediate_size": 17408, "num_hidden_layers": 40, "num_attention_heads": 40},
    "Qwen3-32B": _QWEN3 | {"intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64},
}
_CHIPS = {
    "pcie": {"h100": "h100-pcie", "a100": "a100-80gb-pcie"},
    "sxm": {"h100": "h100-sxm", "a100": "a100-80gb-sxm"},
}


class _Published(Struct, frozen=True):
    """One run as it was published; times in ms but for the duration."""

    model: str
    gpu: str
    framework: str
    dtype: str
    count: int
    prompt_tokens: int
    output_tokens: int
    duration_s: float
    ttft_mean_ms: float
    tpot_p50_ms: float
    itl_p50_ms: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", choices=tuple(_CHIPS), default="pcie")
    chip = parser.parse_args().chip
    rows, errors = [], []
    for published in _read_table():
        gpu = _CHIPS[chip][published.gpu]
        run = _simulate(published, gpu)
        latencies = compute_latencies(run)
        pairs = (
            (compute_duration_s(run), published.duration_s),
            (float(latencies.ttft_ms.mean()), published.ttft_mean_ms),
            (float(np.median(latencies.tpot_ms)), published.tpot_p50_ms),
            (locate_gap(0.5, run.gap_counts) * 1e3, published.itl_p50_ms),
        )
        errors.append([100 * (found / wanted - 1) for found, wanted in pairs])
        what = f"{published.model} {published.dtype}, {gpu}, {published.framework}"
        lengths = f"{published.prompt_tokens:,} / {published.output_tokens}"
        duration = f"{pairs[0][0]:,.0f} / {published.duration_s:,.0f}"
        tpot = f"{pairs[2][0]:.0f} / {published.tpot_p50_ms:.0f}"
        rows.append((what, lengths, duration, tpot, *(f"{error:+.1f}" for error in errors[-1])))
    means = np.abs(np.array(errors)).mean(axis=0)
    rows.append(("mean absolute", "", "", "", *(f"{mean:.1f}" for mean in means)))
    heads = (
        "case",
        "prompt / output",
        "duration s",
        "TPOT p50 ms",
        "duration %",
        "TTFT %",
        "TPOT %",
        "ITL p50 %",
    )
    print("simulated / published, and error in percent")
    print(tabulate(rows, heads, disable_numparse=True, stralign="right"))


def _read_table() -> list[_Published]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        _Published(
            model=row["model"],
            gpu=row["gpu"],
            framework=row["framework"],
            dtype=row["dtype"],
            count=int(row["count"]),
            prompt_tokens=int(row["prompt_tokens"]),
            output_tokens=int(row["output_tokens"]),
            duration_s=float(row["duration_s"]),
            ttft_mean_ms=float(row["ttft_mean_ms"]),
            tpot_p50_ms=float(row["tpot_p50_ms"]),
            itl_p50_ms=float(row["itl_p50_ms"]),
        )
        for row in rows
    ]


def _simulate(published: _Published, gpu: str) -> ServingRun:
    """Return the same run, with the framework's default limits."""
    model = read_model_config(_CONFIGS[published.model])
    deployment = Deployment(
        load_gpu(gpu), framework=Framework(published.framework), dtype=DataType(published.dtype)
    )
    rates = find_rates(deployment)
    count = published.count
    load = make_load([0.0] * count, [published.prompt_tokens] * count, [published.output_tokens] * count)
    limits = find_limits(model, deployment, load, GivenLimits(), published.model)
    table = StepTable(StepMaker(model, deployment).make, partial(time_steps, rates=rates))
    clock = BucketedClock(table)
    return simulate_serving(load, limits, make_scheduler(deployment.framework), clock)


if __name__ == "__main__":
    main()
