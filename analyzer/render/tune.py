"""Reports of `tune` as text."""

from rich.console import Console
from rich.text import Text

from analyzer.render.number_format import format_three_digits
from analyzer.render.tables import Column, ColumnFit, make_table
from analyzer.report.tune_schema import RankedConfigEntry, TuneRankReport

_SHOWN = 10
_HEADINGS = {
    "BLOCK_SIZE_M": "M",
    "BLOCK_SIZE_N": "N",
    "BLOCK_SIZE_K": "K",
    "GROUP_SIZE_M": "group",
    "num_warps": "warps",
    "num_stages": "stages",
}
_NUMBER_COLUMNS = ("CTAs/SM", "registers", "shared bytes")


def print_ranking(report: TuneRankReport, console: Console) -> None:
    """Print the best configurations, and what was left out."""
    shape = " ".join(f"{name} {size}" for name, size in report.shape.items())
    console.print(Text(f"{report.kernel} on {report.gpu_name or report.gpu}: {shape}", style="bold"))
    shown = report.configurations[:_SHOWN]
    names = list(shown[0].config) if shown else []
    columns = (
        Column("rank"),
        *(Column(_HEADINGS.get(name, name)) for name in names),
        Column("time us"),
        Column("80 % interval", drop_rank=4),
        Column("basis", ColumnFit.NO_WRAP, drop_rank=1),
        Column("bound", ColumnFit.NO_WRAP, drop_rank=2),
        *(Column(name, drop_rank=3) for name in _NUMBER_COLUMNS),
    )
    console.print(make_table(columns, [_make_row(each, names) for each in shown]))
    if len(report.configurations) > len(shown):
        console.print(
            Text(f"and {len(report.configurations) - len(shown):,} more: --format json has all"),
            soft_wrap=True,
        )
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in report.pruned.items())
    line = f"{report.enumerated:,} configurations" + (f"; left out: {left_out}" if left_out else "")
    console.print(Text(line), soft_wrap=True)
    if report.compiled_facts:
        console.print(Text(f"code: {report.compiled_facts}"), soft_wrap=True)
    for assumption in report.assumptions:
        console.print(Text(f"  - assumed: {assumption}"), soft_wrap=True)
    for warning in report.warnings:
        console.print(Text(f"  ! {warning}"), soft_wrap=True)


def _make_row(entry: RankedConfigEntry, names: list[str]) -> tuple[str, ...]:
    numbers = (entry.ctas_per_sm, entry.registers, entry.shared_bytes)
    return (
        str(entry.rank),
        *(str(entry.config.get(name, "")) for name in names),
        f"{entry.time_us:,.2f}",
        _format_interval(entry),
        entry.basis,
        entry.bound,
        *("" if number is None else f"{number:,}" for number in numbers),
    )


def _format_interval(entry: RankedConfigEntry) -> str:
    if entry.time_us_low is None or entry.time_us_high is None:
        return ""
    return f"{format_three_digits(entry.time_us_low)} to {format_three_digits(entry.time_us_high)}"
