"""Compare predictions without control words to those with them: `python bench/no_control.py [PART ...]`.

Every kernel of the shipped dumps is predicted twice from the same counts: as it stands, and with its control
words removed, as plain `nvdisasm -c` prints it. The launches are those of `bench/replay/launches.json` and of
`traces/measured/cases.csv`. A row is the change of the cycles, and the part of the CPI stack that differs.

A PART limits the dumps to those whose path contains it; `--model NAME` asks another model than `sm`.
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.execution.binding.launch_file import load_launch_file
from analyzer.hardware.gpu_selection import find_gpus, find_typical_gpus
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import find_model
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import Program, load
from analyzer.pipeline.options import Options
from analyzer.text.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
LAUNCHES = ROOT / "bench" / "replay" / "launches.json"
INPUT_SUFFIXES = frozenset({".sass", ".cubin", ".txt"})
TOLERANCE = 0.1


class Row(Struct, frozen=True):
    """One launch, predicted with and without control words."""

    name: str
    cycles: float
    cycles_without: float
    stack_difference: float  # half the sum of differences between shares of the two stacks

    @property
    def change(self) -> float:
        """Relative change of the cycles."""
        return self.cycles_without / self.cycles - 1.0


def find_dumps(parts: list[str]) -> list[Path]:
    """Return the shipped inputs that have control words, sorted."""
    paths = sorted(path for path in (ROOT / "traces").rglob("*") if path.suffix in INPUT_SUFFIXES)
    return [path for path in paths if not parts or any(part in str(path) for part in parts)]


def make_options(dump: Path) -> tuple[Options, str | None]:
    """Return the options of a dump's launches and its GPU, None for the typical one."""
    measured = ROOT / "traces" / "measured"
    if measured not in dump.parents:
        return Options(launch_table=load_launch_file(LAUNCHES)), None
    with (measured / "cases.csv").open(newline="", encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if measured / row["dump"] == dump)
    grid, block = (Dim3(*map(int, row[column].split(";"))) for column in ("grid", "block"))
    arguments = (f"{place}={value}" for place, value in enumerate(json.loads(row["arguments"])))
    launch = Launch(
        grid=grid,
        block=block,
        dynamic_shared_bytes=int(row["dynamic_shared_bytes"] or 0),
        arguments=tuple(map(parse_argument, arguments)),
        clock_mhz=float(row["clock_mhz"]) if row["clock_mhz"] else None,
        l2_is_cold=row["l2"] == "cold",
    )
    return Options(kernels=(row["kernel"],), launch=launch), row["gpu"]


def compare_dump(dump: Path, model: str) -> Iterator[Row]:
    """Yield a row for each launch of the kernels of a dump."""
    program = load(str(dump))
    options, gpu_name = make_options(dump)
    try:
        yield from compare_kernels(dump, program, options, gpu_name, model)
    except UsageError:  # the launch file has arguments of another kernel of this name
        yield from compare_kernels(dump, program, Options(), gpu_name, model)


def compare_kernels(
    dump: Path, program: Program, options: Options, gpu_name: str | None, model: str
) -> Iterator[Row]:
    """Yield a row for each launch of the kernels of a program."""
    kernel_analyzer = KernelAnalyzer(options, len(program))
    for loaded in program.kernels:
        if loaded.kernel.control_words is None or loaded.traces:
            continue
        if options.kernels and options.kernels[0] not in loaded.name:
            continue
        gpu = (find_gpus(gpu_name) or find_typical_gpus(loaded.kernel.arch))[0]
        for number, counted in enumerate(kernel_analyzer.count_launches(loaded)):
            model_input = bind_to_gpu(counted, gpu)
            stripped = bind_to_gpu(strip_control_words(counted), gpu)
            if isinstance(model_input, Refusal) or isinstance(stripped, Refusal):
                continue
            name = f"{dump.relative_to(ROOT / 'traces')} {loaded.name} {number}"
            yield make_row(name, find_model(model)(model_input), find_model(model)(stripped))


def strip_control_words(counted: CountedLaunch) -> CountedLaunch:
    """Return a launch of the same code without control words."""
    bare = replace(counted.loaded.kernel, control_words=None)
    return replace(counted, loaded=replace(counted.loaded, kernel=bare))


def make_row(name: str, found: ModelResult, without: ModelResult) -> Row:
    """Compare two results."""
    shares = []
    for result in (found, without):
        stack = result.prediction.cpi_stack
        shares.append({stall: cycles / result.prediction.cycles for stall, cycles in stack.items()})
    one, other = shares
    difference = sum(abs(one.get(stall, 0.0) - other.get(stall, 0.0)) for stall in one | other) / 2.0
    return Row(name, found.prediction.cycles, without.prediction.cycles, difference)


def main() -> int:
    """Print the rows, largest change last, and how they are distributed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--model", default="sm")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for dump in find_dumps(arguments.parts):
        rows += compare_dump(dump, arguments.model)
        print(f"{dump.name}: {len(rows)} rows", file=sys.stderr)
    for row in sorted(rows, key=lambda row: abs(row.change)):
        print(f"{row.change:+8.1%} {row.cycles:14,.0f} stack {row.stack_difference:6.1%}  {row.name}")
    changes = np.abs([row.change for row in rows])
    stacks = np.array([row.stack_difference for row in rows])
    for title, values in (("cycles", changes), ("stack", stacks)):
        quantiles = " ".join(f"{q}%: {np.percentile(values, q):.1%}" for q in (50, 75, 90, 95, 99, 100))
        within = np.count_nonzero(values <= TOLERANCE)
        print(f"{title}: {within} of {len(rows)} within {TOLERANCE:.0%}; quantiles {quantiles}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
