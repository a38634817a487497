"""Build the measured kernels and the table that `warplens validate` reads.

    python bench/kernels/build.py [--suite S ...] [--jobs 2] [--gpu G]

Each distinct (recipe, architecture) is compiled once into built/<suite>/<arch>/; dumps that are up to date
are kept. Then built/cases.csv is written anew from all dumps.
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.compiling import (
    BUILT,
    CompileFailure,
    CompileUnit,
    compile_unit,
    find_dump_path,
    find_stale_dumps,
    is_built,
    make_unit,
)
from kernels.recipes import (
    MeasuredRow,
    Recipe,
    TableError,
    format_dim3,
    list_suites,
    load_rows,
    make_recipes,
    read_compiler_dependent_cases,
)
from kernels.splitting import read_split, write_split
from kernels.sweeps import read_sweep_rows

COLUMNS = (
    *(
        "case",
        "suite",
        "dump",
        "kernel",
        "gpu",
        "grid",
        "block",
        "cluster",
        "dynamic_shared_bytes",
        "arguments",
    ),
    *("time_us", "split", "l2", "clock_mhz", "group", "counted", "config", "note"),
)
CASES = BUILT / "cases.csv"
TUNABLE_SUITES = (
    "convolution",
    "convolution_sweep",
    "convolution_milo_15",
    "convolution_milo_17",
    "dedispersion_milo",
)
# Suites that flush caches before each launch, or rotate inputs.
COLD_CACHE_SUITES = ("mma_matmul", "learn_cuda_sm80")
# Clocks that are not those of lasting work. One is locked. fast.cu lets the GPU rest for five seconds before
# it launches a kernel eight times in a row (matmul.cu): products keep an H100 at 1,600 MHz for 20 ms at first
# (`clock.launch_tensor_mhz` in hwdb/gpu/h100-sxm.toml, from traces/h100).
STATED_CLOCKS_MHZ = {"mma_matmul": 2520, "fast_cu_article": 1600}
_MAX_SHOWN_FAILURES = 3


def main() -> None:
    """Build the dumps, write the table, print a summary."""
    arguments = _parse_arguments()
    console = Console()
    rows = (*load_rows(), *read_sweep_rows())
    write_split(rows)
    pairs = list(make_recipes(rows, arguments.suite))
    if arguments.gpu:
        pairs = [(row, recipe) for row, recipe in pairs if arguments.gpu in (row.gpu, row.gpu_key)]
    units = list(dict.fromkeys(make_unit(row, recipe) for row, recipe in pairs))
    failures = compile_units([unit for unit in units if not is_built(unit)], arguments.jobs, console)
    if not arguments.gpu:
        for path in find_stale_dumps(units, arguments.suite or list_suites()):
            path.unlink()
            path.with_suffix(".res").unlink(missing_ok=True)
    written = write_cases(rows)
    console.print(f"{len(units) - len(failures)} of {len(units)} dumps built; {written} rows in {CASES}")
    for failure in failures[:_MAX_SHOWN_FAILURES]:
        console.print(f"[red]failed:[/] {failure.message}", highlight=False)
    if failures:
        sys.exit(1)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--suite", action="append", choices=list_suites(), default=[], help="all, if not given"
    )
    parser.add_argument("--gpu", help="rows of this GPU only")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def compile_units(units: Sequence[CompileUnit], jobs: int, console: Console) -> list[CompileFailure]:
    """Compile units in parallel and return those that failed."""
    failures = []
    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ThreadPoolExecutor(jobs) as pool, Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(units))
        for done in as_completed([pool.submit(compile_unit, unit) for unit in units]):
            failure = done.result()
            failures += [failure] if failure else []
            progress.advance(task)
    return failures


def write_cases(rows: Sequence[MeasuredRow]) -> int:
    """Write built/cases.csv, the rows whose dump is built, and return their number."""
    lines = list(_make_cases(rows))
    BUILT.mkdir(exist_ok=True)
    with CASES.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return len(lines)


def _make_cases(rows: Sequence[MeasuredRow]) -> Iterator[dict[str, object]]:
    split = read_split()
    for row, recipe in make_recipes(rows):
        unit = make_unit(row, recipe)
        if is_built(unit):
            yield make_case(row, recipe, find_dump_path(unit), split[row.case])


def make_case(row: MeasuredRow, recipe: Recipe, dump: Path, side: str) -> dict[str, object]:
    """Return a row of the table, its half being `side`; buffers that it names are written beside the dump."""
    return {
        "case": row.case,
        "suite": row.suite,
        "dump": dump.relative_to(BUILT),
        "kernel": recipe.kernel,
        "gpu": row.gpu_key,
        "grid": format_dim3(row.grid),
        "block": format_dim3(row.block),
        "cluster": format_dim3(row.cluster),
        "dynamic_shared_bytes": row.dynamic_shared_bytes,
        "arguments": json.dumps([_make_argument(value) for value in _write_buffers(row, recipe, dump)]),
        "time_us": row.time_us,
        "split": side,
        "l2": "cold" if row.suite in COLD_CACHE_SUITES else "warm",
        "clock_mhz": STATED_CLOCKS_MHZ.get(row.suite, ""),
        "group": f"{row.suite}/{row.gpu_key}" if row.suite in TUNABLE_SUITES else "",
        "counted": "yes" if is_scored(row) else "no",
        "config": json.dumps(row.config),
        "note": row.note,
    }


def _write_buffers(row: MeasuredRow, recipe: Recipe, dump: Path) -> list[int | float | str]:
    """Return a row's arguments; buffers that its recipe fills are written beside the dump."""
    arguments = list(row.arguments)
    for place, contents in recipe.buffers.items():
        path = dump.with_name(f"{dump.stem}.{place}.npy")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, contents)
        arguments[place] = f"@{path.relative_to(BUILT)}"
    return arguments


def _make_argument(value: int | float | str) -> int | float | str:
    """Replace named buffers of the table by zeros: all of them held zeros when times were measured."""
    is_filled = isinstance(value, str) and value.startswith("@") and not value.endswith(".npy")
    return "zeros" if is_filled else value


def is_scored(row: MeasuredRow) -> bool:
    """Return whether a row counts in the accuracy: the measured code did the work of our dump."""
    is_doubtful = row.suite == "convolution_milo_15" and row.gpu.startswith("A100")
    return not is_doubtful and "suspect" not in row.note and row.case not in read_compiler_dependent_cases()


if __name__ == "__main__":
    try:
        main()
    except TableError as error:
        sys.exit(f"error: {error}")
