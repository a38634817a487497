"""Time a stall analysis by model, and one more point of a sweep.

    python bench/stalls.py [DUMP.sass -k KERNEL] [--rounds 5]

Without a dump the largest shipped kernel is taken. Each model is timed on a kernel that has been read and
counted; the fresh analysis is everything from the file on. Prints seconds of one process, best of the rounds,
and ratios to the fresh analysis.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import analyzer
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_arch, load_gpu
from analyzer.hardware.parameter_edits import ParameterSetting, with_settings
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.registry import find_model, list_models
from analyzer.pipeline import Options, Program
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import LoadedKernel

TRACES = Path(__file__).resolve().parents[1] / "traces"
_GRID, _BLOCK = Dim3(1024), Dim3(256)
_SWEEP_SETTINGS = (ParameterSetting("memory.bandwidth_gbps", 2.0, is_factor=True),)


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A row of the table: a piece of work and its time."""

    name: str
    seconds: float


def find_largest_kernel() -> tuple[Path, str]:
    """Return the shipped dump and kernel with the most instructions."""
    found = []
    for path in sorted(TRACES.glob("*/sm_*/*.sass")):
        program = analyzer.load(str(path))
        found += [(len(loaded.kernel), str(path), loaded.kernel.name) for loaded in program.kernels]
    _, path_text, name = max(found)
    return Path(path_text), name


def measure_best_seconds(rounds: int, work: Callable[[], Any]) -> float:
    """Return the least time of several runs."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def load_kernel(path: Path, name: str) -> tuple[Program, LoadedKernel]:
    """Load a dump anew; return the program and one of its kernels."""
    program = analyzer.load(str(path))
    return program, program[name]


def count_kernel(path: Path, name: str) -> CountedLaunch:
    """Execute a launch of many CTAs and return its counts."""
    options = Options(launch=Launch(grid=_GRID, block=_BLOCK))
    return next(iter(KernelAnalyzer(options).count_launches(load_kernel(path, name)[1])))


def predict_sweep_point(counted: CountedLaunch, gpu: Gpu, model: str) -> None:
    """Predict one point of a sweep: an edited GPU, the same counts."""
    model_input = bind_to_gpu(counted, with_settings(gpu, _SWEEP_SETTINGS))
    assert not isinstance(model_input, Refusal)
    find_model(model)(model_input)


def measure_rows(path: Path, name: str, rounds: int) -> Sequence[TimedRow]:
    """Time a fresh analysis, each model, and a point of a sweep with two models."""
    counted = count_kernel(path, name)
    gpu_name = load_arch(counted.loaded.kernel.arch).typical_gpu
    gpu = load_gpu(gpu_name or "a100")
    model_input = bind_to_gpu(counted, gpu)
    assert not isinstance(model_input, Refusal)

    def fresh() -> None:
        analyzer.analyze(str(path), gpu_name, options=Options(kernels=(name,), launch=counted.launch))

    rows = [TimedRow("fresh analysis, counts included", measure_best_seconds(rounds, fresh))]
    for model in sorted(list_models()):
        rows.append(
            TimedRow(f"model {model}", measure_best_seconds(rounds, partial(find_model(model), model_input)))
        )
    rows.append(
        TimedRow(
            "sweep point, steady",
            measure_best_seconds(rounds, lambda: predict_sweep_point(counted, gpu, "steady")),
        )
    )
    rows.append(
        TimedRow(
            "sweep point, amali",
            measure_best_seconds(rounds, lambda: predict_sweep_point(counted, gpu, "amali")),
        )
    )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dump", nargs="?", type=Path)
    parser.add_argument("-k", "--kernel")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    path, name = (options.dump, options.kernel) if options.dump else find_largest_kernel()
    _, loaded = load_kernel(path, name)
    rows = measure_rows(path, loaded.kernel.name, options.rounds)
    table = Table(title=f"{loaded.kernel.name}, {len(loaded.kernel):,} instructions, {loaded.kernel.arch}")
    table.add_column("work")
    table.add_column("seconds", justify="right")
    table.add_column("ratio", justify="right")
    for row in rows:
        table.add_row(row.name, f"{row.seconds:.3f}", f"{row.seconds / rows[0].seconds:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
