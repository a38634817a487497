"""Parses SASS text of cuobjdump and nvdisasm to a `Module`.

The parser takes the text in chunks and splits each into lines by one regular expression. Runs of instruction
lines are handled as columns: texts are interned, so that only distinct ones are decoded, and addresses and
control words are converted in bulk. All other lines are looked at one by one: headers of functions, labels,
source lines, directives.
"""

import re
from collections.abc import Iterable
from functools import partial

import numpy as np

from analyzer.frontend.garbage_collection import pause_garbage_collection
from analyzer.frontend.instruction_decoder import FormDecoder, SassSyntaxError
from analyzer.frontend.kernel_builder import KernelBuilder, TextInterner, build_kernel
from analyzer.frontend.listed_resources import ListedResources
from analyzer.frontend.resource_usage import parse_usage_function, parse_usage_line
from analyzer.frontend.sass_diagnostics import (
    HINT_DUMP,
    HINT_DUMP_AGAIN,
    Occurrences,
    SassDiagnostics,
    is_unsupported_arch,
    make_no_code_error,
    make_syntax_error,
)
from analyzer.frontend.sass_lines import (
    ARCH,
    ARCH_FLAG,
    DATA_DIRECTIVE,
    ENCODING_WORD,
    FUNCTION_HEADER,
    IGNORED_PREFIXES,
    IMAGE_HEADER,
    INSTRUCTION_START,
    SOURCE_LINE,
    TEXT_SECTION,
    OverlongLineError,
    SassChunk,
    parse_label,
    split_at_line_ends,
)
from analyzer.ir.module import INSTRUCTION_BYTES, KernelResources, Module, SourceFormat, SourceLine
from analyzer.text.errors import InputError
from analyzer.text.source import Location

_WORD_HEX_DIGITS = 16


def parse_sass(path: str, chunks: Iterable[bytes]) -> Module:
    """Parse SASS text; `chunks` are consecutive pieces of it, cut anywhere.

    Raises InputError, with line, column and caret, if the text is not what the tools print.
    """
    with pause_garbage_collection():
        return _SassParser(path).parse(chunks)


class _SassParser:
    """State of the parser during one pass over a dump."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.decoder = FormDecoder()
        self.interner = TextInterner(self.decoder)
        self.diagnostics = SassDiagnostics(path)
        self.kernels: list[KernelBuilder] = []
        self.current_kernel: KernelBuilder | None = None
        self.arch = ""
        self.source_format = SourceFormat.CUOBJDUMP
        self.usage: dict[tuple[str, str], KernelResources] = {}
        self.usage_name = self.usage_arch = ""
        self.listed_resources = ListedResources()
        self.listed_images: set[str] = set()  # kinds of images that cuobjdump's headers name
        self.source_lines: dict[SourceLine, int] = {}
        self.inlined_calls: list[
            tuple[str, int]
        ] = []  # file and line of the next instruction, and its callers

    def parse(self, chunks: Iterable[bytes]) -> Module:
        """Parse the whole dump; see `parse_sass`."""
        line = 1
        try:
            for data in split_at_line_ends(chunks):
                chunk = SassChunk(self.path, data, line)
                _check_utf8(chunk)
                self._parse_chunk(chunk)
                line += chunk.n_lines
        except OverlongLineError:
            location = Location(self.path, line, 1, "")
            raise InputError("a line of more than 32 MiB", location=location, hint=HINT_DUMP) from None
        if line == 1:
            raise InputError(f"{self.path}: the file is empty", hint=HINT_DUMP)
        return self._build_module()

    def _parse_chunk(self, chunk: SassChunk) -> None:
        matches = chunk.matches
        others = [i for i, match in enumerate(matches) if match[3]]
        position = 0
        for other in (*others, len(matches)):
            if other > position:
                self._add_instructions(chunk, position, other)
            if other < len(matches):
                self._parse_other_line(chunk, other)
            position = other + 1

    def _add_instructions(self, chunk: SassChunk, start: int, stop: int) -> None:
        """Add matches [start, stop) of the chunk, which are all instructions, to the current kernel."""
        kernel = self.current_kernel
        if kernel is None:
            raise InputError(
                "an instruction stands before any function header",
                location=chunk.locate_start(start),
                hint="keep the `Function : NAME` line of cuobjdump, or the .section lines of nvdisasm",
            )
        if is_unsupported_arch(kernel.arch):
            occurrences = self.diagnostics.skipped_archs.setdefault(kernel.arch, Occurrences())
            occurrences.add(lambda: chunk.locate_start(start), stop - start)
            return
        addresses, texts, words, _ = zip(*chunk.matches[start:stop], strict=True)
        ids = self._intern_texts(chunk, texts, words, start)
        numbers = [int(address, 16) for address in addresses]
        self._check_order(chunk, kernel, numbers, start)
        kernel.text_ids.append(np.array(ids, dtype=np.int32))
        kernel.addresses += numbers
        _add_control_words(kernel, words)

    def _intern_texts(
        self, chunk: SassChunk, texts: tuple[bytes, ...], words: tuple[bytes, ...], start: int
    ) -> list[int]:
        """Return the ids of the texts. Raises InputError for a text that is no instruction."""
        failures, known = self.interner.syntax_errors, self.interner
        n_failed = len(failures)
        try:
            ids = list(map(known.__getitem__, texts))
        except SassSyntaxError as error:
            position = next(i for i, text in enumerate(texts) if text not in known)
            raise make_syntax_error(error, chunk.locate_text(start + position, error.column)) from None
        if len(failures) == n_failed:
            return ids
        # An encoding proves that the tool printed an instruction; without one the text is an error.
        for position, number in enumerate(ids):
            if number in failures and number not in self.diagnostics.unparsed_locations:
                location = chunk.locate_text(start + position, failures[number].column)
                if not words[position]:
                    raise make_syntax_error(failures[number], location)
                self.diagnostics.unparsed_locations[number] = location
        return ids

    def _check_order(self, chunk: SassChunk, kernel: KernelBuilder, numbers: list[int], start: int) -> None:
        """Count gaps between addresses. Raises InputError if they do not ascend."""
        previous = kernel.addresses[-1] if kernel.addresses else -INSTRUCTION_BYTES
        if numbers[-1] - previous == INSTRUCTION_BYTES * len(numbers) and numbers == sorted(numbers):
            return
        for position, number in enumerate(numbers, start):
            if number <= max(previous, -1):
                raise InputError(
                    f"address {number:#06x} does not follow {previous:#06x}",
                    location=chunk.locate_start(position),
                    hint=f"lines were lost or doubled: {HINT_DUMP_AGAIN}",
                )
            if number != previous + INSTRUCTION_BYTES:
                self.diagnostics.address_gaps.add(partial(chunk.locate_start, position))
            previous = number

    def _parse_other_line(self, chunk: SassChunk, index: int) -> None:
        line = chunk.matches[index][3]
        stripped = line.strip()
        if (
            not stripped
            or self._parse_header_line(chunk, line, stripped)
            or self._is_ignorable(line, stripped)
        ):
            return
        if INSTRUCTION_START.match(line) and not ENCODING_WORD.match(line):
            if self._skip_paired_instruction(chunk, index):
                return
            raise InputError(
                "an instruction line ends before its `;`",
                location=chunk.locate_end(index),
                hint=f"the dump is cut off or damaged: {HINT_DUMP_AGAIN}",
            )
        self._check_has_code()
        if not self.kernels and not self.arch:
            raise InputError("this is not a SASS dump", location=chunk.locate_start(index), hint=HINT_DUMP)
        self.diagnostics.unrecognized_lines.add(partial(chunk.locate_start, index))

    def _is_ignorable(self, line: bytes, stripped: bytes) -> bool:
        """Return whether a line is a directive, a comment, data, or an encoding of skipped code."""
        if ENCODING_WORD.match(line):
            return self.current_kernel is None or is_unsupported_arch(self.current_kernel.arch)
        return bool(DATA_DIRECTIVE.match(line)) or stripped.startswith((b".", b"//", b"#", *IGNORED_PREFIXES))

    def _parse_header_line(self, chunk: SassChunk, line: bytes, stripped: bytes) -> bool:
        """Parse a line that begins a kernel or names an architecture; return whether it was one."""
        if match := FUNCTION_HEADER.match(line):
            self._begin_kernel(chunk, line, match[1].strip())
        elif match := TEXT_SECTION.match(line):
            self.source_format = SourceFormat.NVDISASM
            self._begin_kernel(chunk, line, match[1] or match[2])
        elif stripped.startswith((b"code for ", b".target")):
            if match := ARCH.search(stripped):
                self._set_arch(match[1].decode(), b"code for" in stripped)
        elif stripped.startswith(b".headerflags"):
            self._parse_header_flags(stripped)
        else:
            return self._parse_function_line(line, stripped)
        return True

    def _parse_function_line(self, line: bytes, stripped: bytes) -> bool:
        """Parse a line that describes the current function; return whether it was one."""
        if label := parse_label(line):
            self._add_label(label.decode())
        elif match := SOURCE_LINE.search(line):
            self._add_source_line(match)
        elif stripped.startswith(b".other") and self.current_kernel is not None:
            self.current_kernel.is_entry = b"STO_CUDA_ENTRY" in stripped
        elif name := parse_usage_function(line):
            self.usage_name = name
        elif match := IMAGE_HEADER.match(stripped):
            self.listed_images.add(match[1].decode())
        elif stripped.startswith(b"REG:"):
            self.usage[self.usage_arch, self.usage_name] = parse_usage_line(stripped.decode())
        elif stripped.startswith(b"arch =") and (match := ARCH.search(stripped)):
            self.usage_arch = f"sm_{match[1].decode()}"
        else:
            return self.listed_resources.feed_line(stripped, self.kernels[-1].name if self.kernels else "")
        return True

    def _begin_kernel(self, chunk: SassChunk, line: bytes, name: bytes) -> None:
        self.current_kernel = KernelBuilder(
            name=name.decode(), arch=self.arch, line=chunk.find_line_number(line)
        )
        self.kernels.append(self.current_kernel)

    def _set_arch(self, number: str, starts_image: bool) -> None:
        self.arch = f"sm_{number}"
        if starts_image:
            self.current_kernel = None
        elif self.current_kernel is not None and not self.current_kernel.addresses:
            self.current_kernel.arch = self.arch

    def _parse_header_flags(self, stripped: bytes) -> None:
        match = ARCH_FLAG.search(stripped)
        if match and not self.arch:
            self._set_arch(match[1].decode(), False)

    def _add_label(self, name: str) -> None:
        if self.current_kernel is not None and not is_unsupported_arch(self.current_kernel.arch):
            self.current_kernel.labels.append((name, self.current_kernel.compute_next_address()))

    def _add_source_line(self, match: re.Match[bytes]) -> None:
        if self.current_kernel is None:
            return
        marks, row = self.current_kernel.source_line_marks, len(self.current_kernel.addresses)
        place = (match[1].decode(), int(match[2]))
        if not marks or marks[-1][0] != row:  # the innermost line of an inlined chain comes first
            self.inlined_calls = [place]
            marks.append((row, -1))
        elif place != self.inlined_calls[-1]:
            return
        if match[3]:
            self.inlined_calls.append((match[3].decode(), int(match[4])))
        line = None
        for file, number in reversed(self.inlined_calls):
            line = SourceLine(file, number, line)
        if line is not None:
            marks[-1] = (row, self.source_lines.setdefault(line, len(self.source_lines)))

    def _skip_paired_instruction(self, chunk: SassChunk, index: int) -> bool:
        """Count a line of code before sm_70, where a pair in braces has one `;`; return whether it is one."""
        kernel = self.current_kernel
        if kernel is None or not is_unsupported_arch(kernel.arch):
            return False
        occurrences = self.diagnostics.skipped_archs.setdefault(kernel.arch, Occurrences())
        occurrences.add(partial(chunk.locate_start, index))
        return True

    def _check_has_code(self) -> None:
        """Raise InputError if cuobjdump's headers are all that the text has, or name no machine code."""
        if not self.kernels and not self.arch and self.listed_images:
            raise make_no_code_error(self.path, self.listed_images)

    def _build_module(self) -> Module:
        self._check_has_code()
        if not self.kernels and not self.arch:
            raise InputError(
                f"{self.path}: no kernel found, only tables or headers without code", hint=HINT_DUMP
            )
        form_table = self.interner.build_form_table(self.decoder.decode)
        for builder in self.kernels:
            if (found := self.listed_resources.find(builder.name)) is not None:
                self.usage.setdefault((builder.arch, builder.name), found)
        origins = tuple(self.source_lines)
        kernels = tuple(
            build_kernel(builder, form_table, self.interner.branch_annotations, origins, self.usage)
            for builder in self.kernels
            if builder.addresses
        )
        if not kernels:
            raise self.diagnostics.make_no_kernel_error()
        return Module(
            path=self.path,
            source_format=self.source_format,
            kernels=kernels,
            form_table=form_table,
            diagnostics=tuple(self.diagnostics.build_warnings(kernels)),
        )


def _check_utf8(chunk: SassChunk) -> None:
    if chunk.data.isascii():
        return
    try:
        chunk.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            "the text is not UTF-8",
            location=chunk.locate(error.start),
            hint="re-create the dump; a shell that writes UTF-16 needs `| Out-File -Encoding utf8`",
        ) from None


def _add_control_words(kernel: KernelBuilder, words: tuple[bytes, ...]) -> None:
    """Add the upper words of instructions, unless some are missing."""
    joined = b"".join(words)
    if len(joined) == _WORD_HEX_DIGITS * len(words):
        raw = np.frombuffer(bytes.fromhex(joined.decode()), dtype=">u8")
        kernel.control_words.append(raw.astype(np.uint64))
    else:
        kernel.has_encodings = False
