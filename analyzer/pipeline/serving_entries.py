"""Simulated runs as entries of the report."""

import math
from typing import Any

import numpy as np

from analyzer.forecast.continuous_batching import ServingRun
from analyzer.forecast.serving_statistics import (
    Distribution,
    LatencyTarget,
    compute_duration_s,
    compute_growth,
    compute_latencies,
    describe,
    describe_gaps,
    find_met,
    is_long_enough,
    is_stable,
    make_timeline,
)
from analyzer.report.serving_schema import (
    LatencyEntry,
    ServedRequestEntry,
    ServingEndEntry,
    ServingLatencies,
    ServingRateEntry,
    ServingTimelineEntry,
    ServingUseEntry,
)

_INTERVALS = 60  # of the timeline


def make_run_entries(run: ServingRun) -> dict[str, Any]:
    """Return the fields of a `ServingReport` that describe one run."""
    duration_s = compute_duration_s(run)
    outputs, prompts = int(run.load.output_tokens.sum()), int(run.load.prompt_tokens.sum())
    return {
        "duration_s": duration_s,
        "latencies": _make_latencies(run),
        "requests_per_s": run.load.n_requests / duration_s,
        "output_tokens_per_s": outputs / duration_s,
        "total_tokens_per_s": (outputs + prompts) / duration_s,
        "use": _make_use(run, duration_s),
        "is_stable": is_stable(run),
        "is_long_enough": is_long_enough(run),
        "backlog_growth": compute_growth(run),
        "timeline": _list_timeline(run),
        "requests": _list_requests(run),
    }


def make_end_entry(run: ServingRun, saturated_per_s: float | None) -> ServingEndEntry:
    """Return what is shown of a run at one end of the step times' intervals."""
    return ServingEndEntry(
        latencies=_make_latencies(run),
        output_tokens_per_s=float(run.load.output_tokens.sum()) / compute_duration_s(run),
        is_stable=is_stable(run),
        saturated_per_s=saturated_per_s,
    )


def make_rate_entry(rate: float, run: ServingRun, target: LatencyTarget) -> ServingRateEntry:
    """Return one point of the curve of latency against rate."""
    latencies = compute_latencies(run)
    ttft, tpot = describe(latencies.ttft_ms), describe(latencies.tpot_ms)
    assert ttft is not None  # every request has a first token
    return ServingRateEntry(
        rate_per_s=rate,
        ttft_p50_ms=ttft.p50,
        ttft_p90_ms=ttft.p90,
        ttft_p99_ms=ttft.p99,
        tpot_p50_ms=tpot.p50 if tpot else None,
        tpot_p90_ms=tpot.p90 if tpot else None,
        tpot_p99_ms=tpot.p99 if tpot else None,
        output_tokens_per_s=float(run.load.output_tokens.sum()) / compute_duration_s(run),
        mean_running=float(make_timeline(run, 1).running[0]),
        preemptions=int(run.preemptions.sum()),
        met_share=float(find_met(latencies, target).mean()) if target.is_given else None,
        is_stable=is_stable(run),
        is_long_enough=is_long_enough(run),
    )


def _make_latencies(run: ServingRun) -> ServingLatencies:
    latencies = compute_latencies(run)
    queue, ttft, end_to_end = (
        _make_latency(describe(values))
        for values in (latencies.queue_ms, latencies.ttft_ms, latencies.end_to_end_ms)
    )
    assert queue is not None
    assert ttft is not None
    assert end_to_end is not None
    return ServingLatencies(
        queue=queue,
        ttft=ttft,
        tpot=_make_latency(describe(latencies.tpot_ms)),
        itl=_make_latency(describe_gaps(run)),
        end_to_end=end_to_end,
    )


def _make_latency(found: Distribution | None) -> LatencyEntry | None:
    if found is None:
        return None
    return LatencyEntry(
        mean_ms=found.mean, p50_ms=found.p50, p90_ms=found.p90, p99_ms=found.p99, max_ms=found.max
    )


def _make_use(run: ServingRun, duration_s: float) -> ServingUseEntry:
    whole = make_timeline(run, 1)
    capacity = run.limits.n_blocks * run.limits.block_tokens
    return ServingUseEntry(
        busy_share=min(1.0, run.busy_s / duration_s),
        steps=run.steps,
        mean_running=float(whole.running[0]),
        most_running=int(run.history.running.max()),
        mean_waiting=float(whole.waiting[0]),
        most_waiting=int(run.history.waiting.max()),
        mean_kv_share=float(whole.kv_share[0]),
        most_kv_share=run.most_held_tokens / capacity,
        preemptions=int(run.preemptions.sum()),
        recomputed_tokens=run.recomputed_tokens,
    )


def _list_timeline(run: ServingRun) -> tuple[ServingTimelineEntry, ...]:
    timeline = make_timeline(run, _INTERVALS)
    columns = (timeline.start_s, timeline.running, timeline.waiting, timeline.kv_share)
    return tuple(
        ServingTimelineEntry(start_s=start, running=running, waiting=waiting, kv_share=kv_share)
        for start, running, waiting, kv_share in zip(*(column.tolist() for column in columns), strict=True)
    )


def _list_requests(run: ServingRun) -> tuple[ServedRequestEntry, ...]:
    latencies, load = compute_latencies(run), run.load
    columns = (
        load.arrival_s, load.prompt_tokens, load.output_tokens, latencies.queue_ms, latencies.ttft_ms,
        latencies.tpot_ms, latencies.end_to_end_ms, run.preemptions,
    )  # fmt: skip
    return tuple(
        ServedRequestEntry(
            arrival_s=arrival,
            prompt_tokens=prompt,
            output_tokens=output,
            queue_ms=queue,
            ttft_ms=ttft,
            tpot_ms=None if math.isnan(tpot) else tpot,
            end_to_end_ms=end_to_end,
            preemptions=preemptions,
        )
        for arrival, prompt, output, queue, ttft, tpot, end_to_end, preemptions in zip(
            *(np.asarray(column).tolist() for column in columns), strict=True
        )
    )
