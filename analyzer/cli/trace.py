"""`warplens trace`: the trace of a launch, as a tracer on a GPU would write it, without a GPU."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.options import InputOptions, launch_options
from analyzer.cli.output import output_option, print_line, write_text
from analyzer.cli.progress import show_progress


@click.command(
    epilog=make_examples(
        "warplens trace traces/cuda/sm_80/report16.sass -k saxpy --grid 4 --block 64 -o saxpy.traceg",
        "warplens trace traces/cuda/sm_80/report16.sass -k vector_add \\",
        "    --grid 64 --block 256 --ctas 1 -o vector_add.traceg",
    )
)
@launch_options
@output_option
@click.option("--ctas", type=click.IntRange(min=1), metavar="N", help="Trace the first N CTAs alone.")
def trace(inputs: InputOptions, *, output: Path | None, ctas: int | None) -> None:
    """Write the trace of a kernel's launch as Accel-Sim reads it, with no GPU at hand.

    The kernel in FILE is executed abstractly, so its launch must be given: --grid, --block, --arg.
    What the trace rests on goes to standard error.
    """
    from analyzer.pipeline.trace_generation import trace_kernel
    from analyzer.render.traceg import render_traceg

    with show_progress("executing"):
        found = trace_kernel(inputs.load(), inputs.make_pipeline_options(listing=False), n_ctas=ctas)
    write_text(render_traceg(found.trace), output)
    for note in found.assumptions:
        print_line(f"rests on: {note}", to_errors=True)
    if output is not None:
        print_line(
            f"wrote {output}: {found.trace.header.name}, {len(found.trace.cta_ids):,} CTAs, "
            f"{len(found.trace.warp_ids):,} warps, {len(found.trace):,} instructions"
        )
