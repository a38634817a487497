"""JUnit XML keeps to what Jenkins takes, one case for each kernel and GPU."""

from xml.etree import ElementTree

import pytest
from finding_reports import (
    make_check_report,
    make_diff_report,
    make_hostile_check_report,
    make_tripped_report,
)
from paths import TRACES

import analyzer
from analyzer.render.problems import FindingsReport
from analyzer.render.registry import render_report

# Of Jenkins' xunit plugin, junit-10.xsd: children and attributes of each element, those that must be first.
ALLOWED = {
    "testsuites": ({"testsuite"}, (), {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"properties", "testcase", "system-out", "system-err"},
        ("name", "tests", "failures", "errors"),
        {"time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url", "group"},
    ),
    "testcase": (
        {"skipped", "error", "failure", "system-out", "system-err"},
        ("name",),
        {"time", "classname", "group"},
    ),
    "failure": (set(), (), {"type", "message"}),
    "skipped": (set(), (), {"type", "message"}),
    "system-out": (set(), (), set()),
}


def check_element(node: ElementTree.Element) -> None:
    children, required, optional = ALLOWED[node.tag]
    assert {child.tag for child in node} <= children
    assert set(required) <= set(node.attrib) <= {*required, *optional}
    for child in node:
        check_element(child)


def render(report: FindingsReport) -> ElementTree.Element:
    root = ElementTree.fromstring(render_report(report, "junit").encode())
    assert root.tag == "testsuites"
    check_element(root)
    for node in (root, *root):
        assert int(node.attrib["tests"]) == len(node.findall(".//testcase"))
        assert int(node.attrib["failures"]) == len(node.findall(".//failure"))
    return root


def cases(report: FindingsReport, kind: str) -> dict[str, str]:
    """Return messages of the cases with a child of a kind, by name."""
    found = [(case.attrib["name"], case.find(kind)) for case in render(report).iter("testcase")]
    return {name: node.attrib["message"] for name, node in found if node is not None}


def test_check_fails_on_what_trips_the_gate() -> None:
    assert cases(make_tripped_report(), "failure") == {
        "fmha_fwd [h100]": "fmha_fwd: 14.2 % more cycles than the baseline (limit +5 %)",
        "gemm": "gemm: 168 registers, at most 128 are allowed",
    }
    names = [case.attrib["name"] for case in render(make_tripped_report()).iter("testcase")]
    assert names == [
        "fmha_fwd [h100]",
        "fmha_fwd [a100]",
        "gemm",
        "softmax [h100]",
        "added [h100]",
        "gone",
        "copy [a100]",
    ]


def test_diff_fails_on_what_got_slower() -> None:
    assert set(cases(make_diff_report(), "failure")) == {"slower"}
    assert set(cases(make_diff_report(), "skipped")) == {"unclear"}


def test_analyze_has_a_case_for_each_kernel_and_gpu() -> None:
    report = analyzer.analyze(str(TRACES / "triton" / "sm_90" / "softmax.sass"), ["h100", "a100", "b200"])
    names = [case.attrib["name"] for case in render(report).iter("testcase")]
    (kernel,) = report.kernels
    assert len(names) == len(set(names)) == len(kernel.predictions) + len(kernel.refused) == 3


@pytest.mark.parametrize("report", [make_hostile_check_report(), make_check_report()])
def test_hostile_names_and_empty_reports_are_xml(report: FindingsReport) -> None:
    root = render(report)
    assert len(root.findall(".//failure")) == len(report.kernels)
