"""The page of a comparison of layouts: the answer, cost against time, TTFT against TPOT, and the table."""

from analyzer.render.forecast_comparison import (
    describe_answer,
    describe_layout,
    describe_targets,
    format_division,
    format_ms,
    format_number,
    format_outcome,
    list_reasons,
)
from analyzer.render.html.page import render_page
from analyzer.render.html.scatter_chart import Axis, PlanePoint, ScatterChart, make_scatter_chart
from analyzer.report.forecast_comparison_schema import ComparedLayoutEntry, ForecastComparison


def render_comparison_page(report: ForecastComparison) -> str:
    """Return the page of a report."""
    possible = [entry for entry in report.layouts if entry.is_possible]
    answer = describe_answer(report)
    return render_page(
        "forecast_comparison.html",
        f"{report.model} on {len(report.layouts)} layouts",
        {
            "report": report,
            "rows": possible,
            "has_costs": any(entry.run_cost is not None for entry in possible),
            "targets": _set_signs(describe_targets(report.targets)),
            "answer": _set_signs(answer[:1].upper() + answer[1:]),
            "reasons": [text.removeprefix("not possible: ") for text in list_reasons(report.layouts)],
            "cost_chart": _make_cost_chart(report, possible),
            "latency_chart": _make_latency_chart(report, possible),
            "division": format_division,
            "ms": format_ms,
            "cost": format_number,
            "outcome": format_outcome,
            "data": {"kind": "forecast-comparison"},
        },
    )


def _set_signs(text: str) -> str:
    return text.replace("<=", "\N{LESS-THAN OR EQUAL TO}")


def _make_cost_chart(report: ForecastComparison, entries: list[ComparedLayoutEntry]) -> ScatterChart | None:
    """Return cost (without prices: GPUs) against time of the run; layouts without a price are left out."""
    has_costs = any(entry.run_cost is not None for entry in entries)
    points, front = [], []
    for entry in entries:
        cost = entry.cost_per_million_output_tokens if has_costs else float(entry.gpus)
        if cost is None or entry.total_ms is None:
            continue
        points.append(_make_point(entry, entry.total_ms, cost, entry.total_ms_low, entry.total_ms_high))
        if entry.is_pareto:
            front.append((entry.total_ms, cost))
    if not points:
        return None
    title = "cost per million output tokens" if has_costs else "GPUs"
    x_axis = Axis("time of the run", format_ms, report.targets.total_ms)
    ticks = () if has_costs else tuple(sorted({point.y for point in points}))
    return make_scatter_chart(points, x_axis, Axis(title, format_number, ticks=ticks), front)


def _make_latency_chart(
    report: ForecastComparison, entries: list[ComparedLayoutEntry]
) -> ScatterChart | None:
    """Return time per output token against time to first token."""
    points = [
        _make_point(entry, entry.ttft_ms, entry.tpot_ms, entry.ttft_ms_low, entry.ttft_ms_high)
        for entry in entries
        if entry.ttft_ms is not None and entry.tpot_ms is not None
    ]
    if not points:
        return None
    x_axis = Axis("time to first token", format_ms, report.targets.ttft_ms)
    return make_scatter_chart(
        points, x_axis, Axis("time per output token", format_ms, report.targets.tpot_ms)
    )


def _make_point(
    entry: ComparedLayoutEntry, x: float, y: float, x_low: float | None, x_high: float | None
) -> PlanePoint:
    lines = [
        describe_layout(entry),
        f"TTFT {format_ms(entry.ttft_ms)}, TPOT {format_ms(entry.tpot_ms)}, "
        f"total {format_ms(entry.total_ms)}",
    ]
    if entry.cost_per_million_output_tokens is not None:
        lines.append(f"{format_number(entry.cost_per_million_output_tokens)} per million output tokens")
    if entry.missed:
        lines.append(f"misses {', '.join(entry.missed)}")
    return PlanePoint(
        x=x,
        y=y,
        label=f"{entry.gpus} x {entry.gpu_name}"
        + (f" pp {entry.pipeline_parallel}" if entry.pipeline_parallel > 1 else ""),
        tip="\n".join(lines),
        series=entry.gpu_name,
        is_best=entry.is_best,
        is_faded=entry.meets_targets is False,
        x_low=x_low,
        x_high=x_high,
    )
