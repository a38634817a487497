"""Measure how fast traces are read, in lines and bytes per second; the trace is written first.

    python bench/trace_speed.py                  # a matrix product, some 200,000 instructions
    python bench/trace_speed.py kernel-1.traceg  # one of yours

Prints a table; the best of several rounds counts, on one thread.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

import analyzer
from analyzer.execution.traces.trace_profile import build_trace_profile
from analyzer.flow.cfg import build_cfg
from analyzer.frontend.trace_files import load_traces
from analyzer.frontend.trace_module import build_trace_module
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.pipeline.trace_generation import trace_kernel
from analyzer.render.traceg import render_traceg

ROOT = Path(__file__).resolve().parents[1]
DUMP = ROOT / "traces" / "cuda" / "sm_80" / "report16.sass"
LAUNCH = Launch(grid=Dim3(8, 8), block=Dim3(16, 16), arguments=(Argument(3, 128),))


def measure_best_seconds(task: Callable[[], object], rounds: int) -> float:
    """Return the time of the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        task()
        best = min(best, time.perf_counter() - start)
    return best


def make_speed_table(path: Path, rounds: int, *, write: Callable[[], object] | None = None) -> Table:
    """Time reading a trace and building its profile; write: the task that made the trace, timed too."""
    (trace, *_) = load_traces(str(path))
    lines, size = len(trace), path.stat().st_size
    cfg = build_cfg(build_trace_module(str(path), [trace]).kernels[0])
    tasks: dict[str, Callable[[], object]] = {
        "read": lambda: load_traces(str(path)),
        "count and measure": lambda: build_trace_profile(trace, cfg),
    }
    if write is not None:
        tasks = {"execute and write": write, **tasks}
    table = Table(title=f"{path.name}: {lines:,} instructions, {size / 1e6:.1f} MB")
    for name in ("", "s", "million lines/s", "MB/s"):
        table.add_column(name, justify="right" if name else "left")
    for name, task in tasks.items():
        seconds = measure_best_seconds(task, rounds)
        table.add_row(name, f"{seconds:.2f}", f"{lines / seconds / 1e6:.2f}", f"{size / seconds / 1e6:.0f}")
    return table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.trace:
        Console().print(make_speed_table(arguments.trace, arguments.rounds))
        return
    program = analyzer.load(str(DUMP))
    options = analyzer.Options(kernels=("matmul_tiled",), launch=LAUNCH)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "matmul_tiled.traceg"

        def write() -> None:
            with path.open("w", encoding="utf-8") as file:
                file.writelines(render_traceg(trace_kernel([program], options).trace))

        write()
        Console().print(make_speed_table(path, arguments.rounds, write=write))


if __name__ == "__main__":
    main()
