"""`warplens forecast`: times of a whole language model as a serving framework runs it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.completion import complete_gpus
from analyzer.cli.examples import make_examples
from analyzer.cli.forecast_iteration import iteration_options, run_iteration
from analyzer.cli.output import check_outputs, output_options, write_report
from analyzer.cli.progress import show_progress
from analyzer.forecast.data_types import KV_TYPES, SERVING_TYPES
from analyzer.forecast.deployment import Framework
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.forecast.request_trace import RequestTrace

_NO_REQUESTS_HINT = "name a table with --requests, or give --batch, --input-tokens and --output-tokens"


@click.command(
    epilog=make_examples(
        "warplens forecast docs/llama-3.1-8b.json --requests docs/requests.csv --gpu h100",
        "warplens forecast docs/llama-3.1-8b.json --batch 32 --input-tokens 1024 --output-tokens 128 "
        "--gpu l40s --tp 2 --framework vllm --format json",
    )
)
@click.argument("model", required=False, type=click.Path(path_type=Path), metavar="[MODEL.json]")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="The same as MODEL.json, by name."
)
@click.option(
    "--requests", type=click.Path(path_type=Path), metavar="FILE", help="Trace: a CSV table of requests."
)
@click.option("--batch", type=int, metavar="N", help="So many equal requests, in place of a trace.")
@click.option("--input-tokens", type=int, metavar="N", help="Tokens of each prompt.")
@click.option("--output-tokens", type=int, metavar="N", help="Tokens generated for each.")
@click.option("--gpu", "-g", required=True, shell_complete=complete_gpus, help="GPU, by name or TOML file.")
@click.option("--tp", default=1, show_default=True, help="GPUs that divide each layer.")
@click.option("--pp", default=1, show_default=True, help="Stages of layers, one after the other.")
@click.option("--ep", default=1, show_default=True, help="Of --tp, GPUs that divide experts by whole ones.")
@click.option(
    "--framework",
    type=click.Choice([framework.value for framework in Framework]),
    default=Framework.SGLANG.value,
    show_default=True,
    help="Serving framework.",
)
@click.option(
    "--dtype",
    default="",
    metavar="TYPE",
    help=f"Weights and products: {', '.join(SERVING_TYPES)}; as the configuration has it if not given.",
)
@click.option(
    "--kv-dtype", default="", metavar="TYPE", help=f"KV cache: {', '.join(KV_TYPES)}; bf16 if not given."
)
@click.option(
    "--gemm-tflops", type=float, metavar="X", help="Rate of large 16-bit products, where you measured it."
)
@click.option(
    "--memory-fraction",
    type=float,
    default=0.9,
    show_default=True,
    help="Of the GPU's memory, what weights and KV cache may fill.",
)
@iteration_options
@output_options("forecast")
def forecast(
    model: Path | None,
    *,
    config: Path | None,
    requests: Path | None,
    batch: int | None,
    input_tokens: int | None,
    output_tokens: int | None,
    gpu: str,
    tp: int,
    pp: int,
    ep: int,
    framework: str,
    dtype: str,
    kv_dtype: str,
    gemm_tflops: float | None,
    memory_fraction: float,
    training: bool,
    seq: int | None,
    exported: Path | None,
    dp: int,
    micro_batches: int,
    compiled: bool,
    no_optimizer: bool,
    operator_model: str,
    output_format: str,
    output: Path | None,
) -> None:
    """Forecast the time of a language model on GPUs that need not be at hand.

    MODEL.json is the config.json that Hugging Face keeps beside the weights, or its folder. The requests are
    prefilled in one pass and then decoded together, as a serving framework runs one batch. With --training,
    --seq or --exported it is one iteration of the model itself, as PyTorch runs it (docs/training.md).
    """
    if training or seq is not None or exported is not None:
        run_iteration(
            None
            if exported is not None and model is None and config is None
            else _choose_config(model, config),
            exported,
            gpu=gpu,
            training=training,
            batch=batch,
            seq=seq,
            dtype=dtype,
            dp=dp,
            tp=tp,
            pp=pp,
            micro_batches=micro_batches,
            compiled=compiled,
            no_optimizer=no_optimizer,
            operator_model=operator_model,
            output_format=output_format,
            output=output,
        )
        return
    from analyzer.pipeline.forecast import ForecastOptions, forecast_model

    path = _choose_config(model, config)
    check_outputs([each for each in (path, requests) if each is not None], output)
    trace = _choose_requests(requests, batch, input_tokens, output_tokens)
    options = ForecastOptions(
        gpu=gpu,
        tensor_parallel=tp,
        pipeline_parallel=pp,
        expert_parallel=ep,
        framework=framework,
        dtype=dtype,
        kv_dtype=kv_dtype,
        memory_fraction=memory_fraction,
        gemm_tflops=gemm_tflops,
    )
    with show_progress("timing steps") as progress:
        report = forecast_model(
            path, trace, options, lists_operators=output_format == "json", progress=progress
        )
    write_report(report, output_format, output)


def _choose_config(model: Path | None, config: Path | None) -> Path:
    """Return the configuration, given in one of two ways. Raises UsageError."""
    if (model is None) == (config is None):
        raise UsageError(
            "no MODEL.json" if model is None else "MODEL.json and --config name the same",
            hint="name the config.json that lies beside the model's weights, once",
        )
    return model or config or Path()


def _choose_requests(
    table: Path | None, batch: int | None, input_tokens: int | None, output_tokens: int | None
) -> "Path | RequestTrace":
    """Return a trace's file, or equal requests. Raises UsageError for both or neither."""
    from analyzer.forecast.request_trace import make_equal_requests

    sizes = {"--batch": batch, "--input-tokens": input_tokens, "--output-tokens": output_tokens}
    given = [name for name, value in sizes.items() if value is not None]
    if table is not None:
        if given:
            raise UsageError(f"--requests excludes {', '.join(given)}", hint="the table has all requests")
        return table
    missing = [name for name, value in sizes.items() if value is None]
    if input_tokens is None or output_tokens is None:
        raise UsageError(f"no {', '.join(missing)}" if given else "no requests", hint=_NO_REQUESTS_HINT)
    return make_equal_requests(1 if batch is None else batch, input_tokens, output_tokens)
