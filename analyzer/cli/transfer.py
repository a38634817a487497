"""`warplens transfer`: measured launches carried over to another GPU."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import output_options, write_report
from analyzer.cli.path_types import GPU_TEXT, INPUT_PATH


@click.command(
    epilog=make_examples(
        "warplens transfer docs/launches.csv --from v100-pcie --to a100-40gb-pcie",
        "warplens transfer docs/launches.csv --from v100-pcie --to h100 --format csv",
    )
)
@click.argument("table", metavar="MEASURED", type=INPUT_PATH)
@click.option(
    "--from",
    "source",
    required=True,
    metavar="GPU",
    type=GPU_TEXT,
    help="Measured.",
)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="GPU",
    type=GPU_TEXT,
    help="To predict for.",
)
@click.option(
    "--timing",
    type=click.Choice(("interval", "kernel", "ncu")),
    help="How times were measured: from launch to launch (tables), of the kernel alone (PyTorch), by "
    "Nsight Compute.",
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes; as many as cores if not given.")
@click.option("--no-cache", is_flag=True, help="Work predictions from code out again, and keep nothing.")
@output_options("transfer")
def transfer(
    table: Path,
    *,
    source: str,
    target: str,
    timing: str | None,
    jobs: int | None,
    no_cache: bool,
    output_format: str,
    output: Path | None,
) -> None:
    """Predict the times of measured launches on another GPU: each row of MEASURED is one launch.

    Columns: kernel, grid, block, registers, shared_bytes, flops, bytes, time_us; and, for predictions from
    code, dump, dump_to, arguments, cluster, dynamic_shared_bytes. Exports of Nsight Compute (ncu --csv) and
    traces of the PyTorch profiler are read, too.
    """
    from analyzer.evaluation.transfer import transfer as run_transfer

    report = run_transfer(table, source, target, timing=timing, jobs=jobs, cache=not no_cache)
    write_report(report, output_format, output)
