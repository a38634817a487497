"""A training or inference iteration as text: phases, operators, memory, and what the times rest on."""

from rich.console import Console
from rich.text import Text

from analyzer.render.number_format import (
    format_bytes,
    format_milliseconds,
    format_percent,
)
from analyzer.render.tables import Column, ColumnFit, Row, make_table
from analyzer.report.iteration_schema import IterationMemoryEntry, IterationReport

_COLUMNS = (
    Column("phase", ColumnFit.NO_WRAP),
    Column("time"),
    Column("%", drop_rank=1),
)
_OPERATOR_COLUMNS = (
    Column("operator", ColumnFit.NO_WRAP),
    Column("forward"),
    Column("backward"),
    Column("%"),
    Column("kernels", drop_rank=2),
    Column("basis", ColumnFit.WRAP, drop_rank=1),
)


def print_iteration(report: IterationReport, console: Console) -> None:
    """Print the phases, the breakdown by operator, memory, warnings and assumptions."""
    console.print(Text(_describe_run(report), style="bold"), soft_wrap=True)
    console.print(Text(_describe_total(report)), soft_wrap=True)
    console.print(make_table(_COLUMNS, _make_phase_rows(report)))
    console.print(make_table(_OPERATOR_COLUMNS, _make_operator_rows(report)))
    console.print(Text(_describe_memory(report.memory)), soft_wrap=True)
    for warning in report.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    for assumption in report.assumptions:
        console.print(Text(f"  - {assumption}"), soft_wrap=True)


def _describe_run(report: IterationReport) -> str:
    """Return the head line: model, GPUs and how they are divided, sizes."""
    ways = (
        ("dp", report.data_parallel),
        ("tp", report.tensor_parallel),
        ("pp", report.pipeline_parallel),
        ("micro-batches", report.micro_batches),
    )
    n_gpus = report.data_parallel * report.tensor_parallel * report.pipeline_parallel
    layout = ", ".join(f"{name} {count}" for name, count in ways if count > 1)
    sizes = "" if report.sequence is None else f", {report.batch:,} x {report.sequence:,} tokens"
    compiled = ", torch.compile" if report.is_compiled else ""
    return (
        f"{report.model} ({report.parameters / 1e6:,.1f}M) on {n_gpus} x {report.gpu_name or report.gpu}"
        f"{f' ({layout})' if layout else ''}: {report.mode}, {report.dtype}{compiled}{sizes}"
    )


def _describe_total(report: IterationReport) -> str:
    interval = f"{format_milliseconds(report.total_ms_low)} to {format_milliseconds(report.total_ms_high)}"
    tokens = "" if report.tokens_per_s is None else f", {report.tokens_per_s:,.0f} tokens/s"
    return (
        f"{format_milliseconds(report.total_ms)} per iteration (80 % interval {interval}){tokens}, "
        f"{report.tflops_per_gpu:,.1f} TFLOP/s per GPU, {format_percent(report.peak_share)} of the peak"
    )


def _make_phase_rows(report: IterationReport) -> list[Row]:
    phases = (
        ("forward", report.forward_ms),
        ("backward", report.backward_ms),
        ("optimizer", report.optimizer_ms),
        ("communication waited for", report.communication_ms),
        ("further micro-batches", report.bubble_ms),
        ("host, to launch", report.host_ms),
    )
    return [
        (name, format_milliseconds(time_ms), format_percent(time_ms / max(report.total_ms, 1e-9)))
        for name, time_ms in phases
        if time_ms
    ]


def _make_operator_rows(report: IterationReport) -> list[Row]:
    return [
        (
            name.replace("_", " "),
            format_milliseconds(entry.forward_ms) if entry.forward_ms else "-",
            format_milliseconds(entry.backward_ms) if entry.backward_ms else "-",
            format_percent(entry.share),
            f"{entry.kernels:,}",
            entry.basis,
        )
        for name, entry in report.operators.items()
    ]


def _describe_memory(memory: IterationMemoryEntry) -> str:
    parts = (
        ("weights", memory.weight_bytes),
        ("gradients", memory.gradient_bytes),
        ("optimizer", memory.optimizer_bytes),
        ("activations about", memory.activation_bytes),
    )
    listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts if size)
    verdict = "fits" if memory.fits else "does not fit"
    total, all_bytes = format_bytes(memory.total_bytes), format_bytes(memory.gpu_bytes)
    return f"memory of one GPU: {total} of {all_bytes}, {verdict} ({listed})"
