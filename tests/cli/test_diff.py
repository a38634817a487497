"""The command: exit codes, formats, bytes that do not depend on workers, clear errors for bad input."""

import json
import re
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.cli.app import run

REPORT16 = TRACES / "cuda" / "sm_80" / "report16.sass"


def write_kernel(path: Path, name: str, old: str = "", new: str = "") -> Path:
    head, *functions = re.split(r"(?=^\t\tFunction : )", REPORT16.read_text(), flags=re.M)
    text = head + next(each for each in functions if f"Function : {name}\n" in each)
    path.write_text(text.replace(old, new) if old else text)
    return path


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("sides")
    old = write_kernel(folder / "old.sass", "saxpy")
    new = write_kernel(folder / "new.sass", "saxpy", "2.384185791015625e-07", "7.62939453125e-06")
    return str(old), str(new)


def test_a_regression_is_printed_and_is_no_error(
    sides: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", *sides, "-g", "a100"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"significant +saxpy", text)
    assert "1 significant (1 slower)" in text
    assert "launches that nobody gave are assumed" in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_given_launch_is_not_assumed(sides: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            [
                "diff",
                *sides,
                "-g",
                "a100",
                "--grid",
                "512",
                "--block",
                "128",
                "--arg",
                "3=65536",
                "--format",
                "json",
            ]
        )
        == 0
    )
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["launch"]["grid"] == [512, 1, 1]
    assert not any("nobody gave" in each for each in kernel["assumptions"])


def test_bytes_do_not_depend_on_workers(tmp_path: Path) -> None:
    other = TRACES / "cuda" / "sm_86" / "report16.sass"
    written = []
    for jobs in ("1", "2"):
        path = tmp_path / f"{jobs}.json"
        patterns = [part for name in ("saxpy", "vector_add", "conv2d_3x3") for part in ("-k", name)]
        arguments = [
            "diff",
            str(REPORT16),
            str(other),
            "-g",
            "a100",
            "-j",
            jobs,
            *patterns,
            "--format",
            "json",
        ]
        assert run([*arguments, "-o", str(path)]) == 0
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_names_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write_kernel(tmp_path / "old.sass", "saxpy")
    for path in (old, tmp_path / "new.sass"):
        text = old.read_text() if path == old else old.read_text().replace("0x5", "0x6")
        path.write_text(text.replace("Function : saxpy", "Function : [red]\x1b[31m<b>x"))
    assert run(["diff", str(old), str(tmp_path / "new.sass"), "-g", "a100"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "the input is empty", id="empty"),
        pytest.param(
            '{"schema": "warplens/analyze/1", "tool_version": "0", "inputs": [', "not JSON", id="truncated"
        ),
        pytest.param('{"schema": "other/1"}', "its schema is 'other/1'", id="schema"),
        pytest.param('{"schema": "warplens/analyze/1"}', "not as warplens/analyze/1 has it", id="fields"),
        pytest.param(
            '{"schema": "warplens/transfer/1", "tool_version": "0", "rows": []}',
            "warplens/transfer/1",
            id="command",
        ),
        pytest.param(
            '{"schema": "warplens/analyze/1", "tool_version": "0", "inputs": [], "gpus": [], "kernels": [], "warnings": []}',
            "no kernels",
            id="no kernels",
        ),
    ],
)
def test_bad_sides_get_one_clear_error(
    text: str, message: str, sides: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "side.json"
    path.write_text(text)
    for arguments in ([str(path), sides[0]], [sides[0], str(path)]):
        assert run(["diff", *arguments]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.err.count("error:") == 1
        assert not printed.out


def test_names_that_fit_nothing_and_missing_files(
    sides: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", *sides, "-k", "saxpi"]) == 2
    assert "did you mean saxpy?" in capsys.readouterr().err
    assert run(["diff", sides[0], str(tmp_path / "nothing")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert run(["diff", sides[0]]) == 2


def test_an_input_is_never_overwritten(sides: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(sides[1]).read_bytes()
    assert run(["diff", *sides, "-o", sides[1]]) == 2
    assert Path(sides[1]).read_bytes() == before
    assert "would replace" in capsys.readouterr().err
