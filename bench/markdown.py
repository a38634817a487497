"""Render Markdown tables for the pages in docs/."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate

_NUMBER_END_CHARACTERS = "%0123456789"


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table, with a newline at the end; numeric columns except the first are right-aligned."""
    body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    sides = ["right" if _is_numeric_column(body, place) else "left" for place in range(len(head))]
    text = tabulate(body, head, tablefmt="pipe", disable_numparse=True, colalign=sides if body else None)
    return text + "\n"


def _is_numeric_column(body: Sequence[Sequence[str]], place: int) -> bool:
    return place > 0 and all(row[place][-1:] in _NUMBER_END_CHARACTERS for row in body)
