"""Parts of one big cubin, each read by a process of its own.

nvdisasm takes half of the time in which a library is analyzed, and prints nothing before it is done. But it
takes a list of functions, so several of them can run on a cubin, each on every n-th function:

    sections of code   a  b  c  d  e      part 0 of 2   a  c  e      part 1 of 2   b  d

Invariant: functions of the parts put together are those of the whole cubin, in their order, with the same
code. Labels are numbered within a text, so their names differ. Lines of the whole text are the sums of those
of the functions before. A cubin that is not so simple (a function that other sections share, code without
instructions, warnings of the parser) is no case for parts: `PartError` says so, and it is read as a whole.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from analyzer.files import read_file
from analyzer.frontend.cubin_elf import CubinElf, DamagedElfError
from analyzer.frontend.disassembler import disassemble_functions
from analyzer.frontend.module_reader import read_cubin_text
from analyzer.ir.module import Module
from analyzer.text.errors import InputError

MIN_BYTES = 1 << 20  # of a cubin: starting nvdisasm on less takes longer than it saves
MAX_BYTES = 24_000_000  # as for `disassemble`: larger ones are for cuobjdump
_MAX_SECTIONS = 8_000  # whose numbers fit a command line
_SEPARATOR_LINES = 2  # before each section, so that none follow the last one
_SECTION_PREFIX = ".text."


class PartError(Exception):
    """The cubin cannot be read in parts."""


class CubinPart(Struct, frozen=True, eq=False):
    """What was read of a part."""

    module: Module
    section_lines: tuple[int, ...]  # of the text, for each function
    header_lines: int  # before the first function


def read_cubin_part(path: str, part: int, n_parts: int) -> CubinPart:
    """Read every n-th function of a cubin, from the one at `part` on.

    Raises PartError, InputError and ToolError.
    """
    try:
        functions = _list_functions(CubinElf(read_file(path, MAX_BYTES)))[part::n_parts]
    except (OSError, InputError, DamagedElfError):
        raise PartError from None
    if not functions:
        raise PartError
    lines = _LineCounter(disassemble_functions(path, [symbol for _, symbol in functions]))
    module = read_cubin_text(path, lines)
    if [kernel.name for kernel in module.kernels] != [name for name, _ in functions] or module.diagnostics:
        raise PartError
    # A comment stands before the line that names a section.
    starts = [kernel.line - 1 for kernel in module.kernels]
    ends = [*starts[1:], lines.n_lines + 1 + _SEPARATOR_LINES]
    return CubinPart(
        module,
        tuple(end - start for start, end in zip(starts, ends, strict=True)),
        header_lines=starts[0] - 1,
    )


def join_lines(header_lines: int, section_lines: Iterable[int]) -> list[int]:
    """Return the line at which each function begins in the text of the whole cubin."""
    lines = [header_lines + 2]
    for n_lines in section_lines:
        lines.append(lines[-1] + n_lines)
    return lines[:-1]


def _list_functions(elf: CubinElf) -> list[tuple[str, int]]:
    """Return name and symbol of the functions, in the order of their sections. Raises PartError."""
    sections = {
        index: section.name.removeprefix(_SECTION_PREFIX)
        for index, section in enumerate(elf.sections)
        if section.name.startswith(_SECTION_PREFIX) and section.size
    }
    if len(sections) > _MAX_SECTIONS:
        raise PartError
    symbols: dict[int, int] = {}
    for number in range(elf.n_symbols):
        symbol = elf.read_symbol(number)
        if symbol.is_function and symbol.name == sections.get(symbol.section_index):
            symbols[symbol.section_index] = number
    if len(symbols) != len(sections):
        raise PartError
    return [(name, symbols[index]) for index, name in sections.items()]


class _LineCounter:
    """Passes a text on, and counts its lines."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks, self.n_lines = chunks, 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            self.n_lines += chunk.count(b"\n")
            yield chunk
