"""Judge `sm` on every measured suite without what the suite taught; write docs/left-suite.md.

    python bench/left_suite.py [--sample 12] [--suite GLOB ...]   # rows, then the page
    python bench/left_suite.py --page-only                        # the page from kept rows
    python bench/left_suite.py --residuals                        # hwdb/residuals.toml from them, too

Each row of bench/suites.py is predicted three times: by hwdb as it is; without the figures that its suite
taught (bench/leaving_out.py), but with the clock, which a user can state; and without that as well. Errors of
the last two are those of a suite that nobody has seen. Intervals are judged likewise: from the errors of the
other suites on other GPUs (bench/interval_learning.py).

Kept rows: answers are found again by contents, so that a run that was stopped goes on where it stopped.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from interval_learning import (
    JudgedInterval,
    SuiteRow,
    judge_intervals,
    list_classes,
    write_residuals,
)
from kernels.compiling import BUILT
from kernels.recipes import ROOT
from leaving_out import leave_out, load_taught
from markdown import render_table
from running import run_main
from suites import list_rows
from variant_predictions import Answer, Variant, predict_variants

from analyzer.evaluation.case_table import Case
from analyzer.hardware.gpu_database import load_gpu
from analyzer.text.errors import WarplensError, format_diagnostic

PAGE = ROOT / "docs" / "left-suite.md"
ROWS = BUILT / "left-suite.json"
_TRIED = ROOT / "bench" / "left_suite_tried.md"  # written by hand, after looking at the rows
_SAMPLE_ROWS = 12  # of a suite on a GPU
_MAX_MAPE, _MAX_SUITE_MAPE, _LEAST_BIAS, _MOST_BIAS = 0.08, 0.15, 0.93, 1.07
_LEAST_COVERAGE, _MOST_COVERAGE = 0.75, 0.85
_N_WORST = 25
_HEAD = """# On suites that taught nothing

Made by `python bench/left_suite.py`: every measured suite in turn is predicted by `sm` with what its rows
taught left out. `bench/splits/taught.toml` says which figures of hwdb these are, from the notes beside them.
A figure that another suite teaches too stays; another one is that of the nearest architecture that the suite
did not teach, else a datasheet's, else an assumption (last section). What the *code* of the model owes to a
suite cannot be left out: its mechanisms were found on these rows and others.

- as it is: with all figures. Not held out: it says what the suite's own rows gave.
- left out: without them, at the clock of the measurement where that is known or was inferred, and with the
  shortest time between launches of the GPU's system (both are inputs: `--clock`, `--timing`).
- no clock: without these either; the clock is hwdb's, from other suites of the GPU or its datasheet.
- inside: measured times within the 80 % interval, which comes from the errors of the other suites on other
  GPUs alone.

Rows are samples by a hash, at most {sample} of a suite on a GPU; a suite counts once in the mean over suites.
"""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A measured launch and its three answers."""

    suite: str
    gpu: str
    case: str
    measured_us: float
    taught: Answer
    left_out: Answer
    no_clock: Answer


# ---- rows --------------------------------------------------------------------------------------------


def judge_rows(patterns: Sequence[str], count: int, jobs: int) -> list[Judged]:
    """Return the rows of all suites that a glob names with their answers; rows without one are told."""
    found: list[Judged] = []
    table = BUILT / "left-suite.csv"
    for case, answers in predict_variants(table, list_rows(patterns, count, jobs), _find_variants):
        if refused := next((answer.refusal for answer in answers if answer.refusal), ""):
            print(f"{case.suite} {case.gpu} {case.name}: {refused}", file=sys.stderr)
            continue
        taught, left, bare = answers
        found.append(
            Judged(
                suite=case.suite,
                gpu=load_gpu(case.gpu).key,
                case=case.name,
                measured_us=case.time_us,
                taught=taught,
                left_out=left,
                no_clock=bare,
            )
        )
    return found


def _find_variants(case: Case) -> Sequence[Variant]:
    gpu = load_gpu(case.gpu)
    left, _ = leave_out(gpu, case.suite, keeps_inputs=True)
    bare, _ = leave_out(gpu, case.suite, keeps_inputs=False)
    clock = None if load_taught().infers_clock_of(case.suite) else case.clock_mhz
    return (Variant(gpu, case.clock_mhz), Variant(left, case.clock_mhz), Variant(bare, clock))


def merge_rows(kept: Iterable[Judged], new: Iterable[Judged]) -> list[Judged]:
    """Return kept rows with new ones in the place of those of the same suites, sorted."""
    rows = list(new)
    renewed = {row.suite for row in rows}
    rows += [row for row in kept if row.suite not in renewed]
    return sorted(rows, key=lambda row: (row.suite, row.gpu, row.case))


# ---- scores ------------------------------------------------------------------------------------------


class Score(msgspec.Struct, frozen=True):
    """Errors of some rows."""

    rows: int
    mape: float
    median: float
    bias: float  # geometric mean of predicted over measured


def score(rows: Sequence[Judged], pick: Callable[[Judged], Answer]) -> Score:
    """Return the errors of one of the answers."""
    ratios = np.array([pick(row).predicted_us / row.measured_us for row in rows])
    errors = np.abs(ratios - 1.0)
    return Score(
        len(rows), float(errors.mean()), float(np.median(errors)), float(np.exp(np.log(ratios).mean()))
    )


def _pick_taught(row: Judged) -> Answer:
    return row.taught


def _pick_left(row: Judged) -> Answer:
    return row.left_out


def _pick_bare(row: Judged) -> Answer:
    return row.no_clock


def _as_suite_row(row: Judged, answer: Answer) -> SuiteRow:
    return SuiteRow(suite=row.suite, gpu=row.gpu, measured_us=row.measured_us, answer=answer)


def _group(rows: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, list[Judged]]:
    groups: dict[str, list[Judged]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _cover(judged: Sequence[JudgedInterval]) -> float:
    return float(np.mean([one.is_inside for one in judged]))


# ---- page --------------------------------------------------------------------------------------------


def render_page(rows: Sequence[Judged], sample: int) -> str:
    """Render the page in Markdown."""
    intervals = judge_intervals([_as_suite_row(row, row.left_out) for row in rows])
    inside = {id(row): one for row, one in zip(rows, intervals, strict=True)}
    by_suite = _group(rows, lambda row: row.suite)
    columns = (
        *("suite", "GPU", "rows", "as it is", "left out", "median", "bias", "no clock", "bias", "inside"),
        "held",
    )
    lines = []
    for of_suite in by_suite.values():
        by_gpu = _group(of_suite, lambda row: row.gpu)
        for gpu, of_gpu in by_gpu.items():
            lines.append(_make_line(of_gpu[0].suite, gpu, of_gpu, inside))
        if len(by_gpu) > 1:
            lines.append(_make_line(of_suite[0].suite, "all", of_suite, inside))
    classes = _group(rows, lambda row: list_classes(row.left_out))
    kinds = [_make_line(name, "", of_class, inside)[:-1] for name, of_class in sorted(classes.items())]
    return "\n".join(
        [
            _HEAD.format(sample=sample),
            "## Verdict\n",
            render_table(("", "goal", "reached"), _make_verdict(by_suite, rows, inside)),
            "## By suite\n",
            render_table(columns, lines),
            "## By class of the intervals\n",
            render_table(("class", *columns[1:-1]), kinds),
            "## Worst rows\n",
            render_table(
                ("row", "GPU", "us", "ratio", "left out", "bound", "cycles by stall"), _make_worst(rows)
            ),
            _TRIED.read_text(encoding="utf-8"),
            "## What was replaced\n",
            *_render_replacements(rows),
            "",
        ]
    )


def _make_line(
    suite: str, gpu: str, rows: Sequence[Judged], inside: Mapping[int, JudgedInterval]
) -> tuple[str, ...]:
    taught, left, bare = (score(rows, pick) for pick in (_pick_taught, _pick_left, _pick_bare))
    is_held = left.mape <= _MAX_SUITE_MAPE and _LEAST_BIAS <= left.bias <= _MOST_BIAS
    return (
        *(suite, gpu, str(left.rows), f"{taught.mape:.1%}", f"{left.mape:.1%}", f"{left.median:.1%}"),
        *(f"{left.bias:.2f}", f"{bare.mape:.1%}", f"{bare.bias:.2f}"),
        f"{_cover([inside[id(row)] for row in rows]):.0%}",
        "yes" if is_held else "no",
    )


def _make_verdict(
    by_suite: Mapping[str, Sequence[Judged]],
    rows: Sequence[Judged],
    inside: Mapping[int, JudgedInterval],
) -> Iterator[tuple[str, ...]]:
    for name, pick in (("left out", _pick_left), ("no clock", _pick_bare), ("as it is", _pick_taught)):
        scores = {suite: score(of_suite, pick) for suite, of_suite in by_suite.items()}
        mape = float(np.mean([one.mape for one in scores.values()]))
        every = score(rows, pick)
        over = sum(one.mape > _MAX_SUITE_MAPE for one in scores.values())
        biased = sum(not _LEAST_BIAS <= one.bias <= _MOST_BIAS for one in scores.values())
        yield (
            f"MAPE, {name}",
            f"{_MAX_MAPE:.0%}",
            f"{every.mape:.1%} of {every.rows} rows (median {every.median:.1%}, bias {every.bias:.2f}), "
            f"{mape:.1%} in the mean over {len(scores)} suites",
        )
        yield (f"suites over {_MAX_SUITE_MAPE:.0%}, {name}", "0", str(over))
        yield (f"suites with a bias outside {_LEAST_BIAS} to {_MOST_BIAS}, {name}", "0", str(biased))
    covered = _cover(list(inside.values()))
    of_suites = float(np.mean([_cover([inside[id(row)] for row in of]) for of in by_suite.values()]))
    goal = f"{_LEAST_COVERAGE:.0%} to {_MOST_COVERAGE:.0%}"
    width = float(np.median([one.high / one.low for one in inside.values()]))
    yield (
        "inside the 80 % interval",
        goal,
        f"{covered:.0%} of rows, {of_suites:.0%} in the mean over suites; median high over low {width:.2f}",
    )


def _make_worst(rows: Sequence[Judged]) -> Iterator[tuple[str, ...]]:
    ranked = sorted(rows, key=lambda row: -abs(np.log(row.left_out.predicted_us / row.measured_us)))
    for row in ranked[:_N_WORST]:
        yield (
            *(f"{row.suite} {row.case}", row.gpu, f"{row.measured_us:,.1f}"),
            f"{row.taught.predicted_us / row.measured_us:.2f}",
            f"{row.left_out.predicted_us / row.measured_us:.2f}",
            row.left_out.bound,
            format_stalls(row.left_out),
        )


def format_stalls(answer: Answer) -> str:
    """Format the three largest parts of the stall stack."""
    top = sorted(answer.stalls.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} {share:.0%}" for name, share in top)


def _render_replacements(rows: Sequence[Judged]) -> Iterator[str]:
    for suite, of_suite in _group(rows, lambda row: row.suite).items():
        for gpu in dict.fromkeys(row.gpu for row in of_suite):
            _, replaced = leave_out(load_gpu(gpu), suite, keeps_inputs=False)
            if replaced:
                listed = "; ".join(f"{one.key} {one.old:g} → {one.new:g} ({one.why})" for one in replaced)
                yield f"- {suite}, {gpu}: {listed}"


def main() -> int:
    """Run the command line; return 1, after one message, on an error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=_SAMPLE_ROWS, help="rows of a suite on a GPU")
    parser.add_argument("--suite", action="append", default=[], help="a glob; kept rows of others stay")
    parser.add_argument("--rows", type=Path, default=ROWS, help="JSON with the answers")
    parser.add_argument("--page-only", action="store_true")
    parser.add_argument("--residuals", action="store_true", help="write hwdb/residuals.toml from the rows")
    parser.add_argument("--jobs", type=int, default=1, help="of the compilations")
    given = parser.parse_args()
    rows = msgspec.json.decode(given.rows.read_bytes(), type=list[Judged]) if given.rows.exists() else []
    try:
        if not given.page_only and not given.residuals:
            rows = merge_rows(rows, judge_rows(given.suite, given.sample, given.jobs))
            given.rows.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    except WarplensError as error:
        print(format_diagnostic(error.diagnostic), file=sys.stderr)
        return 1
    if given.residuals:
        write_residuals([_as_suite_row(row, row.left_out) for row in rows])
    PAGE.write_text(render_page(rows, given.sample), encoding="utf-8")
    print(f"{PAGE}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    run_main(main)
