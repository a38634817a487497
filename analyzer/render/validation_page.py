"""A validation as one self-contained HTML page: errors by model, scatter plots, worst rows."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from analyzer.render.validation import (
    ALL_LABEL,
    choose_score_columns,
    format_headline,
    format_refusals,
    format_remarks,
    format_score_cells,
    format_stall_shares,
    format_suite_and_gpu,
    format_time_us,
    select_shown_scores,
)
from analyzer.report.validation_schema import (
    CaseEntry,
    CasePrediction,
    ScoreEntry,
    ValidationReport,
    WorstEntry,
)
from analyzer.text.optional_packages import CHARTS, check_packages

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

_PANEL_PX = 400
_MAX_FINE_TICK_DECADES = 2
_AXIS_MARGIN_RATIO = 1.35  # of each axis beyond the outermost point
_FULL_RED_MAPE = 0.6  # MAPE at which a cell is as red as it gets
# The colours of Okabe and Ito (Color Universal Design, 2008), which colour-blind readers can distinguish,
# and some more
_COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
    "#56B4E9", "#7F3C8D", "#A0522D", "#4D4D4D", "#B8A800",
)  # fmt: skip
_RATIO_LINES = ((1.0, "solid"), (2.0, "dot"), (0.5, "dot"))


def render_validation_page(report: ValidationReport) -> str:
    """Return the page. Raises ToolError where plotly is not installed."""
    check_packages("a page of charts", CHARTS)
    import plotly.offline

    body = (
        f"<h1>Predicted against measured times</h1><p>{escape(format_headline(report))}</p>",
        "".join(f"<p class=note>{escape(line)}</p>" for line in format_remarks(report)),
        "<h2>Mean absolute percentage error by model</h2>",
        _make_overview_table(report),
        _make_pickers(report),
        f"<script>{plotly.offline.get_plotlyjs()}</script>",
        f"<div class=plots>{_make_plots(report)}</div>",
        "<p class=note>Solid: as measured. Dotted: twice and half. Hollow: not counted.</p>",
        *(_make_model_section(report, model) for model in report.models),
        _make_refusal_list(report),
    )
    return _PAGE_TEMPLATE.replace("{body}", "\n".join(body))


def _make_overview_table(report: ValidationReport) -> str:
    """Return the table of errors: suites and GPUs by row, models by column."""
    found: dict[tuple[str, str], dict[str, ScoreEntry]] = {}
    for score in select_shown_scores(report):
        found.setdefault(format_suite_and_gpu(score), {})[score.model] = score
    head = ("suite", "GPU", "rows", *report.models)
    rows = []
    for (suite, gpu), by_model in found.items():
        most = max(score.rows for score in by_model.values())
        cells = "".join(_make_error_cell(by_model.get(model)) for model in report.models)
        rows.append(
            _make_row(_make_cells((suite, gpu)) + _make_cells((f"{most:,}",), "td class=n") + cells, gpu)
        )
    return _make_table(head, rows, 2)


def _make_error_cell(score: ScoreEntry | None) -> str:
    if score is None:
        return "<td class=n>-</td>"
    hue = 140 * (1 - min(score.mape, _FULL_RED_MAPE) / _FULL_RED_MAPE)
    return f'<td class=n style="background:hsl({hue:.0f},62%,86%)">{score.mape:.1%}</td>'


def _make_pickers(report: ValidationReport) -> str:
    """Return the controls that choose the model and the GPUs that the plots show."""
    options = "".join(f"<option>{escape(model)}</option>" for model in report.models)
    gpus = "".join(
        f'<label><input type="checkbox" data-gpu="{escape(gpu)}" checked>'
        f'<span style="color:{color}">&#9679;</span> {escape(gpu)}</label> '
        for gpu, color in _choose_gpu_colors(report).items()
    )
    return f'<h2>Model <select id="model" aria-label="model">{options}</select></h2><p>{gpus}</p>'


def _choose_gpu_colors(report: ValidationReport) -> dict[str, str]:
    """Return a colour for each GPU, in the table's order."""
    names = dict.fromkeys(case.gpu_name for case in report.cases if case.predictions)
    return {name: _COLORS[index % len(_COLORS)] for index, name in enumerate(names)}


def _make_model_section(report: ValidationReport, model: str) -> str:
    """Return errors and worst rows of one model, shown while it is chosen."""
    scores = [score for score in select_shown_scores(report) if score.model == model]
    worst = [entry for entry in report.worst if entry.prediction.model == model]
    hidden = "" if model == report.models[0] else " hidden"
    parts = [f'<section data-model="{escape(model)}"{hidden}><h2>Errors of {escape(model)}</h2>']
    columns = choose_score_columns(report)
    rows = [
        _make_row(
            _make_cells(format_suite_and_gpu(score))
            + _make_cells(format_score_cells(score)[: len(columns)], "td class=n"),
            format_suite_and_gpu(score)[1],
        )
        for score in scores
    ]
    parts.append(_make_table(("suite", "GPU", *columns), rows, 2))
    parts.append(f"<p class=note>{_LEGEND}</p>")
    if worst:
        head = ("case", "suite", "GPU", "measured us", "predicted us", "ratio", "bound", "cycles by stall")
        parts.append(f"<h2>Worst rows of {escape(model)}</h2>")
        parts.append(
            _make_table(head, [_make_row(_make_worst_cells(entry)) for entry in worst], 3, numeric=3)
        )
    return "".join(parts) + "</section>"


def _make_worst_cells(entry: WorstEntry) -> str:
    times = (format_time_us(entry.measured_us), format_time_us(entry.prediction.time_us))
    return (
        _make_cells((entry.case, entry.suite, entry.gpu_name))
        + _make_cells((*times, f"{entry.prediction.ratio:.2f}"), "td class=n")
        + _make_cells((entry.prediction.bound,))
        + _make_cells((format_stall_shares(entry),), "td class=text")
    )


def _make_refusal_list(report: ValidationReport) -> str:
    lines = format_refusals(report)
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>Rows without an answer</h2><ul>{items}</ul>" if lines else ""


def _make_table(head: Sequence[str], rows: Iterable[str], named: int, numeric: int | None = None) -> str:
    """Return a table.

    named: number of text columns at the start.
    numeric: number of columns of numbers after them, None for all.
    """
    last = len(head) if numeric is None else named + numeric
    titles = "".join(
        f"<th{' class=n' if named <= index < last else ''}>{escape(name)}</th>"
        for index, name in enumerate(head)
    )
    body = "".join(rows)
    return f"<div class=wide><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"


def _make_row(cells: str, gpu: str = "") -> str:
    """Return a row; scores over all GPUs are bold."""
    return f"<tr class=sum>{cells}</tr>" if gpu == ALL_LABEL else f"<tr>{cells}</tr>"


def _make_cells(texts: Iterable[str], tag: str = "td") -> str:
    return "".join(f"<{tag}>{escape(text)}</td>" for text in texts)


def _make_plots(report: ValidationReport) -> str:
    """Return the plots, one panel for each suite."""
    import plotly.io

    suites: dict[str, list[CaseEntry]] = {}
    for case in report.cases:
        if case.predictions:
            suites.setdefault(case.suite, []).append(case)
    return "".join(
        plotly.io.to_html(
            _make_figure(report, suite, cases),
            full_html=False,
            include_plotlyjs=False,
            default_height=f"{_PANEL_PX}px",
            config={"responsive": True, "displayModeBar": False},
            div_id=f"suite-{index}",
        )
        for index, (suite, cases) in enumerate(suites.items())
    )


def _make_figure(report: ValidationReport, suite: str, cases: Sequence[CaseEntry]) -> "Figure":
    """Return a panel with one trace for each GPU and model; those of one model are visible."""
    from plotly.graph_objects import Figure

    low, high = _find_axis_range_us(cases)
    traces = [_make_ratio_line(low, high, factor, dash) for factor, dash in _RATIO_LINES]
    for model in report.models:
        for gpu, color in _choose_gpu_colors(report).items():
            of_gpu = [case for case in cases if case.gpu_name == gpu]
            if of_gpu:
                traces.append(_make_points(of_gpu, model, color))
                traces[-1].visible = model == report.models[0]
    figure = Figure(traces)
    span = [math.log10(low), math.log10(high)]
    ticks = {
        "type": "log",
        "range": span,
        "dtick": 1 if span[1] - span[0] > _MAX_FINE_TICK_DECADES else "D2",
        "tickformat": "~g",
        "gridcolor": "#e9ebee",
        "linecolor": "#c4c9d0",
        "mirror": True,
        "zeroline": False,
    }
    figure.update_xaxes(title_text="measured, us", title_standoff=6, **ticks)
    figure.update_yaxes(title_text="predicted, us", title_standoff=4, **ticks)
    figure.update_layout(
        title={"text": escape(suite), "x": 0.5, "y": 0.97, "font": {"size": 15}},
        template="plotly_white",
        margin={"l": 66, "r": 12, "t": 36, "b": 48},
        showlegend=False,
        hoverlabel={"align": "left"},
        font={"family": "system-ui, sans-serif", "color": "#1d2127"},
    )
    return figure


def _find_axis_range_us(cases: Sequence[CaseEntry]) -> tuple[float, float]:
    """Return the range of both axes in microseconds, the same for every model."""
    times = [case.time_us for case in cases]
    times += [prediction.time_us for case in cases for prediction in case.predictions]
    return min(times) / _AXIS_MARGIN_RATIO, max(times) * _AXIS_MARGIN_RATIO


def _make_ratio_line(low: float, high: float, factor: float, dash: str) -> "Scatter":
    from plotly.graph_objects import Scatter

    return Scatter(
        x=[low, high],
        y=[low * factor, high * factor],
        mode="lines",
        line={"color": "#999999", "width": 1, "dash": dash},
        hoverinfo="skip",
        meta=["", ""],
    )


def _make_points(cases: Sequence[CaseEntry], model: str, color: str) -> "Scatter":
    from plotly.graph_objects import Scatter

    pairs = [
        (case, prediction) for case in cases for prediction in case.predictions if prediction.model == model
    ]
    return Scatter(
        x=[case.time_us for case, _ in pairs],
        y=[prediction.time_us for _, prediction in pairs],
        mode="markers",
        marker={
            "color": color,
            "size": 7,
            "opacity": 0.75,
            "symbol": ["circle" if case.counted else "circle-open" for case, _ in pairs],
        },
        text=[_format_hover_text(case, prediction) for case, prediction in pairs],
        hovertemplate="%{text}<extra></extra>",
        meta=[model, cases[0].gpu_name],
    )


def _format_hover_text(case: CaseEntry, prediction: CasePrediction) -> str:
    facts = [
        f"<b>{escape(case.case)}</b>",
        f"{escape(case.kernel)}, {escape(case.gpu_name)}",
        f"measured {format_time_us(case.time_us)} us, "
        f"{prediction.model} {format_time_us(prediction.time_us)} us",
        f"ratio {prediction.ratio:.2f}, bound {escape(prediction.bound)}",
    ]
    if case.config:
        facts.append(escape(case.config))
    return "<br>".join(facts)


_LEGEND = (
    "median, P90: of the absolute errors. bias: geometric mean of predicted over measured. Spearman: rank "
    "correlation. inside: measured times within the predicted interval. choice, worst: mean and largest loss "
    "where the model chooses among the rows of a group."
)
_PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>warplens validate</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #1d2127; max-width: 1240px; margin: 1.5rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 1.8rem 0 .6rem; }
p { margin: .3rem 0; }
.note { color: #5b6470; font-size: .88rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .28rem .7rem; text-align: left; white-space: nowrap; border-bottom: 1px solid #e6e8eb; }
th { border-bottom: 2px solid #c4c9d0; font-weight: 600; }
th.n, td.n { text-align: right; }
tr.sum td { font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); gap: 1rem; }
label { margin-right: .9rem; white-space: nowrap; }
td.text { white-space: normal; min-width: 18rem; }
tbody tr:hover td { background-color: #f4f6f8; }
select { font: inherit; padding: .15rem .4rem; }
</style>
</head>
<body>
{body}
<script>
const picked = document.getElementById("model"), boxes = [...document.querySelectorAll("[data-gpu]")];
function show() {
  const gpus = new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.gpu));
  const seen = ({ meta: [model, gpu] }) => model === "" || (model === picked.value && gpus.has(gpu));
  document.querySelectorAll(".plotly-graph-div").forEach((plot) => {
    Plotly.restyle(plot, { visible: plot.data.map(seen) });
  });
  document.querySelectorAll("[data-model]").forEach((part) => {
    part.hidden = part.dataset.model !== picked.value;
  });
}
[picked, ...boxes].forEach((input) => input.addEventListener("change", show));
show();
document.querySelectorAll(".plotly-graph-div").forEach((plot) => Plotly.Plots.resize(plot));
</script>
</body>
</html>
"""
