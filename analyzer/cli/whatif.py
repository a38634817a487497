"""`warplens whatif`: kernels on edited hardware."""

from pathlib import Path

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.options import InputOptions, cache_options, input_options, jobs_option
from analyzer.cli.output import output_options, write_report
from analyzer.cli.path_types import CHART_PATH
from analyzer.cli.progress import show_progress
from analyzer.text.errors import UsageError


@click.command(
    epilog=make_examples(
        "warplens whatif traces/cuda/sm_80/report16.sass -g a100 -k saxpy \\",
        "    --grid 4096 --block 256 --set dram=x2",
        "warplens whatif traces/cuda/sm_80/report16.sass -g a100 -k matmul_tiled \\",
        "    --grid 16,16 --block 16,16 --arg 3=256 --sweep sms=54:108:27 --no-elasticity",
    )
)
@jobs_option
@cache_options
@input_options
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a figure, or KEY=x1.5; repeatable."
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=A:B:STEP",
    help="A figure's values, or KEY=V1,V2,...; repeatable.",
)
@click.option("--elasticity/--no-elasticity", default=True, help="How time follows each figure of the GPU.")
@click.option(
    "--follow-power",
    is_flag=True,
    help="Let power choose the clock of each edited GPU; else all run at that of the GPU as it is.",
)
@output_options("whatif")
@click.option("--chart", type=CHART_PATH, help="Draw the CPI stacks of all settings into an HTML file.")
def whatif(
    inputs: InputOptions,
    *,
    settings: tuple[str, ...],
    sweeps: tuple[str, ...],
    elasticity: bool,
    follow_power: bool,
    output_format: str,
    output: Path | None,
    chart: Path | None,
) -> None:
    """Cycles and CPI stack of each kernel in FILE on a GPU whose figures are edited.

    KEY is a figure of the hardware database, as `warplens gpus NAME --explain` lists them:
    tensor.f16.fma_per_cycle_per_sm, memory.bandwidth_gbps, sm.count; short: dram, l2, sms, clock.
    Or a resource's rate, latency or size, by a factor: l1.rate=x2, l2.latency=x0.5, l2.size=x2.
    """
    from analyzer.hardware.parameter_edits import parse_setting, parse_sweep
    from analyzer.pipeline.edited_kernels import HardwareEdits
    from analyzer.pipeline.whatif import whatif_programs

    if len(inputs.gpu) > 1:
        raise UsageError("whatif takes one --gpu", hint="run it once for each")
    edits = HardwareEdits(
        settings=tuple(map(parse_setting, settings)),
        sweeps=tuple(map(parse_sweep, sweeps)),
        elasticity=elasticity,
        follows_power=follow_power,
    )
    options = inputs.make_pipeline_options(listing=False)
    with show_progress("reading") as progress:
        report = whatif_programs(
            inputs.load(), inputs.gpu[0] if inputs.gpu else None, edits, options, progress
        )
    if chart is not None:
        write_report(report, "html", chart)
    write_report(report, output_format, output)
