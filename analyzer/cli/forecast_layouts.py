"""Options that make `forecast` a comparison: prices, latency targets, a page; and what it answers then."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.output import print_line, write_report
from analyzer.cli.path_types import INPUT_PATH, OUTPUT_PATH
from analyzer.cli.progress import show_progress
from analyzer.forecast.comparison import LatencyTargets

if TYPE_CHECKING:
    from analyzer.forecast.request_trace import RequestTrace
    from analyzer.pipeline.forecast import ForecastOptions
    from analyzer.report.forecast_comparison_schema import ForecastComparison

Command = Callable[..., Any]


class ComparisonChoice(Struct, frozen=True):
    """What the options of a comparison say."""

    prices: tuple[str, ...]
    price_table: Path | None
    targets: LatencyTargets
    page: Path | None

    @property
    def is_asked(self) -> bool:
        """Whether one of them was given: then a single layout, too, is a comparison."""
        return bool(self.prices or self.price_table or self.page) or self.targets.has_any


def comparison_options(command: Command) -> Command:
    """Add the options; the command gets them as `comparison`, a ComparisonChoice."""

    @wraps(command)
    def wrapper(*arguments: Any, **values: Any) -> Any:
        targets = LatencyTargets(
            ttft_ms=values.pop("max_ttft_ms"),
            tpot_ms=values.pop("max_tpot_ms"),
            total_ms=values.pop("max_total_ms"),
        )
        choice = ComparisonChoice(values.pop("price"), values.pop("prices"), targets, values.pop("html"))
        return command(*arguments, comparison=choice, **values)

    decorated: Command = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


PRICE_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option(
        "--price", multiple=True, metavar="GPU=X", help="Price of one GPU per hour: h100=2.5; repeatable."
    ),
    click.option(
        "--prices",
        type=INPUT_PATH,
        metavar="FILE",
        help="Prices: a CSV table with columns gpu and price_per_hour.",
    ),
)
_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    *PRICE_OPTIONS,
    click.option("--max-ttft-ms", type=float, metavar="MS", help="Target: time to first token, at most."),
    click.option("--max-tpot-ms", type=float, metavar="MS", help="Target: time per output token, at most."),
    click.option("--max-total-ms", type=float, metavar="MS", help="Target: time of the run, at most."),
    click.option(
        "--html",
        type=OUTPUT_PATH,
        metavar="FILE",
        help="Draw costs against times of all layouts into an HTML page.",
    ),
)


def find_prices(texts: Sequence[str], table: Path | None) -> Mapping[str, float]:
    """Return prices by the name of a GPU's file: those of a table, and those given one by one before them."""
    from analyzer.pipeline.gpu_prices import parse_prices, read_prices

    return {**(read_prices(table) if table else {}), **parse_prices(texts)}


def compare(
    config: Path,
    trace: "Path | RequestTrace",
    layouts: "Sequence[ForecastOptions]",
    comparison: ComparisonChoice,
    output_format: str,
    output: Path | None,
) -> ExitCode:
    """Compare layouts and write the report. Return GATE_TRIPPED if targets were set and none meets them."""
    from analyzer.pipeline.forecast_comparison import ComparisonOptions, compare_layouts

    prices = find_prices(comparison.prices, comparison.price_table)
    options = ComparisonOptions(prices=prices, targets=comparison.targets)
    with show_progress("timing layouts") as progress:
        report = compare_layouts(config, trace, layouts, options, progress=progress)
    if comparison.page is not None:
        write_report(report, "html", comparison.page)
    write_report(report, output_format, output)
    return _check_targets(report)


def _check_targets(report: "ForecastComparison") -> ExitCode:
    """Return CLEAN, or GATE_TRIPPED with one line on standard error."""
    possible = [layout for layout in report.layouts if layout.is_possible]
    if any(layout.meets_targets is not False for layout in possible):
        return ExitCode.CLEAN
    nearest = possible[0]
    name = f"{nearest.gpu} tp {nearest.tensor_parallel} pp {nearest.pipeline_parallel}"
    number = f"none of {len(possible)} layouts meets" if len(possible) > 1 else "it does not meet"
    print_line(f"gate: {number} the targets; {name}: {', '.join(nearest.missed)}", to_errors=True)
    return ExitCode.GATE_TRIPPED
