"""CSV: what a script reads back, and nothing that a spreadsheet computes."""

import csv
import io

import pytest
from finding_reports import make_diff_report, make_hostile_check_report, make_kernel_diff, make_tripped_report
from paths import TRACES

import analyzer
from analyzer.render.problems import FindingsReport
from analyzer.render.registry import render_report
from analyzer.report.diff_schema import Verdict

REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")


def read(report: FindingsReport) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(render_report(report, "csv"), newline="")))
    assert all(None not in row and None not in row.values() for row in rows)
    return rows


def test_analyze_has_a_row_for_each_kernel_and_gpu() -> None:
    report = analyzer.analyze(REPORT16, ["a100", "v100"])
    rows = read(report)
    predicted = [prediction for kernel in report.kernels for prediction in kernel.predictions]
    assert [float(row["cycles"]) for row in rows if row["cycles"]] == [each.cycles for each in predicted]
    assert len(rows) == 2 * len(report.kernels)
    assert all(row["cycles"] or row["refused"] for row in rows)


def test_figures_of_check_and_diff_come_back() -> None:
    cycles = next(row for row in read(make_tripped_report()) if row["metric"] == "cycles")
    assert (cycles["kernel"], float(cycles["baseline"]), float(cycles["value"])) == ("fmha_fwd", 1e5, 114_200)
    assert cycles["outcome"] == "regressed"
    registers = next(row for row in read(make_diff_report()) if row["metric"] == "registers")
    assert (float(registers["old"]), float(registers["new"]), registers["gpu"]) == (40, 56, "")
    assert [row["kernel"] for row in read(make_diff_report())].count("same") == 1


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_no_text_is_a_formula(start: str) -> None:
    kernels = (
        make_kernel_diff(f"{start}cmd|' /C calc'!A0", Verdict.SIGNIFICANT, 0.1, evidence=(f"{start}1+1",)),
    )
    for report in (make_diff_report(kernels), make_hostile_check_report()):
        for row in read(report):
            texts = [value for key, value in row.items() if key not in ("change", "old", "new", "value")]
            assert not [text for text in texts if text.startswith(("=", "+", "-", "@", "\t", "\r"))]
