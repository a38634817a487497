"""Figures of plotly as parts of a self-contained HTML page."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from analyzer.text.optional_packages import CHARTS, check_packages

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def render_figures(make: "Callable[[], Iterable[Figure]]", prefix: str) -> str:
    """Return the figures one below the other; the first brings plotly's code along.

    make: makes them, and is called when plotly is known to be there. prefix: of the ids of their elements.
    Raises ToolError where plotly is not installed.
    """
    check_packages("a chart", CHARTS)
    import plotly.io

    return "\n".join(
        plotly.io.to_html(
            figure,
            include_plotlyjs=index == 0,
            full_html=False,
            config={"responsive": True, "displayModeBar": False},
            div_id=f"{prefix}-{index}",
        )
        for index, figure in enumerate(make())
    )
