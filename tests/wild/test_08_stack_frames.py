"""Stack frames and spilled registers in the bytes that `ptxas -v` says for the same compilation."""

import json
from pathlib import Path

import pytest

from analyzer.cli.app import run

FOLDER = Path(__file__).parent / "08-stack-frames"
# (stack frame, spill stores, spill loads) by kernel, as ptxas 13 says them.
PTXAS = {
    "80": {
        "prints": (8, 0, 0),
        "indexed": (64, 0, 0),
        "spills": (56, 96, 104),
        "both": (160, 36, 36),
    },
    "100": {
        "prints": (8, 0, 0),
        "indexed": (64, 0, 0),
        "spills": (48, 84, 104),
        "both": (160, 32, 32),
    },
}


@pytest.mark.parametrize("arch", PTXAS)
def test_bytes_are_those_of_ptxas(arch: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", str(FOLDER / f"stack_{arch}.sass"), "--format", "json"]) == 0
    kernels = {kernel["name"]: kernel for kernel in json.loads(capsys.readouterr().out)["kernels"]}
    keys = ("stack_frame_bytes", "spill_store_bytes", "spill_load_bytes")
    found = {name: tuple(kernel[key] for key in keys) for name, kernel in kernels.items()}
    assert found == PTXAS[arch]
    # Where an array lies in the frame too, the bytes of spills follow from a rule.
    assert [name for name, kernel in kernels.items() if kernel["spills_estimated"]] == ["both"]
    assert {name for name, kernel in kernels.items() if kernel["spill_bytes"]} == {"spills", "both"}


def test_text_names_frame_and_spills_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", str(FOLDER / "stack_80.sass")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "spilled" not in text
    assert text.count("B stack frame") == 4
    assert text.count("B spill stores") == 2
    assert "160 B stack frame about 36 B spill stores, 36 B spill loads" in text
    assert "56 B stack frame 96 B spill stores, 104 B spill loads" in text
