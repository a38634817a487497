"""Print how fast serving is simulated, and what rounded step times cost.

    python bench/serving_speed.py [--requests 10000] [--exact-requests 200]

The first table: simulated seconds for each second of one core, at several loads; about 1,000 output tokens
per request. The second: durations by `BucketedClock` against those of the same steps with their own lengths,
in percent. The third: the same loads simulated with either clock (`ExactClock` is the standard), relative
differences of what a report shows. All ask the shipped step times; the models' sizes are those of their
published configurations.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import numpy as np
from exact_clock import ExactClock
from msgspec import Struct
from tabulate import tabulate

from analyzer.forecast.batch_schedulers import make_scheduler
from analyzer.forecast.continuous_batching import ServingRun, simulate_serving
from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.engine_limits import GivenLimits, choose_limits
from analyzer.forecast.engine_state import EngineLimits, EngineState, StepPlan
from analyzer.forecast.memory_fit import compute_memory
from analyzer.forecast.model_config import ModelConfig, read_model_config
from analyzer.forecast.operator_calls import Phase
from analyzer.forecast.operator_sequence import StepMaker
from analyzer.forecast.serving_load import ArrivalProcess, ServingLoad, make_arrivals, make_load, scale_rate
from analyzer.forecast.serving_rates import find_rates
from analyzer.forecast.serving_statistics import compute_duration_s, compute_latencies
from analyzer.forecast.step_clock import (
    BucketedClock,
    StepClock,
    StepLengths,
    StepShape,
    StepTable,
)
from analyzer.forecast.step_times import time_steps
from analyzer.hardware.gpu_database import load_gpu

_CONFIGS = {
    "Llama 3.1 8B": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    },
    "Llama 3.1 70B": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    },
    "Mixtral 8x7B": {
        "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "num_local_experts": 8, "num_experts_per_tok": 2,
    },
}  # fmt: skip
_CASES = (("Llama 3.1 8B", "h100", 1), ("Llama 3.1 70B", "a100", 4), ("Mixtral 8x7B", "l40s", 4))
_LOADS = (0.3, 0.8, 1.2)  # of the rate at which a batch at once is served
_EXACT_LOAD = 0.7
_MEAN_OUTPUT = 1_000
_SAMPLED_RUNS = 2_000  # runs of decode steps whose first step is compared


class _Case(Struct, frozen=True):
    """A model on GPUs, by one framework."""

    name: str
    model: ModelConfig
    deployment: Deployment
    limits: EngineLimits

    def make_clocks(self) -> tuple[BucketedClock, ExactClock]:
        """Return a clock that rounds and one that does not."""
        rates = find_rates(self.deployment)

        timer = partial(time_steps, rates=rates)
        make = StepMaker(self.model, self.deployment).make
        return BucketedClock(StepTable(make, timer)), ExactClock(make, timer)

    def simulate(self, load: ServingLoad, clock: StepClock) -> ServingRun:
        """Return what becomes of a load."""
        return simulate_serving(load, self.limits, make_scheduler(self.deployment.framework), clock)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--exact-requests", type=int, default=200)
    arguments = parser.parse_args()
    cases = [_make_case(*case, framework) for case in _CASES for framework in Framework]
    rows = [row for case in cases[:2] for row in _time_case(case, _draw_load(arguments.requests))]
    heads = ("case", "load", "requests", "simulated s", "steps", "asked for", "wall s", "simulated / wall")
    print(tabulate(rows, heads, floatfmt=".4g"), end="\n\n")
    errors, differences = [], []
    for case in cases:
        load = _draw_load(arguments.exact_requests)
        load = scale_rate(load, _EXACT_LOAD * _find_rate(case, load))
        errors += _compare_steps(case, load)
        differences.append(_compare_runs(case, load))
    print(
        tabulate(errors, ("case", "phase", "steps", "mean |%|", "P90 |%|", "bias %"), floatfmt=".2f"),
        end="\n\n",
    )
    heads = (
        "case",
        "duration %",
        "TTFT p50 %",
        "p99 %",
        "TPOT p50 %",
        "p99 %",
        "end to end p50 %",
        "exact / wall",
    )
    print(tabulate(differences, heads, floatfmt=".2f"))


def _make_case(name: str, gpu: str, tensor_parallel: int, framework: Framework) -> _Case:
    model = read_model_config(_CONFIGS[name])
    deployment = Deployment(load_gpu(gpu), tensor_parallel=tensor_parallel, framework=framework)
    memory = compute_memory(model, deployment, kv_tokens=1, step_tokens=8192, batch=256)
    limits = choose_limits(deployment, GivenLimits(), memory.kv_capacity_tokens)
    return _Case(f"{name}, {tensor_parallel} x {gpu}, {framework}", model, deployment, limits)


def _draw_load(count: int) -> ServingLoad:
    """Return requests of mixed lengths, one a second: prompts of 50 to 8,000 tokens, mean output 1,000."""
    random = np.random.default_rng(0)
    prompts = np.clip(random.lognormal(6.5, 1.0, count), 50, 8_000).astype(int)
    outputs = random.integers(200, 2 * _MEAN_OUTPUT - 200, count)
    return make_load(make_arrivals(ArrivalProcess.POISSON, count, 1.0, 0), prompts.tolist(), outputs.tolist())


def _find_rate(case: _Case, load: ServingLoad) -> float:
    """Return the requests per second at which a batch at once is served."""
    run = case.simulate(scale_rate(load, float("inf")), case.make_clocks()[0])
    return load.n_requests / compute_duration_s(run)


def _time_case(case: _Case, load: ServingLoad) -> list[Sequence[object]]:
    """Return a row for each load; the first has a clock that has seen no step."""
    rate = _find_rate(case, load)
    rows: list[Sequence[object]] = []
    clock, _ = case.make_clocks()
    for share in _LOADS:
        scaled, known = scale_rate(load, share * rate), clock.n_timed
        begin = perf_counter()
        run = case.simulate(scaled, clock)
        wall_s = perf_counter() - begin
        simulated_s = compute_duration_s(run)
        asked = clock.n_timed - known
        rows.append(
            (case.name, share, load.n_requests, simulated_s, run.steps, asked, wall_s, simulated_s / wall_s)
        )
    return rows


def _compare_steps(case: _Case, load: ServingLoad) -> list[Sequence[object]]:
    """Return errors of rounded durations, by phase."""
    bucketed, exact = case.make_clocks()
    errors: dict[Phase, list[float]] = {}

    def observe(state: EngineState, plan: StepPlan, *, start_s: float, steps: int, end_s: float) -> None:
        phase = Phase.DECODE if not plan.prefills else Phase.MIXED if plan.decodes else Phase.PREFILL
        found = errors.setdefault(phase, [])
        if phase is not Phase.DECODE:
            found.append((end_s - start_s) / recorder.last_s - 1)
        elif len(found) < _SAMPLED_RUNS:
            kv_lengths = tuple((state.decoding.list_held() + 1).tolist())
            shape = StepShape(decodes=len(kv_lengths), decode_kv_tokens=sum(kv_lengths))
            lengths = StepLengths((1,) * len(kv_lengths), kv_lengths)
            pair = [
                float(clock.time_decode_run(shape, lambda each=lengths: each, 1)[0])  # type: ignore[misc]
                for clock in (bucketed, exact)
            ]
            found.append(pair[0] / pair[1] - 1)

    recorder = _PairedClock(bucketed, exact)
    simulate_serving(load, case.limits, make_scheduler(case.deployment.framework), recorder, observe)
    rows: list[Sequence[object]] = []
    for phase, found in errors.items():
        percent = 100 * np.array(found)
        p90 = float(np.quantile(abs(percent), 0.9))
        rows.append((case.name, phase.value, len(found), abs(percent).mean(), p90, percent.mean()))
    return rows


class _PairedClock:
    """A rounding clock that keeps what the last step with prefills would have taken exactly."""

    def __init__(self, bucketed: BucketedClock, exact: ExactClock) -> None:
        self._exact = exact
        self.time_decode_run = bucketed.time_decode_run
        self._time_step = bucketed.time_step
        self.last_s = 0.0

    def time_step(self, shape: StepShape, list_lengths: Callable[[], StepLengths]) -> float:
        """Return the rounded duration."""
        self.last_s = self._exact.time_step(shape, list_lengths)
        return self._time_step(shape, list_lengths)


def _compare_runs(case: _Case, load: ServingLoad) -> Sequence[object]:
    """Return relative differences of two simulations of a load, and how much longer the exact one takes."""
    bucketed, exact = case.make_clocks()
    begin = perf_counter()
    rounded = _summarize(case.simulate(load, bucketed))
    middle = perf_counter()
    standard = _summarize(case.simulate(load, exact))
    ratio = (perf_counter() - middle) / (middle - begin)
    return (case.name, *(100 * (rounded / standard - 1)), ratio)


def _summarize(run: ServingRun) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return what is compared: duration, TTFT p50 and p99, TPOT p50 and p99, end to end p50."""
    latencies = compute_latencies(run)
    ttft, tpot = (np.quantile(values, [0.5, 0.99]) for values in (latencies.ttft_ms, latencies.tpot_ms))
    return np.array([compute_duration_s(run), *ttft, *tpot, np.median(latencies.end_to_end_ms)])


if __name__ == "__main__":
    main()
