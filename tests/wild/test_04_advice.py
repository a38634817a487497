"""Case 04: advice was silent beside a bank conflict, an uncoalesced store, a barrier imbalance and spills."""

import json
from pathlib import Path

import pytest

from analyzer.cli.app import run

PAIRS = Path(__file__).resolve().parents[1] / "advice" / "pairs"


def analyze(rule: str, kernel: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    folder = PAIRS / rule
    files = [str(folder / "pair_80.sass"), "--launch", str(folder / "launch.json")]
    assert run(["analyze", *files, "-k", kernel, "-g", "a100", *options]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("rule", "kernel", "cause"),
    [
        ("shared-bank-conflict", "faulty_load", "32-way bank conflict: 32 wavefronts/request, 1 ideal"),
        ("uncoalesced-access", "faulty_column_store", "32 sectors/request, 4 ideal"),
        ("barrier-imbalance", "faulty", "stall barrier 76%"),
        ("register-spill", "faulty", "144 bytes per thread"),
    ],
)
def test_the_largest_finding_is_the_fault(
    rule: str, kernel: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = analyze(rule, kernel, capsys, "--advice")
    first = text[text.index("advice, largest gain first") :].split("\n  2. ")[0]
    assert f"1. {rule}  gains " in first
    assert cause in first
    assert "do: " in first


def test_advice_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Advice runs the model again for each rule that applies: only where it is wanted."""
    plain, advised = (
        json.loads(analyze("shared-bank-conflict", "faulty_load", capsys, "--format", "json", *options))
        for options in ((), ("--advice",))
    )
    assert plain["kernels"][0]["advice"] == []
    (entry,) = (e for e in advised["kernels"][0]["advice"] if e["rule"] == "shared-bank-conflict")
    assert entry["opcode"] == "LDS"
    assert entry["gain_share"] > 0.8
    assert entry["gain_basis"].startswith("sm predicts the launch without")
    assert plain["kernels"][0]["predictions"] == advised["kernels"][0]["predictions"]
