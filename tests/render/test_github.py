"""Workflow commands: one line each, escaped, worst first, and no more than GitHub shows."""

import re
from pathlib import Path

import pytest
from finding_reports import (
    make_check_report,
    make_diff_report,
    make_hostile_check_report,
    make_tripped_report,
    make_violation,
)
from hypothesis import given
from hypothesis import strategies as st

from analyzer.render.github import format_command
from analyzer.render.problems import FindingsReport, shorten_path
from analyzer.render.registry import render_report
from analyzer.report.check_schema import Level

COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:]*,?)+)::(.*)")


def unescape(text: str) -> str:
    """As the runner does: ActionCommand.cs, % last."""
    for code, letter in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, letter)
    return text


def parse(line: str) -> tuple[str, dict[str, str], str]:
    found = COMMAND.fullmatch(line)
    assert found, line
    properties = dict(part.split("=", 1) for part in found[2].split(","))
    return found[1], {key: unescape(value) for key, value in properties.items()}, unescape(found[3])


def lines(report: FindingsReport) -> list[str]:
    return render_report(report, "github").splitlines()


def test_of_check() -> None:
    assert [parse(line) for line in lines(make_tripped_report())] == [
        (
            "error",
            {"file": "src/k.cu", "line": "88", "title": "warplens cycles-regression"},
            "fmha_fwd: 14.2 % more cycles than the baseline (limit +5 %)",
        ),
        (
            "error",
            {"file": "build/k.cubin", "line": "1", "title": "warplens max-registers"},
            "gemm: 168 registers, at most 128 are allowed",
        ),
        ("warning", {"file": "build/k.cubin", "title": "unknown-opcode"}, "unknown opcode FOO"),
        (
            "notice",
            {"file": "build/k.cubin", "line": "1", "title": "warplens new-kernel"},
            "added: new-kernel",
        ),
    ]


def test_of_diff_informs_and_stops_nothing() -> None:
    commands = [parse(line) for line in lines(make_diff_report())]
    assert {command for command, _, _ in commands} == {"warning", "notice"}
    assert commands[0][1] == {"file": "src/k.cu", "line": "30", "title": "warplens kernel-slower"}
    titles = [properties["title"] for _, properties, _ in commands]
    assert "warplens shared-bank-conflict" in titles
    assert not [message for _, _, message in commands if message.startswith(("benign", "same"))]


@pytest.mark.parametrize("n", [10, 11, 40])
def test_no_more_than_github_shows(n: int) -> None:
    violations = [
        make_violation("spill_bytes-regression", f"w{i}", level=Level.WARNING, fingerprint=f"w{i}")
        for i in range(n)
    ] + [make_violation("cycles-regression", f"e{i}", fingerprint=f"e{i}") for i in range(n)]
    found = lines(make_check_report((), tuple(violations)))
    commands = [parse(line)[0] for line in found if line.startswith("::")]
    assert commands == ["error"] * 10 + ["warning"] * 10
    left_out = [line for line in found if not line.startswith("::")]
    assert len(left_out) == (0 if n == 10 else 2 * (n - 9))
    messages = " ".join(found)
    assert all(f"{kind}{i}: " in messages for kind in "we" for i in range(n))


def test_hostile_names_make_no_command_of_their_own() -> None:
    found = lines(make_hostile_check_report(30))
    assert len(found) == 10 + 21
    for line in found:
        if line.startswith("::"):
            assert parse(line)[1]["title"] in ("warplens cycles-regression", "warplens")
        else:
            assert line.startswith("error: ")
            assert "##[" not in line


LETTERS = st.sampled_from([*map(chr, range(32, 127)), *"\r\né", "%0A", "%25", "::"])
TEXTS = st.lists(LETTERS, min_size=1, max_size=40).map("".join)


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 10**9))
def test_the_runner_reads_what_was_meant(message: str, path: str, title: str, line: int) -> None:
    command = format_command("error", message, path, line, title)
    assert "\n" not in command
    assert "\r" not in command
    properties = {"file": path, "line": str(line), "title": title}
    assert parse(command) == ("error", properties, message)


def test_paths_are_those_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repo" / "src").mkdir(parents=True)
    (tmp_path / "repo" / "src" / "k.cu").write_text("")
    monkeypatch.chdir(tmp_path / "repo")
    assert shorten_path(str(tmp_path / "repo" / "src" / "k.cu")) == "src/k.cu"
    assert shorten_path("/build/x/src/k.cu") == "src/k.cu"
    assert shorten_path("./src/../src/k.cu") == "src/k.cu"
    assert shorten_path("/usr/include/cuda.h") == "/usr/include/cuda.h"
    assert shorten_path("../other/k.cu") == "../other/k.cu"
    monkeypatch.chdir(tmp_path / "repo" / "src")
    assert shorten_path("k.cu") == "k.cu"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "repo"))
    assert shorten_path("k.cu") == "src/k.cu"
