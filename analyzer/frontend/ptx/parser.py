"""Parses PTX text to a `PtxModule`.

Comments are blanked first, so that places stay. One regular expression splits the body of a function into
statements; directives between functions are read one by one. Operands go through `OperandReader`,
declarations through `DeclarationReader`: the grammar (grammars/ptx.lark) parses each distinct shape once.
"""

import re
from functools import partial

from analyzer.frontend.garbage_collection import pause_garbage_collection
from analyzer.frontend.ptx.constants import PtxSyntaxError
from analyzer.frontend.ptx.declarations import LINKAGES, STATE_SPACES, find_element_bytes, make_variables
from analyzer.frontend.ptx.function_body import BodyParser
from analyzer.frontend.ptx.function_head import load_readers, read_head
from analyzer.frontend.ptx.ptx_diagnostics import PtxDiagnostics
from analyzer.frontend.ptx.ptx_text import prepare_text
from analyzer.frontend.ptx.source_lines import SourceLineTable
from analyzer.frontend.ptx.statements import PtxFunction, PtxModule, PtxVariable
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic

_DIRECTIVE = re.compile(r"\s*+(?:\.(\w+)|(#[^\n]*)|(\Z)|(\S))", re.A)
_VERSION = re.compile(r"\s*(\d+\.\d+)", re.A)
_TARGET = re.compile(r"\s*([\w]+(?:\s*,\s*\w+)*)", re.A)
_ADDRESS_SIZE = re.compile(r"\s*(32|64)\b")
_ALIAS = re.compile(r"\s*([\w$%]+)\s*,\s*([\w$%]+)\s*;", re.A)
_SECTION = re.compile(r"[^{}]*+\{[^{}]*+\}")
_LINE = re.compile(r"[^\n]*")
_PRAGMA = re.compile(r"[^;\"]*+(?:\"[^\"\n]*\"[^;\"]*+)*+;")
_HEAD_END = re.compile(r"[^;{=]*+")
_KIND = re.compile(r"\.(?:entry|func)\b")
_DECLARATION_END = re.compile(r"[^;]*+;")
_DECLARING = frozenset(
    (*LINKAGES, *STATE_SPACES, "entry", "func", "align", "attribute"),
)
_SKIPPED = {"file": _LINE, "loc": _LINE, "section": _SECTION, "pragma": _PRAGMA}
_DUMP_HEADER = "Fatbin ptx code"  # before each module that cuobjdump prints, with lines of facts
_HEADER_HINT = "PTX begins with lines such as: .version 8.7, .target sm_90a, .address_size 64"


def parse_ptx(data: str | bytes, path: str) -> tuple[PtxModule, tuple[Diagnostic, ...]]:
    """Parse a PTX file; return its statements and the warnings.

    Raises InputError, with line, column and caret, if it is not PTX.
    """
    with pause_garbage_collection():
        return _ModuleParser(data, path).parse()


class _ModuleParser:
    """State of the parser between functions."""

    def __init__(self, data: str | bytes, path: str) -> None:
        self._text = prepare_text(data, path)
        self._lines = SourceLineTable(self._text.stripped)
        self._diagnostics = PtxDiagnostics()
        self._readers = load_readers()
        self._version = self._target = ""
        self._options: tuple[str, ...] = ()
        self._address_bits = 32  # what PTX takes where nothing is said
        self._variables: list[PtxVariable] = []
        self._element_bytes: dict[str, int] = {}  # of each variable
        self._functions: list[PtxFunction] = []
        self._aliases: list[tuple[str, str]] = []
        self._counted = 0  # offset up to which lines are counted
        self._line = 1

    def parse(self) -> tuple[PtxModule, tuple[Diagnostic, ...]]:
        """Parse the whole file; see `parse_ptx`."""
        position: int | None = 0
        while position is not None:
            position = self._parse_directive(position)
        if not self._version or not self._target:
            missing = ".target" if self._version else ".version"
            raise InputError(f"{self._text.path}: a {missing} line is missing", hint=_HEADER_HINT)
        module = PtxModule(
            version=self._version,
            target=self._target,
            target_options=self._options,
            address_bits=self._address_bits,
            variables=tuple(self._variables),
            functions=tuple(self._functions),
            aliases=tuple(self._aliases),
        )
        return module, tuple(self._diagnostics.build_warnings())

    def _parse_directive(self, position: int) -> int | None:
        """Parse what stands at a position between functions; return where it ends, None at the end."""
        text = self._text
        match = _DIRECTIVE.match(text.stripped, position)
        if match is None or match[3] is not None:
            return None
        if match[4] and text.stripped.startswith(_DUMP_HEADER, match.start(4)):
            version = text.stripped.find("\n.version", match.start(4))
            return version if version >= 0 else None
        if match[4]:
            raise text.make_error("this is not a directive of PTX", match.start(4))
        if match[2]:
            self._warn("#", match.start(2))
            return match.end()
        name, start = match[1], match.start(1) - 1
        if name == "version" and self._version:
            self._diagnostics.other_modules.add(partial(text.locate, start, len(name) + 1))
            return None
        if name in _DECLARING:
            return self._parse_declaration(start)
        if skipped := _SKIPPED.get(name):
            end = skipped.match(text.stripped, match.end())
            if end is None:
                raise text.make_error(f"the .{name} directive has no end", start)
            return end.end()
        return self._parse_header(name, start, match.end())

    def _parse_header(self, name: str, start: int, end: int) -> int:
        if name == "version":
            match = self._expect(_VERSION, end, "a version is two numbers: 8.7")
            self._version = match[1]
        elif name == "target":
            match = self._expect(_TARGET, end, "a target is, for example, sm_90a")
            self._target, *options = re.split(r"\s*,\s*", match[1])
            self._options = tuple(options)
        elif name == "address_size":
            match = self._expect(_ADDRESS_SIZE, end, "addresses have 32 or 64 bits")
            self._address_bits = int(match[1])
        elif name == "alias":
            match = self._expect(_ALIAS, end, "an alias is two names: .alias f, g;")
            self._aliases.append((match[1], match[2]))
        else:
            return self._skip_unknown(name, start)
        return match.end()

    def _expect(self, pattern: re.Pattern[str], position: int, message: str) -> re.Match[str]:
        match = pattern.match(self._text.stripped, position)
        if match is None:
            raise self._text.make_error(message, position)
        return match

    def _skip_unknown(self, name: str, start: int) -> int:
        """Skip a directive that is not known: its line, and a block that begins there."""
        self._warn(f".{name}", start)
        stripped = self._text.stripped
        end = stripped.find("\n", start)
        end = len(stripped) if end < 0 else end
        if stripped.count("{", start, end) > stripped.count("}", start, end):
            close = stripped.find("}", end)
            if close < 0:
                raise self._text.make_error(f"the .{name} directive has no end", start)
            return close + 1
        return end

    def _warn(self, name: str, offset: int) -> None:
        self._diagnostics.add_directive(name, partial(self._text.locate, offset, len(name)))

    def _parse_declaration(self, start: int) -> int:
        text = self._text
        end = self._expect(_HEAD_END, start, "").end()
        if not _KIND.search(text.stripped, start, end):
            return self._parse_variables(start)
        head = read_head(text, start, end, lambda name, offset: self._warn(f".{name}", offset))
        line = self._count_lines(start)
        mark = text.stripped[end : end + 1]
        if mark == "{":
            parser = BodyParser(text, head, self._lines, self._diagnostics, self._element_bytes)
            function, end, last_line = parser.parse(end + 1, line, self._count_lines(end + 1))
            self._functions.append(function)
            self._counted, self._line = end, last_line
            return end
        if mark != ";":
            raise text.make_error("a function has a body in braces, or a `;`", end)
        self._functions.append(head.make_function(line, is_declaration=True))
        return end + 1

    def _count_lines(self, offset: int) -> int:
        """Return the number of the line at an offset; offsets must ascend."""
        self._line += self._text.stripped.count("\n", self._counted, offset)
        self._counted = offset
        return self._line

    def _parse_variables(self, start: int) -> int:
        text = self._text
        match = _DECLARATION_END.match(text.stripped, start)
        if match is None:
            raise text.make_error("a declaration without its `;`", start)
        part = match[0][:-1]
        try:
            declaration = self._readers.declarations.read(part)
            for variable in make_variables(declaration, self._readers.operands, str):
                self._variables.append(variable)
                self._element_bytes[variable.name] = find_element_bytes(variable)
        except PtxSyntaxError as error:
            raise text.make_syntax_error(error, start, part) from None
        return match.end()
