"""A forecast as text: times with their intervals, breakdown by operator, memory, and what they rest on."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from analyzer.render.number_format import (
    format_bytes,
    format_milliseconds,
    format_percent,
    format_three_digits,
)
from analyzer.render.tables import Column, ColumnFit, Row, make_table, shorten_middle
from analyzer.render.text_options import TextOptions
from analyzer.report.forecast_schema import (
    ForecastCallEntry,
    ForecastFigureEntry,
    ForecastMemoryEntry,
    ForecastReport,
)

_MAX_SHOWN_OPERATORS = 12
_BAR_CELLS = 50
_MAX_SOURCE_CELLS = 50
_MS_US = 1e3


def print_forecast(report: ForecastReport, console: Console, options: TextOptions | None = None) -> None:
    """Print times, breakdown, memory, warnings and assumptions; on request all calls and whole sources."""
    explain = options is not None and options.explain
    console.print(Text(_describe_run(report), style="bold"), soft_wrap=True)
    console.print(make_table(_TIME_COLUMNS, _make_time_rows(report)))
    if report.output_tokens_per_s is not None and report.requests_per_s is not None:
        tokens, requests = map(format_three_digits, (report.output_tokens_per_s, report.requests_per_s))
        console.print(Text(f"throughput {tokens} output tokens/s, {requests} requests/s"), soft_wrap=True)
    console.print(make_table(_OPERATOR_COLUMNS, _make_operator_rows(report)))
    for line in _make_memory_lines(report.memory):
        console.print(Text(line), soft_wrap=True)
    for warning in report.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    if explain:
        console.print(make_table(_CALL_COLUMNS, [_make_call_row(entry) for entry in report.calls]))
    for figure in report.figures:
        console.print(Text(f"  {_describe_figure(figure, whole=explain)}"), soft_wrap=True)
    for assumption in report.assumptions:
        console.print(Text(f"  - {assumption}"), soft_wrap=True)


_TIME_COLUMNS = (
    Column("", ColumnFit.NO_WRAP),
    Column("time"),
    Column("80 % interval", ColumnFit.NO_WRAP, drop_rank=1),
)
_OPERATOR_COLUMNS = (
    Column("operator", ColumnFit.NO_WRAP),
    Column("prefill"),
    Column("%", drop_rank=2),
    Column("decode step"),
    Column("%", drop_rank=2),
    Column("of the run"),
    Column("basis", ColumnFit.WRAP, drop_rank=1),
)

_CALL_COLUMNS = (
    Column("step", ColumnFit.NO_WRAP),
    Column("operator", ColumnFit.NO_WRAP),
    Column("sizes", ColumnFit.WRAP),
    Column("launches"),
    Column("each"),
    Column("in the step"),
    Column("bound", ColumnFit.NO_WRAP, drop_rank=1),
)


def _describe_run(report: ForecastReport) -> str:
    """Return the head line: model, GPUs and how they are divided, requests."""
    n_gpus = report.tensor_parallel * report.pipeline_parallel
    layout = f"tp {report.tensor_parallel}"
    if report.pipeline_parallel > 1:
        layout += f", pp {report.pipeline_parallel}"
    prompts = sum(step.num_tokens for step in report.steps if step.phase == "prefill")
    outputs = sum(step.batch_size for step in report.steps)
    plural = "" if report.requests == 1 else "s"
    return (
        f"{report.model} on {n_gpus} x {report.gpu_name or report.gpu} ({layout}), {report.framework}, "
        f"{report.dtype}: {report.requests:,} request{plural}, {prompts:,} prompt tokens, "
        f"{outputs:,} generated"
    )


def _make_time_rows(report: ForecastReport) -> list[Row]:
    rows: list[Row] = [
        (
            "TTFT (prefill)",
            format_milliseconds(report.prefill_ms),
            _format_interval(report.prefill_ms_low, report.prefill_ms_high),
        )
    ]
    if report.decode_ms is not None:
        rows.append(
            (
                "TPOT (median decode step)",
                format_milliseconds(report.decode_ms),
                _format_interval(report.decode_ms_low, report.decode_ms_high),
            )
        )
    n_steps = f"{len(report.steps):,} step{'' if len(report.steps) == 1 else 's'}"
    rows.append(
        (
            f"total ({n_steps})",
            format_milliseconds(report.total_ms),
            _format_interval(report.total_ms_low, report.total_ms_high),
        )
    )
    return rows


def _make_operator_rows(report: ForecastReport) -> list[Row]:
    """Return the operators by their part of the run, the smallest ones as one row."""
    decode_ms = report.decode_ms or 0.0
    ordered = sorted(report.operators.items(), key=lambda item: (-item[1].total_ms, item[0]))
    n_shown = len(ordered) if len(ordered) == _MAX_SHOWN_OPERATORS + 1 else _MAX_SHOWN_OPERATORS
    rows = [
        _make_operator_row(
            name, (entry.prefill_ms, entry.decode_ms, entry.share), report.prefill_ms, decode_ms, entry.basis
        )
        for name, entry in ordered[:n_shown]
    ]
    rest = [entry for _, entry in ordered[n_shown:]]
    if rest:
        sums = (
            sum(entry.prefill_ms for entry in rest),
            sum(entry.decode_ms for entry in rest),
            sum(entry.share for entry in rest),
        )
        rows.append(_make_operator_row(f"{len(rest)} others", sums, report.prefill_ms, decode_ms, ""))
    return rows


def _make_operator_row(
    name: str, times: tuple[float, float, float], prefill_ms: float, decode_ms: float, basis: str
) -> Row:
    in_prefill, in_decode, share = times
    return (
        name,
        format_milliseconds(in_prefill) if in_prefill else "-",
        format_percent(in_prefill / prefill_ms) if in_prefill else "",
        format_milliseconds(in_decode) if in_decode else "-",
        format_percent(in_decode / decode_ms) if in_decode else "",
        format_percent(share),
        basis,
    )


def _make_memory_lines(memory: ForecastMemoryEntry) -> Sequence[str]:
    """Return a bar of one GPU's memory, and its parts in words."""
    parts = (("W", memory.weight_bytes), ("K", memory.kv_bytes), ("a", memory.activation_bytes))
    bar = "".join(mark * round(_BAR_CELLS * n_bytes / memory.gpu_bytes) for mark, n_bytes in parts)
    return (
        f"memory of one GPU  [{bar[:_BAR_CELLS].ljust(_BAR_CELLS, '.')}] of {format_bytes(memory.gpu_bytes)}",
        f"  W weights {format_bytes(memory.weight_bytes)}, K KV cache {format_bytes(memory.kv_bytes)}, "
        f"a activations about {format_bytes(memory.activation_bytes)}; "
        f"room for {memory.kv_capacity_tokens:,} tokens of {format_bytes(memory.kv_bytes_per_token)}",
    )


def _make_call_row(entry: ForecastCallEntry) -> Row:
    return (
        entry.phase,
        entry.operator,
        " ".join(f"{name}={value:,.0f}" for name, value in entry.sizes.items()),
        f"{entry.count:,}",
        format_milliseconds(entry.time_us / _MS_US),
        format_milliseconds(entry.total_ms),
        entry.bound,
    )


def _describe_figure(figure: ForecastFigureEntry, *, whole: bool) -> str:
    """Return `246 TF sustained rate of 16-bit products (measured: ...)`."""
    value = f"{format_three_digits(figure.value)} {figure.unit}".rstrip()
    source = figure.source if whole else shorten_middle(figure.source, _MAX_SOURCE_CELLS)
    return f"{value} {figure.name} ({figure.basis}: {source})"


def _format_interval(low_ms: float | None, high_ms: float | None) -> str:
    return (
        ""
        if low_ms is None or high_ms is None
        else f"{format_milliseconds(low_ms)} to {format_milliseconds(high_ms)}"
    )
