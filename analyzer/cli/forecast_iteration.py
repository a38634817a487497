"""Options of `warplens forecast` for one pass over a whole model: training, inference, exported programs."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from analyzer.cli.output import check_outputs, write_report

_Command = TypeVar("_Command", bound=Callable[..., object])


def iteration_options(command: _Command) -> _Command:
    """Add the options of one iteration to a command."""
    options = (
        click.option("--training", is_flag=True, help="One training iteration, with --batch and --seq."),
        click.option(
            "--seq", type=int, metavar="N", help="Tokens per sequence: one pass, without serving; FP32."
        ),
        click.option(
            "--exported",
            type=click.Path(path_type=Path),
            metavar="MODEL.pt2",
            help="A program of torch.export.",
        ),
        click.option("--dp", default=1, show_default=True, help="Replicas in training that divide --batch."),
        click.option(
            "--micro-batches", default=1, show_default=True, help="Parts of a replica's batch in training."
        ),
        click.option("--compiled", is_flag=True, help="As torch.compile runs it: element-wise chains fused."),
        click.option("--no-optimizer", is_flag=True, help="Training without the optimizer's step."),
        click.option(
            "--operator-model",
            default="ours",
            metavar="NAME",
            help="That times kernels of a pass: ours, neusight or roofline.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_iteration(
    config: Path | None,
    exported: Path | None,
    *,
    gpu: str,
    training: bool,
    batch: int | None,
    seq: int | None,
    dtype: str,
    dp: int,
    tp: int,
    pp: int,
    micro_batches: int,
    compiled: bool,
    no_optimizer: bool,
    operator_model: str,
    output_format: str,
    output: Path | None,
) -> None:
    """Forecast one iteration and write its report."""
    from analyzer.pipeline.iteration import IterationOptions, forecast_exported, forecast_iteration

    options = IterationOptions(
        gpu=gpu,
        is_training=training,
        batch=1 if batch is None else batch,
        sequence=0 if seq is None else seq,
        dtype=dtype,
        data_parallel=dp,
        tensor_parallel=tp,
        pipeline_parallel=pp,
        micro_batches=micro_batches,
        is_compiled=compiled,
        has_optimizer=not no_optimizer,
        operator_model=operator_model,
    )
    source = exported or config
    assert source is not None, "the command has checked that a model is named"
    check_outputs([source], output)
    report = forecast_exported(source, options) if exported else forecast_iteration(source, options)
    write_report(report, output_format, output)
