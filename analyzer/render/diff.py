"""The text of a diff: one row for each kernel that changed, its evidence below, and a summary.

cycles            regs   spill   verdict      kernel
+14.2 %  +5.8k    +16    +64 B   significant  fmha_fwd
         slower: 41,200 -> 47,050 cycles ...
[ = ]             [=]    [=]     unchanged    [31 kernels]
"""

from collections import Counter
from collections.abc import Iterator
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from analyzer.ir.launch import NOBODY_GAVE
from analyzer.render.number_format import format_count
from analyzer.render.tables import shorten_middle
from analyzer.report.analyze_schema import ListingEntry
from analyzer.report.diff_schema import (
    AlignedLine,
    DiffReport,
    DiffSide,
    KernelDiff,
    KernelStatus,
    Verdict,
)
from analyzer.text.source import shorten_source

_MAX_EVIDENCE = 4  # sentences of a kernel, unless its listing is asked for
_MAX_KERNELS = 60
_MAX_SIDE_CHARS = 60
_EQUAL = "[=]"
_STYLES = {
    Verdict.SIGNIFICANT: "bold red",
    Verdict.UNCLEAR: "yellow",
    Verdict.BENIGN: "green",
    Verdict.UNCHANGED: "dim",
}
_HEAD = f"  {'cycles':>9} {'':>9}  {'regs':>6} {'spill':>9}  {'verdict':<12} kernel"
_EVIDENCE_INDENT = 6
_LINE_MARKS = {"equal": " ", "changed": "~", "removed": "-", "added": "+"}
_LINE_STYLES = {"equal": "", "changed": "yellow", "removed": "red", "added": "green"}
_MIN_WIDE_CELLS = 160
_CONTROL_CELLS = 21
_CYCLES_CELLS = 7
_MIN_SHOWN_CYCLES = 0.5
_MIN_TEXT_CHARS = 18
_SOURCE_COLUMN = 90
_LISTING_HEAD = f"  {'old':>7} {'new':>7}  {'control':<21}  instruction (cycles of the launch)"
_WIDE_LISTING_HEAD = "  cycles of the launch, control code and instruction: old | new"


def print_diff(report: DiffReport, console: Console) -> None:
    """Print what changed, the significant kernels first."""
    head = f"diff {_format_side(report.old)} -> {_format_side(report.new)}"
    if len(head) > console.width:
        head = head.replace(" -> ", "\n  -> ", 1)
    console.print(Text(head, style="bold"), soft_wrap=True)
    for line in _describe_predictions(report):
        console.print(Text(line, style="dim"))
    changed = [each for each in report.kernels if each.verdict is not Verdict.UNCHANGED]
    console.print(Text(_HEAD, style="dim"))
    for each in changed[:_MAX_KERNELS]:
        _print_kernel(each, console)
    if len(changed) > _MAX_KERNELS:
        console.print(Text(f"  {len(changed) - _MAX_KERNELS:,} more changed kernels: --format json has them"))
    _print_unchanged(report, console)
    _print_end(report, console)
    for each in report.kernels:
        if each.listing:
            _print_listing(each, console)


def _print_unchanged(report: DiffReport, console: Console) -> None:
    """Print one row for all kernels with equal code."""
    unchanged = [each for each in report.kernels if each.verdict is Verdict.UNCHANGED]
    if not unchanged:
        return
    name = f"[{len(unchanged):,} kernel{'s' if len(unchanged) > 1 else ''}]"
    n_renamed = sum(each.status is KernelStatus.RENAMED for each in unchanged)
    if n_renamed:
        name += f" {n_renamed:,} renamed"
    row = _format_row("[ = ]", "", _EQUAL, _EQUAL, Verdict.UNCHANGED.value, name)
    console.print(Text(row, style="dim"))


def _print_end(report: DiffReport, console: Console) -> None:
    """Print counts of the verdicts, totals, notes and warnings."""
    console.print(Text(_summarize(report)))
    for total in report.totals:
        if total.kernels > 1 and total.cycles_change is not None:
            console.print(
                Text(
                    f"all {total.kernels:,} changed kernels on {total.gpu_name}: {total.old_cycles:,.0f} -> "
                    f"{total.new_cycles:,.0f} cycles ({_format_share(total.cycles_change)})"
                )
            )
    for note in report.notes:
        console.print(Text(f"note: {note}"))
    for warning in report.warnings:
        times = f" ({warning.count:,} times)" if warning.count > 1 else ""
        console.print(Text(f"warning: {warning.message}{times}", style="yellow"))


def _format_side(side: DiffSide) -> str:
    if not side.inputs:
        return "?"
    more = f" and {len(side.inputs) - 1:,} more" if len(side.inputs) > 1 else ""
    return shorten_middle(side.inputs[0].path, _MAX_SIDE_CHARS) + more


def _describe_predictions(report: DiffReport) -> Iterator[str]:
    gpus = dict.fromkeys(each.gpu_name for kernel in report.kernels for each in kernel.predictions)
    if gpus:
        yield f"predicted on {', '.join(gpus)}"
    assumed = [
        each for each in report.kernels if any(text.startswith(NOBODY_GAVE) for text in each.assumptions)
    ]
    if assumed:
        yield "launches that nobody gave are assumed, the same for both sides (--grid, --block, --arg)"


def _print_kernel(kernel: KernelDiff, console: Console) -> None:
    worst = max(kernel.predictions, key=lambda each: abs(each.cycles_change), default=None)
    share = "" if kernel.cycles_change is None else _format_share(kernel.cycles_change)
    moved = "" if worst is None else _format_signed_count(worst.new_cycles - worst.old_cycles)
    is_lone = kernel.status in (KernelStatus.NEW, KernelStatus.REMOVED)
    registers, spills = ("", "") if is_lone else (_format_metric(kernel, "registers"), _format_spills(kernel))
    verdict = kernel.status.value if is_lone else kernel.verdict.value
    row = _format_row(share, moved, registers, spills, verdict, "")
    name = kernel.demangled + (
        f"  (was {kernel.old_demangled})" if kernel.old_name and kernel.old_name != kernel.name else ""
    )
    shown = shorten_middle(name, max(20, console.width - len(row)))
    console.print(Text.assemble((row, _STYLES[kernel.verdict]), (shown, "bold")), soft_wrap=True)
    if is_lone:
        return
    told = kernel.evidence if kernel.listing else kernel.evidence[:_MAX_EVIDENCE]
    for sentence in told:
        _print_indented(sentence, console)
    rest = len(kernel.evidence) - len(told)
    if rest:
        _print_indented(f"{rest} more: -k NAME shows them, and both listings aligned", console, "dim")


def _print_indented(sentence: str, console: Console, style: str = "") -> None:
    """Print a sentence in lines that fit the console, indented, without blanks at their ends."""
    for line in wrap(sentence, max(_MIN_TEXT_CHARS, console.width - _EVIDENCE_INDENT)):
        console.print(Text(" " * _EVIDENCE_INDENT + line, style=style), soft_wrap=True)


def _format_row(cycles: str, moved: str, registers: str, spills: str, verdict: str, name: str) -> str:
    return f"  {cycles:>9} {moved:>9}  {registers:>6} {spills:>9}  {verdict:<12} {name}"


def _format_share(change: float) -> str:
    return f"{100 * change:+.1f} %" if change < 10 else f"x{change + 1:,.0f}"


def _format_signed_count(value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{format_count(abs(round(value)))}"


def _format_metric(kernel: KernelDiff, name: str) -> str:
    change = next((each for each in kernel.changes if each.metric == name), None)
    if change is None:
        return _EQUAL
    return "?" if change.old is None or change.new is None else f"{change.new - change.old:+,.0f}"


def _format_spills(kernel: KernelDiff) -> str:
    """Return the change of the bytes that are spilled and reloaded."""
    found = [each for each in kernel.changes if each.metric in ("spill_store_bytes", "spill_load_bytes")]
    total = sum((each.new or 0) - (each.old or 0) for each in found)
    return f"{total:+,.0f} B" if found else _EQUAL


def _summarize(report: DiffReport) -> str:
    kernels = [each for each in report.kernels if each.status not in (KernelStatus.NEW, KernelStatus.REMOVED)]
    counts = Counter(each.verdict for each in kernels)
    slower = sum(each.verdict is Verdict.SIGNIFICANT and (each.cycles_change or 0) > 0 for each in kernels)
    parts = []
    for verdict in Verdict:
        if counts[verdict]:
            parts.append(f"{counts[verdict]:,} {verdict.value}")
        if verdict is Verdict.SIGNIFICANT and counts[verdict]:
            parts[-1] += f" ({slower:,} slower)"
    lone = Counter(each.status for each in report.kernels)
    parts += [f"{lone[s]:,} {s.value}" for s in (KernelStatus.NEW, KernelStatus.REMOVED) if lone[s]]
    return ", ".join(parts) or "no kernels"


def _print_listing(kernel: KernelDiff, console: Console) -> None:
    """Print the aligned listing: cycles of the launch, control code and instruction of both sides.

    Side by side where the console is wide enough; else a line that differs is printed twice, old above new.
    """
    console.print()
    console.print(Text(f"listing of {kernel.demangled}", style="bold"))
    is_wide = console.width >= _MIN_WIDE_CELLS
    console.print(Text(_WIDE_LISTING_HEAD if is_wide else _LISTING_HEAD, style="dim"))
    last = ""
    for line in kernel.listing:
        entry = line.new or line.old
        source = "" if entry is None else entry.source
        shown, last = (shorten_source(source) if source != last else ""), source
        texts = [_make_wide_line(line, console.width)] if is_wide else list(_make_lines(line))
        for text in texts:
            if shown:
                text.append(" " * (_SOURCE_COLUMN - len(text)) + f"  {shown}", style="dim")
                shown = ""
            console.print(text, soft_wrap=True)


def _make_wide_line(line: AlignedLine, width: int) -> Text:
    cells = (width - len(_LINE_MARKS) - 2 * (_CYCLES_CELLS + _CONTROL_CELLS + 3)) // 2
    left, right = (_format_side_of_line(each, cells) for each in (line.old, line.new))
    text = f"{_LINE_MARKS[line.kind]} {left:<{_CYCLES_CELLS + _CONTROL_CELLS + 2 + cells}} | {right}"
    return Text(text.rstrip(), style=_LINE_STYLES[line.kind])


def _format_side_of_line(entry: ListingEntry | None, cells: int) -> str:
    if entry is None:
        return ""
    text = shorten_middle(entry.instruction, cells)
    return f"{_format_cycles(entry)} {entry.control:<{_CONTROL_CELLS}} {text}"


def _make_lines(line: AlignedLine) -> Iterator[Text]:
    """Yield one line for equal instructions, else one for each side that has one."""
    if line.kind == "equal" and line.old is not None and line.new is not None:
        yield _make_line(" ", _format_cycles(line.old), _format_cycles(line.new), line.new, "")
        return
    if line.old is not None:
        yield _make_line("-", _format_cycles(line.old), "", line.old, "red")
    if line.new is not None:
        yield _make_line("+", "", _format_cycles(line.new), line.new, "green")


def _make_line(mark: str, old: str, new: str, entry: ListingEntry, style: str) -> Text:
    cycles = f"{old:>{_CYCLES_CELLS}} {new:>{_CYCLES_CELLS}}"
    return Text(f"{mark} {cycles}  {entry.control:<{_CONTROL_CELLS}}  {entry.instruction}", style=style)


def _format_cycles(entry: ListingEntry) -> str:
    cycles = sum(entry.cpi_stack.values())
    return f"{format_count(round(cycles)) if cycles >= _MIN_SHOWN_CYCLES else '':>{_CYCLES_CELLS}}"
