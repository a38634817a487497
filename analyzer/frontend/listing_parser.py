"""Parses listings: instructions line by line, without the headers that cuobjdump and nvdisasm print.

What stands before an instruction on its line may be missing:

    => 0x00007f2c5b000010 <k+16>:  EXIT                        cuda-gdb
    [B------:R-:W-:-:S05]  /*0010*/  EXIT ;                    CuAssembler
    /*0010*/  EXIT ;    /* 0x000000000000794d */               a part of a dump
    EXIT                                                       Compiler Explorer, or by hand

Lines that end in a colon are labels; a name of a function above its first instruction names it.
"""

import re

from msgspec.structs import replace

from analyzer.frontend.code_listing import (
    LISTING_HINT,
    ListedFunction,
    ListedInstruction,
    build_listing_module,
)
from analyzer.frontend.listed_resources import ListedResources
from analyzer.frontend.sass_diagnostics import SassDiagnostics
from analyzer.frontend.sass_lines import ARCH, ARCH_FLAG, FUNCTION_HEADER, TEXT_SECTION, parse_label
from analyzer.ir.module import Module, SourceFormat
from analyzer.isa.control_encoding import encode_control_code, parse_control_code
from analyzer.text.errors import InputError
from analyzer.text.source import Location, locate

_PREFIX = re.compile(
    r"\s*(?:=>\s*)?"
    r"(?:(?P<control>\[B[^\]\s]{6,32}\])\s*)?"
    r"(?:/\*(?P<offset>[0-9a-fA-F]{1,16})\*/"
    r"|(?P<absolute>0x[0-9a-fA-F]{1,16}|[0-9a-f]{8,16}(?=[\s:<])|[0-9a-f]{4,16}(?=:))"
    r"\s*(?:<(?P<symbol>[^\n]*?)>(?=:(?!:)))?:?)?\s*"
)
_SYMBOL_AND_OFFSET = re.compile(r"(.*?)(?:\+(\d{1,12}))?")
_RAW_BYTES = re.compile(r"(?:[0-9a-f]{2}\s){4,}\s*")  # of cuda-gdb's `disassemble /r`
_UPPER_WORD = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_TEXT_ENDS = (";", "//", "/* ")
_MAX_LINE_CHARACTERS = 1 << 16
_IGNORED_LINE = re.compile(
    r"\s*(?:$|//|#|;|\.(?!L)|\.\.\.|[-=_*.]{3,}\s*$|Fatbin |arch =|code version|host =|compile_size"
    r"|End of assembler dump|\(cuda-gdb\))"
)
_DEBUGGER_HEADER = re.compile(r"\s*Dump of assembler code for function (.+):\s*$")
_DEBUGGER_LINE = re.compile(r"\s*(?:=>\s*)?0x[0-9a-fA-F]+(?:\s*<[^\n]*>)?:")
_TEXT_LABEL = ".text."


def parse_listing(path: str, data: bytes, source_format: SourceFormat, name: str) -> Module:
    """Parse a listing.

    source_format: `CUDA_GDB` skips all lines without an address, for a debugger prints source lines too.
    name: of a function that the text does not name.
    Raises InputError, with line, column and caret, for a line that is no instruction.
    """
    return _ListingParser(path, source_format, name).parse(data)


class _ListingParser:
    """State of the parser during its one pass."""

    def __init__(self, path: str, source_format: SourceFormat, name: str) -> None:
        self.path, self.source_format = path, source_format
        self.arch = ""
        self.diagnostics = SassDiagnostics(path)
        self.function = ListedFunction(name, is_excerpt=source_format is SourceFormat.LISTING)
        self.functions = [self.function]
        self.is_named = False
        self.resources = ListedResources()

    def parse(self, data: bytes) -> Module:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                "the text is not UTF-8", location=locate(self.path, data, error.start), hint=LISTING_HINT
            ) from None
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > _MAX_LINE_CHARACTERS:
                raise self._make_error("the line is longer than any instruction", number, line[:80], 0)
            self._parse_line(number, line.rstrip("\r"))
        module = build_listing_module(self.path, self.source_format, self.functions, self.diagnostics)
        kernels = [
            replace(kernel, resources=self.resources.find(kernel.name) or kernel.resources)
            for kernel in module.kernels
        ]
        return replace(module, kernels=tuple(kernels))

    def _parse_line(self, number: int, line: str) -> None:
        if (word := _UPPER_WORD.match(line)) and self.function.instructions:
            self.function.instructions[-1].control_word = int(word[1], 16)
            return
        if self._parse_header(number, line):
            return
        if self.resources.feed_line(line.strip().encode(), self.function.name):
            return
        if self.source_format is SourceFormat.CUDA_GDB and not _DEBUGGER_LINE.match(line):
            return
        if self._parse_label(number, line) or _IGNORED_LINE.match(line):
            return
        self._parse_instruction(number, line)

    def _parse_header(self, number: int, line: str) -> bool:
        """Parse a line that names a function or an architecture; return whether it was one."""
        raw = line.encode()
        if match := _DEBUGGER_HEADER.match(line):
            self._begin_function(match[1], number)
        elif header := FUNCTION_HEADER.match(raw) or TEXT_SECTION.match(raw):
            self._begin_function(next(filter(None, header.groups())).decode().strip(), number)
        elif raw.lstrip().startswith((b"code for ", b".target", b".headerflags")):
            if found := ARCH.search(raw) or ARCH_FLAG.search(raw):
                self._set_arch(f"sm_{found[1].decode()}")
        else:
            return False
        return True

    def _set_arch(self, arch: str) -> None:
        """Set the architecture; the flags of a header do not know its suffix, as in `sm_90a`."""
        if not self.arch.startswith(arch):
            self.arch = arch
        if not self.function.instructions:
            self.function.arch = self.arch

    def _begin_function(self, name: str, line: int, *, is_excerpt: bool = False) -> None:
        """Begin a function, or name the current one if it has no instruction yet."""
        if self.function.instructions:
            self.function = ListedFunction(name, self.arch)
            self.functions.append(self.function)
        self.function.name, self.function.line, self.is_named = name, line, True
        self.function.is_excerpt = is_excerpt

    def _parse_label(self, number: int, line: str) -> bool:
        label = parse_label(line.strip().encode()).decode()
        if not label:
            return False
        is_signature = "(" in label or label.startswith("_Z")
        is_first = not self.is_named and not self.function.instructions and not label.startswith((".", "$"))
        if label.startswith(_TEXT_LABEL):
            self._begin_function(label.removeprefix(_TEXT_LABEL), number)
        elif is_signature or is_first:
            self._begin_function(label, number, is_excerpt=not is_signature)
        self.function.labels.append((label, len(self.function.instructions)))
        return True

    def _parse_instruction(self, number: int, line: str) -> None:
        prefix = _PREFIX.match(line)
        assert prefix is not None  # all of its parts may be missing
        start = prefix.end()
        if raw := _RAW_BYTES.match(line, start):
            start = raw.end()
        ends = [end for mark in _TEXT_ENDS if (end := line.find(mark, start)) >= 0]
        text = line[start : min(ends, default=len(line))].rstrip()
        if text.startswith("."):  # data
            return
        if not text:
            raise self._make_error("this is not a SASS instruction", number, line, start)
        symbol, offset_bytes = _split_symbol(prefix["symbol"])
        if symbol and (symbol != self.function.name or not self.function.instructions):
            self._begin_function(symbol, number)
        self.function.instructions.append(
            ListedInstruction(
                text=text,
                location=Location(self.path, number, start + 1, line),
                address=self._find_address(prefix, offset_bytes),
                control_word=self._parse_control(prefix, number, line),
            )
        )

    def _find_address(self, prefix: re.Match[str], offset_bytes: int | None) -> int | None:
        """Return the address on a line, as it stands there; the first one gives the function's own."""
        if prefix["offset"]:
            return int(prefix["offset"], 16)
        if not prefix["absolute"]:
            return None
        address = int(prefix["absolute"], 16)
        if not self.function.instructions and offset_bytes is not None:
            self.function.base_address = max(0, address - offset_bytes)
        return address

    def _parse_control(self, match: re.Match[str], number: int, line: str) -> int | None:
        if not match["control"]:
            return None
        code = parse_control_code(match["control"])
        if code is None:
            raise self._make_error("this is no control code", number, line, match.start("control"))
        return encode_control_code(code)

    def _make_error(self, message: str, number: int, line: str, start: int) -> InputError:
        place = Location(self.path, number, start + 1, line)
        return InputError(message, location=place, hint=f"the line is damaged or no code: {LISTING_HINT}")


def strip_address(line: str) -> str:
    """Return a line of a listing without what stands before the instruction."""
    prefix = _PREFIX.match(line)
    return line[prefix.end() if prefix else 0 :]


def _split_symbol(text: str | None) -> tuple[str, int | None]:
    """Return (name, offset in bytes) of a debugger's `k+16` or `+16`; no offset without a symbol."""
    if text is None:
        return "", None
    match = _SYMBOL_AND_OFFSET.fullmatch(text)
    return (match[1], int(match[2] or 0)) if match else ("", None)
