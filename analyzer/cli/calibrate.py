"""`warplens calibrate`: levels of a GPU from a few measured rows."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import output_option, write_text
from analyzer.cli.path_types import GPU_TEXT, INPUT_PATH


@click.command(
    epilog=make_examples(
        "warplens calibrate docs/measured-operators.csv --gpu h100",
        "warplens calibrate docs/measured-operators.csv --gpu l40s --output -",
    )
)
@click.argument("table", metavar="ROWS.csv", type=INPUT_PATH)
@click.option(
    "--gpu",
    "-g",
    required=True,
    type=GPU_TEXT,
    help="The GPU that was measured.",
)
@output_option
def calibrate(table: Path, *, gpu: str, output: Path | None) -> None:
    """Level predictions for a GPU by three to ten measurements on it.

    ROWS.csv has the columns of `predict --table` and time_us, or those of `validate`. The file that is
    written goes to --calibration of the other commands.
    """
    from analyzer.evaluation.calibrating import calibrate as run_calibration
    from analyzer.models.calibration import format_calibration

    write_text(format_calibration(run_calibration(table, gpu)), output)
