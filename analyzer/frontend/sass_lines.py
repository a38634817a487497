"""Syntax of the lines that cuobjdump and nvdisasm print, and a splitter of a stream of them into chunks.

An instruction takes two lines, the second with the upper half of its encoding, so no chunk ends between them:

    /*0000*/                   MOV R1, c[0x0][0x28] ;           /* 0x00000a0000017a02 */
                                                                /* 0x000fe40000000f00 */
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from analyzer.text.source import Location, locate

# An instruction with its two hex words, of which the second holds the control fields, or any other line.
LINE = re.compile(
    rb"[ \t]*/\*([0-9a-f]{4,8})\*/[ \t]++([^;\n]*);"
    rb"(?:[ \t]*/\* 0x[0-9a-f]{16} \*/[^\n]*\n[ \t]*/\* 0x([0-9a-f]{16}) \*/)?[^\n]*\n"
    rb"|([\r\n]*\n|[^\n]*\n)"
)
ENCODING_WORD = re.compile(rb"^[ \t]*/\* 0x[0-9a-f]{16} \*/")
INSTRUCTION_START = re.compile(rb"^[ \t]*/\*[0-9a-fA-F]+\*/")
DATA_DIRECTIVE = re.compile(rb"^[ \t]*/\*[0-9a-f]+\*/[ \t]+\.(byte|short|word|dword|quad|string|zero|b\d+)\b")
ARCH = re.compile(rb"sm_(\d+[af]?)\b")
ARCH_FLAG = re.compile(rb"EF_CUDA_SM(\d{1,4})(?!\d)")
FUNCTION_HEADER = re.compile(rb"^\s*Function\s*:\s*(\S.*)")
# A demangled name has blanks, parentheses and commas of its own.
TEXT_SECTION = re.compile(rb"^\s*\.section\s+\.text\.(?:([^,\"\s(]+)(?=\s*(?:,|$))|([^\n\"]+)(?=,\s*\"))")
_LABEL = re.compile(rb"^([.\w$]+):\s*(?://.*)?$")
SOURCE_LINE = re.compile(
    rb'//## File "([^"]*)", line (\d{1,9})(?!\d)(?: inlined at "([^"]*)", line (\d{1,9})(?!\d))?'
)
IMAGE_HEADER = re.compile(rb"Fatbin (\w+) code")
IGNORED_PREFIXES = (
    b"Fatbin",
    b"=====",
    b"arch =",
    b"code version",
    b"host =",
    b"compile_size",
    b"compressed",
    b"producer",
    b"identifier",
    b"has debug",
    b"ptxasOptions",
    b"nvvmOptions",
    b"compile_options",
    b"cuobjdump",
    b"nvdisasm",
    b"..........",
    b"Resource usage",
    b"Common:",
    b"GLOBAL:",
)


MAX_LINE_BYTES = 32 << 20


def parse_label(line: bytes) -> bytes:
    """Return the name in a line `NAME:`, which may be a demangled one; empty for any other line."""
    if match := _LABEL.match(line):
        return match[1]
    name = line.partition(b"//")[0].rstrip()
    if not name.endswith(b":") or b"(" not in name or line[:1] in b" \t/#.":
        return b""
    return name[:-1] if name.count(b"(") == name.count(b")") else b""


class OverlongLineError(Exception):
    """A line of more than `MAX_LINE_BYTES`, which no tool prints."""


def split_at_line_ends(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the stream in pieces that never end between the two lines of an instruction.

    A newline is added to the last line if it has none.
    """
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        last = text.rfind(b"\n", 0, end - 1) + 1 if end else 0
        if end and not ENCODING_WORD.match(text[last:end]):
            end = last
        if end:
            yield text[:end]
        rest = text[end:]
        if len(rest) > MAX_LINE_BYTES:
            raise OverlongLineError
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


LineMatch = tuple[bytes, bytes, bytes, bytes]


class SassChunk:
    """A piece of a dump that begins at line `first_line`; `matches` are its lines by `LINE`, in order.

    `findall` gives no positions of matches, but is fast. Positions are needed for errors only, and are found
    by a second pass.
    """

    def __init__(self, path: str, data: bytes, first_line: int) -> None:
        self.path, self.data, self.first_line = path, data, first_line
        self.n_lines = data.count(b"\n")
        self._cursor, self._cursor_line = 0, first_line

    @cached_property
    def matches(self) -> list[LineMatch]:
        """(address, text, upper word, other line) of each match; one of text and other line is empty."""
        return LINE.findall(self.data)

    def locate(self, offset: int) -> Location:
        """Return the location of the byte at an offset."""
        return locate(self.path, self.data, offset, first_line=self.first_line)

    def locate_start(self, index: int) -> Location:
        """Return the location at which match `index` begins."""
        return self.locate(self._find_match(index).start())

    def locate_end(self, index: int) -> Location:
        """Return the location after the last character of match `index`."""
        match = self._find_match(index)
        return self.locate(match.start() + len(match[0].rstrip()))

    def locate_text(self, index: int, column: int) -> Location:
        """Return the location of a column of the stripped instruction text of match `index`."""
        match = self._find_match(index)
        lead = len(match[2]) - len(match[2].lstrip())
        return self.locate(match.start(2) + lead + min(column, len(match[2].strip())))

    def find_line_number(self, line: bytes) -> int:
        """Return the number of a header line.

        Calls must be in file order, because each search goes on from the last one.
        """
        offset = self.data.find(line, self._cursor)
        number = self._cursor_line + self.data.count(b"\n", self._cursor, offset)
        self._cursor, self._cursor_line = offset + len(line), number + 1
        return number

    def _find_match(self, index: int) -> re.Match[bytes]:
        return next(match for number, match in enumerate(LINE.finditer(self.data)) if number == index)
