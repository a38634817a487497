"""Measure time and memory of warplens as ratios to `cuobjdump -sass` of the same cubin, in one run.

    python bench/speed.py BIG.cubin          # a million instructions or more
    python bench/speed.py --small            # first output on a small shipped dump

Each row is a run of its own; of several rounds the one with least processor time counts. Prints a table.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from analyzer.frontend.cuda_tools import find_tool

ROOT = Path(__file__).resolve().parents[1]
SMALL = ROOT / "traces" / "triton" / "sm_90" / "matmul.sass"
_PARSE_SCRIPT = (
    "import sys, analyzer\n"
    "program = analyzer.load(sys.argv[1])\n"
    "print(sum(len(k) for k in program.kernels),"
    " sum(len(k.cfg.blocks) for k in program.kernels),"
    " sum(sum(k.mix.counts_by_opcode.values()) for k in program.kernels))\n"
)
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class CommandCost:
    """Time and memory of one process."""

    processor_s: float  # user and system time, children included
    wall_s: float
    peak_mib: float  # largest resident set


def measure_command(command: list[str], output: Path) -> CommandCost:
    """Run a command to its end, its standard output in a file. Raises RuntimeError if it fails."""
    started = time.perf_counter()
    with output.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.DEVNULL, env=_ENVIRONMENT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {process.returncode}")
    wall_s = time.perf_counter() - started
    return CommandCost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1024)


def measure_best_costs(commands: dict[str, list[str]], output: Path, rounds: int) -> dict[str, CommandCost]:
    """Return, for each command, the cost of the round with the least processor time.

    Commands alternate within a round, because the speed of the machine changes over time.
    """
    costs = [
        {name: measure_command(command, output) for name, command in commands.items()} for _ in range(rounds)
    ]
    return {name: min((cost[name] for cost in costs), key=lambda cost: cost.processor_s) for name in commands}


def make_comparison_table(cubin: Path, rounds: int) -> Table:
    """Measure cuobjdump, parsing to CFG and mix, and the whole `analyze` on one cubin."""
    tool = find_tool("cuobjdump")
    if tool is None:
        raise SystemExit("cuobjdump not found: put CUDA's bin folder on PATH")
    warplens = [sys.executable, "-m", "analyzer", "analyze"]
    disassemble = [str(tool.path), "-sass", str(cubin)]
    with tempfile.TemporaryDirectory() as folder:
        dump, sink = Path(folder) / "dump.sass", Path(folder) / "out"
        measure_command(disassemble, dump)
        alone = [*warplens, str(dump), "--jobs", "1"]
        commands = {
            "cuobjdump -sass": disassemble,
            "parse to CFG and mix": [sys.executable, "-c", _PARSE_SCRIPT, str(dump)],
            "warplens analyze --jobs 1": alone,
            "warplens analyze --jobs 1 --format json": [*alone, "--format", "json"],
            "warplens analyze": [*warplens, str(dump)],
        }
        rows = measure_best_costs(commands, sink, rounds)
        with dump.open("rb") as text:
            instructions = sum(b"*/" in line[:20] and b";" in line for line in text)
    base = rows["cuobjdump -sass"]
    table = Table(title=f"{cubin.name}: {instructions:,} instructions, {os.cpu_count()} cores")
    for name in ("", "processor s", "ratio", "wall s", "ratio ", "peak MiB", "ratio  "):
        table.add_column(name, justify="left" if not name else "right")
    for name, cost in rows.items():
        table.add_row(
            name,
            f"{cost.processor_s:.2f}",
            f"{cost.processor_s / base.processor_s:.2f}",
            f"{cost.wall_s:.2f}",
            f"{cost.wall_s / base.wall_s:.2f}",
            f"{cost.peak_mib:,.0f}",
            f"{cost.peak_mib / base.peak_mib:.2f}",
        )
    return table


def make_small_table(rounds: int) -> Table:
    """Measure the time until the report of a small dump is complete, beside the bare interpreter."""
    table = Table(title=f"first output, {SMALL.relative_to(ROOT)}")
    for name in ("", "wall s", "processor s"):
        table.add_column(name, justify="left" if not name else "right")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "warplens --version": [sys.executable, "-m", "analyzer", "--version"],
        "warplens analyze": [sys.executable, "-m", "analyzer", "analyze", str(SMALL), "--gpu", "h100"],
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands.items():
            costs = [measure_command(command, Path(folder) / "out") for _ in range(rounds)]
            wall = min(cost.wall_s for cost in costs)
            table.add_row(name, f"{wall:.3f}", f"{min(cost.processor_s for cost in costs):.3f}")
    return table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cubin", nargs="?", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.small:
        Console().print(make_small_table(max(5, arguments.rounds)))
    if arguments.cubin:
        Console().print(make_comparison_table(arguments.cubin, arguments.rounds))


if __name__ == "__main__":
    main()
