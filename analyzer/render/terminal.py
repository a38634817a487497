"""The text of an analysis: header, predictions, pipes, CPI stack and memory; more sections on request."""

from collections.abc import Mapping

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analyzer.render.count_provenance import (
    find_unknown_branches,
    is_listed_branch_note,
    make_branch_list,
    make_counts_line,
    make_unknown_line,
)
from analyzer.render.listing import make_listing_parts
from analyzer.render.memory import make_memory_summary, make_memory_table
from analyzer.render.number_format import format_provenance, format_ratio
from analyzer.render.stall_comparison import make_difference_table, make_stall_comparison
from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table
from analyzer.render.text_options import TextOptions
from analyzer.report.analyze_schema import KernelReport, LoopEntry, PipeEntry, PredictionEntry, Report

MAX_DETAILED_KERNELS = 6
MAX_SUMMARY_ROWS = 40
MAX_HOT_LOOPS = 3
_MAX_PIPE_COLUMNS = 7
MAX_SHOWN_REFUSALS = 3
_MAX_SUMMARY_NAME_CELLS = 48
_FULL_BAR_CELLS = 30
_TRANSFER_WARNING = (
    "NOT NATIVE: {arch} code is priced instruction by instruction on {gpus}, where it does not run"
)
_MAX_NAME_CELLS = 100
_PLAIN_WIDTH_CELLS = 120
_LISTING_WIDTH_CELLS = 400


class _Console(Console):
    """A console that passes a broken pipe (`| head`) on to the caller; rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console(*, plain: bool = False) -> Console:
    """Return standard output; deterministic, with a fixed width and no styles, where it is no terminal."""
    console = _Console(soft_wrap=False, highlight=False)
    if console.is_terminal and not plain:
        return console
    return _Console(width=_PLAIN_WIDTH_CELLS, highlight=False, no_color=True, force_terminal=False)


def print_report(report: Report, console: Console, options: TextOptions | None = None) -> None:
    """Print every kernel in detail where they are few, else a table of those with most cycles."""
    options = options or TextOptions()
    detailed = len(report.kernels) <= MAX_DETAILED_KERNELS
    if not detailed:
        console.print(_make_summary(report))
    else:
        for index, kernel in enumerate(report.kernels):
            if index:
                console.print()
            console.print(_make_kernel_section(kernel, options))
            if options.listing and kernel.listing:
                _print_listing(kernel, console)
    tip = _suggest_launch_options(report)
    if tip:
        console.print(Text(tip, style="dim"))
    _print_warnings(report, console)


def print_listings(report: Report, console: Console) -> None:
    """Print the annotated listing of every kernel."""
    for kernel in report.kernels:
        gpu_name = kernel.predictions[0].gpu_name if kernel.predictions else "no GPU"
        console.print(Text(f"kernel {kernel.demangled}   {kernel.architecture}   {gpu_name}", style="bold"))
        if kernel.counts.looked_at_ctas is not None:
            console.print(Text(f"  {_format_launch(kernel)}"))
            console.print(make_counts_line(kernel))
        _print_listing(kernel, console)
    _print_warnings(report, console)


def _print_listing(kernel: KernelReport, console: Console) -> None:
    """Print a listing; columns are never cut where the output is no terminal."""
    width = console.width
    if not console.is_terminal:
        console.width = _LISTING_WIDTH_CELLS
    for part in make_listing_parts(kernel):
        console.print(part)
    if not console.is_terminal:
        console.width = width


def _print_warnings(report: Report, console: Console) -> None:
    for warning in report.warnings:
        line = f":{warning.line}" if warning.line else ""
        place = f"{warning.path}{line}: " if warning.path else ""
        times = f" ({warning.count:,} times)" if warning.count > 1 else ""
        console.print(Text(f"{place}warning: {warning.message}{times}", style="yellow"), soft_wrap=True)


def _make_summary(report: Report) -> RenderableType:
    """Return a table with one row per kernel, most cycles first; the last row counts those left out."""
    ordered = sorted(report.kernels, key=_make_cost_key, reverse=True)
    rows = [_make_summary_row(kernel) for kernel in ordered[:MAX_SUMMARY_ROWS]]
    rest = ordered[MAX_SUMMARY_ROWS:]
    if rest:
        instructions = f"{sum(k.instructions for k in rest):,}"
        rows.append(("", "", "", "", "", instructions, "", f"[{len(rest)} others]", ""))
    columns = [
        *make_number_columns("#", "cycles", "time us", "occup.", "regs", "inst"),
        Column("bound", ColumnFit.NO_WRAP),
        Column("kernel", ColumnFit.TRUNCATE, _MAX_SUMMARY_NAME_CELLS),
        Column("GPU", ColumnFit.TRUNCATE),
    ]
    if len(report.gpus) == 1:  # then the line above the table names it
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    total = sum(kernel.instructions for kernel in report.kernels)
    known = sum(kernel.instructions * kernel.coverage for kernel in report.kernels)
    gpu = ordered[0].predictions[0].gpu_name if len(report.gpus) == 1 else ""
    line = Text(
        f"{len(report.kernels):,} kernels, {total:,} instructions, coverage {known / total:.2%}"
        + (f", on {gpu}" if gpu else ""),
        style="bold",
    )
    note = Text("one kernel in detail: -k NAME or -k '#N'; everything: --format json", style="dim")
    return Group(line, make_table(columns, rows), note)


def _make_cost_key(kernel: KernelReport) -> tuple[float, str]:
    return (kernel.predictions[0].cycles if kernel.predictions else 0.0, kernel.name)


def _make_summary_row(kernel: KernelReport) -> tuple[str, ...]:
    first = kernel.predictions[0] if kernel.predictions else None
    registers = "" if kernel.registers is None else str(kernel.registers)
    name = kernel.demangled
    if first is None:
        reason = kernel.refused[0].gpu_name if kernel.refused else ""
        return (f"{kernel.ordinal}", "X", "X", "X", registers, f"{kernel.instructions:,}", "X", name, reason)
    return (
        f"{kernel.ordinal}",
        f"{first.cycles:,.0f}",
        _format_time(first.time_us),
        f"{first.occupancy:.0%}",
        registers,
        f"{kernel.instructions:,}",
        first.bound,
        name,
        first.gpu_name,
    )


def _make_kernel_section(kernel: KernelReport, options: TextOptions) -> RenderableType:
    parts: list[RenderableType] = [_make_header(kernel)]
    if (unknown := make_unknown_line(kernel)) is not None:
        parts.append(unknown)
    if kernel.predictions:
        parts.append(_make_prediction_table(kernel))
    transferred = [entry.gpu_name for entry in kernel.predictions if entry.transferred]
    if transferred:
        parts.append(
            Text(
                _TRANSFER_WARNING.format(arch=kernel.architecture, gpus=", ".join(transferred)),
                style="bold yellow",
            )
        )
    parts += [Text(line, style="red") for line in _format_refusals(kernel)]
    parts.append(make_counts_line(kernel))
    if kernel.predictions:
        parts += [_make_demand_line(kernel), _make_pipe_table(kernel), *_make_stacks(kernel)]
    if kernel.memory_spaces:
        parts += [make_memory_summary(kernel), ""]
    if find_unknown_branches(kernel):
        parts += [make_branch_list(kernel, everything=options.branches), ""]
    if kernel.predictions:
        parts.append(_make_assumption_list(kernel, kernel.predictions[0]))
    parts += _make_requested_sections(kernel, options)
    return Group(*parts)


def _make_requested_sections(kernel: KernelReport, options: TextOptions) -> list[RenderableType]:
    """Return the sections that the user asked for, where there is something to show."""
    can_compare = kernel.differences or all(entry.cpi_stack for entry in kernel.predictions)
    sections = (
        (options.explain and kernel.predictions and can_compare, make_difference_table),
        (options.loops and kernel.loops, _make_loop_table),
        (options.memory and kernel.memory_spaces, make_memory_table),
        (options.advice, _make_advice_list),
    )
    return [show(kernel) for wanted, show in sections if wanted]


def _make_header(kernel: KernelReport) -> RenderableType:
    name = kernel.demangled
    shown = name if len(name) <= _MAX_NAME_CELLS else name[: _MAX_NAME_CELLS - 3] + "..."
    facts = [
        kernel.architecture or "architecture ?",
        f"{kernel.instructions:,} instructions",
        f"coverage {kernel.coverage:.1%}",
    ]
    if kernel.registers is not None:
        facts.append(f"{kernel.registers} registers" + ("" if kernel.registers_exact else " (from code)"))
    shared_bytes = (kernel.shared_bytes or 0) + (kernel.launch.dynamic_shared_bytes or 0)
    if shared_bytes or kernel.shared_bytes is not None:
        facts.append(f"{shared_bytes:,} B shared")
    if kernel.spill_bytes:
        facts.append(f"{kernel.spill_bytes:,} B spilled")
    return Group(
        Text.assemble("kernel ", (shown, "bold")),
        Text("  " + "   ".join(facts)),
        Text(f"  {_format_launch(kernel)}"),
    )


def _format_launch(kernel: KernelReport) -> str:
    """Return grid, block, cluster and the arguments as the user gave them."""

    def text(dims: tuple[int, int, int] | None) -> str:
        return "?" if dims is None else "x".join(map(str, dims))

    launch = kernel.launch
    facts = [f"grid {text(launch.grid)}", f"block {text(launch.block)}"]
    if launch.cluster is not None and launch.cluster != (1, 1, 1):
        facts.append(f"cluster {text(launch.cluster)}")
    if launch.arguments:
        facts.append("arguments " + " ".join(f"{which}={value}" for which, value in launch.arguments.items()))
    return "   ".join(facts)


def _suggest_launch_options(report: Report) -> str:
    """Return a tip to give launch options, where a kernel could be executed with them; else an empty text."""
    unlaunched = [
        kernel
        for kernel in report.kernels
        if kernel.counts.looked_at_ctas is None and kernel.counts.provenance != "exact" and kernel.predictions
    ]
    if not unlaunched:
        return ""
    wanted = [
        name
        for name, is_known in (
            ("--grid", all(kernel.launch.grid for kernel in unlaunched)),
            ("--block", all(kernel.launch.block for kernel in unlaunched)),
        )
        if not is_known
    ]
    if not wanted:
        return ""
    return f"{', '.join(wanted)} and --arg WHICH=VALUE would give exact counts, trips and memory traffic"


def _make_prediction_table(kernel: KernelReport) -> RenderableType:
    rows = [
        (
            entry.gpu_name + (" (transferred)" if entry.transferred else ""),
            entry.model,
            f"{entry.cycles:,.0f}",
            _format_time(entry.time_us),
            _format_time(entry.time_us_low),
            _format_time(entry.time_us_high),
            Text(entry.bound, style="bold"),
            f"{entry.waves:,.2f}",
            f"{entry.occupancy:.0%} ({entry.occupancy_limiter})",
        )
        for entry in kernel.predictions
    ]
    columns = [
        Column("GPU", ColumnFit.TRUNCATE),
        Column("model", ColumnFit.NO_WRAP),
        *make_number_columns("cycles", "time us", "low", "high"),
        Column("bound", ColumnFit.NO_WRAP),
        *make_number_columns("waves"),
        Column("occupancy", ColumnFit.TRUNCATE),
    ]
    return make_table(columns, rows)


def _format_cpi(kernel: KernelReport, entry: PredictionEntry) -> str:
    instructions = kernel.counts.instructions_per_warp * max(1.0, entry.waves)
    return f"{entry.cycles / instructions:,.2f}" if instructions else "?"


def _format_time(time_us: float) -> str:
    return f"{time_us:,.2f}" if time_us < 1000 else f"{time_us:,.0f}"


def _format_refusals(kernel: KernelReport) -> list[str]:
    """Return one line for each refusal, for many the first ones and a count."""
    refused = kernel.refused
    lines = [f"refused: {refusal.reason}" for refusal in refused[:MAX_SHOWN_REFUSALS]]
    if len(refused) > MAX_SHOWN_REFUSALS:
        lines.append(f"refused: {len(refused) - MAX_SHOWN_REFUSALS} more GPUs, see --format json")
    return lines


def _make_demand_line(kernel: KernelReport) -> RenderableType:
    """Return the demand of one warp: instructions, operations, bytes."""
    facts = [f"{kernel.counts.instructions_per_warp:,.0f} instructions"]
    if kernel.flops:
        facts.append(f"{kernel.flops:,.0f} flop")
    facts += [f"{count:,.0f} B {level}" for level, count in kernel.bytes.items() if count]
    if kernel.arithmetic_intensity:
        facts.append(f"{kernel.arithmetic_intensity:,.2f} flop/B")
    return Text("one warp: " + "   ".join(facts))


def _make_pipe_table(kernel: KernelReport) -> RenderableType:
    """Return the cycles of one warp on each pipe: a row per iteration of a hot loop, then the kernel."""
    names = [name for name, entry in kernel.pipes.items() if entry.cycles >= 0.5][:_MAX_PIPE_COLUMNS]
    rows = [
        (_format_loop_name(loop), *(_format_pipe_cycles(loop.pipes, n) for n in names), _format_bound(loop))
        for loop in kernel.loops[:MAX_HOT_LOOPS]
    ]
    rows.append(
        ("kernel", *(_format_pipe_cycles(kernel.pipes, n) for n in names), kernel.predictions[0].bound)
    )
    columns = [
        Column("", ColumnFit.TRUNCATE),
        *make_number_columns(*names),
        Column("bound", ColumnFit.NO_WRAP),
    ]
    return make_table(columns, rows, title="pipe cycles of one warp")


def _format_bound(loop: LoopEntry) -> str:
    """Return the bound of a loop, with the share of its busiest resource, which is named if it is another."""
    if not loop.busiest:
        return loop.bound
    share = f"{loop.busiest_share:.0%} busy"
    return f"{loop.bound} {share}" if loop.busiest == loop.bound else f"{loop.bound}, {loop.busiest} {share}"


def _format_pipe_cycles(pipes: Mapping[str, PipeEntry], name: str) -> str:
    entry = pipes.get(name)
    return f"{entry.cycles:,.0f}" if entry else "0"


def _format_loop_name(loop: LoopEntry) -> str:
    return f"loop {loop.source or hex(loop.header)}, each of {_format_trips(loop)}"


def _format_trips(loop: LoopEntry) -> str:
    """Return the iterations each time the loop is entered: `16`, `3.5`, `~16` where assumed."""
    return format_provenance(loop.provenance) + format_ratio(loop.trip_count)


def _make_stacks(kernel: KernelReport) -> list[RenderableType]:
    """Return the CPI stack on the first GPU as bars, of several models as a table."""
    first = kernel.predictions[0]
    models = tuple(entry for entry in kernel.predictions if entry.gpu == first.gpu)
    if not any(entry.cpi_stack for entry in models):
        return []  # models that know no stalls
    return (
        [_make_stack_bars(kernel, first)] if len(models) == 1 else [make_stall_comparison(kernel, models), ""]
    )


def _make_stack_bars(kernel: KernelReport, entry: PredictionEntry) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for stall, cycles in entry.cpi_stack.items():
        share = cycles / entry.cycles if entry.cycles else 0.0
        if share < 0.005:
            continue
        bar = "█" * max(1, round(share * _FULL_BAR_CELLS))
        table.add_row(f"  {stall}", f"{cycles:,.0f}", f"{share:.0%}", Text(bar, style="cyan"))
    title = Text(f"cycles by stall, {entry.gpu_name}, CPI {_format_cpi(kernel, entry)}", style="italic")
    return Padding(Group(title, table), (0, 0, 1, 0))


def _make_assumption_list(kernel: KernelReport, entry: PredictionEntry) -> RenderableType:
    notes = [note for note in entry.assumptions if not is_listed_branch_note(kernel, note)]
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for note in notes:
        table.add_row(Text("  -", style="dim"), Text(note, style="dim"))
    return Group(Text(f"rests on ({entry.basis}):", style="dim"), table)


def _make_loop_table(kernel: KernelReport) -> RenderableType:
    rows = [
        (
            loop.source or hex(loop.header),
            str(loop.depth),
            f"{loop.instructions:,}",
            _format_trips(loop),
            f"{loop.share:.0%}",
            "" if loop.cycles_per_iteration is None else f"{loop.cycles_per_iteration:,.0f}",
            loop.trip_reason,
            _format_bound(loop),
            ", ".join(f"{n} {c:,.0f}" for n, c in list(loop.bounds.items())[:4]),
        )
        for loop in kernel.loops
    ]
    columns = [
        Column("loop", ColumnFit.NO_WRAP),
        *make_number_columns("depth", "inst", "trips", "share", "cycles/iter"),
        Column("trips from", ColumnFit.WRAP),
        Column("bound", ColumnFit.NO_WRAP),
        Column("bounds, cycles", ColumnFit.WRAP),
    ]
    return make_table(columns, rows, title="loops")


def _make_advice_list(kernel: KernelReport) -> RenderableType:
    if not kernel.advice:
        return Text("advice: nothing found that would gain 3 % or more")
    lines: list[RenderableType] = [Text("advice, largest possible gain first", style="italic")]
    for number, entry in enumerate(kernel.advice, start=1):
        place = entry.source or ("" if entry.address is None else hex(entry.address))
        gain = f"up to {entry.gain_share:.0%} ({entry.gain_cycles:,.0f} cycles)"
        lines.append(Text(f"  {number}. {entry.finding}  {place}  {gain}"))
    return Group(*lines)
