"""Tables whose numbers are never cut: on a narrow terminal other columns are shortened or wrapped."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

Cell = str | Text
Row = Sequence[Cell]


class ColumnFit(StrEnum):
    """Behaviour of a column where space is short."""

    NUMBER = "number"  # right-aligned, never shortened
    NO_WRAP = "whole"  # left-aligned, never shortened
    TRUNCATE = "cut"  # shortened with an ellipsis
    WRAP = "fold"  # goes on in the next line


class Column(Struct, frozen=True):
    """Heading and fit of a column."""

    name: str
    fit: ColumnFit = ColumnFit.NUMBER
    max_width: int | None = None


def make_table(columns: Sequence[Column], rows: Sequence[Row], *, title: str = "") -> Table:
    """Return a table with a rule under its head; every row has as many cells as there are columns."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title or None, title_justify="left"
    )
    for index, column in enumerate(columns):
        cells = (column.name, *(str(row[index]) for row in rows))
        width = max(cell_len(line) for cell in cells for line in cell.split("\n"))
        whole = column.fit in {ColumnFit.NUMBER, ColumnFit.NO_WRAP}
        table.add_column(
            column.name,
            justify="right" if column.fit is ColumnFit.NUMBER else "left",
            no_wrap=column.fit is not ColumnFit.WRAP,
            min_width=width if whole else None,
            max_width=column.max_width,
        )
    for row in rows:
        table.add_row(*row)
    return table


def make_number_columns(*names: str) -> list[Column]:
    """Return columns of numbers."""
    return [Column(name) for name in names]
