"""What the documents say to run does run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from console_blocks import Session, bless, find_missing_lines, list_sessions
from machine_page import make_machine_page
from site_commands import make_command_pages
from site_formats import make_format_pages
from site_hardware import make_hardware_pages

from analyzer.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
    return list(
        dict.fromkeys(" ".join(line.split()) for line in found if "|" not in line and "$" not in line)
    )


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout to be in, which examples may write beside."""
    for name in ("docs", "hwdb", "tests", "traces"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("command", commands())
def test_commands_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err


def run_session(session: Session) -> int | None:
    """Run a command of a document and return its exit code; None for one that is not run here."""
    words = shlex.split(session.command, comments=True)
    if words[0] == "cp":
        shutil.copyfile(words[1], words[2])
        return 0
    if words[0] != "warplens" or "|" in words:
        return None
    return run(words[1:])


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if list_sessions(path)], ids=lambda path: path.stem
)
def test_sessions_print_what_the_document_shows(
    path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)  # where it is set, no baseline is written
    sessions = list_sessions(path)
    for session, later in zip(sessions, [*sessions[1:], None], strict=True):
        code = run_session(session)
        if code is None:
            continue
        output = capsys.readouterr().out
        wanted = int(later.printed[0]) if later and later.command == "echo $?" else 0
        assert code == wanted, session.command
        if request.config.getoption("--bless"):
            bless(session, output)
        else:
            assert not find_missing_lines(session, output), (
                f"{session.command}: pytest --bless takes figures over"
            )


@pytest.mark.parametrize(("name", "code"), fences("python"), ids=lambda value: str(value)[:20])
def test_python_examples_run(name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(code, name, "exec"), {})


def list_made_pages() -> set[str]:
    """Pages of the site that are made from the sources, and documents that it takes from elsewhere."""
    made = (*make_command_pages(), *make_format_pages(), *make_hardware_pages())
    return {f"docs/{path}" for path, _ in made} | {"docs/changelog.md", "docs/contributing.md"}


def test_the_page_of_the_machine_is_what_its_table_says() -> None:
    assert (ROOT / "docs" / "machine.md").read_text(encoding="utf-8") == make_machine_page(), (
        "python bench/machine_page.py > docs/machine.md"
    )


def test_links_to_files_hold() -> None:
    made = list_made_pages()
    for path in DOCUMENTS:
        for name in re.findall(
            r"(?<![\w/-])((?:docs|hwdb|analyzer|traces|bench)/[\w./-]+\.\w+)", path.read_text()
        ):
            assert name in made or (ROOT / name).exists(), f"{path.name} names {name}"


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
