"""One load on several GPUs and layouts: the rate that each serves well, latencies and cost there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.forecast.comparison import compute_run_cost, compute_token_cost
from analyzer.forecast.model_config import read_model_config
from analyzer.forecast.request_trace import Request, RequestTrace, take_requests
from analyzer.pipeline.compared_layouts import (
    answer_layouts,
    check_count,
    describe_layout,
    list_once,
    warn_of_prices,
)
from analyzer.pipeline.forecast import ForecastOptions, find_config_file, name_model
from analyzer.pipeline.serving import ServingOptions, list_load_warnings, make_served_load, simulate_model
from analyzer.report.serving_comparison_schema import ServedLayoutEntry, ServingComparison
from analyzer.report.serving_schema import ServingRateEntry, ServingReport
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__

_SECOND_MS = 1e3
_NO_PRICES: Mapping[str, float] = {}


def compare_served_layouts(
    config: str | Path | Mapping[str, Any],
    requests: str | Path | Sequence[Request] | RequestTrace,
    layouts: Sequence[ForecastOptions],
    options: ServingOptions | None = None,
    *,
    prices: Mapping[str, float] = _NO_PRICES,
    progress: ProgressCallback = ignore_progress,
) -> ServingComparison:
    """Return what a replica of every layout serves, best first; those that cannot be have their reason.

    config, requests, options: as of `simulate_model`; rates are searched. prices: of a GPU-hour, by the name
    of a GPU's file.
    Raises InputError for a file that cannot be read, HardwareError for an unknown GPU, UsageError for a load
    that cannot be served, and where no layout is possible.
    """
    check_count(layouts)
    source, trace = find_config_file(config), take_requests(requests)
    model = read_model_config(source)
    asked = msgspec.structs.replace(options or ServingOptions(), finds_rates=True)
    load = make_served_load(trace, asked)
    entries, reports = answer_layouts(
        lambda layout: describe_layout(ServedLayoutEntry, layout, model, prices),
        lambda layout: simulate_model(source, trace, layout, asked),
        _fill_entry,
        layouts,
        progress,
    )
    at_rates = [_find_rate(report) for report in reports]
    n_short = sum(at_rate is not None and not at_rate.is_long_enough for at_rate in at_rates)
    first = reports[0]
    return ServingComparison(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        model=name_model(config, model),
        framework=first.framework,
        load=first.load,
        slo_ttft_ms=asked.slo_ttft_ms,
        slo_tpot_ms=asked.slo_tpot_ms,
        layouts=_rank(entries),
        assumptions=list_once(report.assumptions for report in reports),
        warnings=(
            *warn_of_prices(entries, prices),
            *list_load_warnings(model, trace, asked, load),
            *_warn_of_short_loads(n_short, len(reports)),
        ),
    )


def _find_rate(report: ServingReport) -> ServingRateEntry | None:
    """Return what it is like at the highest rate that is served well; None where there is none."""
    objective = report.objective
    best = report.sustainable_per_s if objective is None else objective.goodput_90_per_s
    return next((entry for entry in report.rates if entry.rate_per_s == best), None)


def _warn_of_short_loads(n_short: int, n_layouts: int) -> tuple[str, ...]:
    if not n_short:
        return ()
    which = "at the rate shown" if n_layouts == 1 else f"at the rates of {n_short} of {n_layouts} layouts"
    return (
        f"{which} the requests arrive within three latencies: latencies are of a start, better than a steady "
        "state's; give more (--count)",
    )


def _fill_entry(base: ServedLayoutEntry, report: ServingReport) -> ServedLayoutEntry:
    """Return the entry of a layout that is possible."""
    at_rate = _find_rate(report)
    found = msgspec.structs.replace(
        base,
        is_possible=True,
        dtype=report.dtype,
        rate_per_s=0.0 if at_rate is None else at_rate.rate_per_s,
        saturated_per_s=report.saturated_per_s,
        saturated_per_s_low=report.slow_steps.saturated_per_s,
        saturated_per_s_high=report.fast_steps.saturated_per_s,
    )
    if at_rate is None:
        return found
    tokens_per_s = at_rate.rate_per_s * report.load.mean_output_tokens
    cost = None
    if base.price_per_gpu_hour is not None:
        second_cost = compute_run_cost(base.price_per_gpu_hour, base.gpus, _SECOND_MS)
        cost = compute_token_cost(second_cost, tokens_per_s)
    return msgspec.structs.replace(
        found,
        ttft_p50_ms=at_rate.ttft_p50_ms,
        ttft_p99_ms=at_rate.ttft_p99_ms,
        tpot_p50_ms=at_rate.tpot_p50_ms,
        tpot_p99_ms=at_rate.tpot_p99_ms,
        output_tokens_per_s=tokens_per_s,
        output_tokens_per_s_per_gpu=tokens_per_s / base.gpus,
        cost_per_million_output_tokens=cost,
    )


def _rank(entries: Sequence[ServedLayoutEntry]) -> tuple[ServedLayoutEntry, ...]:
    """Return entries by cost, without prices by tokens per GPU; last what serves nothing or cannot be."""
    has_costs = any(entry.cost_per_million_output_tokens is not None for entry in entries)

    def find_key(entry: ServedLayoutEntry) -> tuple[bool, bool, bool, float]:
        cost, per_gpu = entry.cost_per_million_output_tokens, entry.output_tokens_per_s_per_gpu or 0.0
        serves = entry.output_tokens_per_s is not None
        return (not entry.is_possible, not serves, has_costs and cost is None, cost or -per_gpu)

    first, *others = sorted(entries, key=find_key)
    is_best = first.cost_per_million_output_tokens is not None or not has_costs
    is_best = is_best and first.output_tokens_per_s is not None
    return (msgspec.structs.replace(first, is_best=is_best), *others)
