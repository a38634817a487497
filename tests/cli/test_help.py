"""Help with examples that run, completion, names that were mistyped, and options that are given twice."""

import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from paths import TRACES

from analyzer.cli.app import app, run
from analyzer.text.kernel_names import find_nearest_names, list_names_for_people

ROOT = TRACES.parent
REPORT16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
SOFTMAX = str(TRACES / "triton" / "sm_90" / "softmax.sass")
Capture = pytest.CaptureFixture[str]


def list_commands(
    group: click.Group, context: click.Context, path: tuple[str, ...] = ()
) -> list[tuple[str, ...]]:
    found = [path]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found += list_commands(command, context, (*path, name))
        else:
            found.append((*path, name))
    return found


COMMANDS = list_commands(app, click.Context(app))


def read_examples(path: tuple[str, ...], capsys: Capture) -> list[str]:
    """Return the commands at the end of a help text."""
    assert run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    _, _, end = text.partition("\n  Examples:\n")
    joined = end.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]


@pytest.mark.parametrize("path", COMMANDS, ids="-".join)
def test_help_ends_with_two_examples_that_run(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    examples = read_examples(path, capsys)
    assert len(examples) == 2
    for name in ("traces", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for example in examples:
        words = shlex.split(example.partition(" | ")[0])
        assert words[0] == "warplens"
        assert words[1 : 1 + len(path)] == list(path)
        assert run(words[1:]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out


def complete(words: str) -> list[tuple[str, str]]:
    *arguments, incomplete = words.split(" ")
    shell = ShellComplete(app, {}, "warplens", "_WARPLENS_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(arguments, incomplete)]


def test_the_shell_completes_commands_gpus_models_and_files() -> None:
    assert complete("ann") == [("plain", "annotate")]
    assert ("plain", "h100-sxm") in complete("analyze -g h1")
    assert complete("analyze -m sm,stea") == [("plain", "sm,steady")]
    assert complete("analyze ker") == [("file", "ker")]
    assert complete("gpus show rtx-5090") == [("plain", "rtx-5090")]


def test_the_script_for_the_shell_is_printed() -> None:
    environment = os.environ | {"_WARPLENS_COMPLETE": "zsh_source"}
    code = "from analyzer.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert "#compdef warplens" in done.stdout


def test_a_mistyped_kernel_is_told_the_nearest_ones(capsys: Capture) -> None:
    for typo, nearest in (("saxpi", "saxpy"), ("Matmul_tile", "matmul_tiled"), ("histgram", "histogram")):
        assert run(["analyze", REPORT16, "-k", typo]) != 0
        error = capsys.readouterr().err
        assert f"no kernel fits {typo}" in error
        assert f"did you mean {nearest}" in error
    # the second name fits nothing, though the first does
    assert run(["analyze", REPORT16, "-k", "saxpy", "-k", "nothing_like_it"]) != 0
    assert "no kernel fits nothing_like_it" in capsys.readouterr().err


def test_names_are_shown_as_people_write_them() -> None:
    names = ["_Z5scaleIfLi2EEvPKT_PS0_i", "_ZN2ns5saxpyEfPKfPfi"]
    assert find_nearest_names(names, "scael") == ["void scale<float, 2>(float const*, float*, int)"]
    assert find_nearest_names(names, "NS::Saxpi") == ["ns::saxpy(float, float const*, float*, int)"]
    assert not find_nearest_names(names, "convolution")
    assert list_names_for_people([*names, "f"], 2).endswith(" and 1 more")


def test_a_whole_name_leaves_out_names_that_hold_it_in_any_input(tmp_path: Path, capsys: Capture) -> None:
    body = "/*0000*/ MOV R1, c[0x0][0x28] ;\n/*0010*/ EXIT ;\n"
    for name, kernel in (("one", "chain"), ("two", "mma_chain")):
        (tmp_path / f"{name}.sass").write_text(f"code for sm_80\nFunction : {kernel}\n{body}.........\n")
    files = [str(tmp_path / f"{name}.sass") for name in ("two", "one")]
    assert run(["analyze", *files, "-k", "chain"]) == 0
    text = capsys.readouterr().out
    assert "kernel chain" in text
    assert "mma_chain" not in text
    assert run(["analyze", *files, "-k", "chai"]) == 0
    assert "kernel mma_chain" in capsys.readouterr().out


def test_an_argument_for_one_of_several_kernels_says_how_to_choose(capsys: Capture) -> None:
    options = ["--grid", "1", "--block", "32", "--arg", "3=64"]
    assert run(["analyze", REPORT16, "-k", "saxpy", "-k", "atomic_hotspot", *options]) != 0
    assert "choose one with -k NAME" in capsys.readouterr().err
    assert run(["analyze", REPORT16, "-k", "saxpy", *options]) == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["annotate", SOFTMAX, "-g", "h100", "-g", "h20"], "annotate takes one --gpu"),
        (["annotate", SOFTMAX, "-g", "all"], "annotate takes one --gpu"),
        (["annotate", SOFTMAX, "-m", "sm", "-m", "warp"], "annotate takes one --model"),
        (["whatif", SOFTMAX, "-g", "h100", "-g", "h20"], "whatif takes one --gpu"),
        (["whatif", SOFTMAX, "-m", "steady,warp"], "whatif takes one --model"),
    ],
)
def test_what_cannot_be_honoured_twice_is_refused(command: list[str], said: str, capsys: Capture) -> None:
    assert run(command) != 0
    assert said in capsys.readouterr().err


def test_the_costliest_instructions_come_first(capsys: Capture) -> None:
    arguments = ["annotate", REPORT16, "-k", "matmul_tiled", "-g", "a100"]
    assert run([*arguments, "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("the 3 of "))
    shares = [
        float(word[:-1]) for line in lines[place + 2 : place + 5] for word in line.split() if word[-1] == "%"
    ]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert "┌" in text
    assert "└" in text
    assert all(f"{share}%" in text for share in shares)


def run_with_terminal_for_errors(*arguments: str, delay_seconds: float = 1.0) -> tuple[str, str]:
    """Return standard output and what a terminal got as standard error."""
    main, side = pty.openpty()
    code = f"from analyzer.cli import app, progress\nprogress._DELAY_SECONDS = {delay_seconds}\napp.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=side,
        text=True,
        env=os.environ | {"TERM": "xterm"},
        check=True,
    )
    os.close(side)
    shown = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(main)
    return done.stdout, shown.decode()


def test_progress_goes_to_a_terminal_alone(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ("analyze", REPORT16, "-k", "saxpy", "-g", "a100", "-g", "l40s", "-g", "h100")
    out, shown = run_with_terminal_for_errors(*arguments, delay_seconds=0.0)
    assert "saxpy" in shown or "reading" in shown
    assert "0:00:0" in shown
    assert "\x1b" not in out
    assert "0:00:0" not in out
    assert "kernel saxpy" in out
    assert run(list(arguments)) == 0  # no terminal: no progress
    assert not capfd.readouterr().err


def test_work_of_less_than_a_second_shows_no_progress() -> None:
    _, shown = run_with_terminal_for_errors("analyze", REPORT16, "-k", "saxpy", delay_seconds=60.0)
    assert not shown
