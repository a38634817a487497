"""Places in inputs (file, line, column, text of the line) and diagnostics that name them."""

from enum import StrEnum

from msgspec import Struct

_MAX_SHOWN_CHARS = 96


class Severity(StrEnum):
    """Severity of a diagnostic."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Location(Struct, frozen=True):
    """A place in a file."""

    path: str
    line: int  # from 1
    column: int  # from 1, in characters
    text: str  # of the line
    length: int = 1  # of the faulty part, in characters

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"

    def format_excerpt(self) -> str:
        """Return the line with carets under the faulty part; of a long line the text around it."""
        start = max(0, self.column - 1 - _MAX_SHOWN_CHARS // 2) if len(self.text) > _MAX_SHOWN_CHARS else 0
        shown = self.text[start : start + _MAX_SHOWN_CHARS]
        head = "..." if start else ""
        tail = "..." if start + _MAX_SHOWN_CHARS < len(self.text) else ""
        visible = "".join(c if c.isprintable() else " " for c in head + shown + tail)
        indent = " " * (self.column - 1 - start + len(head))
        carets = "^" * max(1, min(self.length, len(shown) - (self.column - 1 - start)))
        return f"    {visible}\n    {indent}{carets}"


class Diagnostic(Struct, frozen=True):
    """A message for the user."""

    severity: Severity
    code: str
    message: str
    location: Location | None = None
    hint: str = ""  # what to do
    count: int = 1  # of equal warnings


def shorten_source(place: str) -> str:
    """Return the place of a source line without the folders of its file.

    >>> shorten_source("/home/me/kernel.cu:41")
    'kernel.cu:41'
    """
    return place.replace("\\", "/").rsplit("/", 1)[-1]


def locate(path: str, data: bytes, offset: int, *, first_line: int = 1, length: int = 1) -> Location:
    """Return the location of a byte offset in a piece of a file.

    first_line: number of the first line of `data` in the file.
    Columns count characters; each byte that is not UTF-8 counts as one.
    """
    start = data.rfind(b"\n", 0, offset) + 1
    end = data.find(b"\n", offset)
    line_bytes = data[start : end if end >= 0 else len(data)].rstrip(b"\r")
    column = len(data[start:offset].decode("utf-8", "replace")) + 1
    return Location(
        path=path,
        line=first_line + data.count(b"\n", 0, start),
        column=column,
        text=line_bytes.decode("utf-8", "replace"),
        length=length,
    )
