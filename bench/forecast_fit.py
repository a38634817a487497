"""Runs with measured times, and figures of `hwdb/serving.toml` fitted on some of them.

A figure is fitted by its logarithm, towards a prior from microbenchmarks: 32 times (prefill and decode step
of 16 runs) decide a dozen figures. `fit` returns factors on the shipped figures: at 1 the runs agree.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median_low
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from analyzer.forecast.collective_times import GroupLink
from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.model_config import read_model_config
from analyzer.forecast.operator_calls import Step
from analyzer.forecast.operator_sequence import list_steps
from analyzer.forecast.request_trace import read_request_trace
from analyzer.forecast.serving_rates import ServingRates, compute_rates
from analyzer.forecast.step_times import StepTime, time_step
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.operators.sustained_rates import SustainedRates

GPU_KEYS = {"A100-80GB SXM": "a100-80gb-sxm", "A40": "a40", "H20": "h20", "L20": "l20"}
_RATE_SIGMA = 0.03
PREFILL_SIGMA, DECODE_SIGMA = 0.01, 0.025  # noise of the times: clocks wander by one percent between models


@dataclass(frozen=True)
class Run:
    """A run of a model with its measured times and what others predicted for it."""

    gpu: Gpu
    model: str
    workload: str
    tensor_parallel: int
    prefill_ms: float
    decode_ms: float
    total_ms: float
    peers: Mapping[str, tuple[float, float, float]]  # prefill, decode, total in ms by predictor
    prefill: Step
    median_decode: Step
    decode_steps: int


@dataclass(frozen=True)
class Knob:
    """A figure that runs may move: fields of `ServingRates` that it multiplies, and where."""

    name: str
    fields: tuple[str, ...]
    prior_sigma: float  # of its logarithm
    memory: str = ""  # kind of memory begins so
    gpu: str = ""
    prior: float = 1.0  # factor on the shipped figure

    def applies(self, gpu: Gpu) -> bool:
        """Return whether the figure is one of this GPU."""
        return gpu.file.memory.kind.startswith(self.memory) and self.gpu in ("", gpu.key)


PEERS = ("pipeweave", "neusight", "roofline", "linear", "habitat")


def load_runs(data: Path) -> list[Run]:
    """Return the open runs; their operators follow from configuration and trace."""
    with (data / "end_to_end.csv").open(encoding="utf-8", newline="") as file:
        return [_load_run(data, row) for row in csv.DictReader(file)]


def _load_run(data: Path, row: Mapping[str, str]) -> Run:
    gpu = load_gpu(GPU_KEYS[row["gpu"]])
    deployment = Deployment(
        gpu=gpu,
        tensor_parallel=int(row["tp"]),
        pipeline_parallel=int(row["pp"]),
        framework=Framework(row["framework"]),
    )
    config = read_model_config(data / "model_configs" / f"{row['model']}.json")
    trace = read_request_trace(data / "workloads" / f"{row['workload']}.csv")
    prefill, *decodes = list_steps(config, deployment, trace.requests)
    middle = median_low([step.kv_tokens for step in decodes])
    peers = {
        peer: (
            float(row[f"{peer}_prefill_ms"]),
            float(row[f"{peer}_decode_ms"]),
            float(row[f"{peer}_total_ms"]),
        )
        for peer in PEERS
        if row[f"{peer}_total_ms"]
    }
    return Run(
        gpu=gpu,
        model=row["model"],
        workload=row["workload"],
        tensor_parallel=int(row["tp"]),
        prefill_ms=float(row["prefill_ms"]),
        decode_ms=float(row["decode_ms"]),
        total_ms=float(row["total_ms"]),
        peers=peers,
        prefill=prefill,
        median_decode=next(step for step in decodes if step.kv_tokens == middle),
        decode_steps=len(decodes),
    )


KNOBS = (
    Knob("all-reduce of large messages", ("large_scale",), 0.05),
    Knob("all-reduce of small messages, two GPUs", ("small_pair_us",), 0.4),
    Knob("all-reduce of small messages, more", ("small_group_us",), 0.4),
    Knob("framework, per decode step", ("decode_host_us",), 0.5),
)


_PARTS = {"link": GroupLink.__struct_fields__, "sustained": SustainedRates.__struct_fields__}
_OWNERS = {name: part for part, names in _PARTS.items() for name in names}  # of figures of a part


@cache
def _find_shipped(gpu: str, *, uses_measured: bool) -> ServingRates:
    return compute_rates(load_gpu(gpu), uses_measured=uses_measured)


@dataclass(frozen=True)
class Setting:
    """How rates are made: which knobs there are, and what of the GPU is known."""

    knobs: tuple[Knob, ...] = KNOBS
    unmeasured: frozenset[str] = frozenset()  # GPUs whose rate comes from the datasheet
    fixed: Mapping[str, float] = field(default_factory=dict)  # fields set to a value: ablations

    def make_rates(self, gpu: Gpu, factors: Mapping[str, float]) -> ServingRates:
        """Return a GPU's rates with the knobs' factors."""
        rates = _find_shipped(gpu.key, uses_measured=gpu.key not in self.unmeasured)
        values: dict[str, float] = {}
        for knob in self.knobs:
            if knob.applies(gpu):
                for name in knob.fields:
                    owner = getattr(rates, _OWNERS[name]) if name in _OWNERS else rates
                    values[name] = getattr(owner, name) * factors.get(knob.name, 1.0)
        values |= self.fixed
        own: dict[str, Any] = {name: value for name, value in values.items() if name not in _OWNERS}
        for part in _PARTS:
            changed = {name: value for name, value in values.items() if _OWNERS.get(name) == part}
            own[part] = msgspec.structs.replace(getattr(rates, part), **changed)
        return msgspec.structs.replace(rates, **own)


@dataclass(frozen=True)
class Forecast:
    """Times of a run in ms, with the times of its two kinds of steps."""

    prefill: StepTime
    decode: StepTime
    prefill_ms: float
    decode_ms: float
    total_ms: float


def forecast(run: Run, rates: ServingRates) -> Forecast:
    """Return the forecast of a run; all decode steps take the median step's time, as the totals confirm."""
    prefill, decode = time_step(run.prefill, rates), time_step(run.median_decode, rates)
    total_us = prefill.total_us + run.decode_steps * decode.total_us
    return Forecast(prefill, decode, prefill.total_us / 1e3, decode.total_us / 1e3, total_us / 1e3)


def add_rate_knobs(runs: Sequence[Run], setting: Setting) -> Setting:
    """Return a setting in which the rate of each GPU of the runs may move by a few percent too."""
    gpus = sorted({run.gpu.key for run in runs})
    rates = tuple(Knob(f"rate {gpu}", ("tensor_tflops",), _RATE_SIGMA, gpu=gpu) for gpu in gpus)
    return Setting((*setting.knobs, *rates), setting.unmeasured, setting.fixed)


def fit(runs: Sequence[Run], setting: Setting) -> dict[str, float]:
    """Return the factor of each knob: least squares of log times, and of logs of factors over their sigma."""
    gpus = sorted({run.gpu.key for run in runs})
    wide = add_rate_knobs(runs, setting)
    every = [knob for knob in wide.knobs if any(knob.applies(load_gpu(gpu)) for gpu in gpus)]
    sigmas = np.array([knob.prior_sigma for knob in every])

    def measure(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        factors = {knob.name: float(np.exp(value)) for knob, value in zip(every, logs, strict=True)}
        rates = {gpu: wide.make_rates(load_gpu(gpu), factors) for gpu in gpus}
        found = [forecast(run, rates[run.gpu.key]) for run in runs]
        prefill = [
            np.log(f.prefill_ms / r.prefill_ms) / PREFILL_SIGMA for f, r in zip(found, runs, strict=True)
        ]
        decode = [np.log(f.decode_ms / r.decode_ms) / DECODE_SIGMA for f, r in zip(found, runs, strict=True)]
        return np.array([*prefill, *decode, *(logs / sigmas)])

    solved = least_squares(measure, np.zeros(len(every)), diff_step=1e-4, loss="soft_l1")
    return {knob.name: float(np.exp(value)) for knob, value in zip(every, solved.x, strict=True)}
