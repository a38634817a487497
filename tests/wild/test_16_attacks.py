"""Inputs made to harm: escapes for the terminal in every name, endless files, lines that cost their square."""

import gzip
import json
import lzma
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from paths import format_dump

from analyzer.cli.app import run
from analyzer.frontend.resource_usage import read_resource_usage

Capture = pytest.CaptureFixture[str]
# A title, a cleared screen, a C1 code, a change of direction, a line that looks like ours, rich's markup.
EVIL = "a\x1b]0;pwned\x07\x1b[2J\x9b31m\u202eb\u2028[bold]:bug:"
GPU = (
    'schema = "warplens/gpu/1"\nname = "E\\u001b[31m\\u202evil\\nverified: all"\ninherits = "a100-80gb-sxm"\n'
)
CODE = ("MOV R1, c[0x0][0x28]", "S2R R0, SR_TID.X", "EXIT")


def is_harmless(text: str) -> bool:
    return not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") and c != "\n"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("k.sass").write_text(format_dump("sm_80", *CODE))
    Path("evil.sass").write_text(format_dump("sm_80", *CODE).replace("kernel", EVIL.replace("\u2028", "")))
    Path("evil.toml").write_text(GPU)
    Path(f"{EVIL}.sass").write_text(format_dump("sm_80", *CODE))
    metadata = {"name": "kernel", "num_warps": 1, "shared": 0, "signature": {f"{EVIL}\ncounts exact": "i32"}}
    Path("k.json").write_text(json.dumps(metadata))
    Path("cases.csv").write_text(
        f"dump,gpu,grid,block,time_us,case,suite,config,note\nk.sass,a100,4,32,5,{EVIL},{EVIL},{EVIL},{EVIL}\n"
        f"no{EVIL},a100,4,32,5,x,y,z,w\n"
    )
    return tmp_path


COMMANDS = (
    ("analyze", "evil.sass", "--all", "-g", "a100"),
    ("analyze", "evil.sass", "--format", "json"),
    ("annotate", "evil.sass"),
    ("trace", "evil.sass", "--grid", "1", "--block", "32"),
    ("analyze", f"{EVIL}.sass", "--format", "json"),
    ("analyze", "k.sass", "--grid", "4", "--arg", f"{EVIL}\ncounts exact=3"),
    ("analyze", "k.sass", "--grid", "4", "--arg", f"no{EVIL}=3"),
    ("analyze", "k.sass", "-g", "evil.toml"),
    ("analyze", "k.sass", "-g", "h100", "-g", "evil.toml"),
    ("whatif", "k.sass", "-g", "evil.toml", "--no-elasticity", "--sweep", "sm.count=10,20"),
    ("gpus", "evil.toml", "--explain"),
    ("gpus", "new", "--from", "evil.toml", "-o", f"{EVIL}.toml"),
    ("validate", "cases.csv", "-m", "roofline", "--no-cache"),
    ("validate", "cases.csv", "-m", "roofline", "--no-cache", "--format", "json"),
    ("analyze", f"none{EVIL}"),
    ("analyze", "k.sass", "-g", EVIL),
    ("analyze", "k.sass", "-k", EVIL),
    ("analyze", "k.sass", f"--{EVIL}"),
    ("analyze", "k.sass", "--format", EVIL),
    ("analyze", "k.sass", "--taken", EVIL),
    ("whatif", "k.sass", "-g", "a100", "--set", f"{EVIL}=3"),
    (EVIL,),
)


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command)[:40].encode("unicode-escape").decode()
)
def test_no_name_steers_the_terminal(command: tuple[str, ...], folder: Path, capsys: Capture) -> None:
    assert run(command) in (0, 2)
    said = capsys.readouterr()
    assert is_harmless(said.out)
    assert is_harmless(said.err)
    assert said.out or said.err


def test_a_name_is_shown_with_its_codes_and_no_markup(folder: Path, capsys: Capture) -> None:
    assert run(["analyze", "evil.sass"]) == 0
    assert r"a\x1b]0;pwned\x07\x1b[2J\x9b31m\u202eb[bold]:bug:" in capsys.readouterr().out


def test_a_line_feed_in_an_argument_makes_no_line(folder: Path, capsys: Capture) -> None:
    assert run(["analyze", "k.sass", "--grid", "4", "--arg", f"{EVIL}\ncounts exact=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("counts ") for line in lines) == 1


def test_json_keeps_the_name(folder: Path, capsys: Capture) -> None:
    assert run(["analyze", "evil.sass", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["name"] == EVIL.replace("\u2028", "")


def test_a_file_name_that_is_no_utf8(folder: Path, capsys: Capture) -> None:
    name = os.fsdecode(b"k\xff.sass")
    Path(name).write_text(format_dump("sm_80", *CODE))
    for options in ((), ("--format", "json")):
        assert run(["analyze", name, *options]) == 0
        assert is_harmless(capsys.readouterr().out)


def test_a_page_shows_escapes(folder: Path, capsys: Capture) -> None:
    pytest.importorskip("plotly", reason="the charts extra is not installed")
    assert run(["validate", "cases.csv", "-m", "roofline", "--no-cache", "--html", "p.html"]) == 0
    assert is_harmless(re.sub(r"(?s)<script.*?</script>", "", Path("p.html").read_text()).replace("\t", ""))


def test_a_run_of_letters_in_resource_usage_costs_its_length(tmp_path: Path) -> None:
    """At a million letters the square would take hours."""
    path = tmp_path / "k.res"
    letters, digits = "A" * 1_000_000, "9" * 1_000_000
    path.write_text(
        f"Fatbin\n Function k:\n  REG:21 STACK:0 SHARED:16 {letters} LOCAL:8 {letters}:{digits} BAR:{digits}\n"
    )
    usage = read_resource_usage(path)["", "k"]
    assert (usage.registers, usage.shared_bytes, usage.local_bytes, usage.barriers) == (21, 16, 8, None)


def fill_line_feeds(text: bytes) -> bytes:
    return text + b"\n" * (16 << 20)


TRACE_HEAD = b"-kernel name = k\n-kernel id = 1\n-grid dim = (1,1,1)\n-block dim = (32,1,1)\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("analyze", "/dev/zero"), "neither text nor a binary"),
        (("analyze", "k.sass", "--res-usage", "/dev/zero"), "256 MiB"),
        (("analyze", "k.sass", "--launch", "/dev/zero"), "16 MiB"),
        (("analyze", "k.sass", "--grid", "1", "--arg", "0=@/dev/zero"), "no .npy file"),
        (("analyze", "k.sass", "--trace", "/dev/zero"), "too long"),
        (("validate", "/dev/zero"), "64 MiB"),
        (("analyze", "k.sass", "-g", "zero.toml"), "no such hardware file"),
        (("analyze", "feeds.gz"), "error: "),
        (("analyze", "feeds.xz"), "error: "),
        (("analyze", "feeds.sass"), "error: "),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_endless_and_packed_files_take_no_memory(arguments: tuple[str, ...], said: str, folder: Path) -> None:
    os.symlink("/dev/zero", "zero.toml")
    if arguments[-1].startswith("feeds"):
        Path("feeds.gz").write_bytes(gzip.compress(fill_line_feeds(TRACE_HEAD), 1))
        Path("feeds.xz").write_bytes(lzma.compress(fill_line_feeds(TRACE_HEAD), preset=0))
        Path("feeds.sass").write_bytes(fill_line_feeds(b"\tcode for sm_80\n"))
    code = (
        "import sys\nfrom analyzer.cli.app import run\ncode = run(sys.argv[1:])\n"
        "peak, = (l for l in open('/proc/self/status') if l.startswith('VmHWM'))\n"
        "print(peak.split()[1], file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    *message, peak_kib = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert said in "\n".join(message)
    assert int(peak_kib) < 500 << 10
