"""`warplens diff`: what changed between two inputs, and whether it matters."""

from pathlib import Path

import click
from msgspec.structs import replace

from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.options import (
    InputOptions,
    jobs_option,
    pair_options,
    strict_option,
)
from analyzer.cli.output import check_warnings, output_options, write_report
from analyzer.cli.path_types import KERNEL_TEXT
from analyzer.cli.progress import show_progress


@click.command(
    epilog=make_examples(
        "warplens diff traces/triton/sm_90/matmul.sass traces/triton/sm_90/matmul_four_stages.sass -g h100",
        "warplens diff traces/cuda/sm_80/report16.sass traces/cuda/sm_86/report16.sass \\",
        "    -g a100 -k saxpy --grid 4096 --block 256 --arg 3=1048576",
    )
)
@click.argument("old", metavar="OLD", type=KERNEL_TEXT)
@click.argument("new", metavar="NEW", type=KERNEL_TEXT)
@jobs_option
@pair_options
@output_options("diff")
@strict_option
def diff(
    inputs: InputOptions, *, old: str, new: str, output_format: str, output: Path | None, strict: bool
) -> ExitCode:
    """What changed from OLD to NEW, kernel by kernel, and whether it matters: significant, benign or unclear.

    OLD and NEW are what analyze takes, or its reports (--format json --all). Kernels are matched by name, by
    name without hashes and template arguments, and by their code. A launch that nobody gives is assumed, the
    same for both sides. -k NAME adds both listings, aligned. The exit code is 0 whatever has changed.
    """
    from analyzer.pipeline.diff import diff_inputs
    from analyzer.pipeline.diff_inputs import load_diff_input

    sides = replace(inputs, files=(old, new))
    options = sides.make_pipeline_options(listing=True)
    with show_progress("reading") as progress:
        before, after = (
            load_diff_input(path, lambda path: replace(sides, files=(path,)).load()) for path in (old, new)
        )
        report = diff_inputs(before, after, inputs.gpu, options, progress)
    write_report(report, output_format, output)
    return check_warnings(report.warnings, strict=strict)
