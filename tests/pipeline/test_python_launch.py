"""Launches as Python writes them, and how values show themselves in a notebook."""

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from paths import TRACES

import analyzer

SOFTMAX = str(TRACES / "triton" / "sm_90" / "softmax.sass")
EVIL = "_Z<script>alert(1)</script>\u202e"
DUMP = f"""
	code for sm_90
		Function : {EVIL}
        /*0000*/                   IADD3 R0, R0, 0x1, RZ ;
        /*0010*/                   EXIT ;
"""


def counts(**values: Any) -> tuple[str, Any]:
    report = analyzer.analyze(SOFTMAX, gpu="h100", launch=analyzer.Launch(grid=8, **values))
    found = report.kernels[0].counts
    return found.provenance, found.executed_warp_instructions


def test_arguments_by_name_position_and_as_arrays_are_those_of_the_command_line() -> None:
    by_name = {"x_ptr": "ptr", "out_ptr": "ptr", "columns": 512, "x_stride": 512, "out_stride": 512}
    wanted = counts(arguments=by_name)
    assert wanted[0] == "exact"
    assert counts(arguments=list(by_name.values())) == wanted
    arrays = {**by_name, "x_ptr": np.ones((8, 512), np.float16), "columns": np.int64(512)}
    assert counts(arguments=arrays) == wanted


def test_contents_of_an_array_are_those_of_the_memory() -> None:
    (table,) = (
        analyzer.Launch(arguments={"t": np.arange(6, dtype=np.int32).reshape(2, 3).T}).check().arguments
    )
    contents = table.value.contents  # type: ignore[union-attr]
    assert contents.view(np.int32).tolist() == [0, 3, 1, 4, 2, 5]


def test_options_take_such_a_launch_too() -> None:
    launch = analyzer.Launch(grid=8, arguments={"columns": 512})
    report = analyzer.analyze(SOFTMAX, gpu="h100", options=analyzer.Options(launch=launch))  # type: ignore[arg-type]
    assert report.kernels[0].launch.grid == (8, 1, 1)


def test_whatif_takes_a_launch() -> None:
    launch = analyzer.Launch(grid=8, arguments={"columns": 512, "x_stride": 512, "out_stride": 512})
    report = analyzer.whatif(SOFTMAX, "h100", settings=["dram=x2"], launch=launch, elasticity=False)
    assert report.kernels[0].base.waves < 1


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"grid": 0}, "each number must be"),
        ({"grid": "8"}, "not one to three numbers"),
        ({"block": (1, 2, 3, 4)}, "not one to three numbers"),
        ({"block": 2000}, "must be 1 to 1024"),
        ({"arguments": 5}, "neither a mapping nor a sequence"),
        ({"arguments": {"n": object()}}, "is no value"),
        ({"arguments": {"n": "many"}}, "is no value"),
        ({"arguments": [np.array([object()])]}, "no bytes to copy"),
        ({"arguments": [np.zeros(0)]}, "no bytes to copy"),
        ({"dynamic_shared_bytes": -1}, "cannot be negative"),
    ],
)
def test_bad_values_are_one_message(values: dict[str, Any], says: str) -> None:
    with pytest.raises(analyzer.WarplensError, match=says):
        analyzer.analyze(SOFTMAX, launch=analyzer.Launch(**values))


def test_what_is_no_launch_says_so() -> None:
    with pytest.raises(analyzer.WarplensError, match="is no launch"):
        analyzer.analyze(SOFTMAX, launch={"grid": 8})  # type: ignore[arg-type]


def test_reprs_are_one_short_line() -> None:
    launch = analyzer.Launch(grid=8, block=(32, 2), arguments={"x": np.ones(1000), "columns": 512})
    assert repr(launch) == (
        "Launch(grid=(8,), block=(32, 2), arguments={'x': <float64 array of shape (1000,)>, 'columns': 512})"
    )
    program = analyzer.load(SOFTMAX)
    report = analyzer.analyze(program, gpu="h100")
    assert repr(report).startswith("Report(1 kernel of ")
    assert repr(report.kernels[0]).startswith("KernelReport(softmax, sm_90a, ")
    for value in (program, program["softmax"], program.module, program.module.kernels[0], report):
        assert len(repr(value)) < 300
        assert "\n" not in repr(value)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_escapes_what_comes_from_the_input(tmp_path: Any) -> None:
    path = tmp_path / "<img src=x onerror=alert(2)>.sass"
    path.write_text(DUMP)
    program = analyzer.load(str(path))
    report = analyzer.analyze(program, gpu="h100")
    launch = analyzer.Launch(grid=1, arguments={"<b>": "<i>"})
    for value in (program, report, report.kernels[0], launch):
        page = _Tags()
        page.feed(value._repr_html_())
        assert page.tags <= {"table", "tr", "td", "th", "p", "b"}
        assert "<script>" in page.text or value is launch
        assert "\u202e" not in page.text
