"""Tables of the pages in docs/, for every command that writes one."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate

_NUMBER_END_CHARACTERS = "%0123456789"


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with a line's end; columns of figures but the first are aligned to the right."""
    body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    sides = ["right" if _is_numeric_column(body, place) else "left" for place in range(len(head))]
    text = tabulate(body, head, tablefmt="pipe", disable_numparse=True, colalign=sides if body else None)
    return text + "\n"


def _is_numeric_column(body: Sequence[Sequence[str]], place: int) -> bool:
    return place > 0 and all(row[place][-1:] in _NUMBER_END_CHARACTERS for row in body)
