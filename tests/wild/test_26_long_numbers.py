"""Case 26: numbers of 5,000 digits, more than Python converts, and opcodes of as many characters."""

import re
import shutil
from pathlib import Path

import pytest

from analyzer.cli.app import run

FOLDER = Path(__file__).parent / "09-triton-cache"
COMMAND = ["--grid", "4", "--arg", "0=ptr", "--arg", "1=ptr"]


@pytest.mark.parametrize(
    "pattern", [r"\.py\":(\d+)", r"\.py\":\d+:(\d+)", r"end = (\d+)", r"= loc\(\"\w+\"\(#loc(\d+)"]
)
def test_a_number_of_5000_digits_in_ttir_is_left_out(
    pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("cubin", "json"):
        shutil.copy(FOLDER / f"scale_rows.{suffix}", tmp_path)
    text = (FOLDER / "scale_rows.ttir").read_text()
    found = list(re.finditer(pattern, text))
    assert found
    for match in found[::-1]:
        text = text[: match.start(1)] + "9" * 5000 + text[match.end(1) :]
    (tmp_path / "scale_rows.ttir").write_text(text)
    assert run(["analyze", str(tmp_path / "scale_rows.cubin"), "-g", "h100", *COMMAND]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("opcode", ["A" * 5000, "mov ." + "u" * 5000, "add." + "u" * 5000])
def test_an_opcode_of_5000_characters_is_an_error_at_its_place(
    opcode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(f".version 8.0\n.target sm_80\n.visible .entry k()\n{{\n  {opcode} %r1, 0;\n  ret;\n}}\n")
    assert run(["analyze", str(path), "--virtual"]) == 2
    assert "k.ptx:5:3: error: an opcode of more than 256 characters" in capsys.readouterr().err
