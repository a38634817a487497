"""The page and the text of a comparison: labels keep apart, names are escaped, every layout is drawn once."""

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from page_reports import HOSTILE

from analyzer.forecast.request_trace import Request
from analyzer.pipeline.forecast import ForecastOptions
from analyzer.pipeline.forecast_comparison import ComparisonOptions, compare_layouts
from analyzer.render.html.scatter_chart import Axis, PlanePoint, make_scatter_chart
from analyzer.render.registry import render_report

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)


@pytest.fixture(scope="module")
def report():
    """Four possible layouts with prices, and one that is not possible."""
    layouts = [ForecastOptions(gpu=gpu, tensor_parallel=tp) for gpu in ("h100", "l4") for tp in (1, 2)]
    layouts.append(ForecastOptions(gpu="h100", tensor_parallel=3))
    options = ComparisonOptions(prices={"h100-sxm": 2.5, "l4": 0.5})
    return compare_layouts(MODEL, (Request(256, 8),), layouts, options)


def test_page_and_text_show_all_layouts(report):
    page, text = render_report(report, "html"), render_report(report)
    assert page.count("data-tip=") == 2 * 4 + 4 * 4  # points of both charts; times and memory of the table
    for part in ("1 x H100 SXM", "2 x L4", "not possible: 3 x H100 SXM, tp 3", "per M tokens"):
        assert part in text
    assert page == render_report(report, "html")


def test_names_of_inputs_are_escaped(report):
    layouts = tuple(replace(entry, gpu_name=HOSTILE) for entry in report.layouts)
    page = render_report(replace(report, model=HOSTILE, layouts=layouts), "html")
    assert HOSTILE not in page
    assert page.count("<script") == 2


points = st.lists(
    st.builds(
        PlanePoint,
        x=st.floats(1e-3, 1e6),
        y=st.floats(0.0, 1e6),
        label=st.text("abc 123", max_size=20),
        tip=st.just(""),
        series=st.sampled_from("ab"),
        is_best=st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(points, st.none() | st.floats(1e-3, 1e9))
def test_points_and_labels_stay_inside_and_apart(given_points, limit):
    chart = make_scatter_chart(given_points, Axis("x", str, limit), Axis("y", str))
    boxes = []
    for point in chart.points:
        assert chart.left <= point.x <= chart.right
        assert chart.top <= point.y <= chart.bottom
        if point.anchor:
            width = 6.4 * len(point.label)
            left = point.label_x - {"start": 0.0, "middle": width / 2, "end": width}[point.anchor]
            boxes.append((left, point.label_y, left + width))
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            apart = one[0] >= other[2] or other[0] >= one[2] or abs(one[1] - other[1]) >= 13.9
            assert apart or one[0] == one[2] or other[0] == other[2]
    for ticks, low, high in (
        (chart.x_ticks, chart.left, chart.right),
        (chart.y_ticks, chart.top, chart.bottom),
    ):
        assert all(low <= tick.at <= high for tick in ticks)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_page_loads_with_no_error_and_no_request(report, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    path = tmp_path / "page.html"
    path.write_text(render_report(report, "html"))
    faults = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda r: faults.append(r.url) if r.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.locator("svg.scatter circle").first.hover()
        assert page.locator("#tip").is_visible()
        assert page.locator("svg.scatter").count() == 2
        browser.close()
    assert faults == []
