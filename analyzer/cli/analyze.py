"""`warplens analyze`: counts and predictions of kernels."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.options import (
    InputOptions,
    analyze_inputs,
    input_options,
    jobs_option,
    scale_options,
    strict_option,
)
from analyzer.cli.output import check_warnings, output_options, write_report
from analyzer.cli.progress import show_progress
from analyzer.render.registry import FINDING_FORMATS
from analyzer.render.text_options import TextOptions


@click.command(
    epilog=make_examples(
        "warplens analyze traces/triton/sm_90/matmul.sass -g h100 --launch docs/launch.json",
        "warplens analyze traces/cuda/sm_80/report16.sass -g a100 -k saxpy \\",
        "    --grid 4096 --block 256 --arg 3=1048576 --loops --memory",
    )
)
@jobs_option
@scale_options
@input_options
@output_options("analyze")
@click.option("--loops", is_flag=True, help="Show all loops with their bounds.")
@click.option("--memory", is_flag=True, help="Show what each memory instruction asks for.")
@click.option(
    "--advice", is_flag=True, help="Ask the model what each cause of lost time costs, and show what to do."
)
@click.option("--explain", is_flag=True, help="Show why the models part, `amali` taken as the second one.")
@click.option(
    "--levels",
    is_flag=True,
    help="Compare the launch with that of NAME.ttgir and NAME.ptx beside the input.",
)
@click.option("--listing", is_flag=True, help="Show the annotated listing.")
@click.option("--all", "show_all", is_flag=True, help="Show loops, memory, advice and listing.")
@click.option(
    "--min-coverage",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Exit with 1 below this share of known opcodes.",
)
@strict_option
def analyze(
    inputs: InputOptions,
    *,
    output_format: str,
    output: Path | None,
    loops: bool,
    memory: bool,
    advice: bool,
    explain: bool,
    levels: bool,
    listing: bool,
    show_all: bool,
    min_coverage: float,
    strict: bool,
) -> ExitCode:
    """Counts, bound, CPI stack, loops and predicted time of each kernel in FILE.

    FILE is SASS text of cuobjdump or nvdisasm, a cubin, object or library, PTX, a trace, or pasted code
    with --arch; a folder, such as Triton's cache, stands for its kernels, - for standard input.
    """
    shows_all = show_all or output_format == "html"  # a page has room for everything
    options = inputs.make_pipeline_options(
        listing=listing or shows_all,
        min_coverage=min_coverage,
        explain=explain,
        levels=levels,
        advice=advice or shows_all or output_format in FINDING_FORMATS,
        hardware_curves=output_format == "html",
    )
    with show_progress("reading") as progress:
        report = analyze_inputs(inputs, options, progress)
    shown = TextOptions(
        loops=loops or show_all,
        memory=memory or show_all,
        branches=show_all,
        advice=advice or show_all,
        explain=explain,
        levels=levels,
        listing=options.listing,
    )
    write_report(report, output_format, output, shown)
    return check_warnings(report.warnings, strict=strict)
