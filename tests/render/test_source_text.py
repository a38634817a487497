"""Source lines beside instructions: found beside the input, read within bounds, and never from odd files."""

import os
from pathlib import Path

import pytest

from analyzer.cli.app import run
from analyzer.text.source_files import SourceFiles

FOLDER = Path(__file__).parent
Capture = pytest.CaptureFixture[str]


def annotate(path: Path, capsys: Capture) -> str:
    assert run(["annotate", str(path), "-g", "a100", "--grid", "1", "--block", "32", "--arg", "1=100"]) == 0
    return capsys.readouterr().out


def test_a_file_beside_the_input_gives_the_text_of_lines(tmp_path: Path, capsys: Capture) -> None:
    assert "lines.cu:6  a = a * a + x[k];" in annotate(FOLDER / "lines_80.txt", capsys)
    copy = tmp_path / "lines_80.txt"
    copy.write_text((FOLDER / "lines_80.txt").read_text(encoding="utf-8"), encoding="utf-8")
    text = annotate(copy, capsys)
    assert "lines.cu:6" in text
    assert "a = a * a" not in text


def test_lines_are_short_and_have_no_control_characters(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"\tone \x1b[31mred\x1b[0m\xff\n" + b"x" * 5000 + b"\n")
    files = SourceFiles(tmp_path)
    assert files.find_line("/gone/a.cu", 1) == "one [31mred [0m\N{REPLACEMENT CHARACTER}"
    assert len(files.find_line("/gone/a.cu", 2)) == 200
    assert [files.find_line("a.cu", number) for number in (0, -1, 3)] == ["", "", ""]


def test_a_file_built_elsewhere_is_found_in_the_checkout_of_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("src", "other/src"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.cu").write_text(f"{folder}\n")
    (tmp_path.parent / "b.cu").write_text("outside\n")
    monkeypatch.chdir(tmp_path)
    files = SourceFiles(None)
    assert files.find_line("/build/app/src/a.cu", 1) == "src"
    assert files.find_line("/build/other/src/a.cu", 1) == "other/src"
    assert files.find_line("/build/../b.cu", 1) == ""


def test_only_regular_source_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cu")
    (tmp_path / "secret.txt").write_text("secret\n")
    (tmp_path / "folder.cu").mkdir()
    (tmp_path / "device.cu").symlink_to("/dev/zero")
    (tmp_path / "dangling.cu").symlink_to(tmp_path / "gone.cu")
    with (tmp_path / "huge.cu").open("wb") as file:
        file.write(b"line\n")
        file.truncate(1 << 30)
    files = SourceFiles(tmp_path)
    names = ("pipe.cu", "secret.txt", "folder.cu", "device.cu", "dangling.cu", "huge.cu", "\0.cu", "")
    assert [files.find_line(name, 1) for name in names] == [""] * len(names)
