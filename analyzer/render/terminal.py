"""The text of an analysis: header, predictions, pipes, CPI stack and memory; more sections on request."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analyzer.ir.module import VIRTUAL_NOTE, SourceFormat
from analyzer.render.advice import make_advice_list
from analyzer.render.count_provenance import (
    find_unknown_branches,
    is_listed_branch_note,
    make_branch_list,
    make_counts_line,
    make_unknown_line,
)
from analyzer.render.levels import make_level_table
from analyzer.render.listing import make_listing_parts
from analyzer.render.loops import make_loop_table, make_pipe_table
from analyzer.render.memory import make_memory_summary, make_memory_table
from analyzer.render.number_format import format_waves
from analyzer.render.speed_of_light import format_bound, make_speed_of_light_lines
from analyzer.render.stall_comparison import make_difference_table, make_stall_comparison
from analyzer.render.tables import Column, ColumnFit, make_number_columns, make_table, shorten_middle
from analyzer.render.text_options import TextOptions
from analyzer.report.analyze_schema import KernelReport, PredictionEntry, Report

MAX_DETAILED_KERNELS = 6
MAX_SUMMARY_ROWS = 40
MAX_SHOWN_REFUSALS = 3
_FOLDER_MARK_CHARS = 8
_MAX_SUMMARY_NAME_CHARS = 144
_FULL_BAR_CELLS = 30
_TRANSFER_WARNING = (
    "NOT NATIVE: {arch} code is priced instruction by instruction on {gpus}, where it does not run"
)
_UNKNOWN_ARCH_WARNING = "ARCHITECTURE UNKNOWN: the code is taken as it is to {gpus}; --arch names it"
_MAX_NAME_CHARS = 600
_MAX_NAMED_TRANSFERS = 4
_LISTING_WIDTH_CELLS = 400


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
                _print_listing(kernel, console, options)
    tip = _suggest_launch_options(report)
    if tip:
        console.print(Text(tip, style="dim"))
    _print_notes(report, console)
    _print_warnings(report, console)


def print_listings(report: Report, console: Console, options: TextOptions | None = None) -> None:
    """Print the annotated listing of every kernel."""
    options = options or TextOptions()
    for kernel in report.kernels:
        gpu_name = kernel.predictions[0].gpu_name if kernel.predictions else "no GPU"
        console.print(Text(f"kernel {kernel.demangled}   {kernel.architecture}   {gpu_name}", style="bold"))
        if kernel.counts.looked_at_ctas is not None:
            console.print(Text(f"  {_format_launch(kernel)}"))
            console.print(make_counts_line(kernel))
        console.print(*make_speed_of_light_lines(kernel), sep="\n")
        _print_listing(kernel, console, options)
    _print_notes(report, console)
    _print_warnings(report, console)


def _print_listing(kernel: KernelReport, console: Console, options: TextOptions) -> None:
    """Print a listing; columns are never cut where the output is no terminal."""
    width = console.width
    if not console.is_terminal:
        console.width = _LISTING_WIDTH_CELLS
    for part in make_listing_parts(kernel, top=options.top):
        console.print(part)
    if not console.is_terminal:
        console.width = width


def _print_notes(report: Report, console: Console) -> None:
    """Say what made the code of inputs that are no code yet."""
    for entry in report.inputs:
        if entry.format == SourceFormat.PTX:
            console.print(Text(f"{entry.path}: note: compiled by {entry.toolchain}"), soft_wrap=True)
        if entry.format == SourceFormat.VIRTUAL_PTX:
            console.print(Text(f"{entry.path}: note: {VIRTUAL_NOTE}"), soft_wrap=True)


def _print_warnings(report: Report, console: Console) -> None:
    for warning in report.warnings:
        line = f":{warning.line}" if warning.line else ""
        place = f"{warning.path}{line}: " if warning.path else ""
        times = f" ({warning.count:,} times)" if warning.count > 1 else ""
        console.print(Text(f"{place}warning: {warning.message}{times}", style="yellow"), soft_wrap=True)


def _make_summary(report: Report) -> RenderableType:
    """Return a table with a row per kernel and prediction, most cycles first; the last counts the others."""
    ordered = sorted(report.kernels, key=_make_cost_key, reverse=True)
    shown = ordered[:MAX_SUMMARY_ROWS]
    marks = _list_folder_marks(report)
    rows = [row for kernel in shown for row in _make_summary_rows(kernel, marks.get(kernel.input, ""))]
    rest = ordered[MAX_SUMMARY_ROWS:]
    if rest:
        instructions = f"{sum(k.instructions for k in rest):,}"
        rows.append(("", "", "", "", "", instructions, "", f"[{len(rest)} others]", "", ""))
    columns = [
        Column("#"),
        *make_number_columns("cycles", "time us"),
        Column("occup.", drop_rank=3),
        Column("regs", drop_rank=1),
        Column("inst", drop_rank=2),
        Column("bound", ColumnFit.WRAP, min_width=7),
        Column("kernel", ColumnFit.WRAP, min_width=20),
        Column("GPU", ColumnFit.WRAP, min_width=13),
        Column("model", ColumnFit.NO_WRAP),
    ]
    models = {entry.model for kernel in report.kernels for entry in kernel.predictions}
    # A line above the table names a GPU or a model that is the only one.
    kept = [
        *range(len(columns) - 2),
        *([len(columns) - 2] if len(report.gpus) != 1 else []),
        *([len(columns) - 1] if len(models) > 1 else []),
    ]
    total = sum(kernel.instructions for kernel in report.kernels)
    known = sum(kernel.instructions * kernel.coverage for kernel in report.kernels)
    gpu = ordered[0].predictions[0].gpu_name if len(report.gpus) == 1 else ""
    line = Text(
        f"{len(report.kernels):,} kernels, {total:,} instructions, coverage {known / total:.2%}"
        + (f", on {gpu}" if gpu else "")
        + (f", model {models.pop()}" if len(models) == 1 else ""),
        style="bold",
    )
    note = Text("one kernel in detail: -k NAME or -k '#N'; everything: --format json", style="dim")
    table = make_table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return Group(line, table, note)


def _make_cost_key(kernel: KernelReport) -> tuple[float, str]:
    return (kernel.predictions[0].cycles if kernel.predictions else 0.0, kernel.name)


def _list_folder_marks(report: Report) -> dict[str, str]:
    """Return, by input, the beginning of its folder's name, where several kernels have one name."""
    names = Counter(kernel.demangled for kernel in report.kernels)
    folders = {entry.path for entry in report.inputs if entry.levels}
    return {
        kernel.input: Path(kernel.input).parent.name[:_FOLDER_MARK_CHARS]
        for kernel in report.kernels
        if kernel.input in folders and names[kernel.demangled] > 1
    }


def _make_summary_rows(kernel: KernelReport, mark: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each prediction; only the first one names the kernel.

    mark: what tells it from others of its name.
    """
    registers = "" if kernel.registers is None else str(kernel.registers)
    about = (registers, f"{kernel.instructions:,}")
    ordinal, name = f"{kernel.ordinal}", shorten_middle(kernel.demangled, _MAX_SUMMARY_NAME_CHARS)
    name = f"{name} {mark}" if mark else name
    if not kernel.predictions:
        reason = kernel.refused[0].gpu_name if kernel.refused else ""
        yield (ordinal, "X", "X", "X", *about, "X", name, reason, "")
    for entry in kernel.predictions:
        figures = (f"{entry.cycles:,.0f}", _format_time(entry.time_us), f"{entry.occupancy:.0%}")
        yield (ordinal, *figures, *about, format_bound(entry), name, entry.gpu_name, entry.model)
        ordinal, name, about = "", "", ("", "")


def _make_kernel_section(kernel: KernelReport, options: TextOptions) -> RenderableType:
    parts: list[RenderableType] = [_make_header(kernel)]
    if (unknown := make_unknown_line(kernel)) is not None:
        parts.append(unknown)
    if kernel.predictions:
        parts += [*make_speed_of_light_lines(kernel), _make_prediction_table(kernel)]
    transferred = dict.fromkeys(entry.gpu_name for entry in kernel.predictions if entry.transferred)
    if transferred:
        many = len(transferred) > _MAX_NAMED_TRANSFERS
        gpus = f"the {len(transferred)} GPUs marked (transferred)" if many else ", ".join(transferred)
        parts.append(
            Text(
                (_TRANSFER_WARNING if kernel.architecture else _UNKNOWN_ARCH_WARNING).format(
                    arch=kernel.architecture, gpus=gpus
                ),
                style="bold yellow",
            )
        )
    parts += [Text(line, style="red") for line in _format_refusals(kernel)]
    parts.append(make_counts_line(kernel))
    if kernel.predictions:
        parts += [_make_demand_line(kernel), make_pipe_table(kernel), *_make_stacks(kernel)]
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
        (options.loops and (kernel.loops or kernel.loops_not_entered), make_loop_table),
        (options.memory and kernel.memory_spaces, make_memory_table),
        (options.levels, make_level_table),
        (options.advice, make_advice_list),
    )
    return [show(kernel) for wanted, show in sections if wanted]


def _make_header(kernel: KernelReport) -> RenderableType:
    shown = shorten_middle(kernel.demangled, _MAX_NAME_CHARS)
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
    if kernel.stack_frame_bytes:
        facts.append(f"{kernel.stack_frame_bytes:,} B stack frame")
    if kernel.spill_store_bytes or kernel.spill_load_bytes:
        about = "about " if kernel.spills_estimated else ""
        facts.append(
            f"{about}{kernel.spill_store_bytes:,} B spill stores, {kernel.spill_load_bytes:,} B spill loads"
        )
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
            Text(format_bound(entry), style="bold"),
            format_waves(entry.waves, entry.tail_share),
            f"{entry.occupancy:.0%} ({entry.occupancy_limiter})",
        )
        for entry in kernel.predictions
    ]
    is_one_model = len({entry.model for entry in kernel.predictions}) == 1
    columns = [
        Column("GPU", ColumnFit.WRAP, min_width=16),
        Column("model", ColumnFit.NO_WRAP, drop_rank=3 if is_one_model else 0),
        *make_number_columns("cycles", "time us", "low", "high"),
        Column("bound", ColumnFit.WRAP, min_width=7),
        Column("waves", ColumnFit.WRAP, min_width=5, drop_rank=1),
        Column("occupancy", ColumnFit.WRAP, min_width=9, drop_rank=2),
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
    if kernel.conversions:
        facts.append(f"{kernel.conversions:,.0f} conversions")
    facts += [f"{count:,.0f} B {level}" for level, count in kernel.bytes.items() if count]
    if kernel.arithmetic_intensity:
        facts.append(f"{kernel.arithmetic_intensity:,.2f} flop/B")
    return Text("one warp: " + "   ".join(facts))


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
