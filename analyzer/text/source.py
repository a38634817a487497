"""Where a piece of input stands: file, line, column, and the text around it."""

from enum import StrEnum

from msgspec import Struct

_MAX_SHOWN_CHARS = 96


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Location(Struct, frozen=True):
    """A place in a file; line and column count from 1, `text` is that line, `length` the offending part."""

    path: str
    line: int
    column: int
    text: str
    length: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"

    def format_excerpt(self) -> str:
        """The line with a caret under the offending part; a long line shows the part around it."""
        start = max(0, self.column - 1 - _MAX_SHOWN_CHARS // 2) if len(self.text) > _MAX_SHOWN_CHARS else 0
        shown = self.text[start : start + _MAX_SHOWN_CHARS]
        head = "..." if start else ""
        tail = "..." if start + _MAX_SHOWN_CHARS < len(self.text) else ""
        visible = "".join(c if c.isprintable() else " " for c in head + shown + tail)
        indent = " " * (self.column - 1 - start + len(head))
        carets = "^" * max(1, min(self.length, len(shown) - (self.column - 1 - start)))
        return f"    {visible}\n    {indent}{carets}"


class Diagnostic(Struct, frozen=True):
    """One thing to tell the user: what, where, and what to do; `count` for repeated warnings."""

    severity: Severity
    code: str
    message: str
    location: Location | None = None
    hint: str = ""
    count: int = 1


def locate(path: str, data: bytes, offset: int, *, first_line: int = 1, length: int = 1) -> Location:
    """Location of a byte offset in `data`, whose first line is number `first_line` of the file.

    Columns count characters, bytes that are not UTF-8 counting one each.
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
