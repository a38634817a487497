"""What a reader of SASS has to tell: skipped code, odd lines, gaps, unknown opcodes and operands."""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct, field

from analyzer.frontend.sass_forms import MAX_TEXT, ShapeError
from analyzer.ir.program import Kernel
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Location, Severity

MIN_ARCH = 70
HINT_PTX = "compile for a GPU: nvcc -arch=sm_90, or ptxas -arch=sm_90 kernel.ptx -o kernel.cubin"
HINT_DUMP = "make one with: cuobjdump -sass kernel.cubin > kernel.sass"
HINT_AGAIN = "dump again with cuobjdump -sass"


class Places(Struct):
    """How often something was met, and where first."""

    count: int = 0
    first: Location | None = None

    def add(self, where: Callable[[], Location], count: int = 1) -> None:
        """Count it; its place is asked for the first time only."""
        self.count += count
        if self.first is None:
            self.first = where()


class Findings(Struct):
    """Collected while a dump is read."""

    path: str
    skipped: dict[str, Places] = field(default_factory=dict)
    strays: Places = field(default_factory=Places)
    gaps: Places = field(default_factory=Places)
    unparsed: dict[int, Location] = field(default_factory=dict)

    def nothing_found(self) -> InputError:
        """The error for a dump without a kernel."""
        if self.skipped:
            return InputError(
                f"{', '.join(sorted(self.skipped))} code: encodings before sm_{MIN_ARCH} are not read",
                location=next(iter(self.skipped.values())).first,
                hint=f"compile for sm_{MIN_ARCH} or later and dump again",
            )
        return InputError(f"{self.path}: no instruction found", hint=HINT_DUMP)

    def diagnostics(self, kernels: tuple[Kernel, ...]) -> Iterator[Diagnostic]:
        """Warnings, each with how often and where first."""
        for arch, places in sorted(self.skipped.items()):
            message = f"{arch} code is skipped: encodings before sm_{MIN_ARCH} are not read"
            yield _warning("unsupported-architecture", message, places.first, places.count)
        if self.strays.count:
            message = "lines that no CUDA tool prints were skipped"
            yield _warning("unrecognized-line", message, self.strays.first, self.strays.count)
        if self.gaps.count:
            message = "addresses leave gaps: instructions are missing from the dump"
            yield _warning("missing-instructions", message, self.gaps.first, self.gaps.count)
        yield from _unknown_opcodes(kernels)
        yield from self._unparsed(kernels)

    def _unparsed(self, kernels: tuple[Kernel, ...]) -> Iterator[Diagnostic]:
        if not self.unparsed:
            return
        texts = kernels[0].vocabulary.texts
        counts = sum(np.bincount(kernel.text_ids, minlength=len(texts)) for kernel in kernels)
        for number, location in self.unparsed.items():
            message = f"operands not understood: {texts[number][:60]}"
            yield _warning("operand-syntax", message, location, int(np.asarray(counts)[number]))


def _unknown_opcodes(kernels: tuple[Kernel, ...]) -> Iterator[Diagnostic]:
    counts: dict[str, int] = {}
    opcodes = kernels[0].vocabulary.opcodes
    unknown = [number for number, opcode in enumerate(opcodes) if not opcode.known]
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


def _warning(code: str, message: str, location: Location | None, count: int) -> Diagnostic:
    return Diagnostic(Severity.WARNING, code, message, location, count=count)


def shape_error(error: ShapeError, location: Location) -> InputError:
    """A text that the grammar refuses and no encoding vouches for."""
    if error.column >= MAX_TEXT:
        message = f"an instruction of more than {MAX_TEXT} characters"
    else:
        message = "this is not a SASS instruction"
    hint = f"the line is damaged or from another tool: {HINT_AGAIN}"
    return InputError(message, location=location, hint=hint)
