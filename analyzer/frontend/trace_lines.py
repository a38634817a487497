"""Lines of instruction traces: a splitter of a stream of them, and a parser for each kind.

One regular expression splits all lines. The grammar (grammars/trace.lark) parses headers, markers and each
distinct instruction, and finds the column of an error. Lists of addresses are read without it, because they
are numbers only.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from analyzer.frontend.grammar import load_parser
from analyzer.ir.trace import FIRST_UNIFORM_REGISTER
from analyzer.text.errors import InputError
from analyzer.text.source import Location, locate

if TYPE_CHECKING:
    from lark import Lark, Tree

MAX_LINE_BYTES = 1 << 14
_MAX_REGISTER = 255
_MAX_WIDTH_BYTES = 128
_BLANKS = re.compile(rb"[ \t]{2,}|\t|^ ", re.M)
_RETRACE_HINT = "trace again, or leave out the damaged file"

# Warp prefix, program counter, mask, instruction and tail of an instruction line; or empty lines, or another.
LINE = re.compile(
    rb"((?:\d+ )*)([0-9a-f]+) ([0-9a-f]{8}) (\d+ (?:U?R\d+ )*[A-Z][\w.]* \d+ (?:U?R\d+ )*\d+)(?!\w)"
    rb"([0-9a-fx -]*)(?:NoVal *|Val [^\n]*)?\r?\n"
    rb"|([\r\n]*\n|[^\n]*\n)"
)
_WARP_PREFIX = re.compile(r"(?:\d+ )*(?=[0-9a-f]+ [0-9a-f]{8} )")
TraceLineMatch = tuple[bytes, bytes, bytes, bytes, bytes, bytes]

_ADDRESS_LIST_RULES = {"0": "list_tail", "1": "stride_tail", "2": "delta_tail"}


class TracedForm(Struct, frozen=True):
    """A distinct instruction text, such as `1 R4 LDG.E 1 R2 4`, parsed."""

    destinations: tuple[int, ...]
    mnemonic: str
    sources: tuple[int, ...]
    width_bytes: int  # that one lane accesses, 0 without addresses


class TraceSyntaxError(Exception):
    """An error in a text, with its column and a message."""

    def __init__(self, column: int, message: str) -> None:
        super().__init__(message)
        self.column, self.message = column, message


def load_trace_parser() -> "Lark":
    """Return the parser of all kinds of lines."""
    return load_parser("trace")


def parse_line(rule: str, text: str) -> "Tree[Any]":
    """Parse a line by a rule of the grammar. Raises TraceSyntaxError."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    try:
        return load_trace_parser().parse(text, start=rule)
    except UnexpectedCharacters as error:
        column = int(error.pos_in_stream or 0)
    except UnexpectedToken as error:
        column = len(text.rstrip()) if error.token.type == "$END" else int(error.pos_in_stream or 0)
    except UnexpectedInput:
        column = len(text.rstrip())
    raise TraceSyntaxError(column, "this is not a line of an instruction trace")


def parse_form(text: str) -> TracedForm:
    """Parse an instruction without its program counter and mask. Raises TraceSyntaxError."""
    children: list[Any] = parse_line("form", text).children
    results, opcode, sources, width = children
    form = TracedForm(
        destinations=_parse_registers(results, text),
        mnemonic=str(opcode),
        sources=_parse_registers(sources, text),
        width_bytes=int(width),
    )
    if form.width_bytes > _MAX_WIDTH_BYTES:
        raise TraceSyntaxError(width.start_pos, f"no lane moves more than {_MAX_WIDTH_BYTES} bytes")
    return form


def _parse_registers(node: Any, text: str) -> tuple[int, ...]:
    count, *registers = node.children
    if int(count) != len(registers):
        raise TraceSyntaxError(count.start_pos, f"{count} registers are announced, {len(registers)} follow")
    numbers = []
    for register in registers:
        file, _, digits = register.rpartition("R")
        if int(digits) > _MAX_REGISTER:
            raise TraceSyntaxError(register.start_pos, f"registers end at {file}R{_MAX_REGISTER}")
        numbers.append(int(digits) + (FIRST_UNIFORM_REGISTER if file else 0))
    return tuple(numbers)


def find_address_list_error(tail: str, lanes: int, has_addresses: bool) -> TraceSyntaxError:
    """Return the error in the list of addresses after an instruction; its column counts from the tail."""
    words = tail.split()
    if has_addresses and not words:
        return TraceSyntaxError(len(tail), "addresses of the active lanes are missing")
    rule = _ADDRESS_LIST_RULES.get(words[0], "stride_tail") if has_addresses else "nothing_tail"
    try:
        parse_line(rule, tail)
    except TraceSyntaxError as error:
        return error
    return TraceSyntaxError(len(tail.rstrip()), f"the addresses do not fit {lanes} active lanes")


class TraceChunk:
    """Whole lines of a trace from line `first_line` on; `matches` are these lines by `LINE`."""

    def __init__(self, path: str, data: bytes, first_line: int) -> None:
        self.path, self.first_line = path, first_line
        self.data = (
            _BLANKS.sub(_collapse_blanks, data) if b"  " in data or b"\t" in data or b"\n " in data else data
        )
        self.n_lines = data.count(b"\n")

    @cached_property
    def matches(self) -> list[TraceLineMatch]:
        """The groups of `LINE` for each line; the last one is empty for instructions."""
        return LINE.findall(self.data)

    def make_error(
        self, index: int, message: str, *, group: int = 0, column: int = 0, hint: str = _RETRACE_HINT
    ) -> InputError:
        """Return an error at a column of group `group` of match `index`."""
        match = next(found for number, found in enumerate(LINE.finditer(self.data)) if number == index)
        return InputError(message, location=self.locate(match.start(group) + column), hint=hint)

    def locate(self, offset: int) -> Location:
        """Return the location of the byte at an offset."""
        return locate(self.path, self.data, min(offset, len(self.data) - 1), first_line=self.first_line)

    def make_line_error(self, index: int) -> InputError:
        """Return the error for a line that is no instruction and no marker."""
        text = self.matches[index][5].decode("utf-8", "replace").rstrip("\r\n")
        rule, start = "line", 0
        if text.startswith("-"):
            rule = "header"
        elif text.startswith(("#", "thread", "warp", "insts", "cluster")):
            rule = "marker"
        elif prefix := _WARP_PREFIX.match(text):
            start = prefix.end()
        try:
            parse_line(rule, text[start:])
        except TraceSyntaxError as error:
            return self.make_error(index, error.message, column=start + error.column)
        return self.make_error(index, "this is not a line of an instruction trace")


def _collapse_blanks(match: re.Match[bytes]) -> bytes:
    return b"" if match[0] == b" " or match.start() == 0 or match.string[match.start() - 1] == 10 else b" "


def split_into_chunks(path: str, chunks: Iterable[bytes]) -> Iterator[TraceChunk]:
    """Yield the stream in chunks of whole lines; a newline is added to the last line if it has none."""
    rest, line = b"", 1
    for chunk in chunks:
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        if end:
            cut = TraceChunk(path, text[:end], line)
            yield cut
            line += cut.n_lines
        rest = text[end:]
        if len(rest) > MAX_LINE_BYTES:
            raise InputError(
                "a line is too long for a trace", location=Location(path, line, 1, ""), hint=_RETRACE_HINT
            )
    if rest.strip():
        yield TraceChunk(path, rest + b"\n", line)
