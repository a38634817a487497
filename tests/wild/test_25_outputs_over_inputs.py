"""No command replaces what it reads: every output option of every command, found in the parser itself."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from paths import ROOT, TRACES, format_dump

from analyzer.cli.app import app, run
from analyzer.cli.path_types import (
    BaselinePath,
    CacheFolder,
    InputPath,
    InputText,
    KernelText,
    OutputFolder,
    OutputPath,
)

Capture = pytest.CaptureFixture[str]
DOCS, H100 = ROOT / "docs", TRACES / "h100"
GPU_FILE = 'schema = "warplens/gpu/1"\nname = "{name}"\ninherits = "{parent}"\n'
SHAPE = "--m 9 --n 9 --k 9"
MOE = "--experts 8 --topk 2 --hidden 1024 --intermediate 1024"
# Of each command that writes, one line that works but for the output; options that name files stand in it.
LINES = {
    "analyze": "k.sass -g g.toml --grid 4 --arg 0=@a.npy --launch l.json --calibration c.toml --res-usage u.txt "
    "--trace t.traceg --cache kept",
    "calibrate": "rows.csv -g g.toml",
    "check": "k.sass -g g.toml --launch l.json --arg 0=@a.npy --config warplens.toml --baseline b.json",
    "diff": "k.sass other.sass -g g.toml --arg 0=@a.npy",
    "forecast": "m.json -g g.toml --requests r.csv --prices prices.csv",
    "gpus new": "--from g.toml",
    "iteration": "m.json -g g.toml --seq 9",
    "learn": "rows.csv --quick",
    "predict": f"gemm {SHAPE} -g g.toml --calibration c.toml --weights w",
    "serving": "m.json -g g.toml --requests r.csv",
    "tasks": "k.sass --grid 4 --block 32 --arg 0=@a.npy",
    "trace": "k.sass --grid 1 --block 32 --arg 0=@a.npy",
    "transfer": "launches.csv --from g.toml --to h100",
    "tune choose": f"gemm.npz {SHAPE} --measured p.csv",
    "tune evaluate": "p.csv --split 0.5 --policy wavetune",
    "tune export": "moe.csv --format sglang --experts 128 --topk 8 --hidden 2048 --intermediate 768",
    "tune fit": "p.csv",
    "tune import": "E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json",
    "tune plan": "--kernel gemm --gpu g.toml --waves 1",
    "tune profile": "p.csv --dry-run",
    "tune rank": f"--m 4 {MOE} --gpu g.toml --measured m.csv",
    "validate": "cases.csv --calibration c.toml --cache kept",
    "whatif": "k.sass -g g.toml --grid 4 --arg 0=@a.npy --set dram=x2",
}
# Inputs that only another option of a command brings in.
MORE_LINES = (
    ("predict", "--table operators.csv"),
    ("predict", "--kernel softmax.ttir --grid 4 --launch l.json -g g.toml"),
    ("iteration", "--exported x.pt2 -g g.toml"),
    ("tune choose", "gemm.npz --table shapes.csv"),
    ("tune evaluate", "p.csv --test p2.csv"),
    ("tune export", f"moe.npz --format vllm {MOE}"),
)


def list_commands(command: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from list_commands(found, *names, name)
    if names and command.callback is not None:
        yield " ".join(names), command


COMMANDS = dict(list_commands(app))
OUTPUTS = [
    (name, parameter.opts[0])
    for name, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter.type, OutputPath)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARPLENS_CACHE", str(tmp_path / "cache"))
    for name in ("k.sass", "other.sass"):
        Path(name).write_text(format_dump("sm_90", "EXIT"))
    Path("g.toml").write_text(GPU_FILE.format(name="mine", parent="parent"))
    Path("parent.toml").write_text(GPU_FILE.format(name="parent", parent="h100-sxm"))
    texts = {
        "k.res": " Function kernel:\n  REG:8 STACK:0 SHARED:0 LOCAL:0\n",
        "k.json": '{"name": "kernel", "num_warps": 1, "shared": 0}',
        "l.json": '{"kernels": {}}',
        "cases.csv": "dump,gpu,grid,block,time_us\nk.sass,g.toml,4,128,5\n",
        "shapes.csv": "m,n,k\n9,9,9\n",
        "prices.csv": "gpu,price_per_hour\nh100,2\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    for name in ("a.npy", "c.toml", "u.txt", "t.traceg", "warplens.toml", "b.json", "m.csv", "p2.csv"):
        Path(name).write_text("")
    for source, name in (
        (DOCS / "measured-operators.csv", "rows.csv"),
        (DOCS / "operators.csv", "operators.csv"),
        (DOCS / "requests.csv", "r.csv"),
        (DOCS / "llama-3.1-8b.json", "m.json"),
        (DOCS / "launches.csv", "launches.csv"),
        (DOCS / "transformer.pt2", "x.pt2"),
        (H100 / "gemm_wavetune.npz", "gemm.npz"),
        (H100 / "moe_wavetune.npz", "moe.npz"),
        (H100 / "moe_best.csv", "moe.csv"),
        (H100 / "gemm_profile.csv", "p.csv"),
        (H100 / "E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json", ""),
        (TRACES / "levels" / "sm_90" / "softmax.ttir", ""),
    ):
        shutil.copy(source, tmp_path / (name or source.name))
    Path("w").mkdir()
    Path("w", "weights.toml").write_text("")
    return tmp_path


def read_all(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def find_named_files(line: str) -> list[str]:
    """Return the files and folders that a line names, of a folder a file in it."""
    words = [word.partition("=@")[2] or word for word in line.split()]
    found = [word for word in words if Path(word).exists()]
    return [word if Path(word).is_file() else str(next(Path(word).iterdir())) for word in found]


def test_every_parameter_that_names_a_file_claims_it() -> None:
    """`click.Path` and `click.File` claim nothing; what may name a GPU, a kernel or an array is no plain text."""
    assert len(COMMANDS) > 25
    claiming = (InputPath, OutputPath, InputText)
    names = {"files", "gpu", "trace", "ptxas", "res_usage", "arg", "old", "new", "source", "target", "parent"}
    for name, command in COMMANDS.items():
        for parameter in command.params:
            kind = parameter.type
            assert isinstance(kind, claiming) or not isinstance(kind, click.Path | click.File), parameter
            if parameter.name in names and (name, parameter.name) not in SELECTORS:
                assert isinstance(kind, claiming), (name, parameter.name)


# They select rows of a profile by a name that stands in it.
SELECTORS = {("tune fit", "gpu"), ("tune evaluate", "gpu")}


def test_every_command_that_writes_is_tried() -> None:
    assert {name for name, _ in OUTPUTS} == set(LINES)
    assert len(OUTPUTS) >= len(LINES) + 5  # charts, pages and baselines


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_no_output_replaces_what_its_command_reads(
    command: str, option: str, folder: Path, capsys: Capture
) -> None:
    lines = [LINES[command], *(line for name, line in MORE_LINES if name == command)]
    n_tried = 0
    for line in lines:
        for file in find_named_files(line):
            if Path(file).parts[0] == "kept" or (option == "--baseline" and file == "b.json"):
                continue
            before = read_all(folder)
            given = str(Path(file).absolute().parent) if is_folder_option(command, option) else file
            words = [*command.split(), *line.split(), option, given]
            assert run(words) == 2, words
            err = capsys.readouterr().err
            assert "would replace" in err or "fills with files of its own" in err or "exists already" in err
            assert read_all(folder) == before, words
            n_tried += 1
    assert n_tried


def is_folder_option(command: str, option: str) -> bool:
    (parameter,) = [each for each in COMMANDS[command].params if option in each.opts]
    return isinstance(parameter.type, OutputFolder)


@pytest.mark.parametrize(
    "way", ["./sub/../k.sass", "link.sass", "hard.sass", "sub/up/k.sass", "k.res", "k.json", "parent.toml"]
)
def test_an_input_is_known_by_whatever_name(way: str, folder: Path, capsys: Capture) -> None:
    Path("sub").mkdir()
    Path("link.sass").symlink_to("k.sass")
    os.link("k.sass", "hard.sass")
    Path("sub", "up").symlink_to(folder)
    before = Path(way).read_bytes()
    for command in ("analyze", "tasks", "trace", "whatif"):
        gpu = ["-g", "g.toml"] if command in ("analyze", "whatif") else []
        if not gpu and way == "parent.toml":
            continue
        assert run([command, "k.sass", "--grid", "1", "--block", "32", *gpu, "-o", way]) == 2
        assert "would replace" in capsys.readouterr().err
        assert Path(way).read_bytes() == before


@pytest.mark.parametrize("suffix", ["cubin", "ptx", "ttgir", "ttir", "source", "json"])
def test_a_folder_of_kernels_is_all_its_files(suffix: str, folder: Path, capsys: Capture) -> None:
    cache = Path("hash")
    cache.mkdir()
    for source in (TRACES / "levels" / "sm_90").glob("softmax.*"):
        shutil.copy(source, cache)
    file = cache / f"softmax.{suffix}"
    if not file.exists():
        file.write_text("")
    before = file.read_bytes()
    for given in (".", "hash", "hash/softmax.cubin"):
        assert run(["analyze", given, "-g", "h100", "--grid", "4", "-o", str(file)]) in (2,), given
        assert "would replace" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_report_beside_kernels_may_be_written_anew(folder: Path) -> None:
    """What a folder holds and no command reads is no input."""
    for name in ("report.json", "report.txt", "k.txt"):
        for _ in range(2):
            assert run(["tasks", "k.sass", "--grid", "1", "--block", "32", "-o", name]) == 0
    for _ in range(2):
        assert run(["analyze", "k.sass", "-o", "k.html", "--format", "html", "--cache", "."]) == 0


def test_files_that_only_the_work_finds_are_kept(folder: Path, capsys: Capture) -> None:
    """A dump that a table names, an array of a launch file, a trace of a list, a GPU of a row."""
    lines = {
        "validate cases.csv --no-cache -m roofline --jobs 1 -o k.sass": "k.sass",
        "validate rows.csv --no-cache -m roofline --jobs 1 -o row.toml": "row.toml",
        "analyze k.sass -g h100 --launch arrays.json -o a.npy": "a.npy",
        "analyze kernelslist.g -g h100 -o kernel-1.traceg": "kernel-1.traceg",
        "predict --table gpus.csv -o field.toml": "field.toml",
        "check -o k.sass --config own.toml": "k.sass",
        "check -o other.sass --config own.toml": "other.sass",
    }
    Path("arrays.json").write_text(
        '{"kernels": {"kernel": {"grid": [1], "block": [32], "arguments": {"0": "@a.npy"}}}}'
    )
    Path("kernelslist.g").write_text("kernel-1.traceg\n")
    Path("kernel-1.traceg").write_text("-kernel name = k\n")
    for name in ("row", "field"):  # files that no test before has read, which a process does once
        Path(f"{name}.toml").write_text(GPU_FILE.format(name=name, parent="h100-sxm"))
    Path("rows.csv").write_text("dump,gpu,grid,block,time_us\nother.sass,row.toml,4,128,5\n")
    Path("gpus.csv").write_text("operator,gpu,dtype,m,n,k\ngemm,field.toml,bf16,9,9,9\n")
    Path("own.toml").write_text('[check]\ninputs = ["*.sass"]\ngpus = ["h100"]\n')
    before = read_all(folder)
    for line, file in lines.items():
        assert run(line.split()) == 2, line
        assert f"{file} would replace" in capsys.readouterr().err, line
    assert read_all(folder) == before


def test_workers_hold_to_the_outputs_too(folder: Path, capsys: Capture) -> None:
    rows = "".join(f"{name},h100,4,128,5\n" for name in ("other.sass", "k.sass", "k.sass"))
    Path("cases.csv").write_text(f"dump,gpu,grid,block,time_us\n{rows}")
    before = Path("k.sass").read_bytes()
    table = str(
        folder / "cases.csv"
    )  # workers are kept from test to test, and stay in the folder of the first
    assert run(["validate", table, "--no-cache", "-m", "roofline", "--jobs", "2", "-o", "k.sass"]) == 2
    assert "would replace" in capsys.readouterr().err
    assert Path("k.sass").read_bytes() == before


def test_standard_input_is_an_input(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    saved = os.dup(0)
    try:
        with open("k.sass", "rb") as file:
            os.dup2(file.fileno(), 0)
        assert run(["analyze", "-", "-o", "k.sass"]) == 2
    finally:
        os.dup2(saved, 0)
        os.close(saved)
    assert "would replace" in capsys.readouterr().err


def test_a_folder_of_outputs_holds_no_input(folder: Path, capsys: Capture) -> None:
    for words in (
        ["learn", "rows.csv", "--quick", "-o", "."],
        ["learn", "rows.csv", "--quick", "-o", "../" + folder.name],
        ["check", "k.sass", "-g", "h100", "--baseline", ".", "--update"],
    ):
        assert run(words) == 2
        assert "fills with files of its own" in capsys.readouterr().err
    assert not Path(".cache").exists()
    assert not list(folder.glob("*.safetensors"))


def test_claims_end_with_their_command(folder: Path) -> None:
    assert run(["analyze", "k.sass", "--format", "json", "--all", "-o", "old.json"]) == 0
    assert run(["analyze", "k.sass", "--format", "json", "--all", "-o", "old.json"]) == 0
    assert run(["diff", "old.json", "k.sass", "-g", "h100"]) == 0


def writes_always(command: str, option: str) -> bool:
    """Return whether an option names what the command writes; a baseline only with --update, see test_26."""
    parameter = next(one for one in COMMANDS[command].params if option in one.opts)
    return not isinstance(parameter.type, BaselinePath)


@pytest.mark.parametrize(("command", "option"), [one for one in OUTPUTS if writes_always(*one)])
def test_an_output_that_cannot_be_written_is_known_before_any_work(
    command: str, option: str, folder: Path, capsys: Capture
) -> None:
    Path("file").write_text("")
    opened: list[str] = []
    is_on = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if is_on and event == "open" and Path(str(arguments[0])).suffix in (".sass", ".csv", ".npz", ".json"):
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    for output in ("none/out.txt", "file/out.txt", "/proc/none/out.txt"):
        if output == "none/out.txt" and is_folder_option(command, option):
            continue
        assert run([*command.split(), *LINES[command].split(), option, output]) == 2
        err = capsys.readouterr().err
        assert "cannot write" in err, (output, err)
        assert "out.txt" in err
    is_on = False
    assert [name for name in opened if Path(name).absolute().is_relative_to(folder)] == []


def test_kinds_of_parameters_are_told_apart() -> None:
    kinds = {type(parameter.type) for command in COMMANDS.values() for parameter in command.params}
    assert {CacheFolder, OutputFolder, KernelText} <= kinds
