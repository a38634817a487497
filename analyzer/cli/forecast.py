"""`warplens forecast`: times of a whole language model as a serving framework runs it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.deployment_options import layout_options
from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.forecast_layouts import ComparisonChoice, compare, comparison_options
from analyzer.cli.output import output_options, write_report
from analyzer.cli.path_types import INPUT_PATH
from analyzer.cli.progress import show_progress
from analyzer.render.text_options import TextOptions
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.forecast.request_trace import RequestTrace
    from analyzer.pipeline.forecast import ForecastOptions

_NO_REQUESTS_HINT = "name a table with --requests, or give --batch, --input-tokens and --output-tokens"


@click.command(
    epilog=make_examples(
        "warplens forecast docs/llama-3.1-8b.json --requests docs/requests.csv --gpu h100",
        "warplens forecast docs/llama-3.1-8b.json --batch 32 --input-tokens 1024 --output-tokens 128 \\",
        "    --gpu h100,l40s --tp 1,2,4 --price h100=2.5 --price l40s=1.1 --max-tpot-ms 20",
    )
)
@click.argument("model", required=False, type=INPUT_PATH, metavar="[MODEL.json]")
@click.option("--config", type=INPUT_PATH, metavar="FILE", help="The same as MODEL.json, by name.")
@click.option("--requests", type=INPUT_PATH, metavar="FILE", help="Trace: a CSV table of requests.")
@click.option("--batch", type=int, metavar="N", help="So many equal requests, in place of a trace.")
@click.option("--input-tokens", type=int, metavar="N", help="Tokens of each prompt.")
@click.option("--output-tokens", type=int, metavar="N", help="Tokens generated for each.")
@click.option("--explain", is_flag=True, help="All calls of the prefill and of a decode step; whole sources.")
@layout_options
@comparison_options
@output_options("forecast")
def forecast(
    layouts: "tuple[ForecastOptions, ...]",
    *,
    comparison: ComparisonChoice,
    model: Path | None,
    config: Path | None,
    requests: Path | None,
    batch: int | None,
    input_tokens: int | None,
    output_tokens: int | None,
    explain: bool,
    output_format: str,
    output: Path | None,
) -> ExitCode:
    """Forecast the time of a language model on GPUs that need not be at hand.

    MODEL.json is the config.json that Hugging Face keeps beside the weights, or its folder. The requests are
    prefilled in one pass and then decoded together, as a serving framework runs one batch.
    Several GPUs or layouts are compared: times, costs, and the cheapest that meets the targets.
    """
    from analyzer.pipeline.forecast import forecast_model

    path = _choose_config(model, config)
    trace = _choose_requests(requests, batch, input_tokens, output_tokens)
    if len(layouts) > 1 or comparison.is_asked:
        if explain:
            raise UsageError("--explain explains one layout", hint="forecast it alone, without a comparison")
        return compare(path, trace, layouts, comparison, output_format, output)
    with show_progress("timing steps") as progress:
        report = forecast_model(
            path, trace, layouts[0], lists_operators=output_format == "json", progress=progress
        )
    write_report(report, output_format, output, TextOptions(explain=explain))
    return ExitCode.CLEAN


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
