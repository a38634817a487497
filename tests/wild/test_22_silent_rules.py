"""Case 22: advice was silent on divisions outside loops, an idle GPU, scalar products; promises did not come true.

Promises are held for all pairs of kernels by tests/advice/test_pairs.py.
"""

import gzip
import json
from pathlib import Path

import pytest

from analyzer.cli.app import run

HERE = Path(__file__).parent / "22-silent-rules"
PAIRS = Path(__file__).resolve().parents[1] / "advice" / "pairs"
INLINED = [
    "analyze",
    str(HERE / "inlined_90.txt"),
    "-g",
    "h100",
    "--grid",
    "1024",
    "--block",
    "256",
    "--advice",
]


def advise(rule: str, kernel: str, into: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the advice on a kernel of the pairs, with all rules, as the terminal shows it."""
    dump = PAIRS / rule / "promises_80.sass"
    packed = dump.with_name(dump.name + ".gz")
    if packed.is_file():
        dump = into / dump.name
        dump.write_bytes(gzip.decompress(packed.read_bytes()))
        dump.with_suffix(".res").write_bytes((PAIRS / rule / "promises_80.res").read_bytes())
    launches = next(PAIRS.joinpath(rule).glob("promises*.json"))
    assert run(["analyze", str(dump), "--launch", str(launches), "-k", kernel, "-g", "a100", "--advice"]) == 0
    text = capsys.readouterr().out
    return text[text.index("advice, largest gain first") :]


@pytest.mark.parametrize(
    ("rule", "kernel", "cause"),
    [
        ("integer-division", "faulty_groups", "2 in the code, 5"),
        ("integer-division", "faulty_permute", "of the executed instructions"),
        ("idle-gpu", "faulty_sum", "8 CTAs on 108 SMs: 93% of these have none"),
        ("idle-gpu", "faulty_activate", "32 CTAs on 108 SMs: 70% of these have none"),
        ("scalar-product", "faulty_half", "with 16-bit operands"),
        ("scalar-product", "faulty_float", "if TF32 is accurate enough"),
        ("narrow-load", "faulty_halves", "LDG.E.U16.CONSTANT moves 2 of up to 16 bytes a lane"),
        ("register-tile", "faulty_shared", "a thread loads 2 words"),
    ],
)
def test_the_cause_is_named_with_its_gain(
    rule: str, kernel: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = advise(rule, kernel, tmp_path, capsys)
    finding = next(part for part in text.split("\n  ") if f". {rule}  gains " in part)
    assert cause in " ".join(text[text.index(finding) :].split())


@pytest.mark.parametrize("kernel", ["faulty_sum", "faulty_activate"])
def test_an_idle_gpu_is_the_first_cause(
    kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing says that an SM needs more warps: its occupancy is full."""
    text = advise("idle-gpu", kernel, tmp_path, capsys)
    assert "\n  1. idle-gpu  gains 9" in text
    assert "more warps" not in text


def test_inlined_code_points_at_its_caller(capsys: pytest.CaptureFixture[str]) -> None:
    """The load stands in a header, two calls deep."""
    assert run(INLINED) == 0
    assert "at 0x00a0 LDG.E (inlined.cu:4, from scale.cuh:3)" in capsys.readouterr().out
    assert run([*INLINED, "--format", "json"]) == 0
    advice = json.loads(capsys.readouterr().out)["kernels"][0]["advice"]
    (load,) = (entry for entry in advice if entry["rule"] == "uncoalesced-access")
    assert (load["source"], load["inlined_source"]) == (
        "/home/me/src/inlined.cu:4",
        "/home/me/src/scale.cuh:3",
    )
    (store,) = (entry for entry in advice if entry["rule"] == "narrow-load")
    assert (store["source"], store["inlined_source"]) == ("/home/me/src/inlined.cu:5", "")


def test_a_significant_change_is_not_called_noise(capsys: pytest.CaptureFixture[str]) -> None:
    """Conflicts that DRAM hides matter, though the time hardly moves."""
    launch = ["--grid", "128,128", "--block", "32,8", "--arg", "2=4096", "--arg", "3=4096"]
    files = [str(HERE / f"padded_{padding}_86.sass") for padding in (0, 1)]
    assert run(["diff", *files, "-g", "rtx 3090", *launch]) == 0
    text = capsys.readouterr().out
    assert "significant  transpose" in text
    assert "the same time, since other work hides the change" in text
    assert "within noise" not in text
