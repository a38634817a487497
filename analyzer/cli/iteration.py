"""`warplens iteration`: one pass over a whole model as PyTorch runs it, training or inference."""

from pathlib import Path
from typing import Any

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.output import output_options, write_report
from analyzer.cli.path_types import GPU_TEXT, INPUT_PATH
from analyzer.models.registry import OPERATOR_MODELS
from analyzer.text.errors import UsageError


@click.command(
    epilog=make_examples(
        "warplens iteration docs/gpt2-large.json --batch 4 --seq 1024 --gpu a100-40gb-sxm --training --tp 4",
        "warplens iteration --exported docs/transformer.pt2 --gpu h100 --dtype bf16",
    )
)
@click.argument("model", required=False, type=INPUT_PATH, metavar="[MODEL.json]")
@click.option("--config", type=INPUT_PATH, metavar="FILE", help="The same as MODEL.json, by name.")
@click.option(
    "--exported",
    type=INPUT_PATH,
    metavar="MODEL.pt2",
    help="In place of a configuration, a program of torch.export, with the sizes that it was exported with.",
)
@click.option(
    "--gpu",
    "-g",
    required=True,
    type=GPU_TEXT,
    help="GPU, by name or TOML file.",
)
@click.option("--training", "is_training", is_flag=True, help="With backward pass and optimizer.")
@click.option("--batch", default=1, show_default=True, help="Sequences, of all replicas together.")
@click.option("--seq", "sequence", type=int, default=0, metavar="N", help="Tokens of each sequence.")
@click.option(
    "--dtype", default="", metavar="TYPE", help="fp32, fp16 or bf16; fp32, or the program's, if not given."
)
@click.option("--dp", "data_parallel", default=1, show_default=True, help="Replicas in training.")
@click.option("--tp", "tensor_parallel", default=1, show_default=True, help="GPUs that divide each layer.")
@click.option("--pp", "pipeline_parallel", default=1, show_default=True, help="Stages of layers.")
@click.option("--micro-batches", default=1, show_default=True, help="Parts of a replica's batch.")
@click.option("--compiled", "is_compiled", is_flag=True, help="As torch.compile fuses element-wise chains.")
@click.option("--no-optimizer", is_flag=True, help="Training without the optimizer's step.")
@click.option(
    "--model",
    "-m",
    "operator_model",
    default=OPERATOR_MODELS.default,
    show_default=True,
    help="That times the kernels, one of those of `predict`.",
)
@output_options("iteration")
def iteration(
    *,
    model: Path | None,
    config: Path | None,
    exported: Path | None,
    no_optimizer: bool,
    output_format: str,
    output: Path | None,
    **settings: Any,
) -> None:
    """Forecast one iteration of a model on GPUs that need not be at hand.

    MODEL.json is a Hugging Face config.json, or its folder: BERT, GPT-2, OPT, Switch Transformer, Llama. The
    operators are those of transformers on PyTorch; --training adds the backward pass.
    """
    from analyzer.pipeline.iteration import IterationOptions, forecast_exported, forecast_iteration

    source = _choose_source(model, config, exported)
    options = IterationOptions(has_optimizer=not no_optimizer, **settings)
    report = forecast_exported(source, options) if exported else forecast_iteration(source, options)
    write_report(report, output_format, output)


def _choose_source(*given: Path | None) -> Path:
    """Return the one model that is named. Raises UsageError for none or several."""
    found = [path for path in given if path is not None]
    if len(found) != 1:
        raise UsageError(
            "no model" if not found else "several models",
            hint="name one: a config.json, or --exported with an archive of torch.export",
        )
    return found[0]
