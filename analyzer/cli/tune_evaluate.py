"""`warplens tune evaluate`: policies that choose configurations, judged by times that taught them nothing."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import output_option, print_line, write_text
from analyzer.cli.path_types import INPUT_PATH
from analyzer.cli.progress import show_progress
from analyzer.cli.tune_inputs import select_part
from analyzer.text.errors import UsageError
from analyzer.text.escaping import format_json

if TYPE_CHECKING:
    from analyzer.tuning.evaluation import Evaluation
    from analyzer.tuning.measured_table import MeasuredTable

_SCHEMA = "warplens/tune-evaluate/1"


@click.command(
    epilog=make_examples(
        "warplens tune evaluate traces/h100/attention_sweep.csv --split 0.5 --policy wavetune",
        "warplens tune evaluate traces/h100/moe_best.csv --split 0.5 --near-best 2 "
        "--policy wavetune-smoothed",
    )
)
@click.argument("profile", metavar="PROFILE.csv", type=INPUT_PATH)
@click.option("--test", type=INPUT_PATH, help="Profile that judges; PROFILE.csv teaches.")
@click.option(
    "--split", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="Share of shapes that teaches."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the division.")
@click.option(
    "--by",
    type=click.Choice(["model", "shape"]),
    default="model",
    show_default=True,
    help="Divide by all inputs but the tokens, or by all.",
)
@click.option("--policy", "policies", multiple=True, help="default, wavetune, ...; all by default.")
@click.option(
    "--near-best",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="The profile lists only what is within so many percent of the best of a sweep.",
)
@click.option(
    "--kernel", "kernel_name", default="", help="Of a profile of several kernels, the one to judge."
)
@click.option("--gpu", "-g", default="", help="Of a profile of several GPUs, the one to judge.")
@click.option("--sms", type=click.IntRange(1, 100_000), help="SMs of a GPU that is not in the database.")
@click.option("--trees", type=click.IntRange(1, 5000), default=600, show_default=True, help="Of `boosted`.")
@click.option("--no-clock", is_flag=True, help="Time no decisions: the output is the same every time.")
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output."
)
@output_option
def evaluate(
    profile: Path,
    *,
    test: Path | None,
    split: float | None,
    seed: int,
    by: str,
    policies: tuple[str, ...],
    near_best: float | None,
    kernel_name: str,
    gpu: str,
    sms: int | None,
    trees: int,
    no_clock: bool,
    output_format: str,
    output: Path | None,
) -> None:
    """Compare policies: default, WaveTune and its ablations, learned models, the oracle.

    A part of the measured shapes teaches, the rest judges: speed-up over the default (geometric mean), share
    of the oracle's speed, choices within 1 % of the best, time of a decision, bytes. A first choice without
    a time is replaced by the policy's next one that has one; of a list (--near-best) it is a miss of unknown
    time.
    """
    import time

    from analyzer.hardware.gpu_database import load_gpu
    from analyzer.tuning.evaluation import evaluate as judge
    from analyzer.tuning.policies import PolicyOptions, find_list_cap, fit_policy, parse_policies

    if (test is None) == (split is None):
        raise UsageError("say what judges: --test HELDOUT.csv, or --split 0.5 of the shapes teach")
    names = parse_policies(policies)
    learned, judged = _load_tables(profile, test, split, seed, by, kernel_name, gpu)
    cap = None if near_best is None else find_list_cap(near_best)
    options = PolicyOptions(sms or load_gpu(learned.gpu).sm_count, seed, cap, trees)
    with show_progress("fitting") as progress:
        fitted = []
        for number, name in enumerate(names):
            progress(number, len(names), name)
            fitted.append(fit_policy(name, learned, options))
        found = judge(
            fitted,
            judged,
            len(learned.shapes),
            is_list=near_best is not None,
            clock=None if no_clock else time.perf_counter,
        )
    if output_format == "json":
        import msgspec

        answer = {"schema": _SCHEMA, **msgspec.to_builtins(found)}
        write_text(format_json(answer), output)
    else:
        write_text(_format_text(found), output)
    if near_best is not None and output_format == "text" and output is None:
        print_line("times of what is not listed are unknown: hits count, speed-ups cannot be told")


def _load_tables(
    profile: Path, test: Path | None, split: float | None, seed: int, by: str, kernel: str, gpu: str
) -> "tuple[MeasuredTable, MeasuredTable]":
    """Return what teaches and what judges. Raises UsageError where they do not go together."""
    from analyzer.tuning.measured_table import split_shapes, tabulate
    from analyzer.tuning.samples import read_samples

    table = tabulate(select_part(profile, read_samples(profile), kernel, gpu))
    if test is None:
        learns = split_shapes(table, split or 0.0, seed, by_group=by == "model")
        return table.select_shapes(learns), table.select_shapes(~learns)
    judged = tabulate(select_part(test, read_samples(test), table.space.name, gpu))
    if judged.gpu != table.gpu:
        raise UsageError(f"{profile} is of {table.gpu}, {test} of {judged.gpu}", hint="one GPU judges itself")
    return table, judged


def _format_text(found: "Evaluation") -> str:
    """Return a table of the scores."""
    from io import StringIO

    from rich.console import Console

    from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table

    rows = [
        (
            score.policy,
            _show(score.speedup, ".2f"),
            _show(score.oracle_share, ".1%"),
            f"{score.hits:.0%}",
            f"{score.no_time:.0%}",
            _show(score.decision_us, ",.1f"),
            f"{score.size_bytes:,}" if score.size_bytes else "-",
        )
        for score in found.scores
    ]
    columns = [
        Column("policy", ColumnFit.NO_WRAP),
        *make_number_columns("over default", "of oracle", "within 1 %", "no time", "choice us", "bytes"),
    ]
    text = StringIO()
    Console(file=text, width=100, color_system=None).print(make_table(columns, rows))
    left_out = f", {found.left_out} left out" if found.left_out else ""
    judged = found.scores[0].shapes
    head = f"{found.kernel} on {found.gpu}: {found.learned_shapes} shapes teach, {judged} judge{left_out}\n\n"
    return head + text.getvalue()


def _show(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
