"""`warplens tune choose`: configurations from an artifact."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import output_option, write_text
from analyzer.cli.path_types import INPUT_PATH
from analyzer.text.errors import InputError, UsageError
from analyzer.text.escaping import format_json

if TYPE_CHECKING:
    from analyzer.tuning.chooser import Chooser

_SIZES = ("m", "n", "k", "experts", "topk", "batch", "heads", "q_length", "kv_length")
_MOST_ROWS = 5_000_000


def _size_options(command: click.decorators.FC) -> click.decorators.FC:
    for name in reversed(_SIZES):
        option = click.option(f"--{name.replace('_', '-')}", name, type=click.IntRange(min=1))
        command = option(command)
    return command


@click.command(
    epilog=make_examples(
        "warplens tune choose traces/h100/gemm_wavetune.npz --m 512 --n 4096 --k 4096",
        "warplens tune choose traces/h100/gemm_wavetune.npz --m 384 --n 384 --k 256 "
        "--measured traces/h100/gemm_profile.csv",
    )
)
@click.argument("artifact", metavar="ARTIFACT", type=INPUT_PATH)
@_size_options
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=VALUE", help="An input of a kernel of your own."
)
@click.option("--table", type=INPUT_PATH, help="CSV with the inputs as columns: a choice for each row.")
@click.option(
    "--measured",
    type=INPUT_PATH,
    metavar="FILE",
    help="Profile with times of this input: they stand, and level the predictions of the others.",
)
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output."
)
@output_option
def choose(
    artifact: Path,
    *,
    sizes: tuple[str, ...],
    table: Path | None,
    measured: Path | None,
    output_format: str,
    output: Path | None,
    **named: int | None,
) -> None:
    """Choose the configuration of a kernel for one input, or for each row of a table.

    ARTIFACT is what `warplens tune fit` wrote. The answer for a table is the table with the configuration and
    the predicted time behind each row.
    """
    from analyzer.tuning.chooser import Chooser

    chooser = Chooser(artifact)
    given = {name: value for name, value in named.items() if value is not None}
    given.update(_parse_size(text) for text in sizes)
    if table is not None:
        if given or measured is not None:
            raise UsageError(
                "--table has the inputs: leave out the others"
                if given
                else "--measured is for one input: leave out --table"
            )
        write_text(_choose_rows(chooser, table), output)
        return
    unknown = [name for name in given if name not in chooser.space.inputs]
    if unknown:
        raise UsageError(
            f"kernel {chooser.space.name} has no input {unknown[0]}",
            hint=f"it takes {', '.join(chooser.space.inputs)}",
        )
    write_text(_format_choice(chooser, given, measured, output_format), output)


def _parse_size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value.isdecimal() or not 0 < len(value) < 13:
        raise UsageError(f"--size {text}", hint="an input and its value: --size rows=4096")
    return name.strip(), int(value)


def _format_choice(
    chooser: "Chooser", given: dict[str, int], measured: Path | None, output_format: str
) -> str:
    """Return the choice for one input as text or JSON."""
    from analyzer.tuning.measured_choice import choose_with_samples
    from analyzer.tuning.samples import read_samples

    shape = chooser.space.order_inputs(given)
    samples = None if measured is None else read_samples(measured)
    choice = choose_with_samples(chooser, samples, shape)
    found = chooser.artifact.description
    basis = "measured" if choice.is_measured else "predicted"
    if output_format == "json":
        answer = {
            "kernel": found.kernel,
            "gpu": found.gpu,
            "shape": dict(zip(chooser.space.inputs, shape, strict=True)),
            "config": choice.config,
            f"{basis}_us": choice.time_us,
            "measured_configurations": choice.n_measured,
        }
        return format_json(answer)
    listed = " ".join(f"{name}={value}" for name, value in choice.config.items())
    count = "" if measured is None else f"; {choice.n_measured} configurations of this input are measured"
    where = f"{found.kernel} on {found.gpu}, {found.variant}{count}"
    return f"{listed}\n  {basis} {choice.time_us:.2f} us ({where})\n"


def _choose_rows(chooser: "Chooser", path: Path) -> Iterator[str]:
    """Yield the table with the choice behind each row."""
    import numpy as np

    from analyzer.text.csv_table import read_csv_table

    space = chooser.space
    hint = f"columns: {', '.join(space.inputs)}"
    table = read_csv_table(path, hint)
    table.check_columns(space.inputs, hint)
    if len(table.rows) > _MOST_ROWS:
        raise InputError(f"{path}: more than {_MOST_ROWS:,} rows")
    shapes = np.empty((len(table.rows), len(space.inputs)), dtype=np.int64)
    for row in range(len(table.rows)):
        for column, name in enumerate(space.inputs):
            value = table.read_positive(row, name, "a whole number")
            if value != int(value):
                line, place = table.rows[row][0], table.columns.index(name)
                raise InputError(
                    f"column {name}: {value:g} is no whole number",
                    location=table.locate_field(line, place),
                    hint=hint,
                )
            shapes[row, column] = int(value)
    batch = chooser.choose_batch(shapes)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*table.columns, *space.macro_parameters, *space.micro_parameters, "predicted_us"))
    for number, (_, fields) in enumerate(table.rows):
        config = chooser.get_config(int(batch.macro_ids[number]), int(batch.micro_ids[number]))
        writer.writerow((*fields, *config.values(), f"{batch.time_us[number]:.4f}"))
    yield text.getvalue()
