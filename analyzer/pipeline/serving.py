"""Model, requests and arrivals to a report of serving: latencies, throughput, sustainable rate, goodput."""

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.forecast.continuous_batching import ServingRun
from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.engine_limits import GivenLimits, find_limits
from analyzer.forecast.engine_state import EngineLimits
from analyzer.forecast.model_config import ModelConfig, read_model_config
from analyzer.forecast.operator_sequence import StepMaker
from analyzer.forecast.pipelined_serving import simulate_pipeline
from analyzer.forecast.rate_search import RateSearch, find_saturated_rate
from analyzer.forecast.request_trace import MAX_REQUESTS, Request, RequestTrace, take_requests
from analyzer.forecast.serving_load import ArrivalProcess, ServingLoad, make_arrivals, make_load
from analyzer.forecast.serving_rates import find_rates
from analyzer.forecast.serving_statistics import (
    LatencyTarget,
    compute_latencies,
    find_met,
    is_long_enough,
)
from analyzer.forecast.step_clock import BucketedClock, StepTable
from analyzer.forecast.step_times import time_steps
from analyzer.pipeline.forecast import ForecastOptions, find_config_file, make_deployment, name_model
from analyzer.pipeline.serving_entries import make_end_entry, make_rate_entry, make_run_entries
from analyzer.report.serving_schema import (
    ServingEndEntry,
    ServingEngineEntry,
    ServingLoadEntry,
    ServingObjectiveEntry,
    ServingReport,
)
from analyzer.text.errors import UsageError
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__

_MAX_OUTPUT_TOKENS = 50_000_000  # of all requests: what a run may simulate
_MAX_LIMIT = 1 << 24
_SWEPT_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1)  # of the saturated throughput
_GOODPUT_SHARES = (0.90, 0.99)


class ServingOptions(Struct, frozen=True, kw_only=True):
    """Load, engine and objective, as users say them; None: as the trace or the framework has it."""

    rate: float | None = None  # requests per second; None: the arrival times of the trace
    count: int | None = None  # requests; None: as the trace has them
    process: ArrivalProcess = ArrivalProcess.POISSON  # with a rate
    seed: int = 0
    limits: GivenLimits = GivenLimits()
    slo_ttft_ms: float | None = None
    slo_tpot_ms: float | None = None
    finds_rates: bool = False  # search the sustainable rate and the goodput
    sweeps: bool = False  # simulate a range of rates

    @property
    def searches(self) -> bool:
        """Return whether other rates are simulated."""
        return self.finds_rates or self.sweeps


def simulate_model(
    config: str | Path | Mapping[str, Any],
    requests: str | Path | Sequence[Request] | RequestTrace,
    deployment: ForecastOptions,
    options: ServingOptions | None = None,
    *,
    progress: ProgressCallback = ignore_progress,
) -> ServingReport:
    """Return how an engine serves requests that arrive over time.

    config, requests: as `forecast_model` takes them; arrival times from the trace's column, or by a rate.
    Raises InputError for a file that cannot be read, UsageError for a load that cannot be served,
    HardwareError for an unknown GPU.
    """
    given = options or ServingOptions()
    model = read_model_config(find_config_file(config))
    served = make_deployment(model, deployment)
    engine = _Engine(model, served)
    trace = take_requests(requests)
    load = make_served_load(trace, given)
    name = name_model(config, model)
    limits = find_limits(model, served, load, given.limits, name)
    run = engine.simulate(load, limits)
    target = LatencyTarget(given.slo_ttft_ms, given.slo_tpot_ms)
    search = _search_rates(engine, load, limits, target, given, progress)
    return ServingReport(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        model=name,
        gpu=served.gpu.key,
        gpu_name=served.gpu.name,
        framework=served.framework.value,
        tensor_parallel=served.tensor_parallel,
        pipeline_parallel=served.pipeline_parallel,
        dtype=served.dtype.value,
        engine=ServingEngineEntry(
            scheduler=served.framework.value,
            chunk_tokens=limits.chunk_tokens,
            max_running=limits.max_running,
            kv_capacity_tokens=limits.kv_capacity_tokens,
            block_tokens=limits.block_tokens,
        ),
        load=_make_load_entry(load, trace, given),
        objective=_make_objective(run, target, search),
        saturated_per_s=None if search is None else search.saturated,
        sustainable_per_s=None if search is None else search.sustainable,
        fast_steps=engine.make_end(load, limits, _Pace.FAST, saturates=search is not None),
        slow_steps=engine.make_end(load, limits, _Pace.SLOW, saturates=search is not None),
        rates=()
        if search is None
        else tuple(make_rate_entry(rate, each, target) for rate, each in search.runs),
        assumptions=_list_assumptions(model, served, given, engine),
        warnings=(*list_load_warnings(model, trace, given, load), *_list_run_warnings(run, search)),
        **make_run_entries(run),
    )


class _Pace(IntEnum):
    """Which of a step's times is taken."""

    FAST = -1  # the lower end of its 80 % interval
    LIKELY = 0
    SLOW = 1


class _Engine:
    """One replica of a model, whose step times all simulations share."""

    def __init__(self, model: ModelConfig, deployment: Deployment) -> None:
        self.rates = find_rates(deployment)
        self._framework, self._stages = deployment.framework, deployment.pipeline_parallel
        table = StepTable(StepMaker(model, deployment).make, partial(time_steps, rates=self.rates))
        self._clocks = {pace: BucketedClock(table, pace) for pace in _Pace}

    def simulate(self, load: ServingLoad, limits: EngineLimits, pace: _Pace = _Pace.LIKELY) -> ServingRun:
        """Return what becomes of a load. Steps of one run err together, so all are at the same end."""
        return simulate_pipeline(load, limits, self._stages, self._framework, self._clocks[pace])

    def make_end(
        self, load: ServingLoad, limits: EngineLimits, pace: _Pace, *, saturates: bool
    ) -> ServingEndEntry:
        """Return what is shown of a load at one end of the step times' intervals."""
        saturated = None
        if saturates:
            saturated, _ = find_saturated_rate(load, lambda each: self.simulate(each, limits, pace))
        return make_end_entry(self.simulate(load, limits, pace), saturated)


class _Search(Struct, frozen=True):
    """What was found at other rates."""

    saturated: float
    sustainable: float | None
    goodput: tuple[float | None, ...]  # by _GOODPUT_SHARES
    runs: tuple[tuple[float, ServingRun], ...]


def _search_rates(
    engine: _Engine,
    load: ServingLoad,
    limits: EngineLimits,
    target: LatencyTarget,
    options: ServingOptions,
    progress: ProgressCallback,
) -> _Search | None:
    """Return the rates that the options ask for, None for none."""
    if not options.searches:
        return None
    done = 0

    def simulate(scaled: ServingLoad) -> ServingRun:
        nonlocal done
        done += 1
        progress(done, done + 1, "simulating rates")
        return engine.simulate(scaled, limits)

    search = RateSearch(load, simulate)
    sustainable: float | None = None
    goodput: tuple[float | None, ...] = tuple(None for _ in _GOODPUT_SHARES)
    if options.finds_rates:
        sustainable = search.find_sustainable_rate()
        if target.is_given:
            goodput = tuple(search.find_goodput(target, share) for share in _GOODPUT_SHARES)
        elif sustainable:
            search.run_at(sustainable)  # the table shows what it is like there
    if options.sweeps:
        for share in _SWEPT_SHARES:
            search.run_at(share * search.saturated_rate)
    return _Search(search.saturated_rate, sustainable, goodput, tuple(search.runs.items()))


def _check_options(options: ServingOptions) -> None:
    """Raise UsageError for a number out of range."""
    counts = (
        ("--count", options.count, MAX_REQUESTS),
        ("--chunk", options.limits.chunk_tokens, _MAX_LIMIT),
        ("--max-batch", options.limits.max_running, _MAX_LIMIT),
        ("--block", options.limits.block_tokens, 1 << 12),
        ("--kv-tokens", options.limits.kv_capacity_tokens, 1 << 40),
    )
    for name, value, most in counts:
        if value is not None and not 1 <= value <= most:
            raise UsageError(f"{name} {value} is out of range", hint=f"give a number from 1 to {most:,}")
    positives = (
        ("--rate", options.rate, "requests per second"),
        ("--slo-ttft-ms", options.slo_ttft_ms, "milliseconds"),
        ("--slo-tpot-ms", options.slo_tpot_ms, "milliseconds"),
    )
    for name, number, unit in positives:
        if number is not None and not 1e-6 <= number <= 1e9:
            raise UsageError(f"{name} {number:g} is out of range", hint=f"give {unit}, more than 0")
    if not 0 <= options.seed < 1 << 63:
        raise UsageError(f"--seed {options.seed} is out of range", hint="give 0 or more")


def make_served_load(trace: RequestTrace, options: ServingOptions) -> ServingLoad:
    """Return the requests that are served. Raises UsageError for options or a load that cannot be."""
    _check_options(options)
    load = _make_load(trace, options)
    if options.searches and not math.isfinite(load.rate_per_s):
        raise UsageError(
            "requests that all arrive at once have no rate to search from",
            hint="give --rate, with two requests at least, or a trace with arrival times",
        )
    return load


def _make_load(trace: RequestTrace, options: ServingOptions) -> ServingLoad:
    """Return requests with arrival times. Raises UsageError where the trace has none and no rate is given."""
    requests = list(trace.requests)
    if options.rate is None:
        if not trace.has_arrivals:
            raise UsageError(
                "the requests have no arrival times",
                hint="give --rate (requests per second), or a column arrival_s in seconds from the start",
            )
        if options.count is not None and options.count > len(requests):
            raise UsageError(
                f"--count {options.count:,}, and the trace has {len(requests):,} requests",
                hint="with --rate, requests are drawn from the trace as often as needed",
            )
        requests = requests[: options.count]
        arrivals = [request.arrival_s for request in requests]
    else:
        if options.count is not None and options.count != len(requests):
            drawn = np.random.default_rng([options.seed, 1]).integers(len(requests), size=options.count)
            requests = [requests[index] for index in drawn.tolist()]
        arrivals = make_arrivals(options.process, len(requests), options.rate, options.seed)
    n_outputs = sum(request.output_tokens for request in requests)
    if n_outputs > _MAX_OUTPUT_TOKENS:
        raise UsageError(
            f"the {len(requests):,} requests generate {n_outputs:,} tokens",
            hint=f"at most {_MAX_OUTPUT_TOKENS:,} are simulated: give fewer with --count",
        )
    return make_load(
        arrivals,
        [request.prefill_tokens for request in requests],
        [request.output_tokens for request in requests],
    )


def _make_load_entry(load: ServingLoad, trace: RequestTrace, options: ServingOptions) -> ServingLoadEntry:
    rate = options.rate if options.rate is not None else load.rate_per_s
    arrivals = options.process if options.rate is not None else ArrivalProcess.TRACE
    if not math.isfinite(load.rate_per_s) and options.rate is None:
        arrivals = ArrivalProcess.BURST
    is_random = options.rate is not None and (
        options.process is ArrivalProcess.POISSON or load.n_requests != len(trace.requests)
    )
    return ServingLoadEntry(
        requests=load.n_requests,
        arrivals=arrivals.value,
        rate_per_s=rate if math.isfinite(rate) else None,
        seed=options.seed if is_random else None,
        mean_prompt_tokens=float(load.prompt_tokens.mean()),
        mean_output_tokens=float(load.output_tokens.mean()),
    )


def _make_objective(
    run: ServingRun, target: LatencyTarget, search: _Search | None
) -> ServingObjectiveEntry | None:
    if not target.is_given:
        return None
    goodput = (None, None) if search is None else search.goodput
    return ServingObjectiveEntry(
        ttft_ms=target.ttft_ms,
        tpot_ms=target.tpot_ms,
        met_share=float(find_met(compute_latencies(run), target).mean()),
        goodput_90_per_s=goodput[0],
        goodput_99_per_s=goodput[1],
    )


def _list_assumptions(
    model: ModelConfig, deployment: Deployment, options: ServingOptions, engine: _Engine
) -> tuple[str, ...]:
    """Return what the times rest on, guesses named."""
    is_vllm = deployment.framework is Framework.VLLM
    found = [
        "vLLM V1 (0.10 to 0.13): prefill chunks share steps with decodes; the last admitted is preempted"
        if is_vllm
        else "SGLang (0.4, 0.5): prefills go before decodes; the request with fewest outputs is retracted",
        "output lengths are known in advance (max_tokens); no prefix cache, no speculative decoding",
        f"a step costs the host {engine.rates.decode_host_us / 1e3:.2g} ms if it decodes, "
        f"{engine.rates.prefill_host_us / 1e3:.2g} ms if it prefills (assumed)",
        "step times are interpolated over KV tokens and rounded to 2 % of rows (bench/serving_speed.py)",
    ]
    if deployment.pipeline_parallel > 1:
        found.append(
            "one batch for each pipeline stage is in flight, with its share of requests and KV cache; "
            "none waits for another"
        )
    if model.experts:
        found.append("routing is balanced: every expert gets as many tokens")
    if options.limits.kv_capacity_tokens is None:
        found.append("the KV cache is what weights and activations leave of the memory share")
    return (*found, *model.notes)


def list_load_warnings(
    model: ModelConfig, trace: RequestTrace, given: ServingOptions, load: ServingLoad
) -> tuple[str, ...]:
    """Return what is odd about the requests, whatever serves them."""
    found = []
    times = [request.arrival_s for request in trace.requests]
    if given.rate is None and times != sorted(times):
        found.append("the trace is not in the order of arrival; it was sorted")
    longest = int((load.prompt_tokens + load.output_tokens).max())
    if model.max_positions and longest > model.max_positions:
        found.append(
            f"a request has {longest:,} tokens, and the model's context is {model.max_positions:,} tokens"
        )
    return tuple(found)


def _list_run_warnings(run: ServingRun, search: _Search | None) -> tuple[str, ...]:
    found = []
    if math.isfinite(run.load.rate_per_s) and not is_long_enough(run):
        found.append(
            "the requests arrive within three latencies, too few for a steady state: give more (--count)"
        )
    elif search is not None:
        short = [rate for rate, each in search.runs if rate <= search.saturated and not is_long_enough(each)]
        if short:
            found.append(
                f"from {min(short):.3g} requests/s on, the requests arrive within three latencies: figures "
                "there are of a start, better than a steady state's; give more (--count)"
            )
    return tuple(found)
