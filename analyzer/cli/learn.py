"""`warplens learn`: weights from a table of measured operators."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line
from analyzer.cli.path_types import INPUT_PATH, OUTPUT_FOLDER
from analyzer.cli.progress import show_progress

if TYPE_CHECKING:
    from analyzer.learning.corrections import LeftOutErrors


@click.command(
    epilog=make_examples(
        "warplens learn docs/measured-operators.csv --quick -o weights",
        "warplens learn docs/measured-operators.csv --quick --leave-out architecture -o other",
    )
)
@click.argument("table", metavar="TABLE.csv", type=INPUT_PATH)
@click.option("--output", "-o", required=True, type=OUTPUT_FOLDER, help="Folder for the weights.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn."
)
@click.option(
    "--leave-out",
    type=click.Choice(["gpu", "architecture"]),
    default="gpu",
    show_default=True,
    help="What is left out in turn to choose the correction for GPUs that taught nothing.",
)
@click.option("--quick", is_flag=True, help="Fewer trees and no perceptrons: seconds, a few percent worse.")
@click.option("--data", default="", help="Where the rows come from, for the card.")
@click.option("--licence", default="", help="Licence of the rows, for the card.")
def learn(
    table: Path, *, output: Path, seed: int, leave_out: str, quick: bool, data: str, licence: str
) -> None:
    """Learn the weights of the operator models from measured rows.

    TABLE.csv has the columns of `predict --table` and time_us. Finished fits are kept in OUTPUT/.cache, so a
    run that was interrupted goes on where it was. Needs scikit-learn and torch (extra `learn`).
    """
    import msgspec

    from analyzer.learning.learn import Provenance, check_learning, learn_and_write
    from analyzer.learning.options import LearningOptions
    from analyzer.operators.measured_operators import read_measured_table

    options = LearningOptions(seed=seed, leaves_out="gpu" if leave_out == "gpu" else "architecture")
    if quick:
        options = msgspec.structs.replace(
            options, n_trees=100, tree_rate=0.15, n_perceptrons=0, transfer_trees=40
        )
    check_learning(options)
    measured = read_measured_table(table)
    with show_progress("learning") as progress:
        learned = learn_and_write(
            measured,
            output,
            options,
            Provenance(data or table.name, licence or "not stated"),
            cache=output / ".cache",
            report=lambda text: progress(0, 0, text),
        )
    for each in learned:
        print_line(f"{output / each.weights.name}: {_format_errors(each.errors)}")


def _format_errors(errors: "tuple[LeftOutErrors, ...]") -> str:
    import numpy as np

    return ", ".join(
        f"{e.left_out} left out {100 * np.abs(np.exp(-e.log_error) - 1).mean():.1f} %"
        for e in errors
        if e.situation != "sibling"
    )
