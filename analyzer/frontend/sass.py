"""SASS text of cuobjdump and nvdisasm to a `Module`.

The scanner takes the text in chunks, splits lines with one compiled expression, interns each distinct
instruction text, and keeps per kernel only columns; see facts/FORMATS.md for what the tools print.
"""

import gc
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from analyzer.frontend.resource_usage import parse_usage_line, read_usage_name
from analyzer.frontend.sass_findings import (
    HINT_AGAIN,
    HINT_DUMP,
    HINT_PTX,
    MIN_ARCH,
    Findings,
    Places,
    shape_error,
)
from analyzer.frontend.sass_forms import FormDecoder, ShapeError
from analyzer.frontend.sass_kernels import Interner, KernelBuilder, finish_kernel
from analyzer.frontend.sass_lines import (
    ARCH,
    ARCH_FLAG,
    DATA,
    FUNCTION,
    HEX_PAIR,
    LABEL,
    NOISE,
    ORIGIN,
    SECTION,
    STARTED,
    Chunk,
    OverlongLine,
    at_line_ends,
)
from analyzer.ir.program import INSTRUCTION_BYTES, Dialect, Module, Origin, Resources, Vocabulary
from analyzer.text.errors import InputError
from analyzer.text.source import Location

_WORD_DIGITS = 16


def parse_sass(path: str, chunks: Iterable[bytes]) -> Module:
    """Read SASS text; `chunks` are consecutive pieces of it, cut anywhere.

    Raises InputError, with line, column and caret, where the text is not what the tools print.
    """
    with _collector_paused():
        return _Scanner(path).run(chunks)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """The scanner makes millions of tuples and no cycle: the collector would look through them in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Scanner:
    """State of one pass over a dump."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.decoder = FormDecoder()
        self.interner = Interner(self.decoder)
        self.findings = Findings(path)
        self.kernels: list[KernelBuilder] = []
        self.current: KernelBuilder | None = None
        self.arch = ""
        self.dialect = Dialect.CUOBJDUMP
        self.usage: dict[tuple[str, str], Resources] = {}
        self.usage_name = self.usage_arch = ""
        self.has_ptx = False
        self.origins: dict[Origin, int] = {}

    def run(self, chunks: Iterable[bytes]) -> Module:
        line = 1
        try:
            for data in at_line_ends(chunks):
                chunk = Chunk(self.path, data, line)
                _check_text(chunk)
                self._scan(chunk)
                line += chunk.n_lines
        except OverlongLine:
            location = Location(self.path, line, 1, "")
            raise InputError("a line of more than 32 MiB", location=location, hint=HINT_DUMP) from None
        if line == 1:
            raise InputError(f"{self.path}: the file is empty", hint=HINT_DUMP)
        return self._module()

    def _scan(self, chunk: Chunk) -> None:
        matches = chunk.matches
        others = [i for i, match in enumerate(matches) if match[3]]
        position = 0
        for other in (*others, len(matches)):
            if other > position:
                self._add_run(chunk, position, other)
            if other < len(matches):
                self._other_line(chunk, other)
            position = other + 1

    def _add_run(self, chunk: Chunk, start: int, stop: int) -> None:
        """Instructions [start, stop) of the chunk's lines, which stand together."""
        kernel = self.current
        if kernel is None:
            raise InputError(
                "an instruction stands before any function header",
                location=chunk.start(start),
                hint="keep the `Function : NAME` line of cuobjdump, or the .section lines of nvdisasm",
            )
        if _is_skipped(kernel.arch):
            places = self.findings.skipped.setdefault(kernel.arch, Places())
            places.add(lambda: chunk.start(start), stop - start)
            return
        addresses, texts, words, _ = zip(*chunk.matches[start:stop], strict=True)
        ids = self._intern(chunk, texts, words, start)
        numbers = [int(address, 16) for address in addresses]
        self._check_order(chunk, kernel, numbers, start)
        kernel.ids.append(np.array(ids, dtype=np.int32))
        kernel.addresses += numbers
        _add_words(kernel, words)

    def _intern(
        self, chunk: Chunk, texts: tuple[bytes, ...], words: tuple[bytes, ...], start: int
    ) -> list[int]:
        failures, known = self.interner.failures, self.interner
        n_failed = len(failures)
        try:
            ids = list(map(known.__getitem__, texts))
        except ShapeError as error:
            place = next(i for i, text in enumerate(texts) if text not in known)
            raise shape_error(error, chunk.text(start + place, error.column)) from None
        if len(failures) == n_failed:
            return ids
        # An encoding proves that the tool meant an instruction; without one, odd text is an error.
        for place, number in enumerate(ids):
            if number in failures and number not in self.findings.unparsed:
                location = chunk.text(start + place, failures[number].column)
                if not words[place]:
                    raise shape_error(failures[number], location)
                self.findings.unparsed[number] = location
        return ids

    def _check_order(self, chunk: Chunk, kernel: KernelBuilder, numbers: list[int], start: int) -> None:
        previous = kernel.addresses[-1] if kernel.addresses else -INSTRUCTION_BYTES
        if numbers[-1] - previous == INSTRUCTION_BYTES * len(numbers) and numbers == sorted(numbers):
            return
        for place, number in enumerate(numbers, start):
            if number <= max(previous, -1):
                raise InputError(
                    f"address {number:#06x} does not follow {previous:#06x}",
                    location=chunk.start(place),
                    hint=f"lines were lost or doubled: {HINT_AGAIN}",
                )
            if number != previous + INSTRUCTION_BYTES:
                self.findings.gaps.add(partial(chunk.start, place))
            previous = number

    def _other_line(self, chunk: Chunk, index: int) -> None:
        line = chunk.matches[index][3]
        stripped = line.strip()
        if not stripped or self._header(chunk, line, stripped) or self._is_expected(line, stripped):
            return
        if STARTED.match(line) and not HEX_PAIR.match(line):
            raise InputError(
                "an instruction line ends before its `;`",
                location=chunk.end(index),
                hint=f"the dump is cut off or damaged: {HINT_AGAIN}",
            )
        self._refuse_ptx_alone()
        if not self.kernels and not self.arch:
            raise InputError("this is not a SASS dump", location=chunk.start(index), hint=HINT_DUMP)
        self.findings.strays.add(partial(chunk.start, index))

    def _is_expected(self, line: bytes, stripped: bytes) -> bool:
        """Lines that say nothing: directives, comments, data, and the words of code that is skipped."""
        if HEX_PAIR.match(line):
            return self.current is None or _is_skipped(self.current.arch)
        return bool(DATA.match(line)) or stripped.startswith((b".", b"//", b"#", *NOISE))

    def _header(self, chunk: Chunk, line: bytes, stripped: bytes) -> bool:
        """Take a line that carries facts; False where it is none."""
        if match := FUNCTION.match(line):
            self._begin(chunk, line, match[1])
        elif match := SECTION.match(line):
            self.dialect = Dialect.NVDISASM
            self._begin(chunk, line, match[1])
        elif stripped.startswith((b"code for ", b".target")):
            if match := ARCH.search(stripped):
                self._set_arch(match[1].decode(), b"code for" in stripped)
        elif stripped.startswith(b".headerflags"):
            self._header_flags(stripped)
        else:
            return self._function_fact(line, stripped)
        return True

    def _function_fact(self, line: bytes, stripped: bytes) -> bool:
        """Lines that say something of the function they stand in."""
        if match := LABEL.match(line):
            self._label(match[1].decode())
        elif match := ORIGIN.search(line):
            self._origin(match)
        elif stripped.startswith(b".other") and self.current is not None:
            self.current.is_entry = b"STO_CUDA_ENTRY" in stripped
        elif name := read_usage_name(line):
            self.usage_name = name
        elif stripped.startswith(b"Fatbin ptx code"):
            self.has_ptx = True
        elif stripped.startswith(b"REG:"):
            self.usage[self.usage_arch, self.usage_name] = parse_usage_line(stripped.decode())
        elif stripped.startswith(b"arch =") and (match := ARCH.search(stripped)):
            self.usage_arch = f"sm_{match[1].decode()}"
        else:
            return False
        return True

    def _begin(self, chunk: Chunk, line: bytes, name: bytes) -> None:
        self.current = KernelBuilder(name=name.decode(), arch=self.arch, line=chunk.line_of(line))
        self.kernels.append(self.current)

    def _set_arch(self, number: str, starts_image: bool) -> None:
        self.arch = f"sm_{number}"
        if starts_image:
            self.current = None
        elif self.current is not None and not self.current.addresses:
            self.current.arch = self.arch

    def _header_flags(self, stripped: bytes) -> None:
        match = ARCH_FLAG.search(stripped)
        if match and not self.arch:
            self._set_arch(match[1].decode(), False)

    def _label(self, name: str) -> None:
        if self.current is not None and not _is_skipped(self.current.arch):
            self.current.labels.append((name, self.current.next_address()))

    def _origin(self, match: re.Match[bytes]) -> None:
        if self.current is None:
            return
        inlined = None
        if match[3]:
            inlined = Origin(match[3].decode(), int(match[4]))
        origin = Origin(match[1].decode(), int(match[2]), inlined)
        number = self.origins.setdefault(origin, len(self.origins))
        marks, row = self.current.origin_marks, len(self.current.addresses)
        if not marks or marks[-1][0] != row:  # of a chain of inlined lines the innermost comes first
            marks.append((row, number))

    def _refuse_ptx_alone(self) -> None:
        """Raises InputError."""
        if not self.kernels and not self.arch and self.has_ptx:
            raise InputError(f"{self.path}: only PTX, from which ptxas has yet to make code", hint=HINT_PTX)

    def _module(self) -> Module:
        self._refuse_ptx_alone()
        if not self.kernels and not self.arch:
            raise InputError(f"{self.path}: no kernel found", hint=HINT_DUMP)
        vocabulary = Vocabulary(
            texts=tuple(self.interner.texts),
            opcode_ids=np.array(self.interner.opcode_ids, dtype=np.int32),
            opcodes=tuple(self.interner.opcodes),
            decode=self.decoder.decode,
        )
        origins = tuple(self.origins)
        kernels = tuple(
            finish_kernel(building, vocabulary, self.interner.notes, origins, self.usage)
            for building in self.kernels
            if building.addresses
        )
        if not kernels:
            raise self.findings.nothing_found()
        return Module(
            path=self.path,
            dialect=self.dialect,
            kernels=kernels,
            vocabulary=vocabulary,
            diagnostics=tuple(self.findings.diagnostics(kernels)),
        )


def _is_skipped(arch: str) -> bool:
    number = arch[3:].rstrip("af")
    return bool(number) and int(number) < MIN_ARCH


def _check_text(chunk: Chunk) -> None:
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


def _add_words(kernel: KernelBuilder, words: tuple[bytes, ...]) -> None:
    joined = b"".join(words)
    if len(joined) == _WORD_DIGITS * len(words):
        raw = np.frombuffer(bytes.fromhex(joined.decode()), dtype=">u8")
        kernel.words.append(raw.astype(np.uint64))
    else:
        kernel.has_hex = False
