"""Case files of `grammars/cases`: an input between lines that say what is printed of it.

A case is text as a tool prints it, between lines that start with `// CHECK` (see `filecheck --help`) or
`// COM:`; those count as blank lines, so line numbers are those of the file. Marks stand for what a text
file cannot hold well: `<CUT>` ends the input in the middle of a line, `<BYTE ff>` is one byte,
`<REPEAT 900 R1, >` repeats the text after the number.

Leading blanks of an error's lines are printed as dots, so that a caret's column is checked.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import DumpInputKind, Options
from filecheck.parser import Parser

_DIRECTIVE = re.compile(r"^// (CHECK|COM).*$", re.M)
_CUT = re.compile(r"<CUT>.*", re.S)
_BYTE = re.compile(rb"<BYTE ([0-9a-f]{2})>")
_REPEAT = re.compile(r"<REPEAT (\d+) ([^>]*)>")


def case_input(text: str) -> bytes:
    """Return the input that a case file stands for."""
    text = _CUT.sub("", _DIRECTIVE.sub("", text))
    text = _REPEAT.sub(lambda match: match[2] * int(match[1]), text)
    return _BYTE.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode())


def shown(message: str) -> Iterator[str]:
    """Yield the lines of a message; leading blanks as dots, since the place of a caret matters."""
    for line in message.splitlines():
        body = line.lstrip(" ")
        yield "." * (len(line) - len(body)) + body


def match_case(case: Path, text: str) -> int:
    """Compare what is printed with the case's lines; return 0 if it is that, and print what differs."""
    options = Options(
        match_filename=str(case),
        dump_input=DumpInputKind.FAIL,
        comment_prefixes=["COM"],
        match_full_lines=True,
    )
    options.check_prefixes = ["CHECK"]
    return Matcher(options, FInput(case.name, text), Parser.from_opts(options)).run()
