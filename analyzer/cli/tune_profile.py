"""`warplens tune profile`: measure a plan on the GPU of this machine."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line
from analyzer.cli.path_types import INPUT_PATH, UPDATED_PATH
from analyzer.cli.progress import show_progress


@click.command(
    epilog=make_examples(
        "warplens tune profile traces/h100/gemm_profile.csv -o mine.csv --dry-run",
        "warplens tune profile traces/h100/gemm_profile.csv -o mine.csv --seconds 600 --dry-run",
    )
)
@click.argument("plan", metavar="PLAN.csv", type=INPUT_PATH)
@click.option("--output", "-o", required=True, type=UPDATED_PATH, help="Profile; rows are appended.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after so long; run again to go on.")
@click.option("--rows", type=click.IntRange(min=0), help="Measure so many rows at most.")
@click.option("--warmups", type=click.IntRange(0, 1000), default=3, show_default=True)
@click.option("--iterations", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--warm-l2", is_flag=True, help="Do not clear the L2 cache before each launch.")
@click.option("--dry-run", is_flag=True, help="Say how many rows are left; measures nothing, needs no GPU.")
def profile(
    plan: Path,
    *,
    output: Path,
    seconds: float | None,
    rows: int | None,
    warmups: int,
    iterations: int,
    warm_l2: bool,
    dry_run: bool,
) -> None:
    """Measure the launches of a plan with Triton on the GPU of this machine.

    Each row is written as soon as it is measured, and rows that the output has are not measured again: run
    the same command after an interruption. A configuration that cannot run has no time; the column status
    says why. Needs torch and triton.
    """
    from analyzer.tuning.profiling import ProfilingLimits, count_rows, measure_plan
    from analyzer.tuning.triton_device import TritonDevice

    if dry_run:
        counted = count_rows(plan, output)
        print_line(f"{output}: {counted.found:,} are there, {counted.left:,} of {counted.planned:,} are left")
        return
    device = TritonDevice(warmups, iterations, clears_cache=not warm_l2)
    with show_progress("measuring") as progress:
        result = measure_plan(
            plan, output, device, ProfilingLimits(seconds, rows), lambda done, of: progress(done, of, "")
        )
    print_line(
        f"{output}: {result.measured:,} measured, {result.failed:,} cannot run, {result.found:,} were there, "
        f"{result.left:,} of {result.planned:,} are left"
    )
