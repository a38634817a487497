"""`warplens annotate`: the listing with the cost of each instruction."""

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.options import InputOptions, input_options, jobs_option, parse_model_names, strict_option
from analyzer.cli.output import check_warnings, write_report
from analyzer.cli.progress import show_progress
from analyzer.render.text_options import TextOptions
from analyzer.text.errors import UsageError

_MAX_KERNELS = 20


@click.command(
    epilog=make_examples(
        "warplens annotate traces/cuda/sm_80/report16.sass -g a100 -k matmul_tiled",
        "warplens annotate traces/triton/sm_90/matmul.sass -g h100 --launch docs/launch.json --top 10",
    )
)
@jobs_option
@input_options
@strict_option
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Only the N instructions that cost most time."
)
def annotate(inputs: InputOptions, *, top: int | None, strict: bool) -> ExitCode:
    """The listing of each chosen kernel with pipe, predicted stall, control code, cause and source."""
    from analyzer.hardware.gpu_selection import find_gpus
    from analyzer.pipeline import analyze_programs

    if len(find_gpus(inputs.gpu)) > 1:
        raise UsageError("annotate takes one --gpu", hint="run it once for each")
    if len(parse_model_names(inputs.model)) > 1:
        raise UsageError("annotate takes one --model", hint="run it once for each")
    options = inputs.make_pipeline_options(listing=True)
    with show_progress("reading") as progress:
        programs = inputs.load()
        n_kernels = sum(map(len, programs))
        if n_kernels > _MAX_KERNELS and not options.kernels:
            raise UsageError(
                f"{n_kernels} kernels in the input", hint="choose with -k NAME, or -k '*' for all"
            )
        report = analyze_programs(programs, inputs.gpu, options, progress)
    write_report(report, "listing", None, TextOptions(top=top))
    return check_warnings(report.warnings, strict=strict)
