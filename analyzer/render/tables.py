"""Tables that fit the width of the terminal: nothing is cut; columns are folded, then left out and named.

Numbers and short words stand whole, other columns go on in the next line down to their least width. Where
that is still too wide, columns with the highest `drop_rank` are left out, and a line under the table names
them: of a column with one value, it gives the value. At last words are broken.

Example, with 24 columns for `GPU` (folded), `cycles` (whole) and `occupancy` (drop_rank 1):

    GPU               cycles
    RTX PRO 6000      12,345
    Blackwell Server
    left out at 24 columns: occupancy
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.text.escaping import escape_controls

Cell = str | Text
Row = Sequence[Cell]

_DEFAULT_MIN_CELLS = 12  # of a column that is folded
_MAX_WORD_CELLS = 16  # a longer word of a folded column may be broken
_MIN_BROKEN_CELLS = 6  # of a folded column that breaks words
_GAP_CELLS = 2  # between columns
_MARGIN_CELLS = 2  # at both ends


class ColumnFit(StrEnum):
    """Behaviour of a column where space is short."""

    NUMBER = "number"  # right-aligned, whole
    NO_WRAP = "whole"  # left-aligned, whole
    WRAP = "fold"  # goes on in the next line


class Column(Struct, frozen=True):
    """Heading and fit of a column."""

    name: str
    fit: ColumnFit = ColumnFit.NUMBER
    max_width: int | None = None
    min_width: int = _DEFAULT_MIN_CELLS  # of a folded column, where its cells are as long
    drop_rank: int = 0  # 0: never left out; the highest rank goes first


class FittedTable(Struct, frozen=True):
    """A table that chooses its columns and their widths when the width of the console is known."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    has_rule: bool = True  # under the head
    row_styles: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Escape control characters before widths are measured."""
        rows = [
            [escape_controls(cell, keep="\n") if isinstance(cell, str) else cell for cell in row]
            for row in self.rows
        ]
        force_setattr(self, "rows", rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table, and a line on what was left out."""
        widths = [self._measure_width(index) for index in range(len(self.columns))]
        least = [self._find_least_width(index, width) for index, width in enumerate(widths)]
        kept = self._choose_columns(least, options.max_width)
        fitted = _fit_widths(
            [self.columns[i].fit for i in kept],
            [least[i] for i in kept],
            [widths[i] for i in kept],
            options.max_width,
        )
        yield self._make_table(kept, fitted)
        left_out = [self._describe_left_out(i) for i in range(len(self.columns)) if i not in kept]
        if left_out:
            text = f"left out at {options.max_width} columns: {', '.join(left_out)}"
            yield Text(text, style="dim")

    def _measure_width(self, index: int) -> int:
        cells = (self.columns[index].name, *(str(row[index]) for row in self.rows))
        width = max(cell_len(line) for cell in cells for line in cell.split("\n"))
        return min(width, self.columns[index].max_width or width)

    def _find_least_width(self, index: int, width: int) -> int:
        """Return the width below which a column would be cut; a folded one keeps its words whole."""
        column = self.columns[index]
        if column.fit is not ColumnFit.WRAP:
            return width
        cells = (column.name, *(str(row[index]) for row in self.rows))
        longest = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        return min(width, max(column.min_width, min(longest, _MAX_WORD_CELLS)))

    def _choose_columns(self, least: Sequence[int], available: int) -> list[int]:
        kept = list(range(len(self.columns)))
        while _sum_widths([least[i] for i in kept]) > available:
            last = max(kept, key=lambda i: (self.columns[i].drop_rank, i))
            if not self.columns[last].drop_rank:
                break
            kept.remove(last)
        return kept

    def _make_table(self, kept: Sequence[int], fitted: Sequence[int]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD if self.has_rule else None,
            pad_edge=False,
            padding=(0, _GAP_CELLS - 1 if self.has_rule else _GAP_CELLS, 0, 0),
            title=self.title or None,
            title_justify="left",
        )
        for index, width in zip(kept, fitted, strict=True):
            column = self.columns[index]
            table.add_column(
                column.name,
                justify="right" if column.fit is ColumnFit.NUMBER else "left",
                overflow="fold",
                width=width,
            )
        for number, row in enumerate(self.rows):
            style = self.row_styles[number] if self.row_styles else ""
            cells = (row[i] for i in kept)
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), style=style)
        return table

    def _describe_left_out(self, index: int) -> str:
        name = self.columns[index].name
        values = {str(row[index]) for row in self.rows}
        return f"{name} ({values.pop()})" if len(values) == 1 and values != {""} else name


def _sum_widths(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP_CELLS * (len(widths) - 1) + _MARGIN_CELLS


def _fit_widths(
    fits: Sequence[ColumnFit], least: Sequence[int], widths: Sequence[int], available: int
) -> list[int]:
    """Return the widths of columns: folded ones share what the others leave, first come first served.

    Where even the least widths are too much, folded columns break words, and at last others are folded.
    """
    fitted = list(least)
    spare = available - _sum_widths(fitted)
    for index, width in enumerate(widths):
        more = max(0, min(spare, width - fitted[index]))
        fitted[index] += more
        spare -= more
    folded = [index for index, fit in enumerate(fits) if fit is ColumnFit.WRAP]
    for candidates, floor in ((folded, _MIN_BROKEN_CELLS), (range(len(fitted)), 1)):
        while spare < 0 and any(fitted[i] > floor for i in candidates):
            widest = max(candidates, key=lambda i: fitted[i])
            fitted[widest] -= 1
            spare += 1
    return fitted


def make_table(columns: Sequence[Column], rows: Sequence[Row], *, title: str = "") -> FittedTable:
    """Return a table with a rule under its head; every row has as many cells as there are columns."""
    return FittedTable(columns, rows, title)


def make_number_columns(*names: str, drop_rank: int = 0) -> list[Column]:
    """Return columns of numbers."""
    return [Column(name, drop_rank=drop_rank) for name in names]


def shorten_middle(text: str, max_cells: int) -> str:
    """Return a text whose middle is replaced by `...` where it is longer than so many characters.

    >>> shorten_middle("cutlass::device_kernel<Gemm>(Params)", 20)
    'cutlass::...(Params)'
    """
    if len(text) <= max_cells:
        return text
    tail = (max_cells - 3) // 2
    return f"{text[: max_cells - 3 - tail]}...{text[len(text) - tail :]}"
