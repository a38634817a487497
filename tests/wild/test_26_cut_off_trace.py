"""Case 26: half of a trace is no whole one; each part of the report copes with warps that left no line."""

import json
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.cli.app import run

LINES = (TRACES / "nvbit" / "vector_add_ungrouped.trace").read_text().splitlines(keepends=True)
QUARTER = len(LINES) // 4
CUT_OFF = {
    "middle": LINES[:QUARTER] + LINES[3 * QUARTER :],
    "last warp": [line for line in LINES if not line.startswith("1 0 0 1 ")],
    "one CTA's second warp": [line for line in LINES if not line.startswith("0 0 0 1 ")],
    "half of a larger CTA's warps": [line.replace("(64,1,1)", "(64,1,2)") for line in LINES],
    "ends": [line for line in LINES if " EXIT " not in line],
}


def analyze(path: Path, lines: list[str], capsys: pytest.CaptureFixture[str], *options: str) -> str:
    path.write_text("".join(lines))
    code = run(["analyze", str(path), "-g", "a100", *options])
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    return shown.out


def test_a_whole_trace_is_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(analyze(tmp_path / "k.trace", LINES, capsys, "--format", "json"))
    assert report["kernels"][0]["counts"]["provenance"] == "traced"
    assert not [each for each in report["warnings"] if each["code"] == "cut-off-code"]


@pytest.mark.parametrize("part", CUT_OFF)
def test_a_part_of_a_trace_is_said_to_be_one(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--advice", "--memory", "--loops", "--explain", "-m", "all"]
    path = tmp_path / "k.trace"
    report = json.loads(analyze(path, CUT_OFF[part], capsys, *options, "--format", "json"))
    (kernel,) = report["kernels"]
    assert kernel["counts"]["provenance"] == "assumed"
    assert "the trace is cut off" in kernel["missing_code"][0]
    assert [each["code"] for each in report["warnings"]].count("cut-off-code") == 1
    assert "the trace is cut off" in analyze(path, CUT_OFF[part], capsys, *options)
