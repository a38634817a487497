"""Untrusted text made safe in GitHub's markdown, and documents that keep to a length.

Every ASCII character that means something in markdown is written as its HTML entity: an entity is text, it
opens no emphasis, link, table cell or tag (CommonMark, "Entity and numeric character references"). `@` and
`#` would still become mentions and references once the text is HTML, so an invisible space follows them.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

MAX_CHARS = 65_000  # GitHub takes comments of less than 65,536
_MARKUP = re.compile(r"[\\`*_{}\[\]<>#+!|~&$:@=]")
_LINK = re.compile(r"www\.", re.IGNORECASE)  # GitHub makes a link of what begins so
_SPACE = "&#8203;"
_MAX_NAME_CHARS = 120
_MAX_PROSE_CHARS = 600
_TABLE_SHARE = 0.6  # of the document, so that there is room for details


def escape_prose(text: str, max_chars: int = _MAX_PROSE_CHARS) -> str:
    """Return a text as it reads in a paragraph or a table cell, on one line, cut in its middle where long."""
    shown = _LINK.sub(lambda match: f"{match[0][:-1]}\x00", " ".join(shorten(text, max_chars).split()))
    return _MARKUP.sub(_make_entity, shown).replace("\x00", "&#46;")


def escape_name(text: str, max_chars: int = _MAX_NAME_CHARS) -> str:
    """Return a name in the typeface of code."""
    return f"<code>{escape_prose(text, max_chars)}</code>" if text else ""


def shorten(text: str, max_chars: int) -> str:
    """Return a text of at most so many characters: its beginning and its end."""
    if len(text) <= max_chars:
        return text
    n_end = max_chars // 3
    return f"{text[: max_chars - n_end - 1]}…{text[len(text) - n_end :]}"


def _make_entity(match: re.Match[str]) -> str:
    entity = f"&#{ord(match[0])};"
    return entity + _SPACE if match[0] in "@#" else entity


class MarkdownTable(Struct, frozen=True):
    """A table; cells are markdown already. The first column is to the left, `right` ones to the right."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[str] = frozenset()  # heads

    def format_head(self) -> str:
        """Return the two lines above the rows."""
        marks = ("---:" if head in self.right else ":---" for head in self.heads)
        return f"| {' | '.join(self.heads)} |\n| {' | '.join(marks)} |\n"

    def format_rows(self) -> list[str]:
        """Return each row as a line."""
        return [f"| {' | '.join(row)} |\n" for row in self.rows]


class FoldedSection(Struct, frozen=True):
    """What is shown on a click: a summary line and paragraphs or lists, both markdown already."""

    summary: str
    lines: tuple[str, ...]

    def format_text(self) -> str:
        """Return the section; the empty lines let markdown go on within the HTML."""
        body = "".join(f"{line}\n" for line in self.lines)
        return f"<details><summary>{self.summary}</summary>\n\n{body}\n</details>\n"


def format_document(
    head: str, table: MarkdownTable | None, sections: Iterable[FoldedSection], foot: str, all_of_it: str
) -> str:
    """Return a document of at most MAX_CHARS characters.

    Rows and sections are taken in their order while there is room, and a line says how many are left out.

    all_of_it: where a reader finds them.
    """
    room = MAX_CHARS - len(head) - len(foot) - 2 * (len(all_of_it) + 80)
    parts = [head]
    if table is not None and table.rows:
        opening = f"\n{table.format_head()}"
        rows, n_left_out = _fit(table.format_rows(), int(room * _TABLE_SHARE) - len(opening))
        parts += [opening, *rows]
        if n_left_out:
            parts.append(f"\n{n_left_out:,} more rows: {all_of_it}\n")
        room -= len(opening) + sum(map(len, rows))
    folded, n_left_out = _fit([f"\n{section.format_text()}" for section in sections], room)
    parts += folded
    if n_left_out:
        parts.append(f"\n{n_left_out:,} more details: {all_of_it}\n")
    return "".join([*parts, f"\n{foot}" if foot else ""])


def _fit(texts: Sequence[str], room: int) -> tuple[list[str], int]:
    """Return the texts that go into so many characters, and how many do not."""
    taken: list[str] = []
    for text in texts:
        if len(text) > room:
            break
        taken.append(text)
        room -= len(text)
    return taken, len(texts) - len(taken)
