"""HTML pages as texts: self-contained, bounded in size, deterministic, closed to markup of inputs."""

import base64
import hashlib
import html
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_reports import (
    HOSTILE,
    make_check_report,
    make_diff_report,
    make_hostile,
    make_large_report,
    make_library_report,
    make_matmul_report,
)
from paths import TRACES

from analyzer.cli.app import run
from analyzer.render.html.embedding import deflate, embed_json
from analyzer.render.registry import render_report

MAX_KERNEL_PAGE_BYTES = 1_000_000


class PageReader(HTMLParser):
    """Elements of a page with their attributes, and the texts of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        if self.inside == "style":
            self.styles.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def read_panel_texts(page: PageReader) -> list[str]:
    """Return the markup of compressed panels."""
    return [
        zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS).decode()
        for attributes, text in page.scripts
        if "data-deflated" in attributes and (attributes["id"] or "").startswith("markup-")
    ]


def check_is_closed(page: PageReader) -> None:
    """Check that only the one script runs, and that nothing is loaded or styled from elsewhere."""
    runnable = [text for attributes, text in page.scripts if not attributes.get("type")]
    assert len(runnable) == 1
    policy = next(
        attributes["content"]
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    for text in (runnable[0], page.styles[0]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in (policy or "")
    assert (policy or "").startswith("default-src 'none'")
    assert "unsafe" not in (policy or "")
    for tag, attributes in page.elements:
        assert tag not in {"img", "iframe", "object", "embed", "link", "form", "base"}
        assert "style" not in attributes
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")


def test_page_of_one_kernel() -> None:
    text = render_report(make_matmul_report(), "html")
    assert len(text.encode()) < MAX_KERNEL_PAGE_BYTES / 3
    page = PageReader(text)
    check_is_closed(page)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {f"panel-{name}" for name in ("overview", "loops", "flow", "listing", "memory", "whatif")} <= set(
        ids
    )


def test_figures_are_those_of_the_report() -> None:
    report = make_matmul_report()
    text = render_report(report, "html")
    for entry in report.kernels[0].predictions:
        assert f"{entry.cycles:,.0f}" in text
        assert entry.gpu_name in text
    (data,) = [t for a, t in PageReader(text).scripts if a.get("id") == "data-0"]
    found = json.loads(data)
    kernel = report.kernels[0]
    columns = found["listing"]
    assert columns["address"] == [entry.address for entry in kernel.listing]
    assert [columns["texts"][at] for at in columns["text"]] == [entry.instruction for entry in kernel.listing]
    rows = {entry.address: row for row, entry in enumerate(kernel.listing)}
    wanted = [rows.get(entry.producer, -1) if entry.producer is not None else -1 for entry in kernel.listing]
    assert columns["producer"] == wanted
    assert any(row >= 0 for row in wanted)
    assert columns["share"] == pytest.approx([entry.share for entry in kernel.listing], rel=0.005)
    times = {(c["gpu"], c["key"]): [p["time_us"] for p in c["points"]] for c in found["curves"]}
    assert times == {(c.gpu, c.key): [p.time_us for p in c.points] for c in kernel.hardware_curves}


def test_curves_pass_through_the_prediction() -> None:
    kernel = make_matmul_report().kernels[0]
    by_gpu = {entry.gpu: entry for entry in kernel.predictions}
    assert {curve.gpu for curve in kernel.hardware_curves} == set(by_gpu)
    for curve in kernel.hardware_curves:
        (base,) = [point for point in curve.points if point.factor == 1]
        assert base.value == curve.value
        assert base.time_us == pytest.approx(by_gpu[curve.gpu].time_us)
        assert [point.value for point in curve.points] == sorted(point.value for point in curve.points)
        for point in curve.points:
            if point.cycles is not None:
                assert sum(point.cpi_stack.values()) == pytest.approx(point.cycles)


def test_l2_bound_kernel_follows_the_l2_alone() -> None:
    curves = {c.key: c for c in make_matmul_report().kernels[0].hardware_curves if c.gpu == "h100-sxm"}
    halved, *_, doubled = curves["l2.bandwidth_gbps"].points
    assert halved.time_us is not None
    assert doubled.time_us is not None
    assert halved.time_us > 1.8 * doubled.time_us
    times = [point.time_us for point in curves["memory.dram_latency_cycles"].points]
    assert max(filter(None, times)) < 1.05 * min(filter(None, times))


def test_same_report_same_page() -> None:
    report = make_library_report()
    assert render_report(report, "html") == render_report(report, "html")


def test_page_of_many_kernels() -> None:
    report = make_library_report()
    text = render_report(report, "html")
    page = PageReader(text)
    check_is_closed(page)
    assert len(text) < 450_000
    panels = read_panel_texts(page)
    assert len(panels) == len(report.kernels) or text.count('<template id="markup-') == len(report.kernels)
    for panel in panels:
        for tag, attributes in PageReader(panel).elements:
            assert "style" not in attributes
            assert tag != "script"


def test_report_without_gpu_or_listing(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    bare = msgspec.structs.replace(
        make_matmul_report().kernels[0], predictions=(), listing=(), hardware_curves=(), advice=(), loops=()
    )
    text = render_report(msgspec.structs.replace(make_matmul_report(), kernels=(bare,)), "html")
    check_is_closed(PageReader(text))
    dump = TRACES / "cuda/sm_80/report16.sass"
    assert (
        run(["analyze", str(dump), "-k", "saxpy", "-g", "a100", "--format", "html", "-o", str(output)]) == 0
    )
    check_is_closed(PageReader(output.read_text()))


@pytest.mark.parametrize("make", [make_matmul_report, make_library_report])
def test_hostile_texts_are_no_markup(make: Any) -> None:
    report = make_hostile(make())
    page = PageReader(render_report(report, "html"))
    check_is_closed(page)
    for panel in read_panel_texts(page):
        assert not {tag for tag, _ in PageReader(panel).elements} & {"script", "img", "b onload"}
    names = json.loads(next(text for a, text in page.scripts if a.get("id") == "page-data"))["names"]
    escaped = HOSTILE.replace("\u2028", "\\u2028")
    assert all(name.endswith(escaped) for name in names)


def test_page_of_a_diff() -> None:
    report = make_diff_report()
    text = render_report(report, "html")
    page = PageReader(text)
    check_is_closed(page)
    for kernel in report.kernels:
        assert kernel.demangled in text
        assert kernel.evidence[0] in html.unescape(text)
        for change in kernel.predictions:
            assert f"{change.old_cycles:,.0f}" in text
            assert f"{change.new_cycles:,.0f}" in text
    aligned = [json.loads(text) for a, text in page.scripts if (a.get("id") or "").startswith("aligned-")]
    assert len(aligned) == sum(bool(kernel.listing) for kernel in report.kernels) > 0
    for data, kernel in zip(aligned, (one for one in report.kernels if one.listing), strict=True):
        assert data["kinds"] == [line.kind for line in kernel.listing]
        for (old, new), line in zip(data["pairs"], kernel.listing, strict=True):
            for row, side, entry in ((old, "old", line.old), (new, "new", line.new)):
                assert (row >= 0) == (entry is not None)
                if entry is not None:
                    assert data[side]["texts"][data[side]["text"][row]] == entry.instruction


def test_page_of_a_check() -> None:
    text = render_report(make_check_report(), "html")
    check_is_closed(PageReader(text))
    for part in ("The gate tripped", "slow(int)", "+23 %", "1,234", "k.cu:41", "warplens check --update"):
        assert part in text
    assert "<h1>Passed</h1>" in render_report(
        msgspec.structs.replace(make_check_report(), is_clean=True), "html"
    )


@pytest.mark.parametrize("make", [make_diff_report, make_check_report])
def test_hostile_texts_of_comparisons_are_no_markup(make: Any) -> None:
    text = render_report(make_hostile(make()), "html")
    check_is_closed(PageReader(text))
    assert html.escape(HOSTILE[:40]) in text


@given(st.dictionaries(st.text(), st.lists(st.text() | st.integers(-(2**53), 2**53)), max_size=4))
def test_embedded_json_has_the_same_value(value: Any) -> None:
    text = str(embed_json(value))
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)


@given(st.text())
def test_deflated_text_comes_back(text: str) -> None:
    assert zlib.decompress(base64.b64decode(deflate(text)), -zlib.MAX_WBITS).decode() == text


def test_page_of_thousands_of_instructions_is_small() -> None:
    report = make_large_report()
    page = render_report(report, "html")
    assert len(report.kernels[0].listing) > 17_000
    assert len(page) < MAX_KERNEL_PAGE_BYTES
