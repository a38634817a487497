"""Judge `diff` and `check` on pairs of compiled kernels whose right verdict is known by construction.

    python bench/diff_pairs.py build            # compile the pairs of diff_pairs/pairs.toml
    python bench/diff_pairs.py judge            # compare them; exit code 1 when a verdict is wrong
    python bench/diff_pairs.py table > docs/diff.md
    python bench/diff_pairs.py ship             # renew traces/pairs, which the tests read

Needs nvcc 13.0 and cuobjdump on PATH; Triton comes by pip into the folder of the builds (--folder, default
/tmp/warplens-pairs), and with it the other versions of ptxas. No GPU.

A pair names one source and what differs between its sides. Its verdict follows from what the change does to
the work (twice the trips, one more array read from DRAM, a bank conflict) or from the code: `build` compares
encodings, register counts and memory of both sides by itself and refuses a table that calls other code
unchanged, or the same code anything else. Pairs marked `held` were not shown to whoever tuned thresholds.
"""

import argparse
import contextlib
import fnmatch
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from markdown import render_table
from msgspec import Struct

from analyzer.cli.app import run
from analyzer.cli.exit_codes import ExitCode

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent
_SOURCES = _HERE / "diff_pairs"
_SHIPPED_FOLDER = _ROOT / "traces" / "pairs"
_SHIPPED = (
    *("comment-added", "function-renamed", "constant-changed", "padding-removed", "stride-added"),
    *("loop-twice-as-long", "shared-memory-doubled", "library-of-twenty", "triton-strided"),
)
_SIDES: tuple[Literal["old"], Literal["new"]] = ("old", "new")
_HEAD = _HERE / "diff_head.md"
_DEFAULT_FOLDER = Path("/tmp/warplens-pairs")
_CUDA_FLAGS = ("-std=c++17", "-cubin")
_PTX_VERSION = "8.7"  # of CUDA 12.8: the oldest assembler that is compared reads it
_TRITON_RELEASES = {"3.6": "3.6.0", "3.9": "3.9.0"}
_PTXAS_OF_TRITON = {"12.9": "ptxas", "13.4": "ptxas-blackwell"}  # in Triton 3.9's wheel
_GPUS = {80: "a100", 86: "rtx-3090", 90: "h100", 100: "b200", 120: "rtx-5090"}
_SAME_TIME = 0.05  # largest relative change of the cycles of a change without effect


class Side(Struct, frozen=True, forbid_unknown_fields=True):
    """One side of a pair: what differs from the plain source."""

    define: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    edit: tuple[tuple[str, str], ...] = ()
    prepend: str = ""
    file: str = ""  # stem of the source
    form: Literal["cubin", "sass"] = "cubin"
    ptxas: str = ""  # assembles nvcc's PTX
    arch: int = 0
    triton: str = "3.6"
    kernel: str = ""
    constants: dict[str, int | bool | str] = {}
    types: dict[str, str] = {}
    aligned: bool = True
    num_warps: int = 0
    num_stages: int = 3


class LaunchText(Struct, frozen=True, forbid_unknown_fields=True):
    """Launch of both sides, as the options spell it."""

    grid: str
    block: str = ""
    arguments: tuple[str, ...] = ()

    def make_file(self, kernel: str) -> dict[str, Any]:
        """Return the launch file that gives this launch to the kernels of that name."""
        arguments = dict(text.split("=") for text in self.arguments)
        entry: dict[str, Any] = {"grid": [int(part) for part in self.grid.split(",")]}
        entry["arguments"] = {which: int(value) for which, value in arguments.items()}
        if self.block:
            entry["block"] = [int(part) for part in self.block.split(",")]
        return {"kernels": {f"*{kernel}*": entry}}


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """What is right for another kernel of the pair; no verdict: any is."""

    kernel: str
    status: str
    verdict: tuple[str, ...] = ()


class Pair(Struct, frozen=True, forbid_unknown_fields=True):
    """Two builds, and what is right to say of them."""

    name: str
    kind: str
    source: str
    kernel: str  # part of its name on either side
    arch: int
    old: Side
    new: Side
    status: tuple[str, ...]
    verdict: tuple[str, ...]
    reason: str
    direction: Literal["", "slower", "faster", "same", "not-slower"] = ""
    launch: LaunchText | None = None
    constants: dict[str, int | bool | str] = {}
    types: dict[str, str] = {}
    num_warps: int = 4
    also: tuple[Expected, ...] = ()
    every: bool = False  # the kernels that are not named are same and unchanged
    held: bool = False

    @property
    def is_triton(self) -> bool:
        """Whether Triton compiles it."""
        return self.source.endswith(".py")


class Outcome(Struct, frozen=True):
    """What diff and check said of a pair."""

    pair: Pair
    status: str
    verdict: str
    cycles_change: float | None
    evidence: tuple[str, ...]
    faults: tuple[str, ...]  # empty: right
    check_code: int | None


def read_pairs() -> list[Pair]:
    """Return the pairs of the table."""
    table = tomllib.loads((_SOURCES / "pairs.toml").read_text())
    return msgspec.convert(table["pair"], list[Pair])


# ---- building ------------------------------------------------------------------------------------


def run_tool(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """Run a tool and return its output; exit with its messages when it fails."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def find_triton(folder: Path, version: str) -> Path:
    """Return a folder to import a Triton from, fetched once with pip."""
    site = folder / f"triton-{version}"
    if not (site / "triton").exists():
        release = f"triton=={_TRITON_RELEASES[version]}"
        run_tool([sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, release])
    return site


def find_ptxas(folder: Path, version: str) -> Path:
    """Return an assembler: of nvcc's own release, or of Triton's wheel."""
    if version in _PTXAS_OF_TRITON:
        return find_triton(folder, "3.9") / "triton/backends/nvidia/bin" / _PTXAS_OF_TRITON[version]
    return Path(shutil.which("ptxas") or sys.exit("ptxas not found: install CUDA 13.0"))


def stage_source(pair: Pair, side: Side, where: Path) -> Path:
    """Write the source of a side, edited; return its path."""
    kind = "triton" if pair.is_triton else "cuda"
    text = (_SOURCES / kind / pair.source).read_text()
    for old, new in side.edit:
        if old not in text:
            sys.exit(f"{pair.name}: {pair.source} has no {old!r} to replace")
        text = text.replace(old, new)
    path = where / f"{side.file or Path(pair.source).stem}{Path(pair.source).suffix}"
    path.write_text(side.prepend + text)
    return path


def compile_cuda(pair: Pair, side: Side, source: Path, folder: Path) -> None:
    """Compile one side with nvcc to a cubin beside its source."""
    cubin = source.with_suffix(".cubin")
    arch = f"sm_{side.arch or pair.arch}"
    options: list[str | Path] = [*side.flags, *(f"-D{text}" for text in side.define), f"-arch={arch}", source]
    if not side.ptxas:
        run_tool(["nvcc", *_CUDA_FLAGS, *options, "-o", cubin])
        return
    ptx = source.with_suffix(".ptx")
    run_tool(["nvcc", "-std=c++17", "-ptx", *options, "-o", ptx])
    ptx.write_text(re.sub(r"(?m)^\.version .*$", f".version {_PTX_VERSION}", ptx.read_text()))
    run_tool([find_ptxas(folder, side.ptxas), f"-arch={arch}", ptx, "-o", cubin])
    ptx.unlink()


def describe_triton(pair: Pair, side: Side, source: Path) -> dict[str, Any]:
    """Return what diff_pairs/triton/compile.py is to compile."""
    return {
        "source": str(source),
        "kernel": side.kernel or pair.kernel,
        "arch": side.arch or pair.arch,
        "constants": pair.constants | side.constants,
        "types": pair.types | side.types,
        "aligned": side.aligned,
        "num_warps": side.num_warps or pair.num_warps,
        "num_stages": side.num_stages,
        "out": str(source.with_suffix(".cubin")),
    }


def make_key(pair: Pair, side: Side) -> str:
    """Return a hash of all that decides a side's build."""
    kind = "triton" if pair.is_triton else "cuda"
    recipe = (side, pair.arch, pair.constants, pair.types, pair.num_warps, pair.kernel, pair.source)
    text = (_SOURCES / kind / pair.source).read_bytes() + msgspec.json.encode(recipe)
    return hashlib.sha256(text).hexdigest()


def build_pairs(pairs: Iterable[Pair], folder: Path) -> None:
    """Compile what is not compiled yet, then hold the table against the code."""
    waiting: dict[str, list[tuple[dict[str, Any], Path, str]]] = {}
    for pair in pairs:
        for which, side in (("old", pair.old), ("new", pair.new)):
            where = folder / "pairs" / pair.name / which
            stamp, key = where / ".key", make_key(pair, side)
            if stamp.exists() and stamp.read_text() == key:
                continue
            shutil.rmtree(where, ignore_errors=True)
            where.mkdir(parents=True)
            source = stage_source(pair, side, where)
            if pair.is_triton:
                waiting.setdefault(side.triton, []).append((describe_triton(pair, side, source), stamp, key))
                continue
            compile_cuda(pair, side, source, folder)
            finish_side(side, source.with_suffix(".cubin"))
            stamp.write_text(key)
    for version, jobs in waiting.items():
        compile_triton(folder, version, jobs)


def compile_triton(folder: Path, version: str, jobs: Sequence[tuple[dict[str, Any], Path, str]]) -> None:
    """Compile sides with one Triton in one process."""
    site = find_triton(folder, version)
    orders = folder / f"triton-{version}.json"
    orders.write_text(json.dumps([job for job, _, _ in jobs]))
    environment = {
        "PYTHONPATH": str(site),
        "PATH": "/usr/bin:/bin",
        "TRITON_CACHE_DIR": str(folder / "cache"),
    }
    run_tool([sys.executable, _SOURCES / "triton/compile.py", orders], environment)
    for _, stamp, key in jobs:
        stamp.write_text(key)


def finish_side(side: Side, cubin: Path) -> None:
    """Turn a cubin into the text of it, where the side asks for that."""
    if side.form == "sass":
        cubin.with_suffix(".sass").write_text(run_tool(["cuobjdump", "-sass", cubin]))
        cubin.with_suffix(".res").write_text(run_tool(["cuobjdump", "-res-usage", cubin]))


def find_input(folder: Path, pair: Pair, which: Literal["old", "new"]) -> Path:
    """Return the file of a side that diff reads."""
    side = pair.old if which == "old" else pair.new
    return next((folder / "pairs" / pair.name / which).glob(f"*.{side.form}"))


# ---- the table against the code -----------------------------------------------------------------


def read_code(cubin: Path) -> dict[str, tuple[str, str]]:
    """Return encodings and resources of each kernel, as cuobjdump prints them: no code of ours."""
    dump = run_tool(["cuobjdump", "-sass", cubin])
    resources = dict(
        re.findall(r"Function (\S+?):\s*\n\s*(.*)", run_tool(["cuobjdump", "-res-usage", cubin]))
    )
    pieces = re.split(r"(?m)^\s*Function : (\S+)\s*$", dump)
    return {
        name: (" ".join(re.findall(r"/\* (0x[0-9a-f]{16}) \*/", body)), resources.get(name, ""))
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }


def find_table_faults(pairs: Iterable[Pair], folder: Path) -> list[str]:
    """Return where a pair's verdict contradicts whether its two sides are the same code."""
    faults = []
    for pair in pairs:
        is_same = is_same_code(pair, folder)
        if is_same and pair.verdict != ("unchanged",):
            faults.append(f"{pair.name}: the same code on both sides, so only `unchanged` is right")
        if not is_same and "unchanged" in pair.verdict:
            faults.append(f"{pair.name}: the code differs, so `unchanged` is wrong")
    return faults


def is_same_code(pair: Pair, folder: Path) -> bool:
    """Whether the old side's kernel is on the new side too, under whatever name."""
    cubins = [next((folder / "pairs" / pair.name / which).glob("*.cubin")) for which in ("old", "new")]
    old, new = (read_code(cubin) for cubin in cubins)
    names = [name for name in old if pair.kernel in name] or [name for name in old if name not in new]
    same_names = [name for name in names if name in new]
    return old[names[0]] in ([new[name] for name in same_names] or list(new.values()))


# ---- judging ------------------------------------------------------------------------------------


def run_warplens(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command line in this process; return exit code, output and messages."""
    output, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages):
        code = run([str(argument) for argument in arguments])
    return code, output.getvalue(), messages.getvalue()


def list_options(pair: Pair, folder: Path) -> list[str]:
    """Return the options of GPU and launch, which diff and check share."""
    options = ["--gpu", _GPUS[pair.arch], "--jobs", "1"]
    if pair.launch is None:
        return options
    path = folder / "pairs" / pair.name / "launch.json"
    names = dict.fromkeys([pair.kernel, pair.new.kernel or pair.kernel])
    kernels = {key: value for name in names for key, value in pair.launch.make_file(name)["kernels"].items()}
    path.write_text(json.dumps({"kernels": kernels}))
    return [*options, "--launch", str(path)]


def check_pair(pair: Pair, folder: Path) -> int:
    """Return check's exit code for the new side, held to a baseline of the old side."""
    home = folder / "pairs" / pair.name
    current, baseline = home / "current", home / "baseline.json"
    baseline.unlink(missing_ok=True)
    options = [*list_options(pair, folder), "--baseline", str(baseline), "--cache", str(folder / "reports")]
    code = 0
    for which, more in (("old", ["--update"]), ("new", [])):
        shutil.rmtree(current, ignore_errors=True)
        shutil.copytree(home / which, current)
        side = pair.old if which == "old" else pair.new
        code, _, _ = run_warplens("check", next(current.glob(f"*.{side.form}")), *more, *options)
    return code


def list_check_faults(pair: Pair, code: int | None) -> list[str]:
    """Return what is wrong with check's exit code: 1 for what became slower, 0 for what did not."""
    if code is None:
        return []
    is_harmless = set(pair.verdict) <= {"unchanged", "benign"} or pair.direction == "faster"
    if is_harmless:
        return [] if code == ExitCode.CLEAN else [f"check exits with {code}, not 0"]
    if pair.verdict == ("significant",) and pair.direction == "slower":
        return [] if code == ExitCode.GATE_TRIPPED else [f"check exits with {code}, not 1"]
    return []


def diff_pair(pair: Pair, folder: Path) -> dict[str, Any]:
    """Return diff's JSON report of a pair, which is kept beside its sides."""
    out = folder / "pairs" / pair.name / "diff.json"
    inputs = [find_input(folder, pair, which) for which in ("old", "new")]
    options = list_options(pair, folder)
    code, _, messages = run_warplens("diff", *inputs, *options, "--format", "json", "-o", out)
    if code:
        return {"error": f"exit code {code}: {messages.strip()[-300:]}", "kernels": []}
    report: dict[str, Any] = json.loads(out.read_text())
    return report


def judge_pair(pair: Pair, report: dict[str, Any], check_code: int | None) -> Outcome:
    """Hold diff's report and check's exit code against what is right."""
    rows = [row for row in report["kernels"] if pair.kernel in row["name"] or pair.kernel in row["old_name"]]
    if len(rows) != 1:
        fault = report.get("error") or f"{len(rows)} rows of {pair.kernel}"
        return Outcome(pair, "", "", None, (), (fault,), check_code)
    row = rows[0]
    faults = [
        *list_row_faults(row, pair.status, pair.verdict),
        *list_direction_faults(pair.direction, row["cycles_change"]),
        *list_other_faults(pair, [other for other in report["kernels"] if other is not row]),
        *list_check_faults(pair, check_code),
    ]
    evidence = tuple(row["evidence"])
    return Outcome(
        pair, row["status"], row["verdict"], row["cycles_change"], evidence, tuple(faults), check_code
    )


def list_row_faults(row: dict[str, Any], status: Sequence[str], verdict: Sequence[str]) -> list[str]:
    """Return what is wrong with status and verdict of a row; an empty tuple of verdicts admits all."""
    faults = (
        [] if row["status"] in status else [f"{row['name']}: status {row['status']}, not {'/'.join(status)}"]
    )
    if verdict and row["verdict"] not in verdict:
        faults.append(f"{row['name']}: {row['verdict']}, not {'/'.join(verdict)}")
    return faults


def list_direction_faults(direction: str, change: float | None) -> list[str]:
    """Return what is wrong with the change of the cycles."""
    if not direction or change is None:
        return [] if direction in ("", "same") else [f"no cycles, not {direction}"]
    is_right = {
        "slower": change > 0,
        "faster": change < 0,
        "same": abs(change) <= _SAME_TIME,
        "not-slower": change <= _SAME_TIME,
    }[direction]
    return [] if is_right else [f"cycles {change:+.1%}, not {direction}"]


def list_other_faults(pair: Pair, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the other kernels of a pair."""
    faults = []
    named = {expected.kernel: expected for expected in pair.also}
    for row in rows:
        expected = next((named[key] for key in named if key in row["name"] or key in row["old_name"]), None)
        if expected:
            faults += list_row_faults(row, (expected.status,), expected.verdict)
        elif pair.every or row["status"] in ("new", "removed"):
            faults += list_row_faults(row, ("same",), ("unchanged",))
    missing = [key for key in named if not any(key in row["name"] or key in row["old_name"] for row in rows)]
    return faults + [f"no row of {key}" for key in missing]


def judge_pairs(pairs: Iterable[Pair], folder: Path, holds_check: bool = True) -> list[Outcome]:
    """Return what diff and, if asked for, check say of each pair; they are printed as they come.

    Answers of the same tool to the same pair are kept beside it.
    """
    tool = hash_tool()
    outcomes = []
    for pair in pairs:
        report = keep_answer(tool, pair, folder, diff_pair)
        code = keep_answer(tool, pair, folder, check_pair, holds_check)
        outcomes.append(judge_pair(pair, report, code))
        print(" | ".join(describe(outcomes[-1])), file=sys.stderr, flush=True)
    return outcomes


def keep_answer(
    tool: bytes, pair: Pair, folder: Path, command: Callable[[Pair, Path], Any], asks: bool = True
) -> Any:
    """Return what diff or check says of a pair, from disk where the same tool was asked before.

    None where it was not, and `asks` is off.
    """
    home = folder / "pairs" / pair.name
    built = b"".join((home / which / ".key").read_bytes() for which in _SIDES)
    key = hashlib.sha256(tool + msgspec.json.encode(pair.launch) + built).hexdigest()
    path = home / f"{command.__name__}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if kept.get("key") == key:
        return kept["answer"]
    if not asks:
        return None
    answer = command(pair, folder)
    path.write_text(json.dumps({"key": key, "answer": answer}))
    return answer


def hash_tool() -> bytes:
    """Return a hash of all sources and tables that decide what diff and check say."""
    digest = hashlib.sha256()
    for suffix, place in (("py", "analyzer"), ("toml", "hwdb"), ("safetensors", "hwdb")):
        for path in sorted((_ROOT / place).rglob(f"*.{suffix}")):
            digest.update(path.read_bytes())
    return digest.digest()


# ---- output -------------------------------------------------------------------------------------


def describe(outcome: Outcome) -> list[str]:
    """Return the cells of a pair's row."""
    pair = outcome.pair
    change = "" if outcome.cycles_change is None else f"{outcome.cycles_change:+.1%}"
    expected = " or ".join(pair.verdict) + (f", {pair.direction}" if "significant" in pair.verdict else "")
    launch = "given" if pair.launch else "assumed"
    evidence = outcome.evidence[0] if outcome.evidence else ""
    found = outcome.verdict if not outcome.faults else f"**{'; '.join(outcome.faults)}**"
    code = ("Triton " if pair.is_triton else "nvcc ") + f"sm_{pair.arch}"
    return [
        pair.name,
        code,
        launch,
        pair.reason,
        expected,
        found,
        change,
        "" if outcome.check_code is None else str(outcome.check_code),
        evidence,
    ]


def print_scores(outcomes: Sequence[Outcome]) -> None:
    """Print how many are right, of all and of each half, and the wrong ones of the open half."""
    for half, name in ((False, "open"), (True, "held")):
        of_half = [outcome for outcome in outcomes if outcome.pair.held == half]
        right = sum(not outcome.faults for outcome in of_half)
        print(f"{name}: {right} of {len(of_half)} right")


def list_faults(outcomes: Iterable[Outcome]) -> list[str]:
    """Return a line for each wrong pair."""
    return [f"{outcome.pair.name}: {'; '.join(outcome.faults)}" for outcome in outcomes if outcome.faults]


def make_page(outcomes: Sequence[Outcome]) -> str:
    """Return docs/diff.md: the head that explains verdicts, then the table by kind."""
    head = _HEAD.read_text() if _HEAD.exists() else "# diff\n"
    right = sum(not outcome.faults for outcome in outcomes)
    held = [outcome for outcome in outcomes if outcome.pair.held]
    held_right = sum(not outcome.faults for outcome in held)
    intro = (
        "\n## How often the verdict is right\n\n"
        f"{len(outcomes)} pairs of compiled kernels whose right verdict is known by construction: {right} "
        f"are judged right. {len(held)} of them were held back while thresholds were tuned ({held_right} "
        "right); one more was, was judged wrong, and is now open. The column `check` has its exit code "
        "against a baseline of the old side, where it was asked. "
        "`python bench/diff_pairs.py table > docs/diff.md` builds them, compares them, and writes this page; "
        "`bench/diff_pairs/pairs.toml` says how each is made.\n"
    )
    columns = ("pair", "code", "launch", "what changed", "right", "verdict", "cycles", "check", "evidence")
    kinds = list(dict.fromkeys(outcome.pair.kind for outcome in outcomes))
    parts = [
        f"\n### {kind[0].upper()}{kind[1:]}\n\n"
        + render_table(columns, [describe(outcome) for outcome in outcomes if outcome.pair.kind == kind])
        for kind in kinds
    ]
    return head + intro + "".join(parts)


def ship_pairs(pairs: Iterable[Pair], folder: Path) -> None:
    """Copy the built sides of some pairs to traces/pairs, with where each file comes from."""
    shutil.rmtree(_SHIPPED_FOLDER, ignore_errors=True)
    lines = ["# Written by bench/diff_pairs.py ship; bench/diff_pairs/pairs.toml says how each is compiled."]
    for pair in pairs:
        for which in _SIDES:
            side = pair.old if which == "old" else pair.new
            target = _SHIPPED_FOLDER / pair.name / which
            target.mkdir(parents=True)
            built = find_input(folder, pair, which)
            for source in (built, *(built.parent.glob("*.json") if pair.is_triton else ())):
                shutil.copyfile(source, target / source.name)
            lines += describe_origin(pair, side, target / built.name)
    (_SHIPPED_FOLDER / "origin.toml").write_text("\n".join(lines) + "\n")


def describe_origin(pair: Pair, side: Side, path: Path) -> list[str]:
    """Return the lines of origin.toml for a shipped file."""
    nvcc = re.search(r"V(\d[\d.]*)", run_tool(["nvcc", "--version"]))
    release = (
        f"triton {_TRITON_RELEASES[side.triton]}" if pair.is_triton else f"nvcc {nvcc and nvcc.group(1)}"
    )
    kind = "triton" if pair.is_triton else "cuda"
    return [
        "",
        f'["{path.relative_to(_SHIPPED_FOLDER).as_posix()}"]',
        f'compiler = "{release}"',
        f'target = "sm_{side.arch or pair.arch}"',
        f'source = "bench/diff_pairs/{kind}/{pair.source}"',
        f'sha256 = "{hashlib.sha256(path.read_bytes()).hexdigest()}"',
    ]


def choose(pairs: Iterable[Pair], only: str, half: str) -> list[Pair]:
    """Return the pairs of a half whose names fit a glob."""
    halves = {"all": (False, True), "open": (False,), "held": (True,)}[half]
    return [pair for pair in pairs if fnmatch.fnmatch(pair.name, only) and pair.held in halves]


def main() -> int:
    """Do what the command line asks; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", choices=("build", "judge", "table", "ship"))
    parser.add_argument("--folder", type=Path, default=_DEFAULT_FOLDER)
    parser.add_argument("--only", default="*", help="glob of names of pairs")
    parser.add_argument("--half", choices=("all", "open", "held"), default="all")
    parser.add_argument(
        "--no-check", action="store_true", help="ask diff alone; kept answers of check are shown"
    )
    options = parser.parse_args()
    pairs = choose(read_pairs(), options.only, options.half)
    build_pairs(pairs, options.folder)
    if options.action == "build":
        faults = find_table_faults(pairs, options.folder)
        print("\n".join(faults) or f"{len(pairs)} pairs built")
        return 1 if faults else 0
    if options.action == "ship":
        ship_pairs([pair for pair in pairs if pair.name in _SHIPPED], options.folder)
        return 0
    outcomes = judge_pairs(pairs, options.folder, not options.no_check)
    if options.action == "table":
        print(make_page(outcomes), end="")
    else:
        print_scores(outcomes)
        print("\n".join(list_faults(outcomes)))
    return 1 if list_faults(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
