"""Compare what two commits of warplens say: command lines over all of `traces/`, byte by byte.

    python bench/replay/replay.py record OUT [--tree PATH]   # run every case, one file of output each
    python bench/replay/replay.py compare COMMIT             # COMMIT and this tree: list the cases that
    differ

A case is a command line; its record holds the exit code, standard output and standard error. Each tree runs
its own code, through `analyzer.cli.app.run`, on the inputs of this tree, so that outputs differ by the code
alone. A change that says "no behaviour changes" must show no difference (tinygrad's process replay).

Every dump is analyzed without launch facts on all GPUs, and with those of `launches.json`, by all models, as
text with all layers and as JSON; measured launches as `traces/measured/cases.csv` has them; beside these
`whatif`, `trace`, `gpus` and inputs that fail.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FINGERPRINT = re.compile(r'"model_fingerprint": *"\w*",?')  # of the code, which is what differs
LAUNCHES = Path("bench") / "replay" / "launches.json"
INPUT_SUFFIXES = frozenset({".sass", ".cubin", ".traceg", ".trace", ".txt"})
GPUS_OF = {
    "sm_70": ("v100-sxm2", "titan-v"),
    "sm_75": ("rtx-2080-ti", "t4"),
    "sm_80": ("a100-80gb-sxm", "a30"),
    "sm_86": ("rtx-a6000", "rtx-3060"),
    "sm_89": ("rtx-4090", "l40s"),
    "sm_90": ("h100-sxm", "h20"),
    "sm_100": ("b200", "gb200"),
    "sm_120": ("rtx-5090", "rtx-pro-6000-blackwell-server"),
}
OTHER_GPUS = ("a100-80gb-sxm", "h100-sxm")


@dataclass(frozen=True, slots=True)
class Case:
    """One command line, run in the root of the inputs."""

    arguments: tuple[str, ...]

    @property
    def file_name(self) -> str:
        digest = hashlib.sha256("\0".join(self.arguments).encode()).hexdigest()[:16]
        return f"{digest}.out"


def find_dumps() -> list[Path]:
    """Return every input in `traces/`, relative to the root, sorted."""
    traces = (path for path in (ROOT / "traces").rglob("*") if path.suffix in INPUT_SUFFIXES)
    return sorted(path.relative_to(ROOT) for path in traces)


def find_gpus(dump: Path) -> tuple[str, ...]:
    """Return GPUs of the architecture that a dump's path names, else of two others."""
    parts = "/".join(dump.parts)
    arch = max((name for name in GPUS_OF if name in parts), key=len, default="")
    return GPUS_OF.get(arch, OTHER_GPUS)


def make_cases() -> Iterator[Case]:
    """Yield the command lines to run."""
    for dump in find_dumps():
        gpus = [word for gpu in find_gpus(dump) for word in ("--gpu", gpu)]
        yield Case(("analyze", str(dump), "--gpu", "all", "-m", "warp,roofline", "--format", "json"))
        for launch in ([], ["--launch", str(LAUNCHES)]):
            every = ("analyze", str(dump), *gpus, *launch, "-m", "all")
            yield Case((*every, "--format", "json", "--listing"))
            yield Case((*every, "--all", "--explain"))
    yield from make_measured_cases()
    yield from make_other_cases()


def make_measured_cases() -> Iterator[Case]:
    """Yield the measured launches whose dumps are shipped."""
    folder = Path("traces") / "measured"
    with (ROOT / folder / "cases.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            launch: list[str] = []
            for which, value in enumerate(json.loads(row["arguments"])):
                launch += ["--arg", f"{which}={value}"]
            for option in ("grid", "block"):
                launch += [f"--{option}", row[option].replace(";", ",")]
            if row["l2"] == "cold":
                launch.append("--cold-l2")
            if row["clock_mhz"]:
                launch += ["--clock", row["clock_mhz"]]
            launch += ["--dynamic-shared", row["dynamic_shared_bytes"] or "0"]
            command = ("analyze", str(folder / row["dump"]), "--gpu", row["gpu"], "-k", row["kernel"])
            yield Case((*command, *launch, "-m", "all", "--format", "json", "--listing"))


def make_other_cases() -> Iterator[Case]:
    """Yield what other commands print, and what bad input does."""
    matmul = "traces/triton/sm_90/matmul.sass"
    classical = "traces/cuda/sm_80/report16.sass"
    for dump, gpu, edits in (
        (matmul, "h100", ("--sweep", "dram=x0.5,x1,x2", "--set", "sm.count=100")),
        (
            "traces/triton/sm_80/matmul_square_tile.sass",
            "a100",
            ("--sweep", "clock.boost_mhz=1000,1400,2000"),
        ),
        (classical, "a100", ("-k", "histogram", "--sweep", "l2.size_bytes=x0.5,x1")),
    ):
        for form in ("text", "json"):
            yield Case(("whatif", dump, "--gpu", gpu, "--launch", str(LAUNCHES), *edits, "--format", form))
    for kernel in ("histogram", "matmul_naive", "reduce_sum"):
        launch = ("--grid", "4,2", "--block", "64", "--arg", "3=100", "--arg", "1=100")
        yield Case(("trace", classical, "-k", kernel, *launch))
    for trace in ("vector_add.traceg", "loop.traceg"):
        yield Case(("analyze", f"traces/nvbit/{trace}", "--gpu", "a100", "--all", "-m", "all"))
    yield Case(("annotate", matmul, "--gpu", "h100", "-k", "matmul", "--launch", str(LAUNCHES)))
    yield Case(("gpus",))
    for path in sorted((ROOT / "hwdb" / "gpu").glob("*.toml")):
        yield Case(("gpus", path.stem, "--explain"))
    yield Case(("analyze", "no-such-file"))
    yield Case(("analyze", "README.md"))
    yield Case(("analyze", matmul, "--gpu", "h1000"))
    yield Case(("analyze", matmul, "--gpu", "h100", "--grid", "0"))
    yield Case(("analyze", matmul, "--gpu", "h100", "--arg", "m"))
    yield Case(("analyze", matmul, "-k", "no_such_kernel"))
    yield Case(("analyze", matmul, "-m", "smm"))
    yield Case(("whatif", matmul, "--gpu", "h100", "--set", "clock.bost_mhz=1"))


def run_case(case: Case) -> str:
    """Return exit code, standard output and standard error of one command line."""
    from analyzer.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(list(case.arguments))
        except SystemExit as stop:
            code = int(stop.code or 0)
    printed = _FINGERPRINT.sub("", out.getvalue())
    return f"$ warplens {' '.join(case.arguments)}\nexit {code}\n{printed}\n--- stderr\n{err.getvalue()}"


def _record_case(task: tuple[Case, Path]) -> None:
    case, folder = task
    (folder / case.file_name).write_text(run_case(case), encoding="utf-8")


def record(folder: Path, jobs: int, every: int) -> None:
    """Run every case, or each `every`-th, with the code that `import analyzer` finds."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    tasks = [(case, folder) for case in make_cases()][::every]
    with ProcessPoolExecutor(jobs) as pool:  # not a Pool: analyze may share big inputs among processes itself
        for number, _ in enumerate(pool.map(_record_case, tasks), 1):
            if number % 50 == 0:
                print(f"{number} of {len(tasks)}", file=sys.stderr, flush=True)


def record_tree(tree: Path, folder: Path, jobs: int, every: int) -> None:
    """Run every case with the code of a tree, in a process of its own."""
    command = [sys.executable, __file__, "record", str(folder), "--jobs", str(jobs), "--every", str(every)]
    with tempfile.TemporaryDirectory() as scratch:
        write_entry_points(tree, Path(scratch))
        paths = f"{tree}{os.pathsep}{scratch}"
        environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment)


def write_entry_points(tree: Path, folder: Path) -> None:
    """Write the entry points of a tree as if it were installed: those that are may be of another commit."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def list_differences(old: Path, new: Path, every: int) -> list[str]:
    """Return a line for each case whose records differ."""
    lines: list[str] = []
    for case in list(make_cases())[::every]:
        before, after = (folder / case.file_name for folder in (old, new))
        if before.read_bytes() != after.read_bytes():
            lines.append(f"{case.file_name}  {' '.join(case.arguments)}")
    return lines


def compare(commit: str, jobs: int, every: int, keep: Path | None) -> int:
    """Record a commit and this tree, and print what differs; records stay in `keep`, where it is given."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = keep or Path(scratch)
        old_tree = Path(scratch) / "tree"
        old, new = folder / f"records-{commit}", folder / "records-new"
        if not old.exists():
            subprocess.run(
                ["git", "worktree", "add", "-q", "--detach", old_tree, commit], cwd=ROOT, check=True
            )
            try:
                record_tree(old_tree, old, jobs, every)
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", old_tree], cwd=ROOT, check=True)
        record_tree(ROOT, new, jobs, every)
        lines = list_differences(old, new, every)
        count = len(list(make_cases())[::every])
    print("\n".join([*lines, f"{len(lines)} of {count} cases differ"]))
    return 1 if lines else 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--tree", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("commit")
    comparing.add_argument("--keep", type=Path, help="folder of records; those of COMMIT are made once")
    for command in (recording, comparing):
        command.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        command.add_argument("--every", type=int, default=1, help="only each N-th case")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compare(arguments.commit, arguments.jobs, arguments.every, arguments.keep)
    if arguments.tree:
        record_tree(arguments.tree, arguments.folder.resolve(), arguments.jobs, arguments.every)
    else:
        record(arguments.folder.resolve(), arguments.jobs, arguments.every)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
