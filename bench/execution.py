"""Time abstract execution: a whole `warplens analyze` against the same run without a launch.

    python bench/execution.py [--rounds 5] [--mixed]

Each row is a process of its own, from start to finished JSON; the best of several rounds counts. Prints
seconds, and the ratio to a smaller run of the same kernel in the same session (for the matrix multiply, to
the run that only parses and analyzes the dump).

With `--mixed`: processor time in one process, its start and imports left out, of the 27 launches of
traces/measured and the first thirteen of Triton's kernels in bench/laws.csv. Prints the median and the
launches that take longer than .3 s.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from csv import DictReader
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from laws import LawCase, read_cases, read_sizes
from rich.console import Console
from rich.table import Table

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Launch
from analyzer.pipeline import Options

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "traces"
# As for an installed package, byte code is kept.
_INHERITED_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
_ENVIRONMENT = {**_INHERITED_ENVIRONMENT, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_CUBE_ARGUMENTS = [f"--arg={place}=4096" for place in range(3, 9)]
# Dumps of 4096 x 4096 x 4096 matrix products, and CTAs of each: tiles of 128 x 64, then larger and smaller.
_MATMULS = {
    "sm_80/matmul": 2048,
    "sm_89/matmul": 2048,
    "sm_90/matmul": 2048,
    "sm_100/matmul": 2048,
    "sm_120/matmul": 2048,
    "sm_80/matmul_square_tile": 1024,
    "sm_80/matmul_large_tile": 512,
    "sm_90/matmul_large_tile": 512,
    "sm_80/matmul_one_stage": 4096,
    "sm_120/matmul_one_stage": 4096,
    "sm_80/matmul_four_stages": 16384,
}
_BLOCK_THREADS = 256
_N_MIXED, _LONG_SECONDS = 40, 0.3


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One command line of `warplens analyze`."""

    name: str
    arguments: tuple[str, ...]
    base: str = ""  # name of the run that its time is divided by


def make_runs() -> list[CommandRun]:
    """Build the runs, each after the one that it is compared with."""
    rows = []
    for name, ctas in _MATMULS.items():
        dump = str(TRACES / "triton" / f"{name}.sass")
        alone = CommandRun(f"{name}, no launch", (dump,))
        rows += [alone, CommandRun(f"{name} 4096^3", (dump, f"--grid={ctas}", *_CUBE_ARGUMENTS), alone.name)]
    report16 = str(TRACES / "cuda" / "sm_80" / "report16.sass")
    exactness = str(TRACES / "cuda" / "sm_80" / "exactness.sass")
    for kernel, dump, place in (("vector_add", report16, 3), ("naive_transpose", report16, 2)):
        for ctas in (1_000, 1_000_000):
            rows.append(_make_sized_run(kernel, dump, place, ctas))
    for trips in (100, 1_000_000):
        rows.append(
            CommandRun(
                f"row sums, {trips:,} trips",
                (
                    exactness,
                    "-k",
                    "row_sums_64",
                    "--grid=1000",
                    "--block=256",
                    "--arg=2=256000",
                    f"--arg=3={trips}",
                ),
                "row sums, 100 trips" if trips > 100 else "",
            )
        )
    return rows


def _make_sized_run(kernel: str, dump: str, place: int, ctas: int) -> CommandRun:
    base = f"{kernel}, 1,000 CTAs" if ctas > 1_000 else ""
    sizes = [f"--arg={place}={ctas * _BLOCK_THREADS - 77}"]
    shape = [f"--grid={ctas}", f"--block={_BLOCK_THREADS}"]
    if kernel == "naive_transpose":  # 2-D: rows, columns
        side = 32 if ctas == 1_000 else 1_000
        sizes = [f"--arg=2={side * 8 - 3}", f"--arg=3={ctas // side * 32 - 5}"]
        shape = [f"--grid={ctas // side},{side}", "--block=32,8"]
    return CommandRun(f"{kernel}, {ctas:,} CTAs", (dump, "-k", kernel, *shape, *sizes), base)


def measure_seconds(run: CommandRun, rounds: int) -> float:
    """Return the least wall time of several processes. Raises RuntimeError if one fails."""
    return measure_best_seconds(
        [sys.executable, "-m", "analyzer", "analyze", *run.arguments, "--format", "json"], rounds
    )


def measure_best_seconds(command: list[str], rounds: int) -> float:
    """Return the least wall time of several runs of a command. Raises RuntimeError if one fails."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env=_ENVIRONMENT, capture_output=True, text=True, check=False
        )
        best = min(best, time.perf_counter() - started)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return best


def list_mixed_launches() -> list[LawCase]:
    """Return forty launches: those of traces/measured, then of Triton's kernels."""
    with (TRACES / "measured" / "cases.csv").open(encoding="utf-8") as file:
        measured = [_read_measured(row) for row in DictReader(file)]
    triton = [case for case in read_cases() if "triton" in case.dump.parts]
    return [*measured, *triton][:_N_MIXED]


def _read_measured(row: dict[str, str]) -> LawCase:
    arguments = enumerate(json.loads(row["arguments"]))
    dynamic = row["dynamic_shared_bytes"]
    launch = Launch(
        grid=read_sizes(row["grid"]),
        block=read_sizes(row["block"]),
        dynamic_shared_bytes=int(dynamic) if dynamic else None,
        arguments=tuple(parse_argument(f"{place}={value}") for place, value in arguments),
    )
    dump = TRACES / "measured" / row["dump"]
    return LawCase(name=row["case"], dump=dump, kernel=row["kernel"], gpu=row["gpu"], launch=launch)


def measure_mixed_launches() -> dict[str, float]:
    """Return the processor time of each analysis, with all modules and hardware files loaded, in seconds."""
    launches = list_mixed_launches()
    _measure_analysis(launches[0])
    return {case.name: _measure_analysis(case) for case in launches}


def _measure_analysis(case: LawCase) -> float:
    started = time.process_time()
    analyzer.analyze(str(case.dump), case.gpu, options=Options(launch=case.launch, kernels=(case.kernel,)))
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mixed", action="store_true")
    given = parser.parse_args()
    if given.mixed:
        seconds = measure_mixed_launches()
        print(
            f"{len(seconds)} launches, median {median(seconds.values()):.2f} s; "
            f"longer than {_LONG_SECONDS} s:"
        )
        for name, taken in sorted(seconds.items(), key=lambda one: -one[1]):
            if taken > _LONG_SECONDS:
                print(f"  {taken:.2f} {name}")
        return
    rounds = given.rounds
    table = Table("run", "seconds", "ratio", title="abstract execution, whole process")
    for code in ("pass", "import numpy"):  # how fast the machine is now
        bare = measure_best_seconds([sys.executable, "-c", code], 5 * rounds)
        table.add_row(f"python -c '{code}'", f"{bare:.3f}", "")
    measured: dict[str, float] = {}
    for run in make_runs():
        measured[run.name] = measure_seconds(run, rounds)
        ratio = f"{measured[run.name] / measured[run.base]:.2f}" if run.base else ""
        table.add_row(run.name, f"{measured[run.name]:.2f}", ratio)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
