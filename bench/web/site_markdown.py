"""What the documents of the repository need before Python-Markdown reads them as their authors meant them.

The documents are written for GitHub's Markdown. Python-Markdown wants an empty line before a list or a
table that follows a paragraph, and sees no link in `docs/models.md`, which is how documents name each
other. Both are mended outside of fences:

>>> separate_blocks("Two things:\\n- one\\n- two")
'Two things:\\n\\n- one\\n- two'
>>> link_mentions("more in docs/models.md", "guides/hot-loop.md", {"models.md": "The models"})
'more in [The models](../models.md)'
"""

import posixpath
import re
from collections.abc import Callable, Mapping

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_LIST_OR_TABLE = re.compile(r"(?:[-*] |\d+\. |\|)")
# Not in `code`, not in the text or the address of a link, not at the end of a longer path.
_MENTION = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|(?<![\w/-])docs/(?P<name>[\w/-]+\.md)")
_REGISTER = re.compile(r"(?<=\])\[(?=U?R[\d.]+)")
_TITLE = re.compile(r"^# +(.+?)\s*$", re.MULTILINE)


def find_title(markdown: str) -> str:
    """Return the text of the first heading; empty where there is none."""
    found = _TITLE.search(markdown)
    return found[1] if found else ""


def separate_blocks(markdown: str) -> str:
    """Return Markdown with an empty line before each list and each table that follows a paragraph."""
    lines: list[str] = []
    before = ""
    for line, is_code in _mark_code(markdown):
        starts = not is_code and _LIST_OR_TABLE.match(line)
        if starts and before.strip() and not _continues(before):
            lines.append("")
        lines.append(line)
        before = line
    return "\n".join(lines)


def _continues(before: str) -> bool:
    """Return whether a line belongs to a list or a table, or is a heading, after which a block may begin."""
    return bool(_LIST_OR_TABLE.match(before)) or before.startswith((" ", "#", "```"))


def link_mentions(markdown: str, page: str, titles: Mapping[str, str]) -> str:
    """Return Markdown in which `docs/NAME.md` is a link with the title of that page.

    page: the path of the page itself below `docs`. titles: of all pages by path. What is no page stays.
    """

    def link(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None or name not in titles:
            return found[0]
        address = posixpath.relpath(name, posixpath.dirname(page) or ".")
        return f"[{titles[name]}]({address})"

    return _edit_text(markdown, lambda text: _MENTION.sub(link, text))


def escape_registers(markdown: str) -> str:
    """Return Markdown in which `[R2.64]` behind another bracket is an operand, not the name of a link."""
    return _edit_text(markdown, lambda text: _REGISTER.sub(r"\\[", text))


def make_cell(text: str) -> str:
    """Return a text as a cell of a table, in which nothing is markup but `code`."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    parts = escaped.split("`")
    for place in range(0, len(parts), 2):
        for mark in "\\*_[]":
            parts[place] = parts[place].replace(mark, f"\\{mark}")
    for place in range(1, len(parts), 2):  # entities mean nothing in `code`
        parts[place] = parts[place].replace("&lt;", "<").replace("&amp;", "&")
    return "`".join(parts).replace("|", "\\|")


def _edit_text(markdown: str, edit: Callable[[str], str]) -> str:
    return "\n".join(line if is_code else edit(line) for line, is_code in _mark_code(markdown))


def _mark_code(markdown: str) -> list[tuple[str, bool]]:
    """Return the lines, each with whether it is of a fence."""
    marked = []
    fence = ""
    for line in markdown.split("\n"):
        found = _FENCE.match(line)
        is_code = bool(fence) or found is not None
        if found and not fence:
            fence = found[1]
        elif found and line.strip() == fence:
            fence = ""
        marked.append((line, is_code))
    return marked
