"""Reports on terminals of any width: nothing is cut, and what is left out is named."""

import io
import re
from pathlib import Path

import pytest
from paths import TRACES
from rich.console import Console

import analyzer
from analyzer import Options
from analyzer.hardware.gpu_selection import find_gpus
from analyzer.ir.launch import Dim3, Launch
from analyzer.render.gpus import make_gpu_table, print_gpu
from analyzer.render.tables import Column, ColumnFit, make_table, shorten_middle
from analyzer.render.terminal import print_listings, print_report
from analyzer.render.text_options import TextOptions
from analyzer.report.analyze_schema import Report

REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
LINES = str(Path(__file__).parent / "lines_80.txt")
WIDTHS = (60, 80, 100, 120, 200)
EVERYTHING = TextOptions(loops=True, memory=True, branches=True, listing=True)


def show(report: Report, width: int, options: TextOptions = EVERYTHING, *, listing: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None, _environ={})
    (print_listings if listing else print_report)(report, console, options)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.fixture(scope="module")
def two_gpus() -> Report:
    launch = Launch(grid=Dim3(1057), block=Dim3(256))
    options = Options(kernels=("matmul_tiled",), launch=launch, models=("roofline",), listing=True)
    return analyzer.analyze(REPORT16, ["a100", "rtx pro 6000 blackwell server"], options=options)


@pytest.mark.parametrize("width", WIDTHS)
def test_reports_fit_and_lose_no_number(two_gpus: Report, width: int) -> None:
    text = show(two_gpus, width)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for entry in two_gpus.kernels[0].predictions:
        for figure in (f"{entry.cycles:,.0f}", f"{entry.time_us:,.2f}", f"{entry.time_us_low:,.2f}"):
            assert figure in words
        assert entry.bound in text
    assert "…" not in text
    for name in ("RTX", "Blackwell", "Server", "(transferred)"):
        assert name in text
    if width <= 60:
        assert "left out at 60 columns: model (roofline)" in text
    if width == 200:
        assert "left out" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_listings_keep_cause_and_source(width: int) -> None:
    launch = Launch(grid=Dim3(1), block=Dim3(32))
    options = Options(launch=launch, listing=True)
    text = show(analyzer.analyze(LINES, "a100", options=options), width, listing=True)
    assert max(map(len, text.splitlines())) <= width
    assert "long_scoreboard" in text
    assert "lines.cu:6 a = a * a + x[k];" in " ".join(text.split())
    joined = re.sub(r"\s+", "", text)
    assert "IMAD.WIDE.U32R2,R2,R3,c[0x0][0x160]" in joined or width == 60
    assert ("[B------:" in text) == (width == 200)
    assert ("control" in text) or width == 200


def test_names_of_many_kernels_are_folded() -> None:
    report = analyzer.analyze(REPORT16, ["a100", "rtx 5090"], options=Options(models=("warp", "roofline")))
    for width in WIDTHS:
        text = show(report, width)
        assert max(map(len, text.splitlines())) <= width
        words = "".join(text.split())
        assert all(kernel.demangled in words for kernel in report.kernels) or width < 100
        assert text.count(" RTX") == 2 * len(report.kernels)  # every GPU with every model
        assert "…" not in text


def test_a_table_leaves_columns_out_by_rank_and_says_so() -> None:
    columns = [
        Column("GPU", ColumnFit.WRAP, min_width=8),
        Column("cycles"),
        Column("low", drop_rank=1),
        Column("model", ColumnFit.NO_WRAP, drop_rank=2),
    ]
    table = make_table(columns, [("RTX PRO 6000 Blackwell", "12,345", "1,000", "sm"), ("A2", "7", "5", "sm")])

    def render(width: int) -> str:
        out = io.StringIO()
        Console(file=out, width=width).print(table)
        return out.getvalue()

    assert "left out" not in render(60)
    assert "RTX PRO 6000 Blackwell" in render(60)
    narrow = render(30)
    assert "model" not in narrow.splitlines()[1]
    assert "1,000" in narrow
    assert "left out at 30 columns: model" in narrow
    assert "(sm)" in narrow
    assert "low" not in render(22).splitlines()[1]
    assert "12,345" in render(22)


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_gpus_fit(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(make_gpu_table(find_gpus("all")))
    print_gpu(find_gpus("h100")[0], console, explain=True)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "3,352" in text
    assert "rtx-pro-6000-bla" in text


def test_long_names_lose_their_middle() -> None:
    assert shorten_middle("a" * 50 + "b" * 50, 11) == "aaaa...bbbb"
    assert shorten_middle("short", 11) == "short"
