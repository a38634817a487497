"""Gather all measured launches as one table by suite, and score `sm` on them or on a sample.

    python bench/suites.py [--sample] [--suite GLOB ...] [--jobs 1] [--keep FILE.json] [--against FILE.json]

Suites: the judging half of bench/kernels, the kernels of bench/gemm, volta, attention, blackwell, of
traces/h100 and traces/h200 (warm launches), and the fused-MoE kernel of published lists (bench/moe_times.py).
`--sample` takes so many rows of each suite and GPU by a hash of their names. `--keep` writes the predicted
and measured times; `--against` compares with kept ones, row by row.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from zlib import crc32

import attention
import blackwell
import gemm
import moe_times
import numpy as np
import volta
from groundtruth import times
from groundtruth.guests import read_packages, read_suites
from groundtruth.launch_table import write_launches
from groundtruth.records import CODE, GPU, H200, MeasuredLaunch, read_launches
from groundtruth.sweep import SHAPES, make_sweep_launches, select_sweep_rows
from groundtruth.sweep import compile_rows as compile_sweep
from kernels.build import make_case
from kernels.compiling import BUILT, find_dump_path, make_unit
from kernels.recipes import load_rows, make_recipes
from kernels.splitting import read_split
from kernels.sweeps import read_sweep_rows
from markdown import render_table
from predictions import compile_rows, write_launch_rows
from running import run_main

import analyzer

Row = Mapping[str, object]  # of a table of `warplens validate`, with an absolute path of its dump
_SAMPLE_ROWS = 20  # of a suite on a GPU
_TRITON = Path("/tmp/tvenv/bin/python")


def list_rows(patterns: Sequence[str], count: int | None, jobs: int) -> list[Row]:
    """Return the rows of all suites that a glob names, so many of each suite and GPU, by a hash."""
    sources: dict[str, Callable[[], Iterator[Row]]] = {
        "kernels": _list_kernels,
        "gemm": partial(_list_made, "gemm", gemm.list_rows),
        "volta": partial(
            _list_made, "volta", lambda: [row.columns for row in volta.load_measured_launches()]
        ),
        "attention": partial(_list_made, "attention", attention.list_rows),
        "blackwell": _list_blackwell,
        "h100": _list_h100,
        "h200": _list_h200,
        "moe": partial(moe_times.list_rows, count),
    }
    found: list[Row] = []
    for name, read in sources.items():
        wanted = [pattern for pattern in patterns if pattern.split("/")[0] in (name, "*")]
        if patterns and not wanted:
            continue
        groups: dict[tuple[object, object], list[Row]] = defaultdict(list)
        for row in read():
            suite = f"{name}/{row['suite']}"
            if not patterns or any(fnmatchcase(suite, pattern) for pattern in wanted):
                groups[suite, row["gpu"]].append({**row, "suite": suite})
        for rows in groups.values():
            found += sorted(rows, key=lambda row: crc32(str(row["case"]).encode()))[:count]
    return list(compile_rows(found, jobs))


def _list_kernels() -> Iterator[Row]:
    split = read_split()
    for row, recipe in make_recipes((*load_rows(), *read_sweep_rows())):
        unit = make_unit(row, recipe)
        case = make_case(row, recipe, find_dump_path(unit), split[row.case])
        if case["split"] == "judge" and case["counted"] != "no":
            yield {**case, "dump": str(find_dump_path(unit)), "unit": unit}


def _list_made(suite: str, make: Callable[[], Sequence[Row]]) -> Iterator[Row]:
    for row in make():
        yield {"suite": suite, **row, "dump": str(BUILT / str(row["dump"]))}


def _list_blackwell() -> Iterator[Row]:
    """Yield the rows of the tables of products, copies and main loops, each a suite."""
    for row in _list_made("", lambda: list(map(blackwell.make_columns, blackwell.list_rows()))):
        yield {**row, "suite": row["kernel"]}


def _list_h100() -> Iterator[Row]:
    rows = select_sweep_rows(SHAPES)
    compile_sweep(rows, _TRITON)
    return _list_launches(GPU, [*read_launches(), *make_sweep_launches(rows)])


def _list_h200() -> Iterator[Row]:
    guests = read_suites()
    units = {str(launch.cubin): unit for launch, unit in guests}
    launches = [*read_launches(H200), *(launch for launch, _ in guests), *read_packages()]
    for row in _list_launches(H200, launches):
        yield {**row, "unit": units.get(str(row["dump"]))}


def _list_launches(gpu: str, launches: Sequence[MeasuredLaunch]) -> Iterator[Row]:
    table = CODE / f"all-{gpu}.csv"
    write_launches(table, launches, times.compute_event_overhead_us(gpu))
    with table.open(newline="", encoding="utf-8") as file:
        yield from (row for row in csv.DictReader(file) if row["l2"] == "warm" and row["counted"] == "yes")


def predict(rows: Sequence[Row], jobs: int) -> dict[str, dict[str, object]]:
    """Return what `sm` says of the rows, by suite, GPU and case."""
    table = BUILT / f"suites-{crc32(json.dumps(rows, default=str).encode()):08x}.csv"
    write_launch_rows(table, rows)
    report = analyzer.validate(table, models=("sm",), jobs=jobs, cache=BUILT / "validate")
    return {
        f"{case.suite} {case.gpu} {case.case}": {
            "suite": case.suite,
            "gpu": case.gpu,
            "time_us": case.time_us,
            "predicted_us": found.time_us,
            "low_us": found.time_us_low,
            "high_us": found.time_us_high,
            "bound": found.bound,
        }
        for case in report.cases
        for found in case.predictions
        if found.model == "sm"
    }


def render_scores(
    answers: Mapping[str, Mapping[str, object]], before: Mapping[str, Mapping[str, object]]
) -> str:
    """Render errors by suite and GPU, beside those of kept answers to the same rows."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key, one in answers.items():
        for name in ("all", f"{one['suite']} {one['gpu']}"):
            groups[name].append(key)
    lines = []
    for name, keys in groups.items():
        same = [key for key in keys if key in before]
        old = _score([before[key] for key in same])[1:] if same else ("", "", "", "")
        lines.append((name, *_score([answers[key] for key in keys]), *old))
    columns = ("suite", "rows", "MAPE", "median", "bias", "inside")
    return render_table((*columns, "MAPE before", "median", "bias", "inside"), lines)


def _score(rows: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    measured, predicted, low, high = (
        np.array([float(str(row[key])) for row in rows])
        for key in ("time_us", "predicted_us", "low_us", "high_us")
    )
    ratios = predicted / measured
    errors = np.abs(ratios - 1)
    inside = ((low <= measured) & (measured <= high)).mean()
    return (
        *(str(len(rows)), f"{errors.mean():.1%}", f"{np.median(errors):.1%}"),
        *(f"{np.exp(np.log(ratios).mean()):.2f}", f"{inside:.0%}"),
    )


def main() -> None:
    """Score the rows and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", nargs="?", type=int, const=_SAMPLE_ROWS)
    parser.add_argument(
        "--suite", action="append", default=[], help="a glob such as kernels/report16 or h100/*"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--worst", type=int, default=0)
    given = parser.parse_args()
    answers = predict(list_rows(given.suite, given.sample, given.jobs), given.jobs)
    if given.keep:
        given.keep.write_text(json.dumps(answers, indent=1), encoding="utf-8")
    before = json.loads(given.against.read_text()) if given.against else {}
    print(render_scores(answers, before))
    ranked = sorted(answers.items(), key=lambda item: -abs(np.log(_ratio(item[1]))))
    for key, one in ranked[: given.worst]:
        print(f"{_ratio(one):.2f} {one['time_us']:>10.4g} us  {one['bound']}  {key}")


def _ratio(one: Mapping[str, object]) -> float:
    return float(str(one["predicted_us"])) / float(str(one["time_us"]))


if __name__ == "__main__":
    run_main(main)
