"""What the documents say to run does run."""

import re
import shlex
from pathlib import Path

import pytest

from analyzer.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def fences(language: str) -> list[tuple[str, str]]:
    return [
        (path.name, text)
        for path in DOCUMENTS
        for name, text in _FENCE.findall(path.read_text(encoding="utf-8"))
        if name == language
    ]


def commands() -> list[str]:
    lines = (line for _, text in fences("") for line in text.replace("\\\n", " ").splitlines())
    found = [line[line.index("warplens ") :] for line in lines if re.search(r"(^|/)warplens (?!-)", line)]
    return [line for line in found if "|" not in line and "$" not in line]


@pytest.mark.parametrize("command", commands())
def test_commands_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("docs", "hwdb", "tests", "traces"):  # a checkout that examples may write beside
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(("name", "code"), fences("python"), ids=lambda value: str(value)[:20])
def test_python_examples_run(name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(code, name, "exec"), {})


def test_links_to_files_hold() -> None:
    for path in DOCUMENTS:
        for name in re.findall(
            r"(?<![\w/-])((?:docs|hwdb|analyzer|traces|bench)/[\w./-]+\.\w+)", path.read_text()
        ):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_the_sample_of_the_readme_is_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    sample = next(text for name, text in fences("") if name == "README.md" and text.startswith("kernel "))
    command = next(line for line in commands() if "traces/triton/sm_90/matmul.sass --gpu h100" in line)
    assert run([*shlex.split(command)[1:], "--gpu", "h20"]) == 0
    printed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    assert [line for line in sample.splitlines() if line.strip() not in {*printed, "- ..."}] == []
