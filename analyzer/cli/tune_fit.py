"""`warplens tune fit`: a profile becomes the file that a runtime chooses from."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import print_line
from analyzer.cli.path_types import INPUT_PATH, OUTPUT_PATH
from analyzer.cli.tune_inputs import select_part

if TYPE_CHECKING:
    from analyzer.tuning.samples import Samples
    from analyzer.tuning.wave_model import WaveTables


@click.command(
    epilog=make_examples(
        "warplens tune fit traces/h100/gemm_profile.csv -o gemm.npz",
        "warplens tune fit traces/h100/gemm_profile.csv --waves 6 --last-waves 4 -o few-waves.npz",
    )
)
@click.argument("profile", metavar="PROFILE.csv", type=INPUT_PATH)
@click.option("--output", "-o", required=True, type=OUTPUT_PATH, help="Artifact to write (.npz).")
@click.option("--kernel", "kernel_name", default="", help="Of a profile of several kernels, the one to fit.")
@click.option("--gpu", "-g", default="", help="Of a profile of several GPUs, the one to fit.")
@click.option("--sms", type=click.IntRange(1, 100_000), help="SMs of a GPU that is not in the database.")
@click.option(
    "--waves", type=click.IntRange(1, 1000), default=40, show_default=True, help="Waves with a model."
)
@click.option(
    "--last-waves",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Waves to extrapolate from.",
)
@click.option(
    "--variant",
    type=click.Choice(["wavetune", "linear", "step", "step-loops"]),
    default="wavetune",
    show_default=True,
    help="The model, or what remains of it: one line for all waves, or steps.",
)
@click.option(
    "--squares",
    type=click.Choice(["relative", "absolute"]),
    help="Errors whose squares are least; default: relative, of a variant absolute.",
)
def fit(
    profile: Path,
    *,
    output: Path,
    kernel_name: str,
    gpu: str,
    sms: int | None,
    waves: int,
    last_waves: int,
    variant: str,
    squares: str | None,
) -> None:
    """Fit WaveTune's model to measured launches and write the tables to choose from.

    PROFILE.csv is a plan with the column time_us filled; an empty time is a configuration that could not run.
    The file has two small arrays and a description; numpy alone reads it.
    """
    from analyzer.hardware.gpu_database import load_gpu
    from analyzer.tuning.artifact import save_artifact
    from analyzer.tuning.samples import read_samples
    from analyzer.tuning.wave_model import FitOptions, FitVariant
    from analyzer.tuning.wave_model import fit as fit_model

    samples = select_part(profile, read_samples(profile), kernel_name, gpu)
    n_sms = sms or load_gpu(samples.gpu).sm_count
    options = FitOptions(
        variant=FitVariant(variant),
        max_wave=waves,
        extrapolation_waves=last_waves,
        is_relative=None if squares is None else squares == "relative",
    )
    tables = fit_model(samples, n_sms, options)
    size = save_artifact(tables.pack(), output)
    print_line(f"{output}: {samples.space.name} on {samples.gpu}, {size:,} bytes")
    for line in _describe_fit(tables, samples):
        print_line(f"  {line}")


def _describe_fit(tables: "WaveTables", samples: "Samples") -> list[str]:
    """Return what the tables rest on, and how far they are from the samples themselves."""
    from analyzer.tuning.wave_model import measure_fit_error

    full, fewer, none = (int(count) for count in _count_ranks(tables))
    lines = [
        f"{tables.n_samples:,} measured launches, {len(samples) - tables.n_samples:,} without a time",
        f"{len(tables.macros)} macro configurations x {tables.max_wave} waves and the extrapolation: "
        f"{full} buckets decided by their own samples",
        f"predicted times are off by {100 * measure_fit_error(tables, samples):.1f} % on the mean of the "
        "launches with the chosen micro configurations",
    ]
    if fewer or none:
        lines.insert(
            2,
            f"{fewer} buckets have samples for fewer terms and {none} for none: "
            "the rest is the macro configuration's over all waves",
        )
    return lines


def _count_ranks(tables: "WaveTables") -> tuple[int, int, int]:
    """Return how many buckets their samples decide wholly, in part, and not at all."""
    full = int((tables.ranks == tables.variant.n_terms).sum())
    none = int((tables.ranks == 0).sum())
    return full, tables.ranks.size - full - none, none
