"""A comparison of layouts as text: a row for each, best and Pareto front marked, then what cannot be."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from analyzer.render.number_format import format_percent
from analyzer.render.tables import Column, ColumnFit, Row, make_table
from analyzer.report.forecast_comparison_schema import (
    ComparedLayoutEntry,
    ForecastComparison,
    ForecastTargets,
)
from analyzer.report.layout_entries import LayoutEntry
from analyzer.report.serving_comparison_schema import ServingComparison

_MAX_REASONS = 12
_SECOND_MS = 1e3
_MINUTE_MS = 6e4


def print_comparison(report: ForecastComparison, console: Console) -> None:
    """Print the table of possible layouts, the answer, and the reasons of the others."""
    possible = [entry for entry in report.layouts if entry.is_possible]
    console.print(Text(describe_run(report), style="bold"), soft_wrap=True)
    console.print(make_table(_choose_columns(report), [_make_row(report, entry) for entry in possible]))
    console.print(Text(_MARKS_NOTE, style="dim"), soft_wrap=True)
    console.print(Text(describe_answer(report), style="bold"), soft_wrap=True)
    print_notes(report, console)


def print_notes(report: ForecastComparison | ServingComparison, console: Console) -> None:
    """Print the reasons of layouts that cannot be, warnings and assumptions."""
    for line in list_reasons(report.layouts):
        console.print(Text(f"  {line}"), soft_wrap=True)
    for warning in report.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    for assumption in report.assumptions:
        console.print(Text(f"  - {assumption}"), soft_wrap=True)


_MARKS_NOTE = "* best   + none is both faster and as cheap   ? the upper end of an interval misses a target"


def describe_run(report: ForecastComparison) -> str:
    """Return the head line: model, framework, requests."""
    plural = "" if report.requests == 1 else "s"
    return (
        f"{report.model}, {report.framework}: {report.requests:,} request{plural}, "
        f"{report.prompt_tokens:,} prompt tokens, {report.output_tokens:,} generated"
    )


def describe_layout(entry: LayoutEntry) -> str:
    """Return `4 x H100 SXM, tp 2, pp 2, bf16`."""
    return f"{entry.gpus} x {entry.gpu_name}, {format_division(entry)}"


def format_division(entry: LayoutEntry) -> str:
    """Return `tp 2, pp 2, bf16`; stages and experts where they are divided."""
    parts = [f"tp {entry.tensor_parallel}"]
    if entry.pipeline_parallel > 1:
        parts.append(f"pp {entry.pipeline_parallel}")
    if entry.expert_parallel > 1:
        parts.append(f"ep {entry.expert_parallel}")
    return ", ".join([*parts, entry.dtype])


def describe_targets(targets: ForecastTargets) -> str:
    """Return `TTFT <= 500 ms, TPOT <= 20 ms`, empty without targets."""
    pairs = (("TTFT", targets.ttft_ms), ("TPOT", targets.tpot_ms), ("total", targets.total_ms))
    return ", ".join(f"{name} <= {limit:g} ms" for name, limit in pairs if limit is not None)


def describe_answer(report: ForecastComparison) -> str:
    """Return which layout is the best, or that none meets the targets."""
    targets = describe_targets(report.targets)
    best = next((entry for entry in report.layouts if entry.is_best), None)
    if best is None:
        priced = " with a price" if any(entry.run_cost is not None for entry in report.layouts) else ""
        return f"no layout{priced} meets {targets}"
    what = "cheapest" if best.run_cost is not None else "fewest GPUs"
    return f"{what}{f' that meets {targets}' if targets else ''}: {describe_layout(best)}"


def list_reasons(layouts: Sequence[LayoutEntry]) -> Sequence[str]:
    """Return a line for each layout that is not possible; the same reason of several layouts once."""
    grouped: dict[str, list[str]] = {}
    for entry in layouts:
        if not entry.is_possible:
            grouped.setdefault(entry.reason, []).append(describe_layout(entry))
    lines = [f"not possible: {'; '.join(layouts)}: {reason}" for reason, layouts in grouped.items()]
    more = len(lines) - _MAX_REASONS
    return lines if more <= 0 else [*lines[:_MAX_REASONS], f"and {more} more; JSON has them all"]


def _choose_columns(report: ForecastComparison) -> list[Column]:
    columns = [
        Column("", ColumnFit.NO_WRAP),
        Column("GPUs", ColumnFit.WRAP),
        Column("layout", ColumnFit.NO_WRAP),
        Column("TTFT"),
        Column("TPOT"),
        Column("total"),
        Column("tokens/s", drop_rank=2),
        Column("per GPU", drop_rank=4),
        Column("memory", drop_rank=5),
    ]
    if any(entry.run_cost is not None for entry in report.layouts):
        columns += [Column("run cost", drop_rank=3), Column("per M tokens")]
    if describe_targets(report.targets):
        columns.append(Column("target", ColumnFit.WRAP, min_width=8))
    return columns


def _make_row(report: ForecastComparison, entry: ComparedLayoutEntry) -> Row:
    row = [
        ("*" if entry.is_best else " ") + ("+" if entry.is_pareto else " "),
        f"{entry.gpus} x {entry.gpu_name}",
        format_division(entry),
        format_ms(entry.ttft_ms),
        format_ms(entry.tpot_ms),
        format_ms(entry.total_ms),
        format_number(entry.output_tokens_per_s),
        format_number(entry.output_tokens_per_s_per_gpu),
        "" if entry.memory_share is None else format_percent(entry.memory_share),
    ]
    if any(each.run_cost is not None for each in report.layouts):
        row += [format_number(entry.run_cost), format_number(entry.cost_per_million_output_tokens)]
    if describe_targets(report.targets):
        row.append(format_outcome(entry))
    return row


def format_outcome(entry: ComparedLayoutEntry) -> str:
    """Return `met`, `met?` where the upper end of an interval misses a target, else `misses TPOT`."""
    if entry.meets_targets:
        return "met" if entry.meets_at_high_end else "met?"
    return f"misses {', '.join(text.partition(' ')[0] for text in entry.missed)}"


def format_ms(time_ms: float | None) -> str:
    """Return `412 us`, `23.4 ms`, `1.23 s`, `12.5 min`: three digits; a dash for none."""
    if time_ms is None:
        return "-"
    if time_ms < 1.0:
        return f"{time_ms * 1e3:.0f} us"
    if time_ms < 0.9995 * _SECOND_MS:
        return f"{_keep_three(time_ms)} ms"
    if time_ms < 10 * _MINUTE_MS:
        return f"{_keep_three(time_ms / _SECOND_MS)} s"
    return f"{_keep_three(time_ms / _MINUTE_MS)} min"


def format_number(value: float | None) -> str:
    """Return a cost or a rate with three digits: `0.0123`, `4.56`, `1,230`; a dash for none."""
    return "-" if value is None else _keep_three(value)


def _keep_three(value: float) -> str:
    """Return three digits, all of those before the point."""
    if value < 0.9995:
        return f"{value:#.3g}" if value else "0"
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
