"""`warplens serving`: a model under requests that arrive over time.

Named for what is forecast, online serving; `serve` starts a server in vLLM, and what is simulated elsewhere
in this program is a kernel.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli.deployment_options import layout_options
from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.forecast_layouts import PRICE_OPTIONS, find_prices
from analyzer.cli.output import output_options, print_line, write_report, write_text
from analyzer.cli.path_types import CHART_PATH, INPUT_PATH
from analyzer.cli.progress import show_progress
from analyzer.forecast.serving_load import ArrivalProcess
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.forecast.request_trace import RequestTrace
    from analyzer.pipeline.forecast import ForecastOptions
    from analyzer.pipeline.serving import ServingOptions

_DEFAULT_COUNT = 1_000  # of equal requests
_NO_REQUESTS_HINT = "name a table with --requests, or give --input-tokens and --output-tokens"


@click.command(
    epilog=make_examples(
        "warplens serving docs/llama-3.1-8b.json --requests docs/arrivals.csv --gpu h100",
        "warplens serving docs/llama-3.1-8b.json --requests docs/arrivals.csv --gpu h100,l40s --tp 1,2 \\",
        "    --dtype bf16,fp8 --slo-tpot-ms 30 --price h100=2.5 --price l40s=1.1",
    )
)
@click.argument("model", type=INPUT_PATH, metavar="MODEL.json")
@click.option(
    "--requests",
    "--arrivals",
    "requests",
    type=INPUT_PATH,
    metavar="FILE",
    help="Trace: a CSV table of requests, with their arrival times.",
)
@click.option("--input-tokens", type=int, metavar="N", help="Tokens of each prompt, in place of a trace.")
@click.option("--output-tokens", type=int, metavar="N", help="Tokens generated for each.")
@click.option(
    "--rate", type=float, metavar="R", help="Requests per second, in place of the trace's arrivals."
)
@click.option(
    "--count",
    type=int,
    metavar="N",
    help=f"Requests: with --rate drawn from the trace, else its first; {_DEFAULT_COUNT:,} equal ones.",
)
@click.option(
    "--process",
    type=click.Choice([process.value for process in ArrivalProcess if process is not ArrivalProcess.TRACE]),
    default=ArrivalProcess.POISSON.value,
    show_default=True,
    help="Arrivals at --rate.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of random arrivals.")
@click.option(
    "--chunk",
    type=int,
    metavar="N",
    help="Tokens of a step (max_num_batched_tokens, chunked_prefill_size); else the framework's default.",
)
@click.option(
    "--max-batch", type=int, metavar="N", help="Running requests: max_num_seqs, max_running_requests."
)
@click.option("--block", type=int, metavar="N", help="Tokens of a block (page) of the KV cache.")
@click.option(
    "--kv-tokens", type=int, metavar="N", help="Tokens that the KV cache holds; what fits if not given."
)
@click.option("--slo-ttft-ms", type=float, metavar="MS", help="Objective: time to first token, at most.")
@click.option("--slo-tpot-ms", type=float, metavar="MS", help="Objective: time per output token, at most.")
@click.option(
    "--find-rate", is_flag=True, help="Find the sustainable rate, and the goodput under the objective."
)
@click.option("--chart", type=CHART_PATH, metavar="FILE.html", help="Latency against rate.")
@PRICE_OPTIONS[0]
@PRICE_OPTIONS[1]
@layout_options
@output_options("serving")
def serving(
    layouts: "tuple[ForecastOptions, ...]",
    *,
    price: tuple[str, ...],
    prices: Path | None,
    model: Path,
    requests: Path | None,
    input_tokens: int | None,
    output_tokens: int | None,
    rate: float | None,
    count: int | None,
    process: str,
    seed: int,
    chunk: int | None,
    max_batch: int | None,
    block: int | None,
    kv_tokens: int | None,
    slo_ttft_ms: float | None,
    slo_tpot_ms: float | None,
    find_rate: bool,
    chart: Path | None,
    output_format: str,
    output: Path | None,
) -> ExitCode:
    """Forecast latencies and throughput of a model that serves requests as they arrive.

    MODEL.json is the config.json that Hugging Face keeps beside the weights, or its folder. The engine
    batches continuously, as vLLM or SGLang does: queue, chunked prefill, paged KV cache, preemption.
    Several GPUs, layouts or types are compared, each at the highest rate that it serves well; --price adds
    the cost per million output tokens there.
    """
    from analyzer.forecast.engine_limits import GivenLimits
    from analyzer.pipeline.serving import ServingOptions, simulate_model
    from analyzer.render.registry import find_format

    trace = _choose_requests(requests, input_tokens, output_tokens, count)
    options = ServingOptions(
        rate=rate,
        count=count,
        process=ArrivalProcess(process),
        seed=seed,
        limits=GivenLimits(
            chunk_tokens=chunk, max_running=max_batch, block_tokens=block, kv_capacity_tokens=kv_tokens
        ),
        slo_ttft_ms=slo_ttft_ms,
        slo_tpot_ms=slo_tpot_ms,
        finds_rates=find_rate,
        sweeps=chart is not None,
    )
    if len(layouts) > 1 or price or prices:
        if chart is not None:
            raise UsageError("--chart draws one layout", hint="give one GPU and layout, without prices")
        if output_format == "csv":
            raise UsageError("--format csv lists the requests of one layout", hint="--format json")
        return _compare(model, trace, layouts, options, find_prices(price, prices), output_format, output)
    with show_progress("simulating") as progress:
        report = simulate_model(model, trace, layouts[0], options, progress=progress)
    if chart is not None:
        write_text(find_format(report, "html").load_renderer()(report), chart)
    write_report(report, output_format, output)
    return ExitCode.CLEAN


def _compare(
    config: Path,
    trace: "Path | RequestTrace",
    layouts: "Sequence[ForecastOptions]",
    options: "ServingOptions",
    prices: Mapping[str, float],
    output_format: str,
    output: Path | None,
) -> ExitCode:
    """Compare layouts and write the report. Return GATE_TRIPPED if none meets the objective."""
    from analyzer.pipeline.serving_comparison import compare_served_layouts

    with show_progress("simulating layouts") as progress:
        report = compare_served_layouts(config, trace, layouts, options, prices=prices, progress=progress)
    write_report(report, output_format, output)
    if any(entry.rate_per_s for entry in report.layouts):
        return ExitCode.CLEAN
    print_line("gate: no layout meets the objective at any rate", to_errors=True)
    return ExitCode.GATE_TRIPPED


def _choose_requests(
    table: Path | None, input_tokens: int | None, output_tokens: int | None, count: int | None
) -> "Path | RequestTrace":
    """Return a trace's file, or equal requests. Raises UsageError for both or neither."""
    from analyzer.forecast.request_trace import make_equal_requests

    sizes = {"--input-tokens": input_tokens, "--output-tokens": output_tokens}
    given = [name for name, value in sizes.items() if value is not None]
    if table is not None:
        if given:
            raise UsageError(f"--requests excludes {', '.join(given)}", hint="the table has all requests")
        return table
    if input_tokens is None or output_tokens is None:
        missing = [name for name, value in sizes.items() if value is None]
        raise UsageError(f"no {', '.join(missing)}" if given else "no requests", hint=_NO_REQUESTS_HINT)
    if count is not None and count < 1:
        raise UsageError(f"--count {count} is no number of requests", hint="give 1 or more")
    return make_equal_requests(_DEFAULT_COUNT if count is None else count, input_tokens, output_tokens)
