"""Streams, folders and files that are not as they should be: one message and a code of the table."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import TRACES, format_dump

from analyzer import files
from analyzer.cli.app import main, run
from analyzer.frontend import disassembler
from analyzer.hardware import gpu_database
from analyzer.text.errors import ToolError
from analyzer.text.escaping import encode_for_terminal

SOFTMAX = str(TRACES / "triton" / "sm_90" / "softmax.sass")
WARPLENS = f"{sys.executable} -m analyzer"
ROOT = Path(__file__).resolve().parents[2]

Capture = pytest.CaptureFixture[str]


def shell(line: str, **environment: str) -> tuple[int, str]:
    """Exit code and standard error of a line of bash."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["--help", f"analyze {SOFTMAX} --format json"])
def test_a_full_standard_output(command: str) -> None:
    assert shell(f"{WARPLENS} {command} >/dev/full") == (
        2,
        "error: cannot write to standard output: No space left on device\n    help: check space and permissions\n",
    )


def test_closed_streams(tmp_path: Path) -> None:
    code, said = shell(f"{WARPLENS} --version >&-")
    assert (code, "it is closed" in said) == (2, True)
    assert shell(f"{WARPLENS} nothing 2>&-") == (2, "")
    code, said = shell(f"{WARPLENS} analyze - <&-")
    assert (code, "standard input is closed" in said) == (2, True)
    assert shell(f"{WARPLENS} gpus new --from h100 -o {tmp_path / 'x.toml'} >&- <&- 2>&-")[0] in (0, 2)
    assert (tmp_path / "x.toml").stat().st_size > 100


def test_an_ascii_terminal_shows_ascii(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = f"{WARPLENS} analyze {SOFTMAX} --grid 4 >{out}"
    assert shell(command, PYTHONIOENCODING="ascii") == (0, "")
    assert "####" in out.read_text("ascii")


def test_characters_that_an_encoding_lacks() -> None:
    error = UnicodeEncodeError("ascii", "a█…\U0001f600", 1, 4, "")
    assert encode_for_terminal(error) == (r"#...\ud83d\ude00", 4)
    with pytest.raises(UnicodeDecodeError):
        encode_for_terminal(UnicodeDecodeError("utf-8", b"\xff", 0, 1, ""))


def test_an_interrupt_leaves_no_traceback_and_no_worker() -> None:
    """Ctrl-C goes to all processes of a terminal; the workers must be silent, and gone."""
    dumps = [str(path) for path in sorted(TRACES.glob("cuda/sm_[89]0/*.sass"))]
    code = (
        "import analyzer.worker_pool as w, os, time, sys, signal\n"
        # a shell's background jobs ignore it, and so would this one if pytest is such a job
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from analyzer.cli import app\n"
        "def work(task):\n    print('at work', os.getpid(), flush=True)\n    time.sleep(60)\n    return 1\n"
        "app._run_command = lambda _: list(w.run_in_forks(work, [1, 2], 2, int))\n"
        "app.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *dumps],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    workers = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=20)[1]
    assert (process.returncode, said) == (130, "")
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_a_bug_is_reported_as_one(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("by \x1b[31m")

    monkeypatch.setattr("analyzer.cli.app._run_command", fail)
    for variable, has_traceback in (("", False), ("1", True)):
        monkeypatch.setenv("WARPLENS_TRACEBACK", variable)
        with pytest.raises(SystemExit, match="2"):
            main()
        said = capsys.readouterr().err
        assert r"error: internal error: ZeroDivisionError: by \x1b[31m" in said
        assert "please report" in said
        assert ("Traceback" in said) == has_traceback


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_what_hostile_input_can_exhaust(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("analyzer.pipeline.input_index.read_modules", fail)
    assert run(["analyze", SOFTMAX]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("home", [None, "", "/nonexistent", "relative", "/dev/null"])
def test_no_home(home: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture) -> None:
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "WARPLENS_HWDB"):
        monkeypatch.delenv(variable, raising=False)
    if home is None:
        monkeypatch.setattr("pwd.getpwuid", lambda _: {}[0])  # a user that the system does not know
    else:
        monkeypatch.setenv("HOME", home)
    table = tmp_path / "cases.csv"
    table.write_text(f"dump,gpu,grid,block,time_us\n{SOFTMAX},h100,4,128,5\n")
    for arguments in (["doctor"], ["gpus"], ["validate", str(table), "-m", "roofline"]):
        assert run(arguments) == 0
    capsys.readouterr()


@pytest.fixture
def gpu_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "gpu"
    folder.mkdir()
    monkeypatch.setenv("WARPLENS_HWDB", str(folder))
    gpu_database._read_aliases.cache_clear()
    return folder


def test_what_is_no_file_in_the_gpu_folder_is_passed_over(gpu_folder: Path, capsys: Capture) -> None:
    (gpu_folder / "folder.toml").mkdir()
    (gpu_folder / "dangling.toml").symlink_to("nowhere")
    (gpu_folder / "circle.toml").symlink_to("circle.toml")
    (gpu_folder / "zero.toml").symlink_to("/dev/zero")
    os.mkfifo(gpu_folder / "fifo.toml")
    (gpu_folder / os.fsdecode(b"\xff.toml")).write_text(
        'schema="warplens/gpu/1"\nname="odd"\ninherits="l4"\n'
    )
    for arguments in (["gpus"], ["analyze", SOFTMAX, "-g", "NVIDIA H100"], ["doctor"]):
        assert run(arguments) == 0
    assert "odd" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"not toml", b"x = " + b"[" * 100_000, b"x = " + b"9" * 5000, b"\0" * 2_000_000, b""],
    ids=["binary", "text", "nested", "digits", "large", "empty"],
)
def test_a_bad_file_in_the_gpu_folder_is_named_where_it_is_used(
    content: bytes, gpu_folder: Path, capsys: Capture
) -> None:
    (gpu_folder / "bad.toml").write_bytes(content)
    assert run(["analyze", SOFTMAX, "-g", "NVIDIA H100"]) == 0
    capsys.readouterr()
    for arguments in (["gpus"], ["gpus", "bad"]):
        assert run(arguments) == 2
        said = capsys.readouterr().err
        assert "bad.toml" in said
        assert len(said) < 2000


def test_odd_cache_entries_are_worked_out_again(tmp_path: Path, capsys: Capture) -> None:
    table, cache = tmp_path / "cases.csv", tmp_path / "cache"
    table.write_text(f"dump,gpu,grid,block,time_us\n{SOFTMAX},h100,4,128,5\n")
    arguments = ["validate", str(table), "-m", "roofline", "--cache", str(cache)]
    assert run(arguments) == 0
    expected = capsys.readouterr().out
    (entry,) = (path for path in cache.rglob("*") if path.is_file())
    assert not list(cache.rglob("*.part"))
    for make in (
        lambda: entry.write_bytes(b"\xff\0"),
        lambda: entry.write_bytes(b"[" * 200_000),
        lambda: entry.write_text('{"cycles": "many"}'),
        lambda: entry.mkdir(),
        lambda: os.mkfifo(entry),
        lambda: entry.symlink_to("/dev/zero"),
    ):
        entry.rmdir() if entry.is_dir() else entry.unlink(missing_ok=True)
        make()
        assert run(arguments) == 0
        assert capsys.readouterr().out == expected


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")
    target.chmod(0o640)

    def pieces(error: BaseException | None) -> "list[bytes]":
        yield b"new"
        if error is not None:
            raise error

    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            files.write_file(target, pieces(error))
        assert target.read_text() == "old"
        assert list(tmp_path.iterdir()) == [target]
    link = tmp_path / "link"
    link.symlink_to(target)
    files.write_file(link, pieces(None))
    assert (target.read_text(), link.is_symlink(), target.stat().st_mode & 0o777) == ("new", True, 0o640)


def test_outputs_that_are_no_files(tmp_path: Path, capsys: Capture) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE) as reader:
        assert run(["analyze", SOFTMAX, "-o", str(fifo)]) == 0
        assert b"softmax" in reader.communicate()[0]
    assert fifo.is_fifo()
    assert run(["analyze", SOFTMAX, "-o", "/dev/null"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["analyze", SOFTMAX, "-o", "-"]) == 0
    assert "softmax" in capsys.readouterr().out
    assert shell(f"{WARPLENS} analyze {SOFTMAX} -o /dev/stdout >{tmp_path / 'out'}") == (0, "")
    assert "softmax" in (tmp_path / "out").read_text()
    assert run(["analyze", SOFTMAX, "-o", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "k.sass", "-o", "k.sass"),
        ("analyze", "k.sass", "-o", "link"),
        ("analyze", "k.sass", "-o", "./sub/../k.res"),
        ("analyze", "k.sass", "-o", "k.json"),
        ("analyze", "k.sass", "--launch", "l.json", "--format", "json", "-o", "l.json"),
        ("analyze", "k.sass", "-g", "g.toml", "-o", "g.toml"),
        ("analyze", "k.sass", "--grid", "1", "--arg", "0=@a.npy", "-o", "a.npy"),
        ("trace", "k.sass", "--grid", "1", "--block", "32", "-o", "k.sass"),
        ("whatif", "k.sass", "-g", "a100", "-o", "x", "--chart", "x"),
        ("validate", "cases.csv", "-o", "cases.csv"),
        ("validate", "cases.csv", "--html", "x", "-o", "./x"),
    ],
    ids=" ".join,
)
def test_an_output_in_the_place_of_an_input_is_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("k.sass", format_dump("sm_80", "EXIT")),
        ("k.res", " Function kernel:\n  REG:8 STACK:0 SHARED:0 LOCAL:0\n"),
        ("k.json", '{"name": "kernel", "num_warps": 1, "shared": 0}'),
        ("l.json", '{"kernels": {}}'),
        ("g.toml", 'schema = "warplens/gpu/1"\nname = "mine"\ninherits = "a100-80gb-sxm"\n'),
        ("a.npy", ""),
        ("cases.csv", "dump,gpu,grid,block,time_us\nk.sass,a100,4,128,5\n"),
    ):
        Path(name).write_text(text)
    Path("sub").mkdir()
    Path("link").symlink_to("k.sass")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert run(arguments) == 2
    assert "would replace" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def make_tool(folder: Path, script: str) -> None:
    folder.mkdir()
    for name in ("nvdisasm", "cuobjdump"):
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 60 & echo $! >pid; sleep 60", "it neither printed anything nor worked for 2 s"),
        ("while :; do :; done", "printed nothing in 0.2 s of processor time"),
        ("exec 1>&- 2>&-; sleep 60", "it neither printed anything nor worked for 2 s"),
        ("yes", "more than"),
        ("yes >&2 & yes '' | head -c 5000000; kill $!; exit 3", "failed"),
    ],
    ids=["silent", "busy", "detached", "endless", "endless-messages"],
)
def test_a_tool_that_never_ends_is_stopped(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_installed_tools: None
) -> None:
    make_tool(tmp_path / "bin", f"cd {tmp_path}; {script}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("WARPLENS_TOOL_TIMEOUT", "0.2")
    monkeypatch.setattr(disassembler, "_BASE_OUTPUT_BYTES", 10 << 20)
    cubin = tmp_path / "k.cubin"
    cubin.write_bytes(b"\x7fELF" + bytes(14) + b"\xbe\0")
    with pytest.raises(ToolError, match=said):
        for _ in disassembler.disassemble(str(cubin)):
            pass
    if (tmp_path / "pid").exists():
        grandchild = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
        deadline = time.monotonic() + 10
        while grandchild.exists() and grandchild.read_text().split()[2] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
