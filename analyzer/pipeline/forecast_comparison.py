"""One run of a model on several GPUs and layouts: times, costs, and the cheapest that meets targets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.forecast.comparison import (
    Candidate,
    LatencyTargets,
    RunTimes,
    compute_run_cost,
    compute_token_cost,
    find_best,
    find_pareto,
    list_missed,
)
from analyzer.forecast.model_config import read_model_config
from analyzer.forecast.request_trace import Request, RequestTrace, take_requests
from analyzer.pipeline.compared_layouts import (
    answer_layouts,
    check_count,
    describe_layout,
    list_once,
    warn_of_prices,
)
from analyzer.pipeline.forecast import ForecastOptions, find_config_file, forecast_model, name_model
from analyzer.report.forecast_comparison_schema import (
    ComparedLayoutEntry,
    ForecastComparison,
    ForecastTargets,
)
from analyzer.report.forecast_schema import ForecastReport
from analyzer.text.errors import UsageError
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__


class ComparisonOptions(Struct, frozen=True):
    """What is compared beside times: prices by the name of a GPU's file, and limits."""

    prices: Mapping[str, float] = {}  # per GPU-hour
    targets: LatencyTargets = LatencyTargets()


def compare_layouts(
    config: str | Path | Mapping[str, Any],
    requests: str | Path | Sequence[Request] | RequestTrace,
    layouts: Sequence[ForecastOptions],
    options: ComparisonOptions | None = None,
    *,
    progress: ProgressCallback = ignore_progress,
) -> ForecastComparison:
    """Return the run on every layout, best first; those that are not possible have their reason.

    config, requests: as of `forecast_model`.
    layouts: GPU and parallelism of each; framework and data type of the first are the report's.
    Raises InputError for a file that cannot be read, HardwareError for an unknown GPU, UsageError for targets
    that are none, and where no layout is possible.
    """
    given = options or ComparisonOptions()
    _check(layouts, given)
    source = find_config_file(config)
    model = read_model_config(source)
    trace = take_requests(requests)
    name = name_model(config, model)
    entries, reports = answer_layouts(
        lambda layout: describe_layout(ComparedLayoutEntry, layout, model, given.prices),
        lambda layout: forecast_model(source, trace, layout, lists_operators=False),
        lambda base, report: _fill_entry(base, report, trace, given),
        layouts,
        progress,
    )
    return ForecastComparison(
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        model=name,
        framework=reports[0].framework,
        dtype=reports[0].dtype,
        requests=len(trace.requests),
        prompt_tokens=sum(request.prefill_tokens for request in trace.requests),
        output_tokens=_count_output_tokens(trace),
        targets=ForecastTargets(
            ttft_ms=given.targets.ttft_ms, tpot_ms=given.targets.tpot_ms, total_ms=given.targets.total_ms
        ),
        ranked_by="cost_per_million_output_tokens" if _has_costs(entries) else "total_ms",
        layouts=_rank(_mark(entries)),
        assumptions=list_once(report.assumptions for report in reports),
        warnings=(
            *warn_of_prices(entries, given.prices),
            *list_once(report.warnings for report in reports),
        ),
    )


def _check(layouts: Sequence[ForecastOptions], options: ComparisonOptions) -> None:
    check_count(layouts)
    limits = msgspec.structs.asdict(options.targets)
    for name, limit in limits.items():
        if limit is not None and not 0.0 < limit < 1e12:
            option = name.replace("_", "-")
            raise UsageError(f"--max-{option} {limit:g} is no limit", hint="give milliseconds, more than 0")


def _count_output_tokens(trace: RequestTrace) -> int:
    return sum(request.output_tokens for request in trace.requests)


def _fill_entry(
    base: ComparedLayoutEntry, report: ForecastReport, trace: RequestTrace, options: ComparisonOptions
) -> ComparedLayoutEntry:
    """Return the entry of a layout that is possible."""
    targets, memory = options.targets, report.memory
    missed = list_missed(RunTimes(report.prefill_ms, report.decode_ms, report.total_ms), targets)
    cost = token_cost = None
    if base.price_per_gpu_hour is not None:
        cost = compute_run_cost(base.price_per_gpu_hour, base.gpus, report.total_ms)
        token_cost = compute_token_cost(cost, _count_output_tokens(trace))
    rate = report.output_tokens_per_s
    filled = memory.weight_bytes + memory.kv_bytes + memory.activation_bytes
    return msgspec.structs.replace(
        base,
        is_possible=True,
        ttft_ms=report.prefill_ms,
        ttft_ms_low=report.prefill_ms_low,
        ttft_ms_high=report.prefill_ms_high,
        tpot_ms=report.decode_ms,
        tpot_ms_low=report.decode_ms_low,
        tpot_ms_high=report.decode_ms_high,
        total_ms=report.total_ms,
        total_ms_low=report.total_ms_low,
        total_ms_high=report.total_ms_high,
        output_tokens_per_s=rate,
        output_tokens_per_s_per_gpu=None if rate is None else rate / base.gpus,
        kv_capacity_tokens=memory.kv_capacity_tokens,
        memory_share=filled / memory.gpu_bytes,
        run_cost=cost,
        cost_per_million_output_tokens=token_cost,
        meets_targets=not missed if targets.has_any else None,
        meets_at_high_end=not list_missed(_take_high_ends(report), targets) if targets.has_any else None,
        missed=missed,
    )


def _take_high_ends(report: ForecastReport) -> RunTimes:
    """Return the upper ends of the intervals; a time itself where it has none."""
    ttft_ms, total_ms = report.prefill_ms_high, report.total_ms_high
    return RunTimes(
        report.prefill_ms if ttft_ms is None else ttft_ms,
        report.decode_ms if report.decode_ms_high is None else report.decode_ms_high,
        report.total_ms if total_ms is None else total_ms,
    )


def _has_costs(entries: Sequence[ComparedLayoutEntry]) -> bool:
    return any(entry.run_cost is not None for entry in entries)


def _mark(entries: Sequence[ComparedLayoutEntry]) -> list[ComparedLayoutEntry]:
    """Return entries with the best and those on the Pareto front marked."""
    places = [i for i, entry in enumerate(entries) if entry.is_possible]
    candidates = [_make_candidate(entries[i]) for i in places]
    best = find_best(candidates)
    front = find_pareto(candidates)
    marked = list(entries)
    for rank, place in enumerate(places):
        marked[place] = msgspec.structs.replace(entries[place], is_best=rank == best, is_pareto=front[rank])
    return marked


def _make_candidate(entry: ComparedLayoutEntry) -> Candidate:
    assert entry.total_ms is not None
    return Candidate(
        cost=entry.run_cost,
        gpus=entry.gpus,
        total_ms=entry.total_ms,
        meets_targets=entry.meets_targets is not False,
    )


def _rank(entries: Sequence[ComparedLayoutEntry]) -> tuple[ComparedLayoutEntry, ...]:
    """Return entries by cost, without prices by time: first what meets the targets, last the impossible."""

    def find_key(entry: ComparedLayoutEntry) -> tuple[bool, bool, bool, float, float]:
        if entry.total_ms is None:
            return (True, False, False, 0.0, 0.0)
        cost = entry.cost_per_million_output_tokens
        without_cost = _has_costs(entries) and cost is None
        misses = entry.meets_targets is False
        return (False, misses, without_cost, entry.total_ms if cost is None else cost, entry.total_ms)

    return tuple(sorted(entries, key=find_key))
