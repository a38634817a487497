"""Measure the accuracy of the models on measured kernels, and write docs/accuracy.md.

    python bench/accuracy.py kernels     # docs/accuracy.md

Intervals come from bench/left_suite.py.

The kernels are built, and their table is written, by `python bench/kernels/build.py`.
"""

import argparse
import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
from kernels.clocks import read_repeats_by_case
from kernels.recipes import read_compiler_dependent_cases
from markdown import render_table

import analyzer
from analyzer.evaluation.score_entries import make_score_entries
from analyzer.evaluation.validation_report import CaseFilters
from analyzer.render.validation import (
    ALL_LABEL,
    choose_score_columns,
    format_score_cells,
    format_stall_shares,
    format_suite_and_gpu,
)
from analyzer.report.validation_schema import CaseEntry, ScoreEntry, ValidationReport
from analyzer.text.errors import WarplensError, format_diagnostic

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "bench" / "kernels" / "built" / "cases.csv"
PAGE = ROOT / "docs" / "accuracy.md"
_NUMBER_CELL = re.compile(r"|[\d.,]+%?( to [\d.,]+%?)?")
_HEAD = """# How right the models are on measured kernels

Made by `python bench/accuracy.py kernels`: kernels of `bench/kernels`, whose times others measured on real
GPUs. Constants were first chosen on samples that held rows of both halves; what stands here is the {split}.
Errors are of the time of one launch; docs/validate.md says what the columns mean. The worst rows are told by
their ratio, predicted over measured: some of the measured times are not ours to print.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototype:
    """Errors of an early prototype of the sm model on a class of kernels, as its notes print them."""

    name: str
    suites: tuple[tuple[str, str], ...]  # (glob of suites, key of the only GPU or "" for all)
    mape: str
    spearman: str
    simpler: str  # MAPE of simpler models on the same rows


PROTOTYPES = (
    Prototype(
        name="convolution",
        suites=(
            ("convolution", ""),
            ("convolution_sweep", ""),
            ("convolution_milo_17", ""),
            ("convolution_milo_15", "rtx-a4000"),
        ),
        mape="9 to 20 %",
        spearman=".95 to .99",
        simpler="15 to 72 %",
    ),
    Prototype(
        name="dedispersion",
        suites=(("dedispersion_milo", ""),),
        mape="4 to 15 %",
        spearman=".86 to .94",
        simpler="22 to 32 %",
    ),
    Prototype(
        name="report16", suites=(("report16", ""),), mape="10 to 12 %", spearman=".98", simpler="31 to 66 %"
    ),
    Prototype(
        name="SGEMM steps",
        suites=(("sgemm_cuda", ""),),
        mape="14 to 15 %",
        spearman=".86 to .98",
        simpler="24 to 26 %",
    ),
    Prototype(
        name="mma.sync GEMM",
        suites=(("mma_matmul", ""), ("learn_cuda_sm80", "")),
        mape="3 to 4 %",
        spearman=".9 to 1.0",
        simpler="6 to 7 %",
    ),
    Prototype(
        name="WGMMA and TMA GEMM",
        suites=(("fast_cu_article", ""),),
        mape="3 % learned, 7 % new code",
        spearman=".98",
        simpler="12 %",
    ),
    Prototype(
        name="A100 convolution (left out of verdicts)",
        suites=(("convolution_milo_15", "a100-40gb-pcie"),),
        mape="45 %",
        spearman=".9",
        simpler="",
    ),
)

# Found by looking at the rows; not measured one by one.
_MISSING = (
    (
        "convolution, A4000",
        "wide CTAs of one row, .83 to .9; which configuration is best",
        "how warps take turns at a full load/store path; and the clock that repeats began at (above), which "
        "decides between the fastest ones: the best row of the 15 x 15 filter took 1,146 to 1,440 us",
    ),
    (
        "convolution, 2080 Ti",
        "CTAs of 112 or 128 x 2 threads at 1.05 to 1.1, while the TITAN RTX is at .9",
        "the TITAN RTX has more SMs of the same kind, seems to keep the same clock, and takes 1.1 to 1.2 "
        "times as long for just these: no figure of the two chips says why. Only where loads are declared "
        "constant: that makes them 12 to 24 % faster on the 2080 Ti, 1 to 3 % on the TITAN RTX, 1 % slower "
        "on the 3060 Laptop",
    ),
    (
        "convolution, A4000",
        "spilled tiles of 1,000 words, 1.2 to 1.26",
        "which spills meet in the L2, of threads that are not at the same place",
    ),
    (
        "dedispersion",
        "the fastest ones at 1.07 on the A4000, slow ones of one or two warps at .9",
        "what the load/store path takes for lanes whose delays are not alike (zero is taken for all); which "
        "of a dozen configurations within 1 % is best",
    ),
    (
        "SGEMM steps",
        "step 7, of the learning half, at .87; steps 1, 3, 4 at 1.1",
        "not found: step 7's twin with another layout of B (step 9) is at .99",
    ),
    (
        "reductions",
        "sums of 64 MB at .87 to .9",
        "steps of the tree in shared memory; requests whose guard is false in all lanes are charged as "
        "others are: without that they come out at .8",
    ),
    (
        "mma.sync GEMM, 5090",
        "8192-cubes at .84 to .9; tiles that are not permuted at .9",
        "the clock falls where power is limited; what rows of 144 bytes cost LDGSTS or LDSM",
    ),
    (
        "small launches",
        "up to 1.3",
        "transposes of a few us on the 2080 Ti: what a launch overlaps with the next",
    ),
    (
        "data of half the L2's size",
        "strided copy of 16 MB on the 4070, .5",
        "the L2 keeps a part of what the last launch left: all or nothing is taken",
    ),
)


_CLOCK_HEAD = """Most repeats of the A4000's convolutions take the same time. In the others the first
ones run at a higher clock, 1.08 to 1.25 times as fast, until about 25 ms have gone by; for kernels of 1.2 to
1.4 ms the median of 32 is then either. Which rows these are depends on how long the GPU lay idle while the
next kernel was compiled, not on the kernel (`bench/kernels/clocks.py`): of codes that differ in `read_only`
alone often one began so. All rows count above; here they stand apart, and once more all together, each by
what a repeat took at the clock that the GPU came to: the only one at which configurations can be compared.
"""
_SCATTER_HEAD = """Two configurations of a convolution that differ in `read_only` alone run the same unrolled
loop; a few instructions before it, which form addresses, differ. Their measured times, both halves:
"""


def render_page(report: ValidationReport, cases: Path, every: int = 1) -> str:
    """Render the page in Markdown.

    cases: the table that `report` was made from.
    every: one in so many configurations of the tunable suites was taken.
    """
    split = "judging half" if report.split == "judge" else f"split `{report.split or 'all rows'}`"
    uncounted = report.rows - report.counted
    parts = [
        _HEAD.format(split=split),
        f"One in {every} configurations of the tunable suites was taken.\n" if every > 1 else "",
        f"{report.rows:,} rows, {uncounted:,} of them not counted, {report.refused:,} without an answer; "
        f"warplens {report.tool_version}. {_render_compiler_note(report)}\n",
        f"## `{report.models[0]}` against the prototypes\n",
        "Ranges are over suites and GPUs; the prototypes' are over all rows, those that taught them among "
        "them.\n",
        render_table(
            ("class", "rows", "MAPE", "prototype's", "of simpler ones", "Spearman", "prototype's"),
            _make_prototype_rows(report),
        ),
        "## MAPE of all models\n",
        render_table(("suite", "GPU", "rows", *report.models), _make_model_rows(report)),
        *_render_suites(report),
        *_render_clocks(report),
        "## What nearly the same code differs by\n",
        _SCATTER_HEAD,
        render_table(("suite", "GPU", "pairs", "median", "P90", "most"), _make_scatter_rows(cases)),
        f"## Worst rows of `{report.models[0]}`\n",
        render_table(("case", "GPU", "ratio", "bound", "cycles by stall"), _make_worst_rows(report)),
    ]
    parts += ["## What is missing, class by class\n", render_table(("class", "which rows", "what"), _MISSING)]
    if reasons := list(_make_refusal_rows(report)):
        parts += ["## Rows without an answer\n", render_table(("suite", "rows", "why"), reasons)]
    return "\n".join(parts)


def _render_compiler_note(report: ValidationReport) -> str:
    """Return a sentence on the error with the rows that their compiler excludes; empty if there are none."""
    uncounted = read_compiler_dependent_cases()
    found = [case for case in report.cases if case.case in uncounted]
    errors = [
        abs(answer.time_us / case.time_us - 1)
        for case in report.cases
        for answer in case.predictions
        if answer.model == report.models[0] and (case.counted or case.case in uncounted)
    ]
    if not found or not errors:
        return ""
    return (
        f"Of those not counted, {len(found)} were measured with code of CUDA 11 that is other work than "
        f"CUDA 13's (`bench/kernels/compilers.py`); with them `{report.models[0]}`'s MAPE is "
        f"{sum(errors) / len(errors):.1%}."
    )


def _make_prototype_rows(report: ValidationReport) -> Iterator[tuple[str, ...]]:
    ours = [score for score in report.scores if score.model == report.models[0] and score.gpu is not None]
    for prototype in PROTOTYPES:
        scores = [score for score in ours if _is_in_prototype_class(score, prototype)]
        yield (
            prototype.name,
            f"{sum(score.rows for score in scores):,}",
            _format_range([score.mape for score in scores], "{:.0%}"),
            prototype.mape,
            prototype.simpler,
            _format_range([score.spearman for score in scores if score.spearman is not None], "{:.2f}"),
            prototype.spearman,
        )
    total = report.find_overall_score()
    if total is not None:
        rank = "" if total.spearman is None else f"{total.spearman:.2f}"
        yield ("all", f"{total.rows:,}", f"{total.mape:.0%}", "", "", rank, "")


def _is_in_prototype_class(score: ScoreEntry, prototype: Prototype) -> bool:
    return any(
        fnmatchcase(score.suite or "", suite) and (not gpu or score.gpu == gpu)
        for suite, gpu in prototype.suites
    )


def _format_range(values: Sequence[float], form: str) -> str:
    """Format as `9% to 20%`, or as one figure where both ends have the same text."""
    ends = list(dict.fromkeys(form.format(pick(values)) for pick in (min, max))) if values else []
    return " to ".join(ends)


def _make_model_rows(report: ValidationReport) -> Iterator[tuple[str, ...]]:
    found: dict[tuple[str, str], dict[str, ScoreEntry]] = {}
    for score in report.scores:
        found.setdefault(format_suite_and_gpu(score), {})[score.model] = score
    for place, by_model in found.items():
        rows = max(score.rows for score in by_model.values())
        errors = (f"{by_model[m].mape:.1%}" if m in by_model else "" for m in report.models)
        yield (*place, f"{rows:,}", *errors)


def _render_suites(report: ValidationReport) -> Iterator[str]:
    """Yield a table of all error metrics for each suite, then one for all suites."""
    suites: dict[str, list[ScoreEntry]] = {}
    for score in report.scores:
        suites.setdefault(format_suite_and_gpu(score)[0], []).append(score)
    for suite, scores in suites.items():
        yield f"## {'All suites' if suite == ALL_LABEL else suite}\n"
        columns = choose_score_columns(report)
        rows = [(format_suite_and_gpu(s)[1], s.model, *format_score_cells(s)[: len(columns)]) for s in scores]
        yield render_table(("GPU", "model", *columns), rows)


def _make_worst_rows(report: ValidationReport) -> Iterator[tuple[str, ...]]:
    for entry in report.worst:
        if entry.prediction.model == report.models[0]:
            answer = entry.prediction
            yield (
                entry.case,
                entry.gpu_name,
                f"{answer.ratio:.2f}",
                answer.bound,
                format_stall_shares(entry),
            )


def _render_clocks(report: ValidationReport) -> Iterator[str]:
    """Yield a table of errors for rows with a steady clock, with a falling one, and at the final clock."""
    repeats = read_repeats_by_case()
    cases = [case for case in report.cases if case.case in repeats]
    states = {
        "still": [case for case in cases if repeats[case.case].is_steady],
        "falling": [case for case in cases if not repeats[case.case].is_steady],
        "all, last repeats": [
            msgspec.structs.replace(case, time_us=repeats[case.case].lasting_us) for case in cases
        ],
    }
    rows = [
        (name, *_format_clock_cells(score))
        for name, found in states.items()
        for score in _make_suite_scores(found, report.models[0])
    ]
    if rows:
        yield "## Rows whose clock stood still\n"
        yield _CLOCK_HEAD
        yield render_table(("clock", "suite", "rows", "MAPE", "bias", "Spearman", "choice"), rows)


def _make_suite_scores(cases: Sequence[CaseEntry], model: str) -> Iterator[ScoreEntry]:
    return (score for score in make_score_entries(cases, (model,)) if score.suite and score.gpu)


def _format_clock_cells(score: ScoreEntry) -> tuple[str, ...]:
    rank = "" if score.spearman is None else f"{score.spearman:.3f}"
    lost = "" if score.choice_loss is None else f"{score.choice_loss:.1%}"
    return (score.suite or "", f"{score.rows:,}", f"{score.mape:.1%}", f"{score.bias:.2f}", rank, lost)


def _make_scatter_rows(cases: Path) -> Iterator[tuple[str, ...]]:
    """Yield quantiles of the relative difference between configurations that differ in `read_only` alone."""
    times: dict[tuple[str, str, str], dict[int, float]] = {}
    with cases.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            config = json.loads(row["config"] or "{}")
            if row["counted"] == "yes" and "read_only" in config:
                read_only = config.pop("read_only")
                key = (row["suite"], row["gpu"], json.dumps(config, sort_keys=True))
                times.setdefault(key, {})[read_only] = float(row["time_us"])
    apart: dict[tuple[str, str], list[float]] = {}
    for (suite, gpu, _), pair in times.items():
        if len(pair) > 1:
            apart.setdefault((suite, gpu), []).append(max(pair.values()) / min(pair.values()) - 1.0)
    for place, found in apart.items():
        levels = np.quantile(found, (0.5, 0.9, 1.0)).tolist()
        yield (*place, f"{len(found):,}", *(f"{level:.1%}" for level in levels))


def _make_refusal_rows(report: ValidationReport) -> Iterator[tuple[str, ...]]:
    counts: dict[tuple[str, str], int] = {}
    for case in report.cases:
        for reason in dict.fromkeys(case.refused.values()):
            counts[case.suite, reason] = counts.get((case.suite, reason), 0) + 1
    for (suite, reason), count in counts.items():
        yield (suite, f"{count:,}", reason)


def kernels(arguments: argparse.Namespace) -> None:
    """Validate the models on compiled kernels and write the page."""
    report = _validate(arguments)
    arguments.output.write_text(render_page(report, arguments.table, arguments.every), encoding="utf-8")
    total = report.find_overall_score()
    summary = (
        "no counted row has an answer" if total is None else f"MAPE {total.mape:.1%} over {total.rows:,} rows"
    )
    print(f"{arguments.output}: {report.models[0]}, {summary}")


def _validate(arguments: argparse.Namespace) -> ValidationReport:
    split = None if arguments.split == "all" else arguments.split
    return analyzer.validate(
        _write_sampled_table(arguments.table, arguments.every),
        models=tuple(arguments.model.split(",")) if arguments.model else (),
        filters=CaseFilters(split=split),
        jobs=arguments.jobs,
        worst=arguments.limit_worst,
        progress=_report_progress if sys.stderr.isatty() else None,
    )


def _write_sampled_table(table: Path, every: int) -> Path:
    """Return the table, or a new one beside it with one in `every` configurations of the tunable suites.

    A configuration is kept or dropped by a hash of its parameters, so that it is the same on every GPU.
    """
    if every <= 1:
        return table
    with table.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows, names = list(reader), reader.fieldnames or []
    rows = [row for row in rows if not row["group"] or crc32(row["config"].encode()) % every == 0]
    sample = table.with_name(f"{table.stem}-{every}.csv")
    with sample.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return sample


def _report_progress(done: int, total: int) -> None:
    print(f"\r{done:,} of {total:,} rows", end="" if done < total else "\n", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command line; return 1, after one message, on an error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, run_it, text in (
        ("kernels", kernels, "compiled kernels with measured times: docs/accuracy.md"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--table", type=Path, default=TABLE, help="CSV as `warplens validate` reads it")
        command.add_argument("--split", choices=("judge", "learn", "all"), default="judge")
        command.add_argument("--every", type=int, default=1, help="take one in so many configurations")
        command.add_argument("--model", help="by comma, the default one first; all where not given")
        command.add_argument("--jobs", type=int)
        command.add_argument("--limit-worst", type=int, default=20)
        command.add_argument("--output", type=Path, default=PAGE)
        command.set_defaults(run=run_it)
    arguments = parser.parse_args()
    run: Callable[[argparse.Namespace], None] = arguments.run
    try:
        run(arguments)
    except WarplensError as error:
        print(format_diagnostic(error.diagnostic), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
