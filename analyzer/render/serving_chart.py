"""Latencies against the rate of requests, and the run over time, as one self-contained HTML page."""

from html import escape
from typing import TYPE_CHECKING

from analyzer.render.plotly_figures import render_figures
from analyzer.report.serving_schema import ServingReport

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_HEIGHT_PX = 380
_MIN_LOG_RATIO = 20.0  # of the largest to the least latency, from which the axis is logarithmic
# Three of the colours of Okabe and Ito (Color Universal Design, 2008).
_COLORS = {"p50": "#0072B2", "p90": "#E69F00", "p99": "#D55E00"}


def render_serving_chart(report: ServingReport) -> str:
    """Return the page. Raises UsageError where plotly is not installed."""
    body = render_figures(lambda: _make_figures(report), "figure")
    n_gpus = report.tensor_parallel * report.pipeline_parallel
    title = (
        f"{report.model} on {n_gpus} x {report.gpu_name or report.gpu}, {report.framework}, {report.dtype}"
    )
    return _PAGE_TEMPLATE.format(title=escape(title), body=body)


def _make_figures(report: ServingReport) -> "tuple[Figure, ...]":
    objective = report.objective
    return (
        _make_rate_figure(report, "TTFT", "ttft", None if objective is None else objective.ttft_ms),
        _make_rate_figure(report, "TPOT", "tpot", None if objective is None else objective.tpot_ms),
        _make_timeline_figure(report),
    )


_PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>warplens serving</title>
<style>body {{ font-family: system-ui, sans-serif; margin: 1rem; }}</style>
</head>
<body>
<h1 style="font-size:1.2rem">{title}</h1>
{body}
</body>
</html>
"""


def _make_rate_figure(report: ServingReport, name: str, field: str, limit_ms: float | None) -> "Figure":
    """Return percentiles of a latency against the rate, with the objective and the sustainable rate."""
    from plotly.graph_objects import Figure, Scatter

    rates = [entry.rate_per_s for entry in report.rates]
    columns = {
        percentile: [getattr(entry, f"{field}_{percentile}_ms") for entry in report.rates]
        for percentile in _COLORS
    }
    figure = Figure(
        [
            Scatter(
                name=percentile,
                x=rates,
                y=values,
                mode="lines+markers",
                line={"color": _COLORS[percentile]},
            )
            for percentile, values in columns.items()
        ]
    )
    known = [value for values in columns.values() for value in values if value]
    is_wide = bool(known) and max(known) > _MIN_LOG_RATIO * min(known)
    figure.update_layout(
        title=f"{name} against rate",
        xaxis={"title": "requests/s", "rangemode": "tozero"},
        yaxis={"title": "ms", "type": "log" if is_wide else "linear"},
        template="plotly_white",
        height=_HEIGHT_PX,
        margin={"l": 60, "r": 20, "t": 50},
    )
    if limit_ms is not None:
        figure.add_hline(y=limit_ms, line_dash="dot", annotation_text="objective")
    if report.saturated_per_s is not None:
        figure.add_vline(x=report.saturated_per_s, line_dash="dot", annotation_text="saturated")
    return figure


def _make_timeline_figure(report: ServingReport) -> "Figure":
    """Return batch and queue, and the share of the KV cache, over time."""
    from plotly.graph_objects import Figure, Scatter

    starts = [entry.start_s for entry in report.timeline]
    figure = Figure(
        [
            Scatter(
                name="running", x=starts, y=[entry.running for entry in report.timeline], line_shape="hv"
            ),
            Scatter(
                name="waiting", x=starts, y=[entry.waiting for entry in report.timeline], line_shape="hv"
            ),
            Scatter(
                name="KV cache, %",
                x=starts,
                y=[entry.kv_share * 100 for entry in report.timeline],
                line_shape="hv",
                yaxis="y2",
            ),
        ]
    )
    figure.update_layout(
        title="The run over time",
        xaxis_title="s",
        yaxis={"title": "requests", "rangemode": "tozero"},
        yaxis2={
            "title": "%",
            "overlaying": "y",
            "side": "right",
            "range": [0, 105],
            "showgrid": False,
            "tickmode": "auto",
        },
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "xanchor": "right", "x": 1.0},
        template="plotly_white",
        height=_HEIGHT_PX,
        margin={"l": 60, "r": 60, "t": 50},
    )
    return figure
