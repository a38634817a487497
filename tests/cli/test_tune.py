"""Plan, measure, fit and choose on the command line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_machine import draw_machine

from analyzer.cli.app import run
from analyzer.tuning.samples import Samples, format_samples, read_samples

PLAN = ["tune", "plan", "--kernel", "gemm", "--gpu", "h100", "--waves", "3", "--set", "BLOCK_SIZE_K=64"]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A plan that a synthetic machine has measured."""
    assert run([*PLAN, "--set", "BLOCK_SIZE_M=64,128", "-o", str(tmp_path / "plan.csv")]) == 0
    (planned,) = read_samples(tmp_path / "plan.csv", needs_times=False)
    measured = draw_machine(5).measure(planned, noise=0.01, seed=5)
    (tmp_path / "profile.csv").write_text("".join(format_samples([measured])), encoding="utf-8")
    return tmp_path / "profile.csv"


def test_a_profile_becomes_choices(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = str(profile.with_name("gemm.npz"))
    assert run(["tune", "fit", str(profile), "-o", artifact]) == 0
    assert "decided by their own samples" in capsys.readouterr().out
    sizes = ["--m", "300", "--n", "4096", "--k", "2000"]
    assert run(["tune", "choose", artifact, *sizes, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["kernel"] == "gemm"
    assert answer["shape"] == {"m": 300, "n": 4096, "k": 2000}
    assert answer["config"]["BLOCK_SIZE_K"] == 64
    table = profile.with_name("shapes.csv")
    table.write_text("layer,k,n,m\nqkv,2000,4096,300\n", encoding="utf-8")
    assert run(["tune", "choose", artifact, "--table", str(table)]) == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert {name: int(row[name]) for name in answer["config"]} == answer["config"]
    assert float(row["predicted_us"]) == pytest.approx(answer["predicted_us"], rel=1e-3)


def test_a_profile_of_several_gpus_asks_which(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (part,) = read_samples(profile)
    other = Samples(part.space, "a100-80gb-sxm", part.shapes, part.macros, part.micros, part.time_us)
    profile.write_text("".join(format_samples([part, other])), encoding="utf-8")
    artifact = str(profile.with_name("gemm.npz"))
    assert run(["tune", "fit", str(profile), "-o", artifact]) == 2
    assert "gemm on h100-sxm, gemm on a100-80gb-sxm" in capsys.readouterr().err
    assert run(["tune", "fit", str(profile), "-o", artifact, "--gpu", "a100-80gb-sxm"]) == 0


def test_an_unmeasured_plan_is_not_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.csv")
    assert run([*PLAN, "-o", plan]) == 0
    assert run(["tune", "fit", plan, "-o", str(tmp_path / "a.npz")]) == 2
    assert "measure the plan first" in capsys.readouterr().err
    assert not (tmp_path / "a.npz").exists()


def test_an_output_does_not_replace_the_profile(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = profile.read_bytes()
    assert run(["tune", "fit", str(profile), "-o", str(profile)]) == 2
    assert profile.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--m", "1"], "no n, k"),
        (["--m", "1", "--n", "1", "--k", "1", "--heads", "4"], "has no input heads"),
        (["--size", "m=x"], "--size m=x"),
        (["--m", "1", "--table", "shapes.csv"], "leave out the others"),
    ],
)
def test_inputs_that_are_none_are_an_error(
    profile: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = str(profile.with_name("gemm.npz"))
    assert run(["tune", "fit", str(profile), "-o", artifact]) == 0
    assert run(["tune", "choose", artifact, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_artifact_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    assert run(["tune", "choose", str(tmp_path / "other.npz"), "--m", "1"]) == 2
    assert "no artifact of tune" in capsys.readouterr().err


def test_values_of_a_parameter_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAN, "--set", "BLOCK_SIZE_M=", "-o", str(tmp_path / "plan.csv")]) == 2
    assert "--set BLOCK_SIZE_M=" in capsys.readouterr().err
