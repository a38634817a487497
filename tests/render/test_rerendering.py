"""Reports read back from their JSON: the same text, the same JSON, and errors that show the place."""

import json
from pathlib import Path

import pytest
from paths import TRACES

import analyzer
from analyzer import Options
from analyzer.ir.launch import Dim3, Launch
from analyzer.render.registry import find_format, list_formats, render_report
from analyzer.render.text_options import TextOptions
from analyzer.report import read_report
from analyzer.report.analyze_schema import Report
from analyzer.report.report_reader import AnyReport
from analyzer.text.errors import InputError, UsageError

REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
GEMM = str(TRACES / "triton" / "sm_90" / "matmul.sass")
EVERYTHING = TextOptions(loops=True, memory=True, branches=True, advice=True, listing=True, explain=True)


def analyze_static() -> AnyReport:
    return analyzer.analyze([REPORT16, GEMM], ["a100", "h100"], options=Options(listing=True))


def analyze_launched() -> AnyReport:
    launch = Launch(grid=Dim3(8, 8), block=Dim3(16, 16))
    options = Options(
        kernels=("matmul_naive", "histogram"), launch=launch, models=("steady", "amali"), listing=True
    )
    return analyzer.analyze(REPORT16, "a100", options=options)


def analyze_trace() -> AnyReport:
    return analyzer.analyze(str(TRACES / "nvbit" / "vector_add.traceg"), "a100")


def edit_hardware() -> AnyReport:
    options = Options(kernels=("vector_add", "histogram"))
    return analyzer.whatif(
        REPORT16, "a100", settings=["clock=1200"], sweeps=["dram=x0.5,x1,x2"], options=options
    )


@pytest.fixture(params=[analyze_static, analyze_launched, analyze_trace, edit_hardware, "validate"])
def report(request: pytest.FixtureRequest, tmp_path: Path) -> AnyReport:
    if callable(request.param):
        made: AnyReport = request.param()
        return made
    table = tmp_path / "cases.csv"
    rows = [
        f"{REPORT16},{kernel},{gpu},{grid},256,{time},{group}"
        for kernel, grid, time, group in (
            ("vector_add", 1000, 10, "a"),
            ("saxpy", 64, 4.5, "a"),
            ("none", 1, 1, ""),
        )
        for gpu in ("a100", "l40s")
    ]
    table.write_text("\n".join(("dump,kernel,gpu,grid,block,time_us,group", *rows)), encoding="utf-8")
    return analyzer.validate(table, models=("roofline", "warp"), jobs=1, cache=False)


def test_text_and_json_of_a_report_that_was_read_back_are_the_same(report: AnyReport, tmp_path: Path) -> None:
    text = render_report(report, "json")
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    for source in (path, str(path), text.encode()):
        again = read_report(source)
        assert type(again) is type(report)
        assert again == report
        assert render_report(again, "json") == text
        assert render_report(again) == render_report(report)
    if isinstance(report, Report):
        assert render_report(again, "text", EVERYTHING) == render_report(report, "text", EVERYTHING)
        assert render_report(again, "listing") == render_report(report, "listing")


def test_every_format_renders(report: AnyReport) -> None:
    for each in list_formats(report.schema.split("/")[1]):
        if each.module in {"validation_page", "whatif_chart"}:
            pytest.importorskip("plotly", reason="the charts extra is not installed")
        assert callable(each.load_renderer())
        assert render_report(report, each.name).strip() or each.name == "github"  # where nothing is wrong
    with pytest.raises(UsageError, match="no format yaml"):
        find_format(report, "yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ('{"schema": "warplens/analyze/1", "kernels": [', "not JSON"),
        ("[]", "it has no schema"),
        ('{"kernels": []}', "it has no schema"),
        ('{"schema": "warplens/analyze/9"}', "its schema is 'warplens/analyze/9'"),
        ('{"schema": "warplens/validate/1"}', "missing required field"),
    ],
)
def test_what_is_no_report_of_ours_is_an_input_error(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    for source in (path, text.encode()):
        with pytest.raises(InputError, match=said):
            read_report(source)


def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_report(tmp_path / "gone.json")
    with pytest.raises(InputError, match="directory"):
        read_report(tmp_path)


def test_a_damaged_field_is_shown_where_it_stands() -> None:
    content = json.loads(render_report(analyze_trace(), "json"))
    content["kernels"][0]["predictions"][0]["cycles"] = "many"
    data = json.dumps(content, indent=1).encode()
    with pytest.raises(InputError, match="expected `float`, got `str`") as caught:
        read_report(data)
    location = caught.value.diagnostic.location
    assert location is not None
    assert location.text.strip() == '"cycles": "many",'
    assert location.line == data[: data.index(b'"many"')].count(b"\n") + 1


@pytest.mark.parametrize("rest", [b'"inputs": [{"path": "a\x99b"}]', b'"gpus": 3, "x": "\x99"'])
def test_bytes_that_are_no_text_are_an_input_error(rest: bytes) -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        read_report(b'{"schema": "warplens/analyze/1", ' + rest + b"}")
