"""A comparison of served layouts as text: the rate that each serves well, latencies and cost there."""

from rich.console import Console
from rich.text import Text

from analyzer.render.forecast_comparison import (
    describe_layout,
    describe_targets,
    format_division,
    format_ms,
    format_number,
    print_notes,
)
from analyzer.render.tables import Column, ColumnFit, Row, make_table
from analyzer.report.forecast_comparison_schema import ForecastTargets
from analyzer.report.serving_comparison_schema import ServedLayoutEntry, ServingComparison


def print_served_layouts(report: ServingComparison, console: Console) -> None:
    """Print the table of possible layouts, the answer, and the reasons of the others."""
    possible = [entry for entry in report.layouts if entry.is_possible]
    console.print(Text(_describe_load(report), style="bold"), soft_wrap=True)
    console.print(make_table(_choose_columns(report), [_make_row(report, entry) for entry in possible]))
    console.print(Text(_describe_answer(report), style="bold"), soft_wrap=True)
    print_notes(report, console)


def _describe_load(report: ServingComparison) -> str:
    load = report.load
    return (
        f"{report.model}, {report.framework}: mean {load.mean_prompt_tokens:,.0f} prompt and "
        f"{load.mean_output_tokens:,.0f} output tokens; each layout at the highest rate that "
        f"{_describe_objective(report)}"
    )


def _describe_objective(report: ServingComparison) -> str:
    targets = _list_targets(report)
    return f"gives 90 % of the requests {targets}" if targets else "it sustains"


def _list_targets(report: ServingComparison) -> str:
    return describe_targets(ForecastTargets(ttft_ms=report.slo_ttft_ms, tpot_ms=report.slo_tpot_ms))


def _has_costs(report: ServingComparison) -> bool:
    return any(entry.cost_per_million_output_tokens is not None for entry in report.layouts)


def _choose_columns(report: ServingComparison) -> list[Column]:
    columns = [
        Column("", ColumnFit.NO_WRAP),
        Column("GPUs", ColumnFit.WRAP),
        Column("layout", ColumnFit.NO_WRAP),
        Column("requests/s"),
        Column("TTFT p50", drop_rank=2),
        Column("p99"),
        Column("TPOT p50", drop_rank=3),
        Column("p99"),
        Column("tokens/s", drop_rank=4),
        Column("per GPU"),
        Column("saturated, 80 % interval", ColumnFit.NO_WRAP, drop_rank=5),
    ]
    return [*columns, Column("per M tokens")] if _has_costs(report) else columns


def _make_row(report: ServingComparison, entry: ServedLayoutEntry) -> Row:
    row = [
        "*" if entry.is_best else "",
        f"{entry.gpus} x {entry.gpu_name}",
        format_division(entry),
        format_number(entry.rate_per_s),
        format_ms(entry.ttft_p50_ms),
        format_ms(entry.ttft_p99_ms),
        format_ms(entry.tpot_p50_ms),
        format_ms(entry.tpot_p99_ms),
        format_number(entry.output_tokens_per_s),
        format_number(entry.output_tokens_per_s_per_gpu),
        _format_saturation(entry),
    ]
    return [*row, format_number(entry.cost_per_million_output_tokens)] if _has_costs(report) else row


def _format_saturation(entry: ServedLayoutEntry) -> str:
    if entry.saturated_per_s_low is None or entry.saturated_per_s_high is None:
        return "-"
    return f"{format_number(entry.saturated_per_s_low)} to {format_number(entry.saturated_per_s_high)}"


def _describe_answer(report: ServingComparison) -> str:
    """Return which layout is the best, or that none meets the objective."""
    best = next((entry for entry in report.layouts if entry.is_best), None)
    if best is None:
        return f"no layout meets {_list_targets(report)}"
    what = "cheapest" if _has_costs(report) else "most tokens per GPU"
    return f"{what}: {describe_layout(best)}"
