"""Facts on an analysis that its JSON names beside the predictions: inputs, sources, the model's fingerprint."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import TRACES

from analyzer import fingerprint
from analyzer.cli.app import run

MATMUL = TRACES / "triton" / "sm_90" / "matmul.sass"
LINES = """
	.target	sm_90
	.section	.text.k,"ax",@progbits
.text.k:
	//## File "/home/me/src/k.cu", line 7
        /*0000*/                   LDG.E R2, [R2.64] ;
        /*0010*/                   EXIT ;
"""


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What `analyze` prints as JSON."""
    assert run(["analyze", *arguments, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_each_kernel_names_its_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "lines.sass"
    other.write_text(LINES)
    found = report(capsys, str(MATMUL), str(other))
    assert [kernel["input"] for kernel in found["kernels"]] == [str(MATMUL), str(other)]


def test_sources_have_their_whole_path_in_json_and_their_name_in_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lines.sass"
    path.write_text(LINES)
    (kernel,) = report(capsys, str(path), "--listing", "-g", "h100")["kernels"]
    assert {entry["source"] for entry in kernel["listing"]} == {"/home/me/src/k.cu:7"}
    assert run(["analyze", str(path), "--listing", "-g", "h100"]) == 0
    text = capsys.readouterr().out
    assert "k.cu:7" in text
    assert "/home/me" not in text


def test_the_fingerprint_is_of_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fingerprint.compute_model_fingerprint.cache_clear()
    first = report(capsys, str(MATMUL), "-g", "h100")["model_fingerprint"]
    fingerprint.compute_model_fingerprint.cache_clear()
    assert report(capsys, str(MATMUL), "-g", "h100")["model_fingerprint"] == first  # from the cache
    copied = tmp_path / "hwdb"
    shutil.copytree(TRACES.parent / "hwdb", copied)
    monkeypatch.setattr(
        fingerprint, "find_data_folder", lambda kind: copied if kind == "hwdb" else TRACES.parent / kind
    )
    fingerprint.compute_model_fingerprint.cache_clear()
    assert fingerprint.compute_model_fingerprint() == first  # elsewhere, with other dates
    figures = copied / "chip" / "gh100.toml"
    figures = figures if figures.is_file() else next((copied / "chip").glob("*.toml"))
    figures.write_text(figures.read_text() + "\n# 1\n")
    fingerprint.compute_model_fingerprint.cache_clear()
    assert fingerprint.compute_model_fingerprint() != first
    monkeypatch.undo()
    fingerprint.compute_model_fingerprint.cache_clear()


def test_a_launch_for_no_kernel_is_a_warning_and_an_error_when_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launches = tmp_path / "launch.json"
    launches.write_text('{"kernels": {"matmull": {"grid": [4]}, "matmul": {"grid": [4]}}}')
    arguments = ["analyze", str(MATMUL), "-g", "h100", "--launch", str(launches)]
    assert run(arguments) == 0
    printed = capsys.readouterr()
    assert "not in the input: matmull" in printed.out + printed.err
    assert run([*arguments, "--strict"]) == 2
    launches.write_text('{"kernels": {"matmul": {"grid": [4]}}}')
    capsys.readouterr()
    assert run(arguments) == 0
    assert "not in the input" not in capsys.readouterr().out
