"""A serving simulation as text (latencies, use, rates) and as a CSV table of its requests."""

import csv
import io
from collections.abc import Iterator

from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from analyzer.render.number_format import format_milliseconds, format_percent, format_three_digits
from analyzer.render.tables import Column, ColumnFit, Row, make_table
from analyzer.report.serving_schema import (
    ServedRequestEntry,
    ServingObjectiveEntry,
    ServingRateEntry,
    ServingReport,
)

_SECOND_MS = 1e3
_DECIMALS = 4  # of a millisecond
_BAR_LEVELS = " ▁▂▃▄▅▆▇█"


def render_serving_csv(report: ServingReport) -> str:
    """Return one row per request, in the order of arrival."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ServedRequestEntry.__struct_fields__)
    for request in report.requests:
        writer.writerow(_format_field(value) for value in asdict(request).values())
    return text.getvalue()


def _format_field(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.{_DECIMALS}f}"


def print_serving(report: ServingReport, console: Console) -> None:
    """Print latencies, throughput, use of the engine, rates, warnings and assumptions."""
    for line in _describe_run(report):
        console.print(Text(line, style="bold"), soft_wrap=True)
    console.print(make_table(_LATENCY_COLUMNS, list(_make_latency_rows(report))))
    for line in _describe_use(report):
        console.print(Text(line), soft_wrap=True)
    if report.rates:
        console.print(make_table(_RATE_COLUMNS, [_make_rate_row(entry) for entry in report.rates]))
    for line in _describe_limits(report):
        console.print(Text(line, style="bold"), soft_wrap=True)
    for warning in report.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    for assumption in report.assumptions:
        console.print(Text(f"  - {assumption}"), soft_wrap=True)


_LATENCY_COLUMNS = (
    Column("latency", ColumnFit.NO_WRAP),
    Column("p50"),
    Column("p90"),
    Column("p99"),
    Column("mean", drop_rank=2),
    Column("max", drop_rank=3),
    Column("p50, 80 % interval", ColumnFit.NO_WRAP, drop_rank=1),
    Column("p99, 80 % interval", ColumnFit.NO_WRAP, drop_rank=4),
)
_LATENCY_NAMES = {
    "queue": "queue",
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "between two tokens",
    "end_to_end": "end to end",
}
_RATE_COLUMNS = (
    Column("requests/s"),
    Column("TTFT p50"),
    Column("p90", drop_rank=2),
    Column("p99"),
    Column("TPOT p50"),
    Column("p90", drop_rank=3),
    Column("p99"),
    Column("tokens/s"),
    Column("batch", drop_rank=1),
    Column("met", drop_rank=1),
    Column("queue", ColumnFit.NO_WRAP),
)


def _describe_run(report: ServingReport) -> Iterator[str]:
    """Yield the head lines: model, GPUs and engine; the load."""
    n_gpus = report.tensor_parallel * report.pipeline_parallel
    layout = f"tp {report.tensor_parallel}"
    if report.pipeline_parallel > 1:
        layout += f", pp {report.pipeline_parallel}"
    engine = report.engine
    yield (
        f"{report.model} on {n_gpus} x {report.gpu_name or report.gpu} ({layout}), {report.framework}, "
        f"{report.dtype}: chunk {engine.chunk_tokens:,}, batch {engine.max_running:,}, "
        f"KV cache {engine.kv_capacity_tokens:,} tokens in blocks of {engine.block_tokens}"
    )
    load = report.load
    rate = (
        "all at once"
        if load.rate_per_s is None
        else f"{format_three_digits(load.rate_per_s)} requests/s ({load.arrivals})"
    )
    plural = "" if load.requests == 1 else "s"
    yield (
        f"{load.requests:,} request{plural}, {rate}, mean {load.mean_prompt_tokens:,.0f} prompt and "
        f"{load.mean_output_tokens:,.0f} output tokens"
    )


def _make_latency_rows(report: ServingReport) -> Iterator[Row]:
    fast, slow = report.fast_steps.latencies, report.slow_steps.latencies
    for field, name in _LATENCY_NAMES.items():
        entry, low, high = (getattr(each, field) for each in (report.latencies, fast, slow))
        if entry is not None and low is not None and high is not None:
            ends = (_format_ends(low.p50_ms, high.p50_ms), _format_ends(low.p99_ms, high.p99_ms))
            times = (entry.p50_ms, entry.p90_ms, entry.p99_ms, entry.mean_ms, entry.max_ms)
            yield (name, *map(_format_ms, times), *ends)


def _format_ends(first: float, second: float) -> str:
    """Return `33.1 to 42.0 ms`; batches may fall otherwise, so that either end may be the lower one."""
    low, high = _format_ms(min(first, second)), _format_ms(max(first, second))
    value, _, unit = low.rpartition(" ")
    return f"{value if high.endswith(f' {unit}') else low} to {high}"


def _describe_use(report: ServingReport) -> Iterator[str]:
    use = report.use
    yield (
        f"throughput {format_three_digits(report.requests_per_s)} requests/s, "
        f"{format_three_digits(report.output_tokens_per_s)} output "
        f"tokens/s, over {_format_ms(report.duration_s * _SECOND_MS)}; "
        f"busy {format_percent(use.busy_share)}, {use.steps:,} steps"
    )
    yield (
        f"batch mean {format_three_digits(use.mean_running)}, at most {use.most_running:,}; queue mean "
        f"{format_three_digits(use.mean_waiting)}, at most {use.most_waiting:,}; KV cache mean "
        f"{format_percent(use.mean_kv_share)}, at most {format_percent(use.most_kv_share)}; "
        f"{use.preemptions:,} preemptions, {use.recomputed_tokens:,} tokens recomputed"
    )
    most = max((entry.running for entry in report.timeline), default=0.0)
    if most:
        bar = "".join(_BAR_LEVELS[round(8 * entry.running / most)] for entry in report.timeline)
        yield f"batch over time  [{bar}] up to {format_three_digits(most)}"


def _make_rate_row(entry: ServingRateEntry) -> Row:
    tpot = (entry.tpot_p50_ms, entry.tpot_p90_ms, entry.tpot_p99_ms)
    return (
        format_three_digits(entry.rate_per_s),
        _format_ms(entry.ttft_p50_ms),
        _format_ms(entry.ttft_p90_ms),
        _format_ms(entry.ttft_p99_ms),
        *("-" if value is None else _format_ms(value) for value in tpot),
        format_three_digits(entry.output_tokens_per_s),
        format_three_digits(entry.mean_running),
        "-" if entry.met_share is None else format_percent(entry.met_share),
        "steady" if entry.is_stable else "grows",
    )


def _describe_limits(report: ServingReport) -> Iterator[str]:
    """Yield verdicts: whether the load is sustained, which is, and what meets the objective."""
    if report.load.rate_per_s is not None:
        if not report.is_long_enough:
            arriving, answered = map(format_three_digits, (report.load.rate_per_s, report.requests_per_s))
            yield (
                f"too few requests to say whether the load is sustained: {arriving} requests/s arrive, "
                f"{answered} are answered over the whole run"
            )
        elif report.is_stable:
            doubt = "" if report.slow_steps.is_stable else ", but would with steps as slow as they may be"
            yield f"the load is sustained: the backlog does not grow{doubt}"
        else:
            stay = report.backlog_growth * 100
            yield f"the load is not sustained: of 100 requests that arrive, {stay:.0f} stay"
    if report.saturated_per_s is not None:
        yield _describe_saturation(report, report.saturated_per_s)
    if report.objective is not None:
        yield _describe_objective(report.objective)


def _describe_saturation(report: ServingReport, saturated_per_s: float) -> str:
    text = f"saturated throughput {format_three_digits(saturated_per_s)} requests/s"
    low, high = report.slow_steps.saturated_per_s, report.fast_steps.saturated_per_s
    if low is not None and high is not None:
        text += f" ({format_three_digits(low)} to {format_three_digits(high)})"
    if report.sustainable_per_s is not None:
        text += f", sustainable {format_three_digits(report.sustainable_per_s)}"
    return text


def _describe_objective(objective: ServingObjectiveEntry) -> str:
    limits = [
        f"{name} at most {_format_ms(limit)}"
        for name, limit in (("TTFT", objective.ttft_ms), ("TPOT", objective.tpot_ms))
        if limit is not None
    ]
    text = f"{' and '.join(limits)}: met by {format_percent(objective.met_share)} of the requests"
    if objective.goodput_90_per_s is None or objective.goodput_99_per_s is None:
        return text
    most, nearly_all = map(format_three_digits, (objective.goodput_90_per_s, objective.goodput_99_per_s))
    return f"{text}; goodput {most} requests/s (90 %), {nearly_all} (99 %)"


def _format_ms(time_ms: float) -> str:
    return "0 ms" if time_ms == 0 else format_milliseconds(time_ms)
