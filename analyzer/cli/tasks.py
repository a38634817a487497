"""`warplens tasks`: a launch as classes of tasks, without a GPU."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.options import InputOptions, launch_options
from analyzer.cli.output import output_options, write_report
from analyzer.cli.progress import show_progress
from analyzer.text.errors import UsageError


@click.command(
    epilog=make_examples(
        "warplens tasks traces/levels/sm_90/softmax.ttgir --grid 4096 --arg columns=1000",
        "warplens tasks traces/cuda/sm_80/report16.sass -k saxpy --grid 4 --block 64 --format json",
    )
)
@launch_options
@output_options("tasks")
def tasks(inputs: InputOptions, *, output_format: str, output: Path | None) -> None:
    """Divide the launch of a kernel into tasks: how many do the same, and what one of each asks for.

    Of Triton IR (.ttir, .ttgir) a task is a program, decomposed from the tiles of its code: products, bytes
    with masks applied, special functions, loop trips. Of compiled code (cubin, SASS, PTX) the launch is
    executed abstractly, and there is one class, with the means of a CTA.
    """
    from analyzer.frontend.triton_file import is_triton_ir
    from analyzer.pipeline.task_decomposition import make_code_tasks_report, make_triton_tasks_report

    options = inputs.make_pipeline_options(listing=False)
    with show_progress("decomposing"):
        if any(map(is_triton_ir, inputs.files)):
            if len(inputs.files) > 1:
                raise UsageError("tasks are of one kernel", hint="name one FILE")
            report = make_triton_tasks_report(inputs.files[0], options)
        else:
            report = make_code_tasks_report(inputs.load(), options)
    write_report(report, output_format, output)
