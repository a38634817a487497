"""Case 26: control words of damaged code may name a seventh scoreboard, which no GPU has."""

import json
import re
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.cli.app import run

DUMP = (TRACES / "triton" / "sm_90" / "softmax.sass").read_text()
BARRIERS = {"write": 46, "read": 49}


@pytest.mark.parametrize("model", ["sm", "steady", "amali", "gcom", "mdm", "warp"])
@pytest.mark.parametrize("barrier", BARRIERS)
def test_an_instruction_with_a_seventh_scoreboard_sets_none(
    barrier: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(value: int) -> str:
        """Return the cycles of the dump with that value in each barrier field which names a scoreboard."""

        def replace_word(match: re.Match[str]) -> str:
            word = int(match[1], 16)
            field = word >> BARRIERS[barrier] & 7
            return f"/* {word + (value - field << BARRIERS[barrier]) if field < 6 else word:#018x} */"

        path = tmp_path / "k.sass"
        text = re.sub(r"(?m)(?<=^ {103})/\* (0x[0-9a-f]{16}) \*/$", replace_word, DUMP)
        assert text != DUMP
        path.write_text(text)
        launch = ["--grid", "4096", "-m", model, "--format", "json"]
        assert run(["analyze", str(path), "-g", "h100", *launch]) == 0
        (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
        return str(kernel["predictions"])

    assert write(6) == write(7)
