"""Damaged and careless input: one clear error each, known before the work, and nothing lost."""

import ast
import csv
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import HWDB, ROOT, TRACES, format_dump

from analyzer.checking import checking
from analyzer.cli.app import run
from analyzer.execution.machine.budget import Budget
from analyzer.text.escaping import escape_controls

Capture = pytest.CaptureFixture[str]
DOCS, H100 = ROOT / "docs", TRACES / "h100"
LLAMA = str(DOCS / "llama-3.1-8b.json")
GEMM = ("--m", "512", "--n", "4096", "--k", "4096")
MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARPLENS_CACHE", str(tmp_path / "cache"))
    Path("k.sass").write_text(format_dump("sm_90", "EXIT"))
    return tmp_path


def fail(*words: str, capsys: Capture) -> str:
    """Return the one error of a command that fails."""
    assert run(words) == 2, words
    said = capsys.readouterr()
    assert "internal error" not in said.err
    assert said.err.count("error: ") == 1, said.err
    return said.err


# Lengths and values that are computed with before they are looked at


@pytest.mark.parametrize("count", range(1, 12))
def test_a_few_requests_are_served(count: int, folder: Path, capsys: Capture) -> None:
    sizes = ("--input-tokens", "128", "--output-tokens", "9")
    for rate in ("0.01", "1", "50"):
        words = ("serving", LLAMA, *sizes, "--rate", rate, "--count", str(count), "--gpu", "h100")
        assert run(words) == 0
    assert "requests" in capsys.readouterr().out


@pytest.fixture
def levels(folder: Path) -> str:
    assert run(["calibrate", str(DOCS / "measured-operators.csv"), "-g", "h100", "-o", "c.toml"]) == 0
    return Path("c.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r"residuals = \[", "residuals = [0.1, ", "places and"),
        (r"residuals = \[[^,]*, ", "residuals = [", "places and"),
        (r"residuals = \[.*\]", "", "places and 0 residuals"),
        (r"places = \[\n    \[[^,]*, ", "places = [\n    [", "its places have"),
        (r"rows = \d+", "rows = 0", "rows = 0"),
        (r"rows = \d+", "rows = -5", "rows = -5"),
        (r"log_ratio = [-\d.]+", "log_ratio = nan", "no measurement has"),
        (r"log_ratio = [-\d.]+", "log_ratio = 800.0", "no measurement has"),
        (r"log_spread = [-\d.]+", "log_spread = -1.0", "no measurement has"),
        (r"residuals = \[[^,]*", "residuals = [inf", "no measurement has"),
        (r"places = \[\n    \[[^,]*", "places = [\n    [inf", "a place that is no number"),
    ],
)
def test_a_calibration_is_checked_as_it_is_read(
    old: str, new: str, said: str, levels: str, capsys: Capture
) -> None:
    changed = re.sub(old, new, levels)
    assert changed != levels
    Path("c.toml").write_text(changed)
    for model in ("gemm", "rmsnorm"):
        sizes = (
            ("--m", "512", "--n", "512", "--k", "512")
            if model == "gemm"
            else ("--rows", "9", "--columns", "9")
        )
        words = ("predict", model, *sizes, "--dtype", "bf16", "-g", "h100", "--calibration", "c.toml")
        assert said in fail(*words, capsys=capsys)


@pytest.mark.parametrize(
    ("tensor", "change"),
    [
        ("known.mlp.bias2", lambda shape: shape[:-1]),
        ("known.mlp.weight0", lambda shape: [shape[0], shape[2], shape[1]]),
        ("known.mlp.mean", lambda shape: [1, *shape]),
        ("known.trees.thresholds", lambda shape: shape[::-1]),
        ("unseen.trees.leaves", lambda shape: [shape[0] * 2, shape[1] // 2]),
        ("unseen.trees.features", lambda shape: [shape[0] * shape[1]]),
    ],
)
def test_shapes_of_weights_are_checked_as_they_are_read(
    tensor: str, change: Callable[[list[int]], list[int]], folder: Path, capsys: Capture
) -> None:
    data = (HWDB / "weights" / "ours-gemm-bf16.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    head[tensor]["shape"] = change(head[tensor]["shape"])
    text = json.dumps(head).encode()
    Path("w").mkdir()
    Path("w/ours-gemm-bf16.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text + data[8 + size :]
    )
    words = ("predict", "gemm", *GEMM, "--dtype", "bf16", "-g", "h100", "--weights", "w")
    assert "no set of weights" in fail(*words, capsys=capsys)


def test_a_grid_near_64_bits_is_counted(folder: Path, capsys: Capture) -> None:
    code = (
        "S2R R0, SR_TID.X",
        "ISETP.GE.AND P0, PT, R0, 0x7, PT",
        "@P0 EXIT",
        *["IADD3 R1, R1, R0, RZ"] * 20,
    )
    Path("k.sass").write_text(format_dump("sm_90", *code, "EXIT"))
    grid = "2147483647,65535,65535"
    assert (
        run(["analyze", "k.sass", "-g", "h100", "--grid", grid, "--block", "32", "--all", "--no-cache"]) == 0
    )
    out = capsys.readouterr().out
    assert "warp-divergence" in out  # of 9.2e18 warps, whose lanes are more than 64 bits count


LONG = ("9" * 4400, "9" * 25, "1e400", "\u0669" * 3, "0x" + "f" * 4400)
NUMBERS = (
    ("dump.sass", r"@P(\d)|R(\d+),|0x([0-9a-f]+)\]|SB(\d)|sm_(\d+)|line (\d+)", ("analyze", "-g", "h100")),
    ("nvdisasm.txt", r"line (\d+)|\.sm_(\d+)|R(\d+),|\[R\d+\+0x([0-9a-f]+)", ("analyze", "-g", "h100")),
    (
        "k.ptx",
        r"%r(\d+)|\.loc\t\d+ (\d+)|\.version (\d)|\.b\d+ \w+\[(\d+)\]",
        ("analyze", "-g", "h100", "--virtual"),
    ),
    (
        "k.ttgir",
        r"tensor<(\d+)x|%c(\d+)_i32|:(\d+):|= (\d+) : i32|sizePerThread = \[(\d+)",
        ("tasks", "--grid", "4"),
    ),
    ("usage.res", r"REG:(\d+)|STACK:(\d+)|SHARED:(\d+)", ("analyze", "k.sass", "--res-usage")),
    ("k.json", r"\"num_warps\": (\d+)|\"shared\": (\d+)", ("analyze", "k.sass", "-g", "h100")),
    ("operators.csv", r",(\d+),", ("predict", "--table")),
    (
        "launches.csv",
        r",(\d+),",
        ("transfer", "--from", "v100-pcie", "--to", "h100", "--no-cache", "--jobs", "1"),
    ),
    ("l.json", r": (\d+)|\[(\d+)", ("analyze", "k.sass", "-g", "h100", "--launch")),
)


@pytest.mark.parametrize(("name", "pattern", "command"), NUMBERS, ids=[name for name, _, _ in NUMBERS])
def test_a_number_of_any_length_is_no_crash(
    name: str, pattern: str, command: tuple[str, ...], folder: Path, capsys: Capture
) -> None:
    """Python reads no more than 4,300 digits, numpy no more than 64 bits."""
    dump = (TRACES / "triton" / "sm_90" / "softmax.sass").read_text()
    levels = TRACES / "levels" / "sm_90"
    texts = {
        "dump.sass": '//## File "/a/k.cu", line 41\n' + dump,
        "nvdisasm.txt": (TRACES / "nvdisasm" / "softmax_sm_90.txt").read_text()
        if (TRACES / "nvdisasm" / "softmax_sm_90.txt").exists()
        else min((TRACES / "nvdisasm").glob("*.txt"), key=lambda path: path.stat().st_size).read_text(),
        "k.ptx": (levels / "softmax.ptx").read_text(),
        "k.ttgir": (levels / "softmax.ttgir").read_text(),
        "usage.res": " Function kernel:\n  REG:8 STACK:0 SHARED:0 LOCAL:0\n",
        "k.json": '{"name": "kernel", "num_warps": 1, "shared": 0}',
        "operators.csv": (DOCS / "operators.csv").read_text(),
        "launches.csv": (DOCS / "launches.csv").read_text(),
        "l.json": '{"kernels": {"kernel": {"grid": [4], "block": [32], "dynamic_shared_bytes": 16}}}',
    }
    text, n_tried = texts[name], 0
    first: dict[int, re.Match[str]] = {}
    for match in re.finditer(pattern, text):
        first.setdefault(match.lastindex or 0, match)
    assert first
    for group, match in first.items():
        for long in LONG:
            start, end = match.span(group)
            Path(name).write_text(text[:start] + long + text[end:], encoding="utf-8")
            words = [*command] if name == "k.json" else [*command, name]
            if "--virtual" in command or name in ("dump.sass", "nvdisasm.txt"):
                words += ["--grid", "4", "--block", "128"]
            assert run(words) in (0, 2)
            said = capsys.readouterr()
            assert len(said.err) < 20_000
            n_tried += 1
    assert n_tried >= len(LONG)


# Packed data that unpack to far more


def make_gzip_bomb(n_bytes: int, head: bytes) -> bytes:
    block = gzip.compress(b"\n" * (16 * MIB), 9)
    return gzip.compress(head) + block * (n_bytes // (16 * MIB))


def measure_peak_mib(*words: str) -> tuple[str, float]:
    """Run a command in a process of its own; return what it says and its memory."""
    code = "import re, sys\nfrom analyzer.cli.app import run\nprint(run(sys.argv[1:]))\n"
    # `ru_maxrss` would be that of the process that was forked, if that is more.
    code += "print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment, check=True
    )
    status, peak = done.stdout.split()
    assert status == "2"
    return done.stderr, float(peak)


def test_a_gzip_bomb_is_refused_wherever_it_is_read(folder: Path) -> None:
    Path("b.json.gz").write_bytes(make_gzip_bomb(2048 * MIB, b'{"traceEvents": ['))
    Path("b.traceg.gz").write_bytes(make_gzip_bomb(2048 * MIB, b"-kernel name = k\n"))
    many = b"".join(lzma.compress(b"\n" * (32 * MIB), preset=0) for _ in range(2)) * 20
    Path("b.traceg.xz").write_bytes(lzma.compress(b"-kernel name = k\n") + many)
    for words in (
        ("transfer", "b.json.gz", "--from", "v100-pcie", "--to", "h100"),
        ("analyze", "b.traceg.gz", "-g", "h100"),
        ("analyze", "b.traceg.xz", "-g", "h100"),
        ("analyze", "k.sass", "--trace", "b.traceg.gz", "-g", "h100"),
    ):
        said, peak_mib = measure_peak_mib(*words)
        assert "unpacks to more than" in said, (words, said)
        assert peak_mib < 600, words


def pack(entries: dict[str, bytes], method: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


@pytest.mark.parametrize(
    ("method", "n_mib", "said"),
    [
        (zipfile.ZIP_DEFLATED, 300, "larger than"),
        (zipfile.ZIP_LZMA, 1, "a method that is not read"),
        (zipfile.ZIP_BZIP2, 1, "a method that is not read"),
    ],
)
def test_a_zip_bomb_is_refused(method: int, n_mib: int, said: str, folder: Path, capsys: Capture) -> None:
    zeros = bytes(n_mib * MIB)
    names = ("coefficients.npy", "micro_table.npy", "description.npy")
    Path("a.npz").write_bytes(pack(dict.fromkeys(names, zeros), method))
    Path("x.pt2").write_bytes(pack({"x/models/model.json": zeros}, method))
    tracemalloc.start()
    assert said in fail("tune", "choose", "a.npz", *GEMM, capsys=capsys)
    assert said in fail("iteration", "--exported", "x.pt2", "-g", "h100", capsys=capsys)
    assert tracemalloc.get_traced_memory()[1] < 300 * MIB
    tracemalloc.stop()


def test_a_list_of_entries_that_fills_memory_is_refused(folder: Path, capsys: Capture) -> None:
    end = b"PK\5\6" + bytes(8) + (100 * MIB).to_bytes(4, "little") + bytes(6)
    with open("x.pt2", "wb") as file:
        file.write(b"PK\3\4")
        file.truncate(110 * MIB)  # a sparse file
        file.seek(110 * MIB)
        file.write(end)
    assert "its list of entries has" in fail("iteration", "--exported", "x.pt2", "-g", "h100", capsys=capsys)


@pytest.mark.parametrize(
    "header", [b"{'descr': '<f4', 'shape': (", b"{'descr':", b"\n" * 8, b"(" * 100, b"\x80" * 8]
)
def test_a_header_of_an_array_is_not_believed(header: bytes, folder: Path, capsys: Capture) -> None:
    entry = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    with zipfile.ZipFile(H100 / "gemm_wavetune.npz") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for name in entries:
        Path("a.npz").write_bytes(pack({**entries, name: entry}, zipfile.ZIP_DEFLATED))
        assert "a.npz: damaged" in fail("tune", "choose", "a.npz", *GEMM, capsys=capsys)
    Path("a.npy").write_bytes(entry)
    fail("analyze", "k.sass", "--grid", "1", "--arg", "0=@a.npy", capsys=capsys)


# What is known before the work


MISSING = (
    ("plotly", ("whatif", "k.sass", "-g", "h100", "--grid", "4", "--set", "dram=x2", "--chart", "c.html")),
    ("plotly", ("serving", LLAMA, "--input-tokens", "9", "--output-tokens", "9", "--rate", "1", "-g", "h100", "--chart", "c.html")),
    ("plotly", ("validate", "cases.csv", "--html", "c.html")),
    ("sklearn", ("learn", str(DOCS / "measured-operators.csv"), "--quick", "-o", "w")),
    ("torch", ("learn", str(DOCS / "measured-operators.csv"), "-o", "w")),
    ("sklearn", ("tune", "evaluate", str(H100 / "gemm_profile.csv"), "--split", "0.5", "--policy", "boosted")),
    ("sklearn", ("tune", "evaluate", str(H100 / "gemm_profile.csv"), "--split", "0.5")),
    ("torch", ("tune", "profile", str(H100 / "gemm_profile.csv"), "-o", "p.csv")),
    ("triton", ("tune", "rank", "--m", "4", "--experts", "8", "--topk", "2", "--hidden", "1024", "--intermediate", "1024", "-g", "a100", "--compile")),
    ("dask", ("analyze", "k.sass", "-g", "h100", "--backend", "dask")),
    ("dask", ("check", "k.sass", "-g", "h100", "--backend", "dask")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("module", "words"), MISSING, ids=[f"{' '.join(w[:2])[:30]}-{m}" for m, w in MISSING]
)
def test_a_missing_package_is_known_before_the_work(
    module: str, words: tuple[str, ...], folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    before = sorted(folder.iterdir())
    said = fail(*words, capsys=capsys)
    name = {"sklearn": "scikit-learn"}.get(module, module)
    assert re.search(rf"needs .*\b{name}\b.* not installed", said)
    assert "pip install" in said
    assert sorted(folder.iterdir()) == before  # no folder or file is left


def test_too_few_rows_are_known_before_anything_is_learned(folder: Path, capsys: Capture) -> None:
    with (DOCS / "measured-operators.csv").open() as file:
        rows = list(csv.reader(file))
    kinds = [row[rows[0].index("operator")] for row in rows[1:]]
    few = next(kind for kind in reversed(sorted(set(kinds))))
    kept = [row for row, kind in zip(rows[1:], kinds, strict=True) if kind != few]
    kept += [row for row, kind in zip(rows[1:], kinds, strict=True) if kind == few][:3]
    with open("rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([rows[0], *kept])
    pytest.importorskip("sklearn", reason="the learn extra is not installed")
    assert "the fewest to learn from" in fail("learn", "rows.csv", "--quick", "-o", "w", capsys=capsys)
    assert not Path("w").exists()


def test_an_unwritable_baseline_is_known_before_the_work(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def analyze(*given: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(checking, "_analyze", analyze)
    for place in ("/proc/none/b.json", "k.sass/b.json"):
        said = fail("check", "k.sass", "-g", "h100", "--baseline", place, "--update", capsys=capsys)
        assert "cannot write the baseline" in said


SLOW = (  # a loop whose addresses depend on a hash, so that each iteration is executed
    "S2R R0, SR_TID.X", "MOV R4, RZ", "IMAD R2, R2, 0x61c8864f, R4", "LOP3.LUT R3, R2, 0x3c, RZ, 0xc0, !PT",
    "IADD3 R3, R3, R1, RZ", "STL [R3], R2", "LDL R2, [R3]", "IADD3 R4, R4, 0x1, RZ",
    "ISETP.GE.AND P0, PT, R4, 0x7d0, PT", "@!P0 BRA 0x20", "EXIT",
)  # fmt: skip
FAULT = ("MOV R2, c[0x0][0x210]", "MOV R3, c[0x0][0x214]", "STG.E [R2.64+0x2], R0", "EXIT")


def test_a_launch_that_faults_says_so_before_the_work(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = 0
    add_steps = Budget._add_steps

    def count(self: Budget, n_steps: int) -> None:
        nonlocal spent
        spent += n_steps
        add_steps(self, n_steps)

    monkeypatch.setattr(Budget, "_add_steps", count)
    slow, fault = format_dump("sm_90", *SLOW), format_dump("sm_90", *FAULT).replace("kernel", "fault")
    Path("slow.sass").write_text(slow)
    launch = ("-g", "h100", "--grid", "2", "--block", "32", "--arg", "0=0x1000", "--no-cache")
    assert run(["analyze", "slow.sass", *launch]) == 0
    alone, spent = spent, 0
    Path("both.sass").write_text(slow + fault[fault.index("\t\tFunction") :])
    assert "fault would fault" in fail("analyze", "both.sass", *launch, capsys=capsys)
    assert alone > 4 * spent, (alone, spent)


# Updates that are not lost


def test_two_updates_of_one_baseline_at_once_lose_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The second one begins and ends while the first one analyzes."""
    names = ("a.sass", "b.sass", "c.sass")
    for name in names:
        Path(name).write_text(format_dump("sm_90", "EXIT").replace("kernel", name[0] * 6))
    analyze = checking._analyze
    pending = ["b.sass", "c.sass"]

    def analyze_late(*given: object) -> object:
        report = analyze(*given)  # type: ignore[arg-type]
        if pending:
            assert run(["check", "--update", pending.pop(), "-g", "h100", "--no-cache"]) == 0
        return report

    monkeypatch.setattr(checking, "_analyze", analyze_late)
    assert run(["check", "--update", "a.sass", "-g", "h100", "--no-cache"]) == 0
    stored = json.loads(Path("warplens-baseline.json").read_text())
    assert [kernel["input"] for kernel in stored["kernels"]] == list(names)


def test_processes_that_update_one_baseline_lose_nothing(folder: Path) -> None:
    names = [f"k{number}.sass" for number in range(4)]
    for name in names:
        Path(name).write_text(format_dump("sm_90", "EXIT").replace("kernel", name[:2] * 3))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "analyzer", "check", "--update", "-g", "h100", "--no-cache"]
    running = [
        subprocess.Popen([*command, name], env=environment, stdout=subprocess.DEVNULL) for name in names
    ]
    assert [each.wait() for each in running] == [0] * len(names)
    stored = json.loads(Path("warplens-baseline.json").read_text())
    assert [kernel["input"] for kernel in stored["kernels"]] == names
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


# Control characters, and lines that a runner would obey


ESCAPES = "a\x1b[31mRED\x1b]0;t\x07\x00\u202eb"


def test_no_table_steers_the_terminal(folder: Path, capsys: Capture) -> None:
    Path("operators.csv").write_text(f"operator,gpu,dtype,m,n,k,note\ngemm,h100,bf16,9,9,9,{ESCAPES}\n")
    Path("shapes.csv").write_text(f"m,n,k,note\n512,4096,4096,{ESCAPES}\n")
    columns = "kernel,grid,block,registers,shared_bytes,flops,bytes,time_us"
    Path("launches.csv").write_text(f"{columns}\n{ESCAPES},4,128,32,0,1000,1000,5\n")
    for words in (
        ("predict", "--table", "operators.csv"),
        ("predict", "--table", "operators.csv", "--format", "json"),
        ("predict", "--table", "operators.csv", "--format", "text"),
        ("tune", "choose", str(H100 / "gemm_wavetune.npz"), "--table", "shapes.csv"),
        ("transfer", "launches.csv", "--from", "v100-pcie", "--to", "h100", "--format", "csv", "--no-cache"),
    ):
        for output in ((), ("-o", "out.txt")):
            assert run([*words, *output]) == 0
            said = capsys.readouterr()
            text = said.out if not output else Path("out.txt").read_text()
            assert "RED" in text or "--table" in words or not output
            assert escape_controls(text + said.err, keep="\n\t") == text + said.err, words


def test_json_with_control_characters_stays_json(folder: Path, capsys: Capture) -> None:
    block = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4}
    Path("configs.json").write_text(json.dumps({"8": {**block, "num_stages": 3, "\x9b31m\u202e": 1}}))
    assert run(["tune", "import", "configs.json", "--format", "json"]) == 0
    said = capsys.readouterr().out
    assert escape_controls(said, keep="\n") == said
    assert "\x9b31m\u202e" in json.loads(said)["fields_not_interpreted"]


WRITERS = {"cli/app.py", "cli/output.py", "cli/progress.py", "cli/validate.py", "render/console.py"}


def test_one_place_writes_text_to_the_terminal() -> None:
    """The others return texts, or print on the console of `make_console`."""
    found = set()
    for path in (ROOT / "analyzer").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if re.search(r"print\(|echo\(|Console\(|sys\.std", text) else "")
        for node in ast.walk(tree):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            is_stream = isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr")
            if name in ("print", "click.echo", "click.secho", "Console") or is_stream:
                found.add(str(path.relative_to(ROOT / "analyzer")))
    # `tune evaluate` draws its table into a text; a process that compiles for `tune rank` names a tile.
    assert found <= WRITERS | {"cli/tune_evaluate.py", "tuning/triton_compilation.py"}, found - WRITERS
