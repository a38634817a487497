"""Case 26: a line number of 5,000 digits, more than Python converts, is no line number."""

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
