"""The text of a PTX file without its comments, and the places of errors in it."""

import re

from msgspec import Struct

from analyzer.frontend.ptx.constants import PtxSyntaxError
from analyzer.text.errors import InputError
from analyzer.text.source import Location

MAX_BYTES = 1 << 28
HINT = "the file is damaged, or not PTX; ptxas names what it expects: ptxas -arch=sm_90 FILE"
# Strings and `.loc` lines may hold what looks like a comment, or one that is needed.
_COMMENT = re.compile(r'"[^"\n]*"|\.loc\s[^\n/]*(?://[^\n]*)?|//[^\n]*|/\*(?:.*?\*/|.*)', re.S)
_NOT_LINE_END = re.compile(r"[^\n]")


class PtxText(Struct, frozen=True):
    """A file: its text, and the same with blanks for comments, so that places are equal in both."""

    path: str
    original: str
    stripped: str

    def locate(self, offset: int, length: int = 1) -> Location:
        """Return the location of an offset."""
        offset = min(offset, len(self.original))
        start = self.original.rfind("\n", 0, offset) + 1
        end = self.original.find("\n", offset)
        line = self.original[start : end if end >= 0 else len(self.original)].rstrip("\r")
        number = self.original.count("\n", 0, start) + 1
        return Location(self.path, number, offset - start + 1, line, length)

    def make_error(self, message: str, offset: int, *, length: int = 1, hint: str = HINT) -> InputError:
        """Return the error for a faulty part of the text."""
        return InputError(message, location=self.locate(offset, length), hint=hint)

    def make_syntax_error(self, error: PtxSyntaxError, offset: int, text: str) -> InputError:
        """Return the error for a part of a statement; `text`, which begins at `offset`, was being read."""
        if error.text:
            position = re.search(rf"(?<![\w%$]){re.escape(error.text)}(?![\w$])", text)
            start = position.start() if position else 0
            return self.make_error(error.message, offset + start, length=len(error.text))
        return self.make_error(error.message, offset + error.offset)


def prepare_text(data: str | bytes, path: str) -> PtxText:
    """Return the text of a file.

    Raises InputError if it is not UTF-8, empty, too large, or has a comment without an end.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: more than {MAX_BYTES >> 20} MiB of PTX", hint="split it by kernels")
    text = _decode(data, path) if isinstance(data, bytes) else data
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise InputError(f"{path}: the file is empty", hint="make PTX with: nvcc -ptx kernel.cu")

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] != "/":
            return found
        if found[1] == "/":
            return " " * len(found)
        if not found.endswith("*/") or len(found) < 4:
            raise PtxText(path, text, "").make_error("a comment without an end", match.start(), length=2)
        return _NOT_LINE_END.sub(" ", found)

    return PtxText(path, text, _COMMENT.sub(blank, text))


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", "replace")
        offset = len(data[: error.start].decode("utf-8"))
        raise PtxText(path, text, "").make_error(
            "the text is not UTF-8", offset, hint="save it as UTF-8; a shell may have written UTF-16"
        ) from None
