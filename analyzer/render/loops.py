"""Loops of a kernel: pipe cycles of the hot ones, and all of them with their bounds."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from analyzer.execution.profile.provenance import INEXACT_PROVENANCES
from analyzer.render.number_format import format_provenance, format_ratio
from analyzer.render.speed_of_light import format_bound
from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table
from analyzer.report.analyze_schema import KernelReport, LoopEntry, PipeEntry
from analyzer.text.source import shorten_source

MAX_HOT_LOOPS = 3
_MAX_PIPE_COLUMNS = 7
_MAX_NAMED_LOOPS = 6


def make_pipe_table(kernel: KernelReport) -> RenderableType:
    """Return the cycles of one warp on each pipe: a row per iteration of a hot loop, then the kernel."""
    names = [name for name, entry in kernel.pipes.items() if entry.cycles >= 0.5][:_MAX_PIPE_COLUMNS]
    rows = [
        (
            _format_loop_name(loop),
            *(_format_pipe_cycles(loop.pipes, n) for n in names),
            format_loop_bound(loop),
        )
        for loop in kernel.loops[:MAX_HOT_LOOPS]
    ]
    rows.append(
        (
            "kernel",
            *(_format_pipe_cycles(kernel.pipes, n) for n in names),
            format_bound(kernel.predictions[0]),
        )
    )
    ranked = list(enumerate(names))
    columns = [
        Column("", ColumnFit.WRAP, min_width=16),
        *(Column(name, drop_rank=place) for place, name in ranked),  # the busiest pipe stays
        Column("bound", ColumnFit.WRAP, min_width=16),
    ]
    title = "pipe cycles of one warp"
    if len({entry.gpu for entry in kernel.predictions}) > 1:
        title += f", {kernel.predictions[0].gpu_name}"
    return make_table(columns, rows, title=title)


def format_loop_bound(loop: LoopEntry) -> str:
    """Return the bound of a loop, with the share of its busiest resource, which is named if it is another."""
    bound = f"{loop.bound} (recurrence)" if loop.limited_by_recurrence else loop.bound
    if not loop.busiest:
        return bound
    share = f"{loop.busiest_share:.0%} busy"
    return f"{bound} {share}" if loop.busiest == loop.bound else f"{bound}, {loop.busiest} {share}"


def _format_pipe_cycles(pipes: Mapping[str, PipeEntry], name: str) -> str:
    entry = pipes.get(name)
    return f"{entry.cycles:,.0f}" if entry else "0"


def _format_loop_name(loop: LoopEntry) -> str:
    return f"loop {shorten_source(loop.source) or hex(loop.header)}, each of {format_trips(loop)}"


def format_trips(loop: LoopEntry) -> str:
    """Return the iterations each time the loop is entered: `16`, `3.5`, `~16` where assumed."""
    return format_provenance(loop.provenance) + format_ratio(loop.trip_count)


def _list_loops_of_some_warps(kernel: KernelReport) -> str:
    """Name the outermost loops that a part of the warps enters each; "" where there is but one."""
    parts = [loop for loop in kernel.loops if loop.depth == 1 and loop.warp_share < 1.0]
    named = [f"{hex(loop.header)} ({loop.warp_share:.0%} of the warps)" for loop in parts[:_MAX_NAMED_LOOPS]]
    more = f" and {len(parts) - _MAX_NAMED_LOOPS} more" if len(parts) > _MAX_NAMED_LOOPS else ""
    return ", ".join(named) + more if len(parts) > 1 else ""


def make_loop_table(kernel: KernelReport) -> RenderableType:
    """Return a table of the loops that warps enter, and a line that names the others."""
    rows = [
        (
            shorten_source(loop.source) or hex(loop.header),
            str(loop.depth),
            f"{loop.instructions:,}",
            format_trips(loop),
            f"{loop.share:.0%}",
            "" if loop.cycles_per_iteration is None else f"{loop.cycles_per_iteration:,.0f}",
            loop.trip_reason,
            format_loop_bound(loop),
            ", ".join(f"{n} {c:,.0f}" for n, c in list(loop.bounds.items())[:4]),
        )
        for loop in kernel.loops
    ]
    columns = [
        Column("loop", ColumnFit.WRAP, min_width=8),
        *make_number_columns("depth", "inst", drop_rank=2),
        *make_number_columns("trips", "share", "cycles/iter"),
        Column("trips from", ColumnFit.WRAP, min_width=8, drop_rank=1),
        Column("bound", ColumnFit.WRAP, min_width=15),
        Column("bounds, cycles", ColumnFit.WRAP, min_width=14),
    ]
    parts: list[RenderableType] = [make_table(columns, rows, title="loops")] if rows else []
    if side_by_side := _list_loops_of_some_warps(kernel):
        parts.append(Text(f"run side by side, their cycles do not add up: {side_by_side}", style="dim"))
    idle = kernel.loops_not_entered
    if idle:
        named = ", ".join(f"{header:#x}" for header in idle[:_MAX_NAMED_LOOPS])
        more = f" and {len(idle) - _MAX_NAMED_LOOPS} more" if len(idle) > _MAX_NAMED_LOOPS else ""
        mark = "assumed: " if kernel.counts.provenance in INEXACT_PROVENANCES else ""
        parts.append(Text(f"loops that no warp enters: {mark}{named}{more}", style="dim"))
    return Group(*parts)
