"""`warplens trace`: a launch executed without a GPU, written down as a tracer on a GPU would."""

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from analyzer.cli.options import InputOptions, launch_options
from analyzer.text.errors import UsageError


@click.command()
@launch_options
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write there, not to standard output.")
@click.option("--ctas", type=click.IntRange(min=1), metavar="N", help="Trace the first N CTAs alone.")
def trace(inputs: InputOptions, *, output: Path | None, ctas: int | None) -> None:
    """Write the trace of a kernel's launch as Accel-Sim reads it, with no GPU at hand.

    The kernel in FILE is executed abstractly, so its launch must be given: --grid, --block, --arg.
    What the trace rests on goes to standard error.
    """
    from analyzer.pipeline.trace_generation import trace_kernel
    from analyzer.render.traceg import render_traceg

    found = trace_kernel(inputs.load(), inputs.make_pipeline_options(listing=False), n_ctas=ctas)
    _write_trace(render_traceg(found.trace), output)
    for note in found.assumptions:
        click.echo(f"rests on: {note}", err=True)
    if output is not None:
        click.echo(
            f"wrote {output}: {found.trace.header.name}, {len(found.trace.cta_ids):,} CTAs, "
            f"{len(found.trace.warp_ids):,} warps, {len(found.trace):,} instructions"
        )


def _write_trace(pieces: Iterable[str], output: Path | None) -> None:
    """To the file, or to standard output for None. Raises UsageError where the file cannot be written."""
    if output is None:
        sys.stdout.writelines(pieces)
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
