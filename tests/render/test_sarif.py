"""SARIF is what the official schema takes, with places, rules and fingerprints that stay."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from finding_reports import (
    HOSTILE,
    make_check_report,
    make_diff_report,
    make_hostile_check_report,
    make_tripped_report,
    make_violation,
)
from paths import TRACES
from published_schemas import load_schema

import analyzer
from analyzer import Options
from analyzer.advice.registry import list_rule_names
from analyzer.cli.app import run as run_command
from analyzer.render.problems import FindingsReport
from analyzer.render.registry import render_report
from analyzer.report.analyze_schema import Report

REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
ROOT = TRACES.parent


def render(report: FindingsReport) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(render_report(report, "sarif"))
    jsonschema.Draft7Validator(load_schema("sarif-2.1.0")).validate(log)
    return log


def analyze_histogram() -> Report:
    options = Options(kernels=("histogram", "matmul_naive"), advice=True)
    return analyzer.analyze(REPORT16, "a100", options=options)


def test_of_check_is_valid_and_complete() -> None:
    (run,) = render(make_tripped_report())["runs"]
    assert run["invocations"][0]["exitCode"] == 1
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("cycles-regression", "error"),
        ("max-registers", "error"),
        ("new-kernel", "note"),
    ]
    place = run["results"][0]["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "src/k.cu"
    assert place["physicalLocation"]["region"] == {"startLine": 88}
    assert place["logicalLocations"][0]["decoratedName"] == "fmha_fwd"
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["descriptor"]["id"] == "unknown-opcode"


def test_rules_are_described_once_and_found_by_index() -> None:
    for report in (make_tripped_report(), make_diff_report(), analyze_histogram()):
        (run,) = render(report)["runs"]
        rules = run["tool"]["driver"]["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
        for rule in rules:
            assert rule["helpUri"].startswith("https://")
            assert rule["shortDescription"]["text"] != rule["fullDescription"]["text"]


def test_rules_of_advice_lead_to_their_pages() -> None:
    (run,) = render(analyze_histogram())["runs"]
    names = {rule["id"] for rule in run["tool"]["driver"]["rules"]} & set(list_rule_names())
    assert names
    for rule in run["tool"]["driver"]["rules"]:
        if rule["id"] in names:
            page = rule["helpUri"].rpartition("/")[2].removesuffix(".html")
            assert (ROOT / "docs" / "rules" / f"{page}.md").is_file()


def test_a_kernel_without_source_is_placed_in_its_dump() -> None:
    report = analyze_histogram()
    (run,) = render(report)["runs"]
    (line,) = (kernel.line for kernel in report.kernels if kernel.name == "histogram")
    regions = {
        result["locations"][0]["physicalLocation"]["region"]["startLine"]
        for result in run["results"]
        if result["locations"][0]["logicalLocations"][0]["decoratedName"] == "histogram"
    }
    assert regions == {line}


def fingerprints(report: FindingsReport) -> list[str]:
    (run,) = render(report)["runs"]
    return [result["partialFingerprints"]["warplens/v1"] for result in run["results"]]


def test_fingerprints_are_those_of_kernel_and_rule() -> None:
    report = analyze_histogram()
    backwards = analyzer.analyze(REPORT16, "a100", options=Options(advice=True))
    first = fingerprints(report)
    assert len(set(first)) == len(first) > 0
    assert set(first) <= set(fingerprints(backwards))


def test_fingerprints_of_equal_results_differ() -> None:
    violation = make_violation("cycles-regression", "k", fingerprint="same")
    first, second = fingerprints(make_check_report((), (violation, violation)))
    assert first == "same"
    assert second != first
    assert fingerprints(make_check_report((), (violation, violation))) == [first, second]


def test_hostile_names_stay_texts() -> None:
    text = render_report(make_hostile_check_report(), "sarif")
    assert "\x1b" not in text
    assert "\u202e" not in text
    (run,) = render(make_hostile_check_report())["runs"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.isascii()
    assert not set(uri) & set(' <>"\\^`{|}')
    assert "](" in HOSTILE
    assert "](" not in run["results"][0]["message"]["text"]


@pytest.mark.parametrize("n", [0, 31])
def test_number_of_results_is_limited(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analyzer.render.sarif._MAX_RESULTS", 30)
    violations = tuple(make_violation("cycles-regression", "k", fingerprint=str(i)) for i in range(n))
    (run,) = render(make_check_report((), violations))["runs"]
    assert len(run["results"]) == min(n, 30)
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert [note["message"]["text"][:14] for note in notes] == (["1 more results"] if n else [])


def test_analyze_asks_for_advice_by_itself(tmp_path: Path) -> None:
    arguments = ["analyze", REPORT16, "-k", "matmul_naive", "--gpu", "a100", "--format", "sarif"]
    arguments += [
        "--grid",
        "32,32",
        "--block",
        "32,32",
        "--arg",
        "3=1024",
        "-o",
        str(tmp_path / "found.sarif"),
    ]
    assert run_command(arguments) == 0
    (found,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert found["results"]
