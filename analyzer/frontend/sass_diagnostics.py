"""Warnings of the SASS reader: skipped code, unrecognized lines, gaps, unknown opcodes and operands."""

from collections.abc import Callable, Iterator, Set

import numpy as np
from msgspec import Struct, field

from analyzer.frontend.instruction_decoder import MAX_TEXT_CHARACTERS, SassSyntaxError
from analyzer.ir.module import Kernel
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Location, Severity

MIN_ARCH = 70  # oldest architecture whose encoding is read
HINT_PTX = "compile for a GPU: nvcc -arch=sm_90, or ptxas -arch=sm_90 kernel.ptx -o kernel.cubin"
HINT_LINK = "link it first, and give the result: nvcc -arch=sm_90 -dlto FILE.o -o program"
HINT_DUMP = "make one with: cuobjdump -sass kernel.cubin > kernel.sass"
HINT_DUMP_AGAIN = "dump again with cuobjdump -sass"


class Occurrences(Struct):
    """Count of an event, and the location of the first one."""

    count: int = 0
    first: Location | None = None

    def add(self, where: Callable[[], Location], count: int = 1) -> None:
        """Count an event; `where` is called only for the first, because finding a location is slow."""
        self.count += count
        if self.first is None:
            self.first = where()


class SassDiagnostics(Struct):
    """Events that are collected while a dump is read."""

    path: str
    skipped_archs: dict[str, Occurrences] = field(default_factory=dict)
    unrecognized_lines: Occurrences = field(default_factory=Occurrences)
    address_gaps: Occurrences = field(default_factory=Occurrences)
    unparsed_locations: dict[int, Location] = field(default_factory=dict)  # by text id

    def make_no_kernel_error(self) -> InputError:
        """Return the error for a dump without a kernel."""
        if self.skipped_archs:
            first = next(iter(self.skipped_archs.values())).first
            return make_old_arch_error(", ".join(sorted(self.skipped_archs)), first)
        return InputError(f"{self.path}: no instruction found", hint=HINT_DUMP)

    def build_warnings(self, kernels: tuple[Kernel, ...]) -> Iterator[Diagnostic]:
        """Yield the warnings, each with its count and first location."""
        for arch, occurrences in sorted(self.skipped_archs.items()):
            message = f"{arch} code is skipped: encodings before sm_{MIN_ARCH} are not read"
            yield _make_warning("unsupported-architecture", message, occurrences.first, occurrences.count)
        if self.unrecognized_lines.count:
            message = "lines that no CUDA tool prints were skipped"
            yield _make_warning(
                "unrecognized-line", message, self.unrecognized_lines.first, self.unrecognized_lines.count
            )
        if self.address_gaps.count:
            message = "addresses leave gaps: instructions are missing from the dump"
            yield _make_warning(
                "missing-instructions", message, self.address_gaps.first, self.address_gaps.count
            )
        yield from _warn_unknown_opcodes(kernels)
        yield from self._warn_unparsed(kernels)

    def _warn_unparsed(self, kernels: tuple[Kernel, ...]) -> Iterator[Diagnostic]:
        if not self.unparsed_locations:
            return
        texts = kernels[0].form_table.texts
        counts = sum(np.bincount(kernel.text_ids, minlength=len(texts)) for kernel in kernels)
        for number, location in self.unparsed_locations.items():
            message = f"operands not understood: {texts[number][:60]}"
            yield _make_warning("operand-syntax", message, location, int(np.asarray(counts)[number]))


def _warn_unknown_opcodes(kernels: tuple[Kernel, ...]) -> Iterator[Diagnostic]:
    counts: dict[str, int] = {}
    opcodes = kernels[0].form_table.opcodes
    unknown = [number for number, opcode in enumerate(opcodes) if not opcode.is_known]
    for number in unknown:
        count = sum(int(np.count_nonzero(kernel.opcode_ids == number)) for kernel in kernels)
        counts[opcodes[number].name] = counts.get(opcodes[number].name, 0) + count
    for name, count in sorted(counts.items()):
        yield Diagnostic(
            Severity.WARNING,
            "unknown-opcode",
            f"opcode {name} is not in the table; it is taken as a plain ALU instruction",
            hint="add a line to hwdb/isa/opcodes.toml",
            count=count,
        )


def _make_warning(code: str, message: str, location: Location | None, count: int) -> Diagnostic:
    return Diagnostic(Severity.WARNING, code, message, location, count=count)


def is_unsupported_arch(arch: str) -> bool:
    """Return whether an architecture is too old to be read; "" is not known, and not too old."""
    number = arch[3:].rstrip("af")
    return bool(number) and int(number) < MIN_ARCH


def make_no_code_error(path: str, images: Set[str]) -> InputError:
    """Return the error for a text or binary of which cuobjdump prints headers and no code.

    images: kinds of images that the headers name: `elf`, `ptx`, `nvvm` or `ltoir`.
    """
    if "elf" in images:
        return InputError(
            f"{path}: a list of what a file holds, without code",
            hint="print the code: cuobjdump -sass FILE > kernel.sass",
        )
    if "ptx" in images:
        return InputError(f"{path}: only PTX, from which ptxas has yet to make code", hint=HINT_PTX)
    return InputError(
        f"{path}: only intermediate code for link-time optimization (LTO IR), no instructions", hint=HINT_LINK
    )


def make_old_arch_error(archs: str, location: Location | None = None, *, path: str = "") -> InputError:
    """Return the error for code of architectures before `MIN_ARCH`.

    archs: their names, or `paired` where the form of the code shows it.
    path: of the input, where there is no location.
    """
    return InputError(
        f"{f'{path}: ' if path else ''}{archs} code: encodings before sm_{MIN_ARCH} are not read",
        location=location,
        hint=f"compile for sm_{MIN_ARCH} or later and dump again",
    )


def make_syntax_error(error: SassSyntaxError, location: Location, *, hint: str = "") -> InputError:
    """Return the error for a text that the grammar rejects and that has no encoding.

    hint: what to do, if it is not to dump again.
    """
    if error.column >= MAX_TEXT_CHARACTERS:
        message = f"an instruction of more than {MAX_TEXT_CHARACTERS} characters"
    else:
        message = "this is not a SASS instruction"
    hint = hint or f"the line is damaged or from another tool: {HINT_DUMP_AGAIN}"
    return InputError(message, location=location, hint=hint)
