"""CPI stacks of all points as stacked bars (as in AMALI, figure 16), one self-contained HTML page."""

from typing import TYPE_CHECKING

from analyzer.render.plotly_figures import render_figures
from analyzer.render.stall_shares import find_largest_stall_shares
from analyzer.render.whatif import list_named_predictions, make_heading
from analyzer.report.whatif_schema import WhatIfKernel, WhatIfReport

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MIN_SHOWN_SHARE = 0.002
_MAX_KERNELS = 20
_HEIGHT_PX = 520


def render_whatif_chart(report: WhatIfReport) -> str:
    """Return the page. Raises UsageError where plotly is not installed."""
    body = render_figures(
        lambda: (_make_figure(report, kernel) for kernel in report.kernels[:_MAX_KERNELS]), "kernel"
    )
    return _PAGE_TEMPLATE.format(body=body)


_PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>warplens what-if</title>
<style>body {{ font-family: system-ui, sans-serif; margin: 1rem; }}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _make_figure(report: WhatIfReport, kernel: WhatIfKernel) -> "Figure":
    from plotly.graph_objects import Bar, Figure

    named = list_named_predictions(kernel)
    names = [one.name.replace("\n", "<br>") for one in named]
    figure = Figure(
        [
            Bar(name=stall, x=names, y=[one.prediction.cpi_stack.get(stall, 0.0) for one in named])
            for stall, share in find_largest_stall_shares(one.prediction for one in named).items()
            if share >= _MIN_SHOWN_SHARE
        ]
    )
    figure.update_layout(
        barmode="stack",
        title={"text": f"{kernel.demangled}, {report.gpu_name}, model {report.model}", "y": 0.97},
        xaxis={"title": make_heading(kernel), "type": "category"},
        yaxis_title="cycles",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0.0},
        margin={"l": 60, "r": 20, "t": 140},
        template="plotly_white",
        height=_HEIGHT_PX,
    )
    return figure
