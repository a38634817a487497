"""Dumps that were cut off, in each form: a warning says what is missing, and no count is exact."""

from pathlib import Path

import pytest

from analyzer import analyze
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import Report
from analyzer.text.errors import WarplensError

DUMP = Path(__file__).parent / "00-missing-arguments" / "missing_90.sass"
KERNEL = "column_sums"
LAUNCH = Launch(grid=Dim3(4), block=Dim3(64), arguments=(parse_argument("2=9"), parse_argument("3=64")))
HEAD = """\tcode for sm_90
\t\tFunction : k
\t.headerflags\t@"EF_CUDA_SM90"
"""
WHOLE = "/*0000*/ MOV R1, c[0x0][0x28] ;\n/*0010*/ EXIT ;\n/*0020*/ BRA 0x20;\n"
CUT_OFF = {  # code, and what the warning says of it
    "no end": ("/*0000*/ MOV R1, c[0x0][0x28] ;\n", "ends without EXIT after 0x0000"),
    "guarded exit at the end": ("/*0000*/ @P0 EXIT ;\n", "ends without EXIT after 0x0000"),
    "conditional branch at the end": (
        "/*0000*/ MOV R1, c[0x0][0x28] ;\n/*0010*/ @P0 BRA 0x0 ;\n",
        "ends without EXIT after 0x0010",
    ),
    "branch beyond the end": (
        "/*0000*/ ISETP.GE.AND P0, PT, RZ, c[0x0][0x210], PT ;\n/*0010*/ @P0 BRA 0x500 ;\n/*0020*/ EXIT ;\n",
        "BRA at 0x0010 names 0x500",
    ),
    "label that is not there": (
        "/*0000*/ @P0 BRA `(.L_x_7) ;\n/*0010*/ EXIT ;\n",
        "BRA at 0x0000 names a label",
    ),
    "convergence point beyond the end": (
        "/*0000*/ BSSY B0, 0x700 ;\n/*0010*/ EXIT ;\n",
        "BSSY at 0x0000 names 0x700",
    ),
    "call beyond the end": ("/*0000*/ CALL.REL.NOINC 0x900 ;\n/*0010*/ EXIT ;\n", "CALL at 0x0000"),
    "lines lost in the middle": (
        "/*0000*/ MOV R1, c[0x0][0x28] ;\n/*0040*/ EXIT ;\n",
        "instructions are missing after 0x0000",
    ),
}


def run(path: Path, kernel: str, launch: Launch) -> Report:
    return analyze(str(path), "h100", options=Options(kernels=(kernel,), launch=launch))


@pytest.mark.parametrize("launch", [LAUNCH, Launch()], ids=["launched", "static"])
@pytest.mark.parametrize("form", CUT_OFF)
def test_each_form_is_said_and_not_exact(tmp_path: Path, form: str, launch: Launch) -> None:
    code, message = CUT_OFF[form]
    path = tmp_path / "cut.sass"
    path.write_text(HEAD + code)
    plain = Launch(grid=launch.grid, block=launch.block)
    report = run(path, "k", plain)
    assert message in report.kernels[0].missing_code[0]
    assert [w.message for w in report.warnings if w.code == "cut-off-code" and message in w.message]
    assert report.kernels[0].counts.provenance != "exact"
    assert all(block.provenance != "exact" for block in report.kernels[0].counts.blocks)


def test_whole_code_is_not_called_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "whole.sass"
    path.write_text(HEAD + WHOLE)
    report = run(path, "k", Launch(grid=Dim3(1), block=Dim3(32)))
    assert report.kernels[0].counts.provenance == "exact"
    assert not report.kernels[0].missing_code
    assert not [warning for warning in report.warnings if warning.code == "cut-off-code"]


def test_a_dump_cut_anywhere_never_has_other_counts_that_are_exact(tmp_path: Path) -> None:
    """Cut a dump after some lines, within a line, and with the functions behind it still there."""
    text = DUMP.read_text()
    begin = text.index(f"Function : {KERNEL}")
    following = text.find("\t\tFunction : ", begin + 10)
    whole = run(DUMP, KERNEL, LAUNCH).kernels[0].counts.executed_warp_instructions
    path, n_inexact = tmp_path / "cut.sass", 0
    ends = [place for place, letter in enumerate(text) if letter == "\n" and begin + 150 < place < following]
    for end in ends[::9]:
        for cut in (text[: end + 1], text[: end - 9], text[: end + 1] + text[following:]):
            path.write_text(cut)
            try:
                counts = run(path, KERNEL, LAUNCH).kernels[0].counts
            except WarplensError:
                continue
            assert counts.provenance != "exact" or counts.executed_warp_instructions == whole
            n_inexact += counts.provenance != "exact"
    assert n_inexact > len(ends) // 9


def test_an_exit_that_some_threads_take_makes_static_counts_assumed(tmp_path: Path) -> None:
    path = tmp_path / "guarded.sass"
    path.write_text(
        HEAD + "/*0000*/ @P0 EXIT ;\n/*0010*/ STG.E [R2], R4 ;\n/*0020*/ EXIT ;\n/*0030*/ BRA 0x30;\n"
    )
    counts = run(path, "k", Launch()).kernels[0].counts
    assert counts.provenance == "assumed"
    assert any("conditional exits" in note for note in counts.assumptions)
