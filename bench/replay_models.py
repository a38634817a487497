"""Predict the rows of docs/left-suite.md again, from launches that were counted once.

    python bench/replay_models.py --count [--suite GLOB ...]     # once, or after a change of what is counted
    python bench/replay_models.py [--model sm] [--suite GLOB ...] [--keep FILE.json] [--against FILE.json]

Rows are those of bench/suites.py, each on its GPU at its clock: the answers "as it is" of
bench/left_suite.py. To execute a launch takes most of the time of an answer and does not depend on models or
figures. So it is kept (bench/counted_launches.py), and what runs here is binding to the GPU and the model.
`PYTHONPATH` says whose code predicts; `--count --again` is needed after changes to frontend, flow, execution
or ir.

`s` is CPU time of binding and model. `--keep` writes the answers; `--against` compares with kept ones and
says how many rows changed.
"""

import analyzer  # first, from PYTHONPATH: modules of the bench put their own checkout before it

# isort: split
import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from counted_launches import COUNTED, Replayed, count_dump, find_path, replay_case
from markdown import render_table
from predictions import write_launch_rows
from running import run_main
from suites import list_rows

from analyzer.evaluation.case_table import Case, read_cases
from analyzer.worker_pool import run_in_processes

ROWS = COUNTED / "rows.csv"
_SAMPLE_ROWS = 12  # of a suite on a GPU
_PROCESSES = 2
_SAME_TIME = 1e-9  # largest relative change of a row that did not change


# ---- counting ----------------------------------------------------------------------------------------


def count_rows(patterns: Sequence[str], sample: int, jobs: int, *, again: bool) -> None:
    """List the rows of suites that a glob names, and count those that are not kept yet."""
    rows = list_rows(patterns, sample, jobs)
    renewed = {row["suite"] for row in rows}
    if ROWS.exists():
        with ROWS.open(newline="", encoding="utf-8") as file:
            rows += [row for row in csv.DictReader(file) if row["suite"] not in renewed]
    COUNTED.mkdir(parents=True, exist_ok=True)
    write_launch_rows(ROWS, rows)
    by_dump: dict[Path, list[Case]] = defaultdict(list)
    for case in read_cases(ROWS):
        if case.suite in renewed and (again or not find_path(case).exists()):
            by_dump[case.dump].append(case)
    tasks = list(by_dump.values())
    for place, (_, messages) in enumerate(run_in_processes(count_dump, tasks, jobs), start=1):
        print(f"\r{place} of {len(tasks)} dumps", end="", file=sys.stderr, flush=True)
        for message in messages:
            print(f"\n{message}", file=sys.stderr)


# ---- predicting --------------------------------------------------------------------------------------


def replay_rows(patterns: Sequence[str], model: str, jobs: int) -> list[Replayed]:
    """Return what a model says of the counted rows of suites that a glob names."""
    cases = [
        case
        for case in read_cases(ROWS)
        if not patterns or any(fnmatchcase(case.suite, pattern) for pattern in patterns)
    ]
    found = [one for _, one in run_in_processes(partial(replay_case, model=model), cases, jobs) if one]
    return sorted(found, key=lambda one: (one.suite, one.gpu, one.case))


# ---- scores ------------------------------------------------------------------------------------------


def render_scores(rows: Sequence[Replayed], before: Sequence[Replayed]) -> str:
    """Render errors by suite and GPU, beside those of kept answers to the same rows."""
    kept = {row.key: row for row in before}
    groups: dict[str, list[Replayed]] = defaultdict(list)
    for row in rows:
        groups[f"{row.suite} {row.gpu}"].append(row)
    columns = ("suite", "rows", "MAPE", "median", "bias", "s")
    lines = [_make_line(name, of_group, kept) for name, of_group in groups.items()]
    lines.append(_make_line("all", rows, kept))
    lines.append(_make_means(rows, kept))
    further = ("MAPE before", "median", "bias", "s", "changed") if kept else ()
    return render_table((*columns, *further), lines)


def _make_line(name: str, rows: Sequence[Replayed], kept: Mapping[str, Replayed]) -> tuple[str, ...]:
    cells = (name, str(len(rows)), *_score(rows))
    if not kept:
        return cells
    same = [row for row in rows if row.key in kept]
    old = [kept[row.key] for row in same]
    changed = sum(
        abs(row.predicted_us / one.predicted_us - 1.0) > _SAME_TIME
        for row, one in zip(same, old, strict=True)
    )
    return (*cells, *(_score(old) if old else ("",) * 4), str(changed + len(rows) - len(same)))


def _score(rows: Sequence[Replayed]) -> tuple[str, ...]:
    errors = [row.error for row in rows]
    bias = np.exp(np.mean([np.log(row.predicted_us / row.measured_us) for row in rows]))
    seconds = sum(row.seconds for row in rows)
    return (f"{np.mean(errors):.2%}", f"{np.median(errors):.2%}", f"{bias:.3f}", f"{seconds:.1f}")


def _make_means(rows: Sequence[Replayed], kept: Mapping[str, Replayed]) -> tuple[str, ...]:
    """Return the mean over suites of their errors."""
    cells = ("mean over suites", str(len({row.suite for row in rows})), f"{mean_over_suites(rows):.2%}")
    old = [kept[row.key] for row in rows if row.key in kept]
    if not kept:
        return (*cells, "", "", "")
    return (*cells, "", "", "", f"{mean_over_suites(old):.2%}" if old else "", "", "", "", "")


def mean_over_suites(rows: Sequence[Replayed]) -> float:
    """Return the mean error of a suite, in which each suite counts once."""
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        errors[row.suite].append(row.error)
    return float(np.mean([np.mean(of_suite) for of_suite in errors.values()]))


def _list_worst(rows: Sequence[Replayed], before: Sequence[Replayed], count: int) -> Iterator[str]:
    """Yield the rows whose answers changed most; without kept answers, those with the largest errors."""
    kept = {row.key: row.predicted_us for row in before}

    def measure(row: Replayed) -> float:
        return abs(float(np.log(row.predicted_us / kept.get(row.key, row.measured_us))))

    for row in sorted(rows, key=measure, reverse=True)[:count]:
        ratio = row.predicted_us / row.measured_us
        old = f" was {kept[row.key] / row.measured_us:.3f}" if row.key in kept else ""
        print_time = f"{row.measured_us:>10.4g} us {row.seconds:6.2f} s"
        yield f"{ratio:.3f}{old} {print_time}  {row.bound}  {row.key}"


def read_answers(path: Path) -> list[Replayed]:
    """Read kept answers."""
    return msgspec.json.decode(path.read_bytes(), type=list[Replayed])


def main() -> None:
    """Count, or predict and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", action="store_true", help="count what is not kept yet")
    parser.add_argument("--again", action="store_true", help="with --count: what is kept, too")
    parser.add_argument("--sample", type=int, default=_SAMPLE_ROWS, help="with --count: rows of a suite")
    parser.add_argument("--suite", action="append", default=[], help="a glob such as h100/*")
    parser.add_argument("--model", default="sm")
    parser.add_argument("--jobs", type=int, default=_PROCESSES)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--worst", type=int, default=0, help="list so many rows, most changed or worst")
    given = parser.parse_args()
    if given.count:
        count_rows(given.suite, given.sample, given.jobs, again=given.again)
        return
    rows = replay_rows(given.suite, given.model, given.jobs)
    if given.keep:
        given.keep.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    before = read_answers(given.against) if given.against else []
    print(render_scores(rows, before))
    for line in _list_worst(rows, before, given.worst):
        print(line)


# Worker processes look for modules in the same order.
sys.path.insert(0, str(Path(analyzer.__file__).parents[1]))

if __name__ == "__main__":
    run_main(main)
