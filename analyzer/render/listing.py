"""The annotated listing: executions, pipe, stall, control code, loops, instruction, memory, cause, source.

Where the terminal is too narrow for all columns, the control code goes first and the pipe second. Where that
is not enough, cause and source go under the instruction: the cause where a warp waits for something else than
the stall count of a fixed latency, the source where it changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from analyzer.render.number_format import format_count, format_provenance, format_ratio
from analyzer.render.tables import Cell, Column, ColumnFit, FittedTable, make_number_columns
from analyzer.report.analyze_schema import KernelReport, ListingEntry, MemoryEntry
from analyzer.text.source import shorten_source

_MIN_HOT_SHARE = 0.02
_MIN_SHOWN_SHARE = 0.0005
_MAX_SASS_CELLS = 40  # a longer instruction is folded before other columns are left out
_MIN_SASS_CELLS = 12
_MIN_TEXT_CELLS = 24  # of a source line beside its place
_PASS_SPACES = ("shared", "distributed_shared", "constant")
_FIXED_LATENCY_STALL = "wait"
_LEGEND = (
    "executed: warps of the whole grid; request: its 32-byte sectors, or w wavefronts of shared memory "
    "(~ assumed, ? unknown)"
)
_MERGED_LEGEND = "under an instruction: what it waits for, unless for a fixed latency (wait), and its source"
# Left out in this order until the rest fits.
_OPTIONAL_COLUMNS = ("control", "pipe")


def make_listing_parts(kernel: KernelReport, *, top: int | None = None) -> list[RenderableType]:
    """Return the listing, after a line that explains its marks.

    top: show only so many instructions, those that cost most of the time.
    """
    parts: list[RenderableType] = []
    if kernel.counts.looked_at_ctas is not None:
        parts.append(Text(_LEGEND, style="dim"))
    chosen = kernel.listing
    if top is not None:
        chosen = tuple(sorted(kernel.listing, key=lambda entry: -entry.share)[:top])
        share = sum(entry.share for entry in chosen)
        of_all = f"{len(chosen):,} of {len(kernel.listing):,}"
        line = f"the {of_all} instructions that cost most: {share:.0%} of the time"
        parts.append(Text(line, style="italic"))
    return [*parts, Listing(kernel, chosen, is_sorted_by_cost=top is not None)]


class Listing(Struct, frozen=True):
    """A listing that chooses its layout when the width of the console is known."""

    kernel: KernelReport
    entries: Sequence[ListingEntry]
    is_sorted_by_cost: bool = False  # then loops are named, not drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table with as many columns as there is room for, and a line on those left out."""
        table = _ListingTable(self.kernel, self.entries, self.is_sorted_by_cost, options.ascii_only)
        layouts = [_OPTIONAL_COLUMNS[:n] for n in range(len(_OPTIONAL_COLUMNS) + 1)]
        fitting = next((one for one in layouts if table.find_width(one) <= options.max_width), None)
        if fitting is None:
            is_wide = table.find_width(("control",), is_merged=True) <= options.max_width
            fitting = ("control",) if is_wide else _OPTIONAL_COLUMNS
            yield Text(_MERGED_LEGEND, style="dim")
            yield table.make_merged(fitting)
        else:
            yield table.make_whole(fitting)
        left_out = [name for name in fitting if table.has_column(name)]
        if left_out:
            text = f"left out at {options.max_width} columns: {', '.join(left_out)}"
            yield Text(text, style="dim")


class _ListingTable:
    """Cells of a listing, by column."""

    def __init__(
        self,
        kernel: KernelReport,
        entries: Sequence[ListingEntry],
        is_sorted_by_cost: bool,
        is_ascii: bool,
    ) -> None:
        is_executed = kernel.counts.looked_at_ctas is not None
        accesses = {entry.address: entry for entry in reversed(kernel.memory)} if is_executed else {}
        self.entries = entries
        self.marks = (
            [f"{entry.loops[-1]:#x}" if entry.loops else "" for entry in entries]
            if is_sorted_by_cost
            else draw_loops(entries, is_ascii=is_ascii)
        )
        self.styles = ["bold" if entry.share >= _MIN_HOT_SHARE else "" for entry in entries]
        self.cells: dict[str, list[Cell]] = {
            "executed" if is_executed else "count": [
                _format_executed(entry) if is_executed else f"{entry.executed_per_warp:,.4g}"
                for entry in entries
            ],
            "pipe": [entry.pipe if entry.known else "X" for entry in entries],
            "stall": [f"{entry.stall_cycles:,.0f}" if entry.stall_cycles else "" for entry in entries],
            "share": [f"{entry.share:.1%}" if entry.share >= _MIN_SHOWN_SHARE else "" for entry in entries],
            "control": [entry.control for entry in entries],
            "address": [f"{entry.address:04x}" for entry in entries],
            "loop": list(self.marks),
            "SASS": [entry.instruction for entry in entries],
            "request": [_format_request(accesses.get(entry.address)) for entry in entries],
            "cause": [_format_cause(entry) for entry in entries],
            "source": _list_sources(entries, has_text=True),
        }
        if not accesses:
            del self.cells["request"]

    def has_column(self, name: str) -> bool:
        return any(str(cell) for cell in self.cells.get(name, ()))

    def find_width(self, left_out: Sequence[str], *, is_merged: bool = False) -> int:
        """Return the least width of the table in cells, between columns two; source texts may be cut."""
        gone = {*left_out, *(("cause", "source") if is_merged else ())}
        widths = [
            _measure(name, cells)
            for name, cells in self.cells.items()
            if name not in gone and name not in ("SASS", "source") and self._is_shown(name)
        ]
        sass = min(_measure("SASS", self.cells["SASS"]), _MAX_SASS_CELLS)
        if is_merged or not self.has_column("source"):
            return sum(widths) + sass + 2 * len(widths)
        sources = _measure("source", _list_sources(self.entries, has_text=False))
        if any(entry.source_text for entry in self.entries):
            sources += _MIN_TEXT_CELLS
        return sum(widths) + sass + sources + 2 * (len(widths) + 1)

    def _is_shown(self, name: str) -> bool:
        return name not in ("loop", "source", "control") or self.has_column(name)

    def make_whole(self, left_out: Sequence[str]) -> FittedTable:
        """Return the table with cause and source in columns of their own."""
        return self._make_table({name: self.cells[name] for name in self.cells if name not in left_out})

    def make_merged(self, left_out: Sequence[str]) -> FittedTable:
        """Return the table with cause and source under the instructions."""
        gone = {*left_out, "cause", "source"}
        cells = {name: found for name, found in self.cells.items() if name not in gone}
        before, merged = "", []
        for entry, source in zip(self.entries, self.cells["source"], strict=True):
            cause = _format_cause(entry)
            notes = [cause] if cause and entry.stall != _FIXED_LATENCY_STALL else []
            if entry.source and entry.source != before:
                notes.append(str(source))
            before = entry.source
            merged.append("\n".join((entry.instruction, *(f"  {note}" for note in notes))))
        return self._make_table({**cells, "SASS": merged}, _SHORT_HEADS)

    def _make_table(
        self, cells: Mapping[str, Sequence[Cell]], heads: Mapping[str, str] = MappingProxyType({})
    ) -> FittedTable:
        shown = {name: found for name, found in cells.items() if self._is_shown(name)}
        columns = [replace(_COLUMNS[name], name=heads.get(name, name)) for name in shown]
        rows = list(zip(*shown.values(), strict=True))
        return FittedTable(columns, rows, has_rule=False, row_styles=self.styles)


_SHORT_HEADS = MappingProxyType({"executed": "exec", "address": "addr", "request": "req"})
_NUMBERS = ("executed", "count", "pipe", "stall", "share", "request")
_COLUMNS = {
    **dict(zip(_NUMBERS, make_number_columns(*_NUMBERS), strict=True)),
    "control": Column("control", ColumnFit.NO_WRAP),
    "address": Column("address", ColumnFit.NO_WRAP),
    "loop": Column("loop", ColumnFit.NO_WRAP),
    "SASS": Column("SASS", ColumnFit.WRAP, min_width=_MIN_SASS_CELLS),
    "cause": Column("cause", ColumnFit.NO_WRAP),
    "source": Column("source", ColumnFit.WRAP),
}


def _measure(name: str, cells: Sequence[Cell]) -> int:
    return max(cell_len(str(cell)) for cell in (name, *cells))


def draw_loops(entries: Sequence[ListingEntry], *, is_ascii: bool = False) -> list[str]:
    """Return the loops beside each instruction as lines, the outermost first: `┌`, `│`, `└` in a loop's code.

    A loop of one instruction, or one whose code stands apart, has `[`.
    """
    begin, inside, end, alone = "/|\\[" if is_ascii else "┌│└["
    depth = max((len(entry.loops) for entry in entries), default=0)
    marks = []
    for number, entry in enumerate(entries):
        before = entries[number - 1].loops if number else ()
        after = entries[number + 1].loops if number + 1 < len(entries) else ()
        letters = (
            inside
            if loop in before and loop in after
            else end
            if loop in before
            else begin
            if loop in after
            else alone
            for loop in entry.loops
        )
        marks.append("".join(letters).ljust(depth))
    return marks


def _list_sources(entries: Sequence[ListingEntry], *, has_text: bool) -> list[Cell]:
    """Return the sources of instructions, with the text of the line where it changes."""
    before, found = "", list[Cell]()
    for entry in entries:
        place = shorten_source(entry.source) + (f" (ptx {entry.ptx_line})" if entry.ptx_line else "")
        is_new = has_text and entry.source_text and entry.source != before
        text = f"{place}  {entry.source_text}" if is_new else place
        found.append(Text(text, no_wrap=True, overflow="ellipsis"))
        before = entry.source
    return found


def _format_executed(entry: ListingEntry) -> str:
    return (
        "?"
        if entry.executed_warps is None
        else format_provenance(entry.provenance) + format_count(entry.executed_warps)
    )


def _format_request(entry: MemoryEntry | None) -> str:
    """Return `4`, `2w` of shared or constant memory, `?` if not known; empty without requests."""
    if entry is None or not entry.requests:
        return ""
    has_passes = entry.space in _PASS_SPACES
    units = entry.wavefronts if has_passes else entry.sectors
    if units is None:
        return "?"
    provenance_mark = format_provenance("assumed") if entry.provenance == "assumed" else ""
    return provenance_mark + format_ratio(units / entry.requests) + ("w" if has_passes else "")


def _format_cause(entry: ListingEntry) -> str:
    if not entry.stall or entry.stall == _FIXED_LATENCY_STALL:
        return entry.stall
    if entry.producer is None:
        return entry.stall
    return f"{entry.stall} <- {entry.producer:04x}"
