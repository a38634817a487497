"""SASS text of cuobjdump and nvdisasm to a `Module`.

The scanner takes the text in chunks, splits lines with one compiled expression, interns each distinct
instruction text, and keeps per kernel only columns; see facts/FORMATS.md for what the tools print.
"""

import gc
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from analyzer.frontend.resource_usage import parse_usage_line, read_usage_name
from analyzer.frontend.sass_forms import MAX_TEXT, FormDecoder, ShapeError
from analyzer.frontend.sass_kernels import INSTRUCTION_BYTES, Interner, KernelBuilder, finish_kernel
from analyzer.frontend.sass_lines import (
    ARCH,
    ARCH_FLAG,
    DATA,
    FUNCTION,
    HEX_PAIR,
    LABEL,
    LINE,
    NOISE,
    ORIGIN,
    SECTION,
    STARTED,
    OverlongLine,
    at_line_ends,
)
from analyzer.ir.program import Dialect, Module, Origin, Resources, Vocabulary
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Location, Severity, locate

MIN_ARCH = 70
_HINT_DUMP = "make one with: cuobjdump -sass kernel.cubin > kernel.sass"


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


class _Places:
    """How often something was met, and where first."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Location | None = None

    def add(self, location: Location) -> None:
        self.count += 1
        self.first = self.first or location


class _Scanner:
    """State of one pass over a dump."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.decoder = FormDecoder()
        self.interner = Interner(self.decoder)
        self.kernels: list[KernelBuilder] = []
        self.current: KernelBuilder | None = None
        self.arch = ""
        self.dialect = Dialect.CUOBJDUMP
        self.usage: dict[tuple[str, str], Resources] = {}
        self.usage_name = self.usage_arch = ""
        self.origins: dict[Origin, int] = {}
        self.skipped_archs: dict[str, int] = {}
        self.strays = _Places()
        self.gaps = _Places()
        self.first_skipped: Location | None = None
        self.failed_at: dict[int, Location] = {}
        self.first_line = 1
        self.cursor = 0
        self.cursor_line = 1

    def run(self, chunks: Iterable[bytes]) -> Module:
        total = 0
        try:
            for chunk in at_line_ends(chunks):
                total += len(chunk)
                self._check_text(chunk)
                self._scan(chunk)
                self.first_line += chunk.count(b"\n")
        except OverlongLine:
            location = Location(self.path, self.first_line, 1, "")
            raise InputError("a line of more than 32 MiB", location=location, hint=_HINT_DUMP) from None
        if not total:
            raise InputError(f"{self.path}: the file is empty", hint=_HINT_DUMP)
        return self._module()

    def _check_text(self, chunk: bytes) -> None:
        if chunk.isascii():
            return
        try:
            chunk.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                "the text is not UTF-8",
                location=self._locate(chunk, error.start),
                hint="re-create the dump; a shell that writes UTF-16 needs `| Out-File -Encoding utf8`",
            ) from None

    def _scan(self, chunk: bytes) -> None:
        matches: list[tuple[bytes, bytes, bytes, bytes]] = LINE.findall(chunk)
        others = [i for i, match in enumerate(matches) if match[3]]
        self.cursor, self.cursor_line = 0, self.first_line
        position = 0
        for other in (*others, len(matches)):
            if other > position:
                self._add_run(chunk, matches, position, other)
            if other < len(matches):
                self._other_line(chunk, matches, other)
            position = other + 1

    def _add_run(
        self, chunk: bytes, matches: list[tuple[bytes, bytes, bytes, bytes]], start: int, stop: int
    ) -> None:
        addresses, texts, words, _ = zip(*matches[start:stop], strict=True)
        kernel = self.current
        if kernel is None:
            raise InputError(
                "an instruction stands before any function header",
                location=self._locate(chunk, self._offset(chunk, start)),
                hint="keep the `Function : NAME` line of cuobjdump, or the .section lines of nvdisasm",
            )
        if self._is_skipped(kernel.arch):
            self.skipped_archs[kernel.arch] = self.skipped_archs.get(kernel.arch, 0) + stop - start
            if self.first_skipped is None:
                self.first_skipped = self._locate(chunk, self._offset(chunk, start))
            return
        ids = self._intern(chunk, texts, words, start)
        numbers = [int(address, 16) for address in addresses]
        self._check_order(chunk, kernel, numbers, start)
        kernel.ids.append(np.array(ids, dtype=np.int32))
        kernel.addresses += numbers
        self._add_words(kernel, words)

    def _intern(
        self, chunk: bytes, texts: tuple[bytes, ...], words: tuple[bytes, ...], start: int
    ) -> list[int]:
        n_failed = len(self.interner.failures)
        try:
            ids = list(map(self.interner.__getitem__, texts))
        except ShapeError as error:
            raise self._shape_error(chunk, error, start, texts) from None
        if len(self.interner.failures) > n_failed:
            self._judge_failures(chunk, ids, texts, words, start)
        return ids

    def _judge_failures(
        self,
        chunk: bytes,
        ids: list[int],
        texts: tuple[bytes, ...],
        words: tuple[bytes, ...],
        start: int,
    ) -> None:
        """An encoding proves that the tool meant an instruction; without one, odd text is an error."""
        for place, number in enumerate(ids):
            error = self.interner.failures.get(number)
            if error is None or number in self.failed_at:
                continue
            if not words[place]:
                raise self._shape_error(chunk, error, start + place, texts[place : place + 1])
            self.failed_at[number] = self._text_location(chunk, start + place, error.column)

    def _shape_error(
        self, chunk: bytes, error: ShapeError, start: int, texts: tuple[bytes, ...]
    ) -> InputError:
        known = self.interner
        place = next((i for i, text in enumerate(texts) if text not in known), 0)
        location = self._text_location(chunk, start + place, error.column)
        if error.column >= MAX_TEXT:
            message = f"an instruction of more than {MAX_TEXT} characters"
        else:
            message = "this is not a SASS instruction"
        return InputError(
            message,
            location=location,
            hint="the line is damaged or from another tool: dump again with cuobjdump -sass",
        )

    def _check_order(self, chunk: bytes, kernel: KernelBuilder, numbers: list[int], start: int) -> None:
        previous = kernel.addresses[-1] if kernel.addresses else -INSTRUCTION_BYTES
        if numbers[-1] - previous == INSTRUCTION_BYTES * len(numbers) and numbers == sorted(numbers):
            return
        for place, number in enumerate(numbers):
            if number <= max(previous, -1):
                raise InputError(
                    f"address {number:#06x} does not follow {previous:#06x}",
                    location=self._locate(chunk, self._offset(chunk, start + place)),
                    hint="lines were lost or doubled: dump again with cuobjdump -sass",
                )
            if number != previous + INSTRUCTION_BYTES:
                self.gaps.add(self._locate(chunk, self._offset(chunk, start + place)))
            previous = number

    def _add_words(self, kernel: KernelBuilder, words: tuple[bytes, ...]) -> None:
        joined = b"".join(words)
        if len(joined) == 16 * len(words):
            raw = np.frombuffer(bytes.fromhex(joined.decode()), dtype=">u8")
            kernel.words.append(raw.astype(np.uint64))
        else:
            kernel.has_hex = False

    def _other_line(self, chunk: bytes, matches: list[tuple[bytes, bytes, bytes, bytes]], index: int) -> None:
        line = matches[index][3]
        stripped = line.strip()
        if not stripped or self._header(chunk, line, stripped):
            return
        if HEX_PAIR.match(line) or DATA.match(line):
            if self.current is None or self._is_skipped(self.current.arch) or DATA.match(line):
                return
        elif STARTED.match(line):
            raise self._unfinished(chunk, line, index)
        elif stripped.startswith((b".", b"//", b"#", *NOISE)):
            return
        if not self.kernels and not self.arch:
            raise InputError(
                "this is not a SASS dump",
                location=self._locate(chunk, self._offset(chunk, index)),
                hint=_HINT_DUMP,
            )
        self.strays.add(self._locate(chunk, self._offset(chunk, index)))

    def _unfinished(self, chunk: bytes, line: bytes, index: int) -> InputError:
        body = line.rstrip()
        offset = self._offset(chunk, index) + len(body)
        return InputError(
            "an instruction line ends before its `;`",
            location=self._locate(chunk, offset),
            hint="the dump is cut off or damaged: dump again with cuobjdump -sass",
        )

    def _header(self, chunk: bytes, line: bytes, stripped: bytes) -> bool:
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
        elif stripped.startswith(b"REG:"):
            self.usage[self.usage_arch, self.usage_name] = parse_usage_line(stripped.decode())
        elif stripped.startswith(b"arch =") and (match := ARCH.search(stripped)):
            self.usage_arch = f"sm_{match[1].decode()}"
        else:
            return False
        return True

    def _begin(self, chunk: bytes, line: bytes, name: bytes) -> None:
        self.current = KernelBuilder(name=name.decode(), arch=self.arch, line=self._header_line(chunk, line))
        self.kernels.append(self.current)

    def _header_line(self, chunk: bytes, line: bytes) -> int:
        """Line number of a header; headers come in order, so the search goes on from the last one."""
        offset = chunk.find(line, self.cursor)
        number = self.cursor_line + chunk.count(b"\n", self.cursor, offset)
        self.cursor, self.cursor_line = offset + len(line), number + 1
        return number

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
        if self.current is not None and not self._is_skipped(self.current.arch):
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

    def _is_skipped(self, arch: str) -> bool:
        number = arch[3:].rstrip("af")
        return bool(number) and int(number) < MIN_ARCH

    def _offset(self, chunk: bytes, index: int) -> int:
        """Byte offset in the chunk of match number `index`; slow, for errors and headers only."""
        for place, match in enumerate(LINE.finditer(chunk)):
            if place == index:
                return match.start()
        return len(chunk)

    def _text_location(self, chunk: bytes, index: int, column: int) -> Location:
        for place, match in enumerate(LINE.finditer(chunk)):
            if place == index:
                lead = len(match[2]) - len(match[2].lstrip())
                offset = match.start(2) + lead + min(column, len(match[2].strip()))
                return self._locate(chunk, offset)
        return self._locate(chunk, 0)

    def _locate(self, chunk: bytes, offset: int) -> Location:
        return locate(self.path, chunk, offset, first_line=self.first_line)

    def _module(self) -> Module:
        if not self.kernels and not self.arch:
            raise InputError(f"{self.path}: no kernel found", hint=_HINT_DUMP)
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
            raise self._nothing_found()
        return Module(
            path=self.path,
            dialect=self.dialect,
            kernels=kernels,
            vocabulary=vocabulary,
            diagnostics=tuple(self._diagnostics()),
        )

    def _nothing_found(self) -> InputError:
        if self.skipped_archs:
            names = ", ".join(sorted(self.skipped_archs))
            return InputError(
                f"{names} code: encodings before sm_{MIN_ARCH} are not read",
                location=self.first_skipped,
                hint=f"compile for sm_{MIN_ARCH} or later and dump again",
            )
        return InputError(f"{self.path}: no instruction found", hint=_HINT_DUMP)

    def _diagnostics(self) -> Iterator[Diagnostic]:
        for arch, count in sorted(self.skipped_archs.items()):
            yield Diagnostic(
                Severity.WARNING,
                "unsupported-architecture",
                f"{arch} code is skipped: instruction encodings before sm_{MIN_ARCH} are not read",
                count=count,
            )
        if self.strays.count:
            yield Diagnostic(
                Severity.WARNING,
                "unrecognized-line",
                "lines that no CUDA tool prints were skipped",
                self.strays.first,
                count=self.strays.count,
            )
        if self.gaps.count:
            yield Diagnostic(
                Severity.WARNING,
                "missing-instructions",
                "addresses leave gaps: instructions are missing from the dump",
                self.gaps.first,
                count=self.gaps.count,
            )
        unknown = [opcode.name for opcode in self.interner.opcodes if not opcode.known]
        for name in sorted(set(unknown)):
            yield Diagnostic(
                Severity.WARNING,
                "unknown-opcode",
                f"opcode {name} is not in the table; it is taken as a plain ALU instruction",
                hint="add a line to hwdb/isa/opcodes.toml",
            )
        for number, location in self.failed_at.items():
            yield Diagnostic(
                Severity.WARNING,
                "operand-syntax",
                f"operands not understood: {self.interner.texts[number][:60]}",
                location,
            )
