"""Rules that know an upper limit of their gain: below 3 % the model is not asked, and the report says so."""

import json
from pathlib import Path

import pytest

from analyzer.cli.app import run

PAIR = Path(__file__).parent / "pairs" / "tail-effect" / "pair_80.sass"


@pytest.mark.parametrize(("grid", "is_limit"), [(240, False), (108 * 2 * 50 + 1, True)])
def test_the_limit_of_a_short_tail_stands_for_its_gain(
    grid: int, is_limit: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = ["--grid", str(grid), "--block", "1024", "--arg", "1=40"]
    command = ["analyze", str(PAIR), "-k", "faulty", "-g", "a100", *launch, "--advice"]
    assert run([*command, "--format", "json"]) == 0
    (entry,) = (
        entry
        for entry in json.loads(capsys.readouterr().out)["kernels"][0]["advice"]
        if entry["rule"] == "tail-effect"
    )
    assert entry["gain_is_limit"] is is_limit
    assert entry["gain_basis"].startswith("an upper limit" if is_limit else "sm predicts the launch without")
    assert (entry["gain_share"] < 0.03) is is_limit
