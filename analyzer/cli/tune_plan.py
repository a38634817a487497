"""`warplens tune plan`: what to measure."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line, write_text
from analyzer.cli.path_types import GPU_TEXT, OUTPUT_PATH
from analyzer.text.errors import UsageError


@click.command(
    epilog=make_examples(
        "warplens tune plan --kernel gemm --gpu h100 --waves 2 --set BLOCK_SIZE_M=64,128 -o gemm.csv",
        "warplens tune plan --kernel flash_attention --gpu h100 --waves 3 --heads 32 -o plan.csv",
    )
)
@click.option("--kernel", "kernel_name", required=True, help="gemm, grouped_gemm, flash_attention, ...")
@click.option("--gpu", "-g", required=True, type=GPU_TEXT, help="GPU to be measured.")
@click.option("--waves", type=int, default=40, show_default=True, help="Waves from the first (W).")
@click.option("--intervals", type=int, default=4, show_default=True, help="Grids per wave (I).")
@click.option(
    "--tau", type=float, default=1.1, show_default=True, help="Columns over rows of a grid, at most."
)
@click.option("--anchors", default="", help="Sizes of the loop's input, such as 1024,4096 of k.")
@click.option("--heads", default="16", show_default=True, help="Query heads of attention, such as 16,32.")
@click.option("--set", "values", multiple=True, metavar="NAME=V,V", help="Hold a parameter to these values.")
@click.option("--element-bytes", type=click.IntRange(1, 16), default=2, show_default=True)
@click.option("--output", "-o", required=True, type=OUTPUT_PATH, help="CSV file to write.")
def plan(
    kernel_name: str,
    *,
    gpu: str,
    waves: int,
    intervals: int,
    tau: float,
    anchors: str,
    heads: str,
    values: tuple[str, ...],
    element_bytes: int,
    output: Path,
) -> None:
    """Write the launches that WaveTune's model needs: a few grids per wave, loop counts, configurations.

    Measure them (`warplens tune profile`, or a program of yours that fills the column time_us) and fit the
    result with `warplens tune fit`. Configurations that cannot run are left out.
    """
    from analyzer.hardware.gpu_database import load_gpu
    from analyzer.tuning.kernel_space import find_kernel
    from analyzer.tuning.plan import PlanOptions, make_plan
    from analyzer.tuning.samples import format_samples

    options = PlanOptions(
        waves=waves,
        intervals=intervals,
        max_aspect=tau,
        anchors=tuple(_parse_numbers("--anchors", anchors)),
        heads=tuple(int(each) for each in _parse_numbers("--heads", heads)),
        values=dict(_parse_held(text) for text in values),
        element_bytes=element_bytes,
    )
    made = make_plan(find_kernel(kernel_name), load_gpu(gpu), options)
    notes = (("wave", [made.waves]), ("interval", [made.intervals]))
    write_text(format_samples([made.samples], notes), output)
    left_out = ", ".join(f"{count} by {name}" for name, count in sorted(made.obstacles.items()))
    print_line(
        f"{output}: {len(made.samples):,} launches to measure: {made.n_grids} grids, "
        f"{made.n_configs - sum(made.obstacles.values())} of {made.n_configs} configurations"
        + (f" (left out: {left_out})" if left_out else "")
        + f"; {made.n_profile:,} by equation 7"
        + (f"; {made.n_elongated} grids are longer than --tau" if made.n_elongated else ""),
        to_errors=str(output) == "-",
    )


def _parse_numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"{option} {text}: numbers separated by commas") from None


def _parse_held(text: str) -> tuple[str, tuple[int, ...]]:
    """Return name and values of `NAME=V,V`."""
    name, equals, listed = text.partition("=")
    numbers = _parse_numbers(f"--set {name}", listed)
    if not (equals and numbers) or any(number < 1 or number != int(number) for number in numbers):
        raise UsageError(f"--set {text}", hint="a parameter and its values: --set BLOCK_SIZE_M=64,128")
    return name.strip(), tuple(int(number) for number in numbers)
