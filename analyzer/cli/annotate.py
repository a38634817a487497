"""`warplens annotate`: the listing with the cost of each instruction."""

import click

from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.options import InputOptions, input_options, jobs_option, strict_option
from analyzer.cli.output import check_warnings, write_report
from analyzer.text.errors import UsageError

_MAX_KERNELS = 20


@click.command()
@jobs_option
@input_options
@strict_option
def annotate(inputs: InputOptions, *, strict: bool) -> ExitCode:
    """The listing of each chosen kernel with pipe, predicted stall, control code, source and cause."""
    from analyzer.pipeline import analyze_programs

    options = inputs.make_pipeline_options(listing=True)
    programs = inputs.load()
    n_kernels = sum(map(len, programs))
    if n_kernels > _MAX_KERNELS and not options.kernels:
        raise UsageError(f"{n_kernels} kernels in the input", hint="choose with -k NAME, or -k '*' for all")
    report = analyze_programs(programs, inputs.gpu, options)
    write_report(report, "listing", None)
    return check_warnings(report.warnings, strict=strict)
